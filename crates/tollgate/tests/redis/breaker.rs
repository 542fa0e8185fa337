//! A breaker's record in a real Redis: what a person reads there, what is told, and what spoils nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use testkit::{RedisServer, Reply, eventually, unique_prefix};
use tollgate::Micros;
use tollgate::core::breaker::{
    Answer, Breaker, Cause, Counts, Event, Fleet, Health, Mode, Permille, Pushed, Report, Settings, Stance,
    Step, View,
};
use tollgate::core::push::{Heard, Listener, Topic};
use tollgate::core::store::Store;
use tollgate::store::redis::RedisStore;

use crate::stand::config;

fn on(server: &RedisServer, prefix: &str) -> RedisStore {
    let mut config = config(&server.url());
    prefix.clone_into(&mut config.key_prefix);
    RedisStore::new(config).expect("no TLS to go wrong")
}

fn breaker() -> Breaker {
    // No quorum: the first word counts at once.
    let settings = Settings { quorum: Permille(0), hint_max: Micros::from_secs(60), ..Settings::default() };
    Breaker::try_new(settings).expect("settings of a test's")
}

async fn step(store: &RedisStore, event: Event) -> Step {
    store.step(b"pay", &breaker(), &event, Permille(0)).await.expect("it answers")
}

async fn report(store: &RedisStore, counts: Counts, health: Health) -> Step {
    let epoch = step(store, Event::Look).await.view.epoch;
    step(store, Event::Report(Report { reporter: 7, epoch, counts, health, hint: None })).await
}

fn counts(ok: u64, failed: u64, slow: u64) -> Counts {
    Counts { ok, failed, slow }
}

