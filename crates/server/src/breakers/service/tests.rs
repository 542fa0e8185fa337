//! A caller elsewhere, by tokens and without, on a store of one process and a clock that is moved by hand.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::registry::Registry;
use tollgate::breaker::Behaviour;
use tollgate::core::breaker::{Mode, Permille, Stance, Window};
use tollgate::core::policy::TextPattern;
use tollgate::store::AnyStore;
use tollgate::store::memory::MemoryStore;

use super::*;

struct Stand {
    service: Arc<Service>,
    hand: Arc<AtomicU64>,
}

/// Trips after three failures in a row, and closes after two probes.
fn settings() -> Settings {
    Settings {
        failures: Some(3),
        failure_ratio: None,
        window: Window::Time(Micros::SECOND),
        slow_after: Micros::from_secs(60),
        open_for: Micros::from_secs(5),
        jitter: Permille(0),
        probes: 1,
        successes_to_close: 2,
        ramp: Vec::new(),
        ..Settings::default()
    }
}

fn policy(kinds: &[(&str, Settings)]) -> Arc<BreakerPolicy> {
    let kind = |(ids, settings): &(&str, Settings)| Kind {
        ids: TextPattern::new(ids),
        behaviour: Arc::new(Behaviour::new(ids, Breaker::try_new(settings.clone()).unwrap())),
        report_within: Duration::from_secs(30),
    };
    Arc::new(BreakerPolicy::new(kinds.iter().map(kind).collect()))
}

fn stand(policy: &Arc<BreakerPolicy>) -> Stand {
    let (clock, hand) = Clock::manual(Micros(1_800_000_000_000_000));
    let metrics = Arc::new(BreakerMetrics::register(&mut Registry::default()));
    let engine = Engine::builder(AnyStore::Memory(MemoryStore::builder().max_keys(64).build())).build();
    Stand { service: Service::start_by(clock, engine, policy, metrics).unwrap(), hand }
}

impl Stand {
    fn pass(&self, time: Duration) {
        self.hand.fetch_add(Micros::from(time).0, Ordering::SeqCst);
    }

    async fn granted(&self, id: &str) -> Granted {
        match self.service.acquire(id).await.unwrap() {
            Acquired::Granted(granted) => granted,
            refused @ Acquired::Refused { .. } => panic!("{refused:?}"),
        }
    }

    async fn refused(&self, id: &str) -> (Duration, State) {
        match self.service.acquire(id).await.unwrap() {
            Acquired::Refused { retry_after, state } => (retry_after, state),
            granted @ Acquired::Granted(_) => panic!("{granted:?}"),
        }
    }

    async fn tell(&self, id: &str, token: Option<Token>, outcome: Outcome) -> Reported {
        let report = Report { id, token, outcome, elapsed: None, retry_after: None };
        self.service.report(report).await.unwrap()
    }

    async fn fail(&self, id: &str, times: usize) {
        for _ in 0..times {
            let token = self.granted(id).await.token;
            assert_eq!(self.tell(id, Some(token), Outcome::Failure).await, Reported::Counted);
        }
    }
}

#[tokio::test]
async fn calls_flow_trip_probe_and_flow_again_by_their_tokens() {
    let stand = stand(&policy(&[("payments-*", settings())]));
    let id = "payments-eu";
    let first = stand.granted(id).await;
    assert_eq!((first.is_probe, first.state), (false, State::Closed));
    assert_eq!(stand.tell(id, Some(first.token), Outcome::Success).await, Reported::Counted);
    stand.fail(id, 3).await;
    assert_eq!(stand.refused(id).await, (Duration::from_secs(5), State::Open));
    stand.pass(Duration::from_secs(5));
    for _ in 0..2 {
        let probe = stand.granted(id).await;
        assert_eq!((probe.is_probe, probe.state), (true, State::HalfOpen));
        // A moment before its lease ends, for the report to be in time.
        assert!(probe.report_within < settings().probe_for.to_duration());
        stand.pass(probe.report_within + Duration::from_millis(1));
        assert_eq!(stand.refused(id).await.1, State::HalfOpen, "one at a time");
        assert_eq!(stand.tell(id, Some(probe.token), Outcome::Success).await, Reported::Counted);
    }
    assert_eq!(stand.service.state(id).await.unwrap().status.stance, Stance::Closed);
}

