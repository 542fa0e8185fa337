//! What a whole engine cannot be made to do at will: things that happen while an ask is under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::algorithm::Kind;
use tollgate_core::ask::{Ask, By, InlineLimit, Want};
use tollgate_core::key::Scope;
use tollgate_core::limit::Rate;
use tollgate_core::policy::{Matched, Policy};
use tollgate_core::push::Push;

use super::*;

const START: Micros = Micros(5_000_000);

fn cache() -> (Arc<DenyCache>, Arc<AtomicU64>) {
    let (clock, hand) = Clock::manual(START);
    (DenyCache::builder().max_entries(64).clock(clock).build(), hand)
}

fn inline(rate: &str) -> InlineLimit {
    let rate = Rate::parse(rate).unwrap();
    InlineLimit::new(Algorithm::try_new(Kind::TokenBucket, rate, None, 0).unwrap(), rate.period())
}

fn with_matched(key: &str, limit: &InlineLimit, f: impl FnOnce(&Matched<'_>)) {
    let want = Want { by: By::Inline(limit), key: key.as_bytes(), cost: Cost::ONE, takes: &[] };
    f(&Policy::empty().matched(&Ask { wants: &[want] }).unwrap());
}

fn refusal() -> Few<Decision> {
    Few::One(Decision {
        outcome: Outcome::Denied { retry_after: Micros::from_secs(3) },
        limit: 5,
        remaining: 0,
        reset_after: Micros::from_secs(9),
        take: Take { at: Micros(1), entry: 0 },
        found: Found::State,
    })
}

fn asked<'c>(cache: &'c DenyCache, matched: &Matched<'_>) -> Asking<'c> {
    match cache.look(&matched.enforced, Queueing::MayNot) {
        Look::Ask(asking) => asking,
        Look::Refused(_) | Look::Queue(_) => panic!("it is not known"),
    }
}

fn is_refused(cache: &DenyCache, matched: &Matched<'_>) -> bool {
    matches!(cache.look(&matched.enforced, Queueing::MayNot), Look::Refused(_))
}

/// Asks, lets something happen before the answer comes, and says whether that answer was remembered.
fn remembers_after(happens: impl FnOnce(&DenyCache, Key<'_>)) -> bool {
    let (cache, hand) = cache();
    let limit = inline("5/min");
    let mut remembers = false;
    with_matched("ann", &limit, |matched| {
        let asking = asked(&cache, matched);
        hand.fetch_add(100, Ordering::SeqCst);
        happens(&cache, matched.enforced[0].check().key);
        hand.fetch_add(100, Ordering::SeqCst);
        cache.remember(&asking, &matched.enforced, &refusal());
        remembers = is_refused(&cache, matched);
    });
    remembers
}

#[test]
fn what_was_eased_while_it_was_asked_for_is_not_remembered() {
    assert!(remembers_after(|_, _| {}));
    assert!(!remembers_after(|cache, key| cache.ease(&key)));
    assert!(!remembers_after(|cache, key| {
        for text in texts(std::iter::once(key)) {
            cache.heard(Heard::Push(Push { topic: Topic::Eased, text: &text }));
        }
    }));
    // Nothing was heard for a while, and something may have been.
    assert!(!remembers_after(|cache, _| cache.heard(Heard::Gap)));
    // Easing is noted for many keys together; how they are put together is drawn anew for every cache.
    let others = (0..20).filter(|_| {
        remembers_after(|cache, key| cache.ease(&Key { subject: b"somebody else, elsewhere", ..key }))
    });
    assert!(others.count() > 10);
}

#[test]
fn what_was_remembered_before_a_gap_is_forgotten() {
    let (cache, hand) = cache();
    let limit = inline("5/min");
    with_matched("ann", &limit, |matched| {
        cache.remember(&asked(&cache, matched), &matched.enforced, &refusal());
        assert!(is_refused(&cache, matched));
        hand.fetch_add(1, Ordering::SeqCst);
        cache.heard(Heard::Gap);
        assert!(!is_refused(&cache, matched));
        assert_eq!(cache.entries(), 0);
    });
}

#[test]
fn nobody_is_refused_what_somebody_else_was() {
    let (cache, _) = cache();
    let (limit, other) = (inline("5/min"), inline("5/h"));
    with_matched("ann", &limit, |matched| {
        cache.remember(&asked(&cache, matched), &matched.enforced, &refusal());
        assert!(is_refused(&cache, matched));
    });
    with_matched("bob", &limit, |matched| assert!(!is_refused(&cache, matched)));
    with_matched("ann", &other, |matched| assert!(!is_refused(&cache, matched)));
}

#[test]
fn keys_are_read_as_they_were_written_however_many() {
    let scopes = ["login", "api"].map(|rule| Scope::of_rule(rule, 0, Kind::TokenBucket));
    let long = vec![0xff; 1024];
    let subjects: Vec<&[u8]> = [&b""[..], b"ann", &long].into_iter().cycle().take(30).collect();
    let all = || subjects.iter().zip(scopes.iter().cycle()).map(|(subject, scope)| Key { scope, subject });
    let texts = texts(all());
    assert!(
        texts.len() > 1 && texts.iter().all(|text| Push { topic: Topic::Eased, text }.to_bytes().is_some())
    );
    let read: Vec<_> = texts.iter().flat_map(|text| eased::keys(text)).map(|key| key.unwrap()).collect();
    let written: Vec<_> = all().map(|key| (key.scope.digest(), key.subject)).collect();
    assert_eq!(read, written);
}

#[test]
fn a_text_that_is_cut_short_is_counted_once_and_eases_what_came_before() {
    let (cache, _) = cache();
    let scope = Scope::of_rule("login", 0, Kind::TokenBucket);
    let text =
        texts(["ann", "bob"].iter().map(|key| Key { scope: &scope, subject: key.as_bytes() })).remove(0);
    for cut in 22..text.len() {
        let keys: Vec<_> = eased::keys(&text[..cut]).collect();
        assert_eq!(keys, [Some((scope.digest(), &b"ann"[..])), None], "cut at {cut}");
        cache.heard(Heard::Push(Push { topic: Topic::Eased, text: &text[..cut] }));
    }
    assert_eq!(cache.malformed(), (text.len() - 22) as u64);
}
