//! What a call meets and what its end does, step by step, with the time in the test's hands and the fleet's record in
//! this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate::Micros;
use tollgate::breaker::{Breakers, Decree, Handle, LocalFleet, Permit};
use tollgate::clock::Clock;
use tollgate::core::breaker::{Breaker, Mode, Permille, Settings, Stance, State, Window};

struct Driven {
    instance: Breakers<LocalFleet>,
    payments: Handle<LocalFleet>,
    hand: Arc<AtomicU64>,
}

fn settings() -> Settings {
    Settings { quorum: Permille(0), jitter: Permille(0), ..Settings::default() }
}

async fn driven(settings: Settings) -> Driven {
    let (clock, hand) = Clock::manual(Micros(1_800_000_000_000_000));
    let fleet = Arc::new(LocalFleet::new(clock.clone()));
    let breaker = Breaker::try_new(settings).expect("settings of a test's");
    let instance = Breakers::start_with(fleet, breaker, clock);
    let payments = instance.handle(b"payments").expect("there is room");
    payments.permit().await.expect("nobody has used it").ignore();
    Driven { instance, payments, hand }
}

impl Driven {
    fn pass(&self, span: Micros) {
        self.hand.fetch_add(span.0, Ordering::SeqCst);
    }

    async fn permit(&self) -> Permit<LocalFleet> {
        self.payments.permit().await.expect("it passes")
    }

    /// Whatever was sent on its way has arrived, and what was counted is told.
    async fn told(&self) {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        self.instance.flush().await;
    }

    async fn open(&self) {
        for _ in 0..5 {
            self.permit().await.failure();
        }
        self.told().await;
        assert_eq!(self.payments.state(), State::Open);
    }

    /// Lets Open end.
    async fn half_open(&self) {
        self.open().await;
        self.pass(Micros::from_secs(5));
    }
}

#[tokio::test]
async fn calls_that_take_too_long_trip_though_they_succeed() {
    let slow_ratio = Some(Permille(500));
    let settings = Settings { slow_ratio, slow_after: Micros::SECOND, minimum_calls: 10, ..settings() };
    let driven = driven(settings).await;
    for turn in 0..10 {
        assert_eq!(driven.payments.state(), State::Closed, "{turn}");
        let permit = driven.permit().await;
        driven.pass(if turn % 2 == 0 { Micros::SECOND } else { Micros(999_999) });
        permit.success();
        driven.told().await;
    }
    assert_eq!(driven.payments.state(), State::Open, "five of ten");
}

#[tokio::test]
async fn one_slow_probe_reopens() {
    let driven = driven(Settings { slow_after: Micros::SECOND, ..settings() }).await;
    driven.half_open().await;
    let probe = driven.permit().await;
    assert!(probe.lease_left().is_some());
    driven.pass(Micros::SECOND);
    probe.success();
    driven.told().await;
    // The second trip in a row: for twice as long.
    assert_eq!(driven.payments.stance(), Stance::Open { left: Micros::from_secs(10) });
}

#[tokio::test]
async fn a_window_by_calls_trips_on_the_last_of_them() {
    let window = Window::Calls(20);
    let driven = driven(Settings { failures: None, window, minimum_calls: 20, ..settings() }).await;
    let mut failed = 0;
    // Twenty that go well, and then none. Minutes apart: time does not matter.
    for turn in 0.. {
        driven.pass(Micros::from_secs(300));
        let Ok(permit) = driven.payments.permit().await else { break };
        if turn < 20 {
            permit.success();
        } else {
            permit.failure();
            failed += 1;
        }
        driven.told().await;
        if driven.payments.state() == State::Open {
            break;
        }
    }
    assert_eq!(failed, 10, "half of the last twenty");
}

#[tokio::test]
async fn a_retry_after_opens_at_once_for_as_long_as_it_says() {
    let driven = driven(Settings { hint_max: Micros::from_secs(60), ..settings() }).await;
    driven.permit().await.failure_until(Duration::from_secs(30));
    driven.told().await;
    assert_eq!(driven.payments.stance(), Stance::Open { left: Micros::from_secs(30) });
    let refused = driven.payments.permit().await.expect_err("it is open");
    assert_eq!(refused.retry_after, Duration::from_secs(30));
}

#[tokio::test]
async fn recovery_climbs_the_ramp_step_by_step() {
    let driven = driven(settings()).await;
    driven.half_open().await;
    for _ in 0..5 {
        driven.permit().await.success();
        driven.told().await;
    }
    assert_eq!(driven.payments.stance(), Stance::Ramping { elapsed: Micros::ZERO });
    assert_eq!(driven.payments.state(), State::HalfOpen, "to the outside it is still half-open");
    for share in [100, 250, 500, 1000] {
        driven.pass(Micros::from_millis(100));
        let mut passed = 0;
        for _ in 0..10_000 {
            if let Ok(permit) = driven.payments.permit().await {
                passed += 1;
                permit.success();
            }
        }
        // Fifteen times the standard deviation of the widest.
        let expected = share * 10..=share * 10;
        let (least, most) = (expected.start() - 750, expected.end() + 750);
        assert!((least..=most).contains(&passed), "{passed} of 10000 at {share} permille");
        assert!(share == 1000 || passed < 9_000, "{passed}");
        driven.pass(Micros::from_millis(4_900));
    }
    driven.permit().await.success();
    driven.told().await;
    assert_eq!(driven.payments.stance(), Stance::Closed);
}