async fn hash(server: &RedisServer, key: &str) -> BTreeMap<String, String> {
    let fields = server.command(&["HGETALL", key]).await;
    let words: Vec<String> = fields.array().iter().map(Reply::text).collect();
    words.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

#[tokio::test]
async fn a_person_reads_the_record_in_plain_text() {
    let (server, prefix) = (RedisServer::start().await, unique_prefix());
    let store = on(&server, &prefix);
    report(&store, counts(3, 2, 1), Health::Well).await;
    let record = format!("{prefix}:cb:{{pay}}:s");
    let fields = hash(&server, &record).await;
    assert_eq!((&*fields["state"], &*fields["failures"], &*fields["successes"]), ("closed", "2", "0"));
    let tripped = report(&store, counts(0, 5, 0), Health::Failing).await;
    let fields = hash(&server, &record).await;
    assert_eq!((&*fields["state"], &*fields["trips"]), ("open", "1"));
    assert_eq!(fields["epoch"], tripped.view.epoch.to_string());
    assert_eq!(fields["epoch"], fields["opened_at"], "the time to the microsecond, all sixteen digits");
    let number = |name: &str| fields[name].parse::<u64>().expect("a number");
    assert_eq!(number("until") - number("opened_at"), 5_000_000);
    let window = hash(&server, &format!("{prefix}:cb:{{pay}}:w")).await;
    assert!(window.is_empty(), "{window:?}");
}

#[tokio::test]
async fn everything_ends_by_itself_and_not_before_open_does() {
    let (server, prefix) = (RedisServer::start().await, unique_prefix());
    let store = on(&server, &prefix);
    report(&store, counts(3, 2, 1), Health::Troubled).await;
    let (mode, keep_for) = (Mode::ForcedOpen, Micros::from_secs(7 * 86_400));
    step(&store, Event::Override { mode, keep_for, reason: "why".into(), who: "ann".into() }).await;
    let keys = crate::stand::keys(&server, 0).await.expect("an administrator may");
    assert!(
        keys.len() >= 3 && keys.iter().all(|key| key.starts_with(&format!("{prefix}:cb:{{pay}}:"))),
        "{keys:?}"
    );
    for key in keys {
        let Reply::Integer(ttl) = server.command(&["PTTL", &key]).await else { panic!("{key}: no number") };
        assert!(ttl > 7 * 86_400_000, "{key}: {ttl} ms");
    }
}

#[tokio::test]
async fn the_stream_says_what_has_changed_and_why() {
    let (server, prefix) = (RedisServer::start().await, unique_prefix());
    let store = on(&server, &prefix);
    report(&store, counts(6, 5, 0), Health::Failing).await;
    let (mode, keep_for) = (Mode::ForcedClosed, Micros::from_secs(9));
    step(&store, Event::Override { mode, keep_for, reason: "drill".into(), who: "ann".into() }).await;
    let stream = server.command(&["XRANGE", &format!("{prefix}:cb:{{pay}}:ev"), "-", "+"]).await;
    let told: Vec<String> = (stream.array().iter())
        .map(|entry| entry.array()[1].array().iter().map(Reply::text).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with("cause failures from closed to open epoch 1"), "{told:?}");
    assert!(told[0].contains("for_us 5000000 ok 6 failed 5 slow 0 reporters 1 troubled 1"), "{told:?}");
    assert!(told[1].starts_with("cause overridden from open to closed"), "{told:?}");
    assert!(told[1].ends_with("who ann reason drill"), "{told:?}");
}

#[derive(Debug, Default)]
struct Ear(Mutex<Vec<(String, View)>>);

impl Listener for Ear {
    fn heard(&self, heard: Heard<'_>) {
        if let Heard::Push(push) = heard
            && push.topic == Topic::Breaker
        {
            let Pushed { name, view } = Pushed::read(push.text).expect("a push of ours");
            self.0.lock().expect("nobody panics while holding it").push((name.to_owned(), view));
        }
    }
}

#[tokio::test]
async fn another_instance_hears_of_a_change_and_how_it_stands() {
    let (server, prefix) = (RedisServer::start().await, unique_prefix());
    let (store, other) = (on(&server, &prefix), on(&server, &prefix));
    let ear = Arc::new(Ear::default());
    other.hear(Arc::<Ear>::clone(&ear));
    other.heartbeat().await.expect("it answers");
    eventually("it listens", || other.stats().listening).await;
    let tripped = report(&store, counts(0, 5, 0), Health::Failing).await;
    eventually("it hears", || !ear.0.lock().expect("nobody panics").is_empty()).await;
    let heard = ear.0.lock().expect("nobody panics").clone();
    assert_eq!(heard, [(other.name(b"pay"), tripped.view)]);
}

/// A value of another type or shape counts as absent: the breaker is one that nobody has used.
#[tokio::test]
async fn what_is_not_ours_counts_as_absent() {
    let (server, prefix) = (RedisServer::start().await, unique_prefix());
    let store = on(&server, &prefix);
    for end in ["s", "w", "r", "t", "f", "p", "ev"] {
        for text in ["a string", "a list"] {
            report(&store, counts(6, 5, 0), Health::Failing).await;
            let key = format!("{prefix}:cb:{{pay}}:{end}");
            server.command(&["DEL", &key]).await;
            match text {
                "a list" => server.command(&["RPUSH", &key, text]).await,
                _ => server.command(&["SET", &key, text]).await,
            };
            // Half-open, every key is touched sooner or later.
            step(&store, forced(Mode::ForcedOpen)).await;
            step(&store, Event::Lift).await;
            step(&store, Event::Lease { token: 1 }).await;
            let closed = step(&store, forced(Mode::ForcedClosed)).await;
            assert_eq!(closed.view.stance, Stance::Closed, "{end} is {text}");
            step(&store, Event::Lift).await;
        }
    }
    let record = format!("{prefix}:cb:{{pay}}:s");
    for (field, value) in
        [("state", "ajar"), ("epoch", "-1"), ("trips", "nan"), ("until", "1e300"), ("seen", "")]
    {
        report(&store, counts(0, 5, 0), Health::Failing).await;
        server.command(&["HSET", &record, field, value]).await;
        assert_eq!(step(&store, Event::Look).await.view.stance, Stance::Closed, "{field} is {value:?}");
    }
}

fn forced(mode: Mode) -> Event {
    Event::Override { mode, keep_for: Micros::from_secs(60), reason: String::new(), who: String::new() }
}

#[tokio::test]
async fn reporters_are_bounded() {
    let (server, prefix) = (RedisServer::start().await, unique_prefix());
    let store = on(&server, &prefix);
    let epoch = step(&store, Event::Look).await.view.epoch;
    for reporter in 0..1029 {
        let (counts, health) = (counts(1, 0, 0), Health::Well);
        step(&store, Event::Report(Report { reporter, epoch, counts, health, hint: None })).await;
    }
    let there = server.command(&["ZCARD", &format!("{prefix}:cb:{{pay}}:r")]).await;
    assert_eq!(there, Reply::Integer(1024));
}

/// Many at once: never more leases than there are probes, and each lease once.
#[tokio::test]
async fn twenty_at_once_share_the_probes_there_are() {
    let (server, prefix) = (RedisServer::start().await, unique_prefix());
    let store = Arc::new(on(&server, &prefix));
    for round in 0..20 {
        step(&store, forced(Mode::ForcedOpen)).await;
        step(&store, Event::Lift).await;
        let asking: Vec<_> = (0..20)
            .map(|token| {
                let store = Arc::clone(&store);
                tokio::spawn(async move { step(&store, Event::Lease { token }).await.answer })
            })
            .collect();
        let mut granted = 0;
        for one in asking {
            granted += usize::from(matches!(one.await.expect("no panic"), Answer::Granted { .. }));
        }
        assert_eq!(granted, 3, "round {round}");
    }
}

#[tokio::test]
async fn a_hint_is_in_the_stream_by_its_name() {
    let (server, prefix) = (RedisServer::start().await, unique_prefix());
    let store = on(&server, &prefix);
    let epoch = step(&store, Event::Look).await.view.epoch;
    let hint = Some(Micros::from_secs(30));
    let counts = counts(0, 1, 0);
    let done =
        step(&store, Event::Report(Report { reporter: 1, epoch, counts, health: Health::Well, hint })).await;
    assert_eq!(done.transitions[0].cause, Cause::Hint);
    assert_eq!(done.view.stance, Stance::Open { left: Micros::from_secs(30) });
}

#[tokio::test]
async fn a_record_is_shown_to_people_and_what_is_not_one_is_said_to_be_none() {
    let server = RedisServer::start().await;
    let prefix = unique_prefix();
    let store = on(&server, &prefix);
    assert_eq!(store.inspect_breaker(b"pay").await, Ok(None));
    report(&store, counts(1, 9, 0), Health::Failing).await;
    let found = store.inspect_breaker(b"pay").await.expect("it is read").expect("it is there");
    assert_eq!((found.id.as_deref(), found.state.as_deref()), (Some("pay"), Some("open")));
    assert!(found.numbers["until"] > found.now.0 && found.numbers["opened_at"] <= found.now.0);
    assert!(found.expires_after.is_some_and(|left| left > Micros::from_secs(300)), "{found:?}");
    let changes = found.changes.expect("an administrator may read them");
    assert_eq!((changes[0].1["cause"].as_str(), changes[0].1["to"].as_str()), ("failures", "open"));

    let (mode, keep_for) = (Mode::ForcedClosed, Micros::from_secs(60));
    step(&store, Event::Override { mode, keep_for, reason: "why".into(), who: "ann".into() }).await;
    let name = format!("{prefix}:cb:{{pay}}:s");
    let found = store.inspect_breaker_key(&name).await.expect("it is read").expect("it is there");
    let (mode, until, reason, who) = found.overridden.expect("it stands");
    assert_eq!((mode, reason.as_str(), who.as_str()), (Mode::ForcedClosed, "why", "ann"));
    assert!(until > found.now && until <= found.now + keep_for);
    for other in
        ["", "x", "other:cb:{pay}:s", &format!("{prefix}:cb:pay"), &format!("{prefix}:cb:{{nobody}}:s")]
    {
        assert_eq!(store.inspect_breaker_key(other).await, Ok(None), "{other}");
    }

    server.command(&["DEL", &name]).await;
    server.command(&["SET", &name, "somebody else's"]).await;
    let found = store.inspect_breaker(b"pay").await.expect("it is read").expect("something is there");
    assert_eq!((found.state, found.numbers.len()), (None, 0));
}

#[tokio::test]
async fn the_stream_is_capped() {
    let (server, prefix) = (RedisServer::start().await, unique_prefix());
    let store = on(&server, &prefix);
    for _ in 0..30 {
        testkit::together((0..50).map(|_| step(&store, forced(Mode::ForcedOpen)))).await;
    }
    let Reply::Integer(length) = server.command(&["XLEN", &format!("{prefix}:cb:{{pay}}:ev")]).await else {
        panic!("a length is a number")
    };
    // Redis forgets by the handful: a hundred more at most.
    assert!((1000..=1100).contains(&length), "{length} of 1500");
}