#[tokio::test]
async fn a_token_counts_once_in_its_time_and_for_its_breaker() {
    let stand = stand(&policy(&[("*", settings())]));
    let late = |why| Reported::Late(why);
    let token = stand.granted("a").await.token;
    assert_eq!(stand.tell("a", Some(token), Outcome::Failure).await, Reported::Counted);
    for _ in 0..5 {
        assert_eq!(stand.tell("a", Some(token), Outcome::Failure).await, late(Late::Unknown));
    }
    assert_eq!(stand.granted("a").await.state, State::Closed, "five of them said nothing");

    let token = stand.granted("a").await.token;
    assert_eq!(stand.tell("b", Some(token), Outcome::Failure).await, late(Late::Unknown));

    for is_swept in [false, true] {
        let token = stand.granted("a").await.token;
        stand.pass(Duration::from_secs(30));
        if is_swept {
            assert!(stand.service.table.sweep(stand.service.clock.now()) > 0);
        }
        assert_eq!(stand.tell("a", Some(token), Outcome::Failure).await, late(Late::Expired));
    }

    // What was let through before a change decides nothing after it.
    let token = stand.granted("c").await.token;
    stand.fail("c", 3).await;
    assert_eq!(stand.tell("c", Some(token), Outcome::Success).await, late(Late::Changed));
}

#[tokio::test]
async fn a_probe_that_is_not_reported_frees_its_place_and_one_that_is_ignored_does_so_at_once() {
    let stand = stand(&policy(&[("a", settings())]));
    stand.fail("a", 3).await;
    stand.pass(Duration::from_secs(5));
    let ignored = stand.granted("a").await.token;
    assert_eq!(stand.tell("a", Some(ignored), Outcome::Ignore).await, Reported::Counted);
    let lost = stand.granted("a").await;
    assert!(lost.is_probe);
    stand.pass(settings().probe_for.to_duration());
    assert!(stand.granted("a").await.is_probe);
    assert_eq!(stand.tell("a", Some(lost.token), Outcome::Failure).await, Reported::Late(Late::Expired));
}

#[tokio::test]
async fn who_keeps_no_tokens_trips_and_closes_it_all_the_same() {
    let stand = stand(&policy(&[("a", settings())]));
    for _ in 0..3 {
        stand.granted("a").await;
        assert_eq!(stand.tell("a", None, Outcome::Failure).await, Reported::Counted);
    }
    stand.refused("a").await;
    assert_eq!(stand.tell("a", None, Outcome::Success).await, Reported::Late(Late::Changed));
    stand.pass(Duration::from_secs(5));
    for _ in 0..2 {
        assert!(stand.granted("a").await.is_probe);
        assert_eq!(stand.tell("a", None, Outcome::Success).await, Reported::Counted);
    }
    assert_eq!(stand.granted("a").await.state, State::Closed);
}

#[tokio::test]
async fn the_first_that_is_heard_of_a_breaker_may_be_a_report() {
    let stand = stand(&policy(&[("*", settings())]));
    assert_eq!(stand.tell("a", None, Outcome::Failure).await, Reported::Counted);
    let elsewhere = Token { instance: 1, ..stand.granted("b").await.token };
    assert_eq!(stand.tell("c", Some(elsewhere), Outcome::Failure).await, Reported::Counted);
    for id in ["a", "c"] {
        stand.fail(id, 2).await;
        assert_eq!(stand.refused(id).await.1, State::Open, "{id}");
    }
}

#[tokio::test]
async fn the_time_a_call_took_is_the_callers_word() {
    let slow = Settings {
        failures: None,
        slow_ratio: Some(Permille(500)),
        slow_after: Micros::from_secs(2),
        minimum_calls: 4,
        ..settings()
    };
    let stand = stand(&policy(&[("a", slow)]));
    for _ in 0..4 {
        let token = Some(stand.granted("a").await.token);
        let elapsed = Some(Duration::from_secs(2));
        let report = Report { id: "a", token, outcome: Outcome::Success, elapsed, retry_after: None };
        assert_eq!(stand.service.report(report).await.unwrap(), Reported::Counted);
    }
    stand.service.close().await;
    assert_eq!(stand.refused("a").await.1, State::Open);
}