#[tokio::test]
async fn an_old_probe_decides_nothing_once_its_lease_has_ended() {
    let driven = driven(settings()).await;
    driven.half_open().await;
    let (late, forgotten) = (driven.permit().await, driven.permit().await);
    driven.pass(Micros::from_secs(10));
    late.failure();
    driven.told().await;
    assert_eq!(driven.payments.state(), State::HalfOpen, "its lease had ended");
    // Of an older epoch: another probe has reopened it meanwhile, and Open has ended again.
    driven.permit().await.failure();
    driven.told().await;
    assert_eq!(driven.payments.stance(), Stance::Open { left: Micros::from_secs(10) });
    driven.pass(Micros::from_secs(10));
    driven.permit().await.ignore();
    forgotten.failure();
    driven.told().await;
    assert_eq!(driven.payments.state(), State::HalfOpen);
}

#[tokio::test]
async fn a_call_that_was_let_through_before_a_change_says_nothing_after_it() {
    let driven = driven(settings()).await;
    let mut before = Vec::new();
    for _ in 0..10 {
        before.push(driven.permit().await);
    }
    let decree =
        |mode| Decree { mode, keep_for: Duration::from_secs(1), reason: "a drill".into(), who: "ann".into() };
    driven.instance.overrule(b"payments", decree(Mode::ForcedClosed)).await.expect("it answers");
    driven.instance.lift(b"payments").await.expect("it answers");
    before.into_iter().for_each(Permit::failure);
    driven.told().await;
    assert_eq!(driven.payments.state(), State::Closed);
}

#[tokio::test]
async fn a_cancelled_call_a_panic_and_an_ignored_error_give_their_lease_back() {
    let driven = driven(settings()).await;
    driven.half_open().await;
    for how in ["cancelled", "panicked", "ignored"] {
        // All there are.
        let mut probes = Vec::new();
        for _ in 0..3 {
            probes.push(driven.permit().await);
        }
        driven.payments.permit().await.expect_err("all leases are out");
        let calls: Vec<_> = probes
            .into_iter()
            .map(|probe| {
                tokio::spawn(async move {
                    match how {
                        "cancelled" => {
                            std::future::pending::<()>().await;
                            drop(probe);
                        }
                        "panicked" => panic!("in the middle of a call with {probe:?}"),
                        _ => probe.ignore(),
                    }
                })
            })
            .collect();
        tokio::task::yield_now().await;
        calls.iter().for_each(tokio::task::JoinHandle::abort);
        for call in calls {
            let _ = call.await; // How it ended is not the question.
        }
        driven.told().await;
        // Who was told that all are out does not ask again for 20 ms.
        driven.pass(Micros::from_millis(21));
        let again = driven.payments.permit().await;
        assert!(again.is_ok_and(|permit| permit.lease_left().is_some()), "{how}");
        driven.told().await;
    }
}

#[tokio::test]
async fn what_a_person_decides_ends_at_its_end() {
    let driven = driven(settings()).await;
    let decree =
        |mode| Decree { mode, keep_for: Duration::from_secs(9), reason: "a drill".into(), who: "ann".into() };
    let almost = Micros(8_999_900);
    for (mode, during, after) in [
        (Mode::ForcedOpen, State::Open, State::HalfOpen),
        (Mode::ForcedClosed, State::Closed, State::Closed),
        (Mode::MetricsOnly, State::Closed, State::Closed),
    ] {
        driven.instance.overrule(b"payments", decree(mode)).await.expect("it answers");
        driven.pass(almost);
        assert_eq!(driven.payments.state(), during, "{mode:?}");
        if during == State::Closed {
            for _ in 0..20 {
                driven.permit().await.failure();
            }
            driven.told().await;
            assert_eq!(driven.payments.state(), during, "{mode:?}: nothing trips");
        }
        driven.pass(Micros(200));
        match driven.payments.permit().await {
            // It was asked for a lease, and so heard that it is over.
            Ok(probe) if after == State::HalfOpen => probe.ignore(),
            other => other.expect("it is closed").success(),
        }
        driven.told().await;
        assert_eq!(driven.payments.state(), after, "{mode:?}");
        assert_eq!(driven.payments.status().overridden, None, "{mode:?}");
    }
    driven.open().await;
}

#[tokio::test]
async fn open_grows_with_each_trip_and_shrinks_again_while_it_is_well() {
    let driven = driven(Settings { ramp: Vec::new(), ..settings() }).await;
    driven.half_open().await;
    for seconds in [10, 20, 40] {
        driven.permit().await.failure();
        driven.told().await;
        assert_eq!(driven.payments.stance(), Stance::Open { left: Micros::from_secs(seconds) });
        driven.pass(Micros::from_secs(seconds));
    }
    for _ in 0..5 {
        driven.permit().await.success();
        driven.told().await;
    }
    assert_eq!(driven.payments.stance(), Stance::Closed);
    // Four trips, of which three are forgotten.
    driven.pass(Micros::from_secs(180));
    for _ in 0..5 {
        driven.permit().await.failure();
    }
    driven.told().await;
    assert_eq!(driven.payments.stance(), Stance::Open { left: Micros::from_secs(10) });
}