#[tokio::test]
async fn other_settings_hold_at_once_and_nothing_is_forgotten() {
    let stand = stand(&policy(&[("a", settings()), ("b", settings()), ("c", settings())]));
    stand.fail("a", 3).await;
    stand.fail("b", 2).await;
    stand.fail("c", 3).await;
    let lenient = Settings { failures: Some(5), probes: 2, ..settings() };
    stand.service.apply(&policy(&[("a", lenient.clone()), ("*b", lenient)]));
    assert_eq!(stand.refused("a").await.1, State::Open, "an Open has the end it was given");
    stand.fail("b", 2).await;
    assert_eq!(stand.granted("b").await.state, State::Closed, "four of five");
    stand.fail("b", 1).await;
    stand.refused("b").await;
    stand.pass(Duration::from_secs(5));
    for _ in 0..2 {
        assert!(stand.granted("a").await.is_probe, "two at a time, now");
    }
    stand.refused("a").await;
    let Err(BreakerError::Field { field: "id", what }) = stand.service.acquire("c").await else {
        panic!("nobody is for c any more")
    };
    assert!(what.contains("no breaker of the policy"), "{what}");
    let ids: Vec<String> = stand.service.list(None, 9).breakers.into_iter().map(|seen| seen.id).collect();
    assert_eq!(ids, ["a", "b"]);
}

#[tokio::test]
async fn a_person_decides_until_the_time_is_over_or_it_is_lifted() {
    let stand = stand(&policy(&[("a", settings())]));
    let decided = |mode, ttl| Override { mode, ttl, reason: "a test".to_owned(), who: "me".to_owned() };
    let hour = Duration::from_hours(1);
    let seen = stand.service.overrule("a", decided(Mode::ForcedOpen, hour)).await.unwrap();
    assert_eq!(seen.status.overridden, Some((Mode::ForcedOpen, Micros::from(hour))));
    assert_eq!(stand.refused("a").await, (hour, State::Open));
    stand.service.lift("a").await.unwrap();
    assert!(stand.granted("a").await.is_probe);
    stand.service.overrule("a", decided(Mode::ForcedClosed, hour)).await.unwrap();
    stand.fail("a", 9).await;
    stand.pass(hour);
    assert_eq!(stand.service.state("a").await.unwrap().status.overridden, None);
    for (ttl, reason, field) in [(Duration::ZERO, "x", "ttl_ms"), (hour, &*"x".repeat(1_000), "reason")] {
        let decided = Override { reason: reason.to_owned(), ..decided(Mode::ForcedOpen, ttl) };
        let Err(BreakerError::Field { field: blamed, .. }) = stand.service.overrule("a", decided).await
        else {
            panic!("{field}")
        };
        assert_eq!(blamed, field);
    }
}

#[tokio::test]
async fn a_list_is_shown_page_by_page() {
    let stand = stand(&policy(&[("*", settings())]));
    let mut ids: Vec<String> = (0..25).map(|number| format!("id-{}", number * 7 % 25)).collect();
    for id in &ids {
        stand.granted(id).await;
    }
    ids.sort();
    let (mut shown, mut after) = (Vec::new(), None::<String>);
    loop {
        let listed = stand.service.list(after.as_deref(), 10);
        shown.extend(listed.breakers.into_iter().map(|seen| seen.id));
        if !listed.has_more {
            break;
        }
        after = shown.last().cloned();
    }
    assert_eq!(shown, ids);
}

#[tokio::test]
async fn ids_and_numbers_have_bounds() {
    let stand = stand(&policy(&[("*", settings())]));
    for id in ["", "a\nb", &*"x".repeat(ID_BYTES_MAX + 1)] {
        let Err(BreakerError::Field { field: "id", what }) = stand.service.acquire(id).await else {
            panic!("{} bytes", id.len())
        };
        assert_eq!(what, "must have 1 to 1024 bytes, and no control characters");
    }
    let empty = self::stand(&Arc::default());
    let Err(BreakerError::Field { field: "id", what }) = empty.service.acquire("a").await else {
        panic!("there are none")
    };
    assert!(what.contains("there are no breakers"), "{what}");
}
