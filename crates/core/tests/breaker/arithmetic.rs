//! How long it opens, what it forgets, how it climbs, and what a person is told.

use tollgate_core::breaker::{
    Answer, Breaker, Cause, Event, Health, Mode, Outcome, Permille, Phase, Record, Report, Settings, Stance,
    State, TRIPS_MAX,
};
use tollgate_core::units::Micros;

use crate::stand::{
    EPOCH, NOW, SECOND, breaker, closed, counts, decide, half_open, overridden, ramping, report, seconds,
    settings, settle, step, step_at,
};

/// How long a trip opens a record for.
fn opens_for(breaker: &Breaker, mut record: Record, dice: u16) -> u64 {
    let failing = report(1, record.epoch, counts(0, 3, 0), Health::Failing);
    let done = breaker.step(&mut record, &failing, NOW, Permille(dice));
    let Stance::Open { left } = done.view.stance else { panic!("it does not trip: {done:?}") };
    left.0
}

fn with(change: impl FnOnce(&mut Settings)) -> Breaker {
    let mut settings = settings();
    change(&mut settings);
    Breaker::try_new(settings).expect("settings of a test's")
}

#[test]
fn each_trip_doubles_the_open_time_up_to_its_most() {
    let spans: Vec<u64> = (0..8)
        .chain([TRIPS_MAX])
        .map(|trips| opens_for(&breaker(), Record { trips, ..closed() }, 0) / 1_000_000)
        .collect();
    assert_eq!(spans, [5, 10, 20, 40, 60, 60, 60, 60, 60]);
}

#[test]
fn a_failed_probe_is_a_trip_and_so_is_a_slow_one() {
    for (outcome, cause) in [(Outcome::Failure, Cause::ProbeFailed), (Outcome::Slow, Cause::ProbeSlow)] {
        let mut record = half_open(0, &[1]);
        let done = step(&mut record, &settle(1, EPOCH, outcome));
        assert_eq!(done.transitions[0].cause, cause);
        assert_eq!((record.trips, done.view.stance), (2, Stance::Open { left: seconds(10) }));
    }
}

#[test]
fn a_trip_on_the_ramp_opens_for_longer() {
    let mut record = ramping(seconds(2));
    let done = step(&mut record, &report(1, EPOCH, counts(0, 3, 0), Health::Failing));
    assert_eq!((record.trips, done.view.stance), (2, Stance::Open { left: seconds(10) }));
}

#[test]
fn trips_are_forgotten_one_by_one_while_closed_and_only_then() {
    let calm = |elapsed: u64| {
        let record = Record { trips: 3, phase: Phase::Closed { since: NOW - seconds(elapsed) }, ..closed() };
        opens_for(&breaker(), record, 0) / 1_000_000
    };
    assert_eq!([1, 59, 60, 119, 120, 180, 999_999].map(calm), [40, 40, 20, 20, 10, 5, 5]);
    let long_ago = Phase::Ramping { since: NOW - seconds(9) };
    assert_eq!(opens_for(&breaker(), Record { trips: 3, phase: long_ago, ..closed() }, 0), 40_000_000);
}

#[test]
fn chance_lengthens_and_at_the_most_shortens_and_never_passes_it() {
    let jittery = with(|settings| settings.jitter = Permille(200));
    let thrown = |trips, dice| opens_for(&jittery, Record { trips, ..closed() }, dice);
    assert_eq!([0, 1, 500, 1000].map(|dice| thrown(0, dice)), [5_000_000, 5_001_000, 5_500_000, 6_000_000]);
    assert_eq!([0, 1000, u16::MAX].map(|dice| thrown(9, dice)), [60_000_000, 48_000_000, 48_000_000]);
    let nearly = with(|settings| {
        settings.jitter = Permille(1000);
        settings.open_max = seconds(6);
    });
    assert_eq!(opens_for(&nearly, closed(), 1000), 6_000_000);
}

#[test]
fn a_hint_opens_for_as_long_as_it_says_within_bounds_and_only_when_asked_to() {
    let told = |breaker: &Breaker, hint: u64| {
        let mut record = closed();
        let report = Report {
            reporter: 1,
            epoch: EPOCH,
            counts: counts(99, 1, 0),
            health: Health::Well,
            hint: Some(Micros(hint)),
        };
        breaker.step(&mut record, &Event::Report(report), NOW, Permille(0)).view.stance
    };
    assert_eq!(told(&breaker(), 7_000_000), Stance::Open { left: seconds(7) });
    assert_eq!(told(&breaker(), u64::MAX), Stance::Open { left: seconds(30) });
    assert_eq!(told(&breaker(), 0), Stance::Closed);
    assert_eq!(told(&with(|settings| settings.hint_max = Micros::ZERO), 7_000_000), Stance::Closed);
}

#[test]
fn a_failed_probe_waits_for_the_longer_of_hint_and_growth() {
    for (hint, left) in [(3, 10), (20, 20), (999, 30)] {
        let mut record = half_open(0, &[1]);
        let hint = Some(seconds(hint));
        let event = Event::Settle { token: 1, epoch: EPOCH, outcome: Outcome::Failure, hint };
        assert_eq!(step(&mut record, &event).view.stance, Stance::Open { left: seconds(left) });
    }
}

#[test]
fn the_ramp_climbs_by_time_alone_and_ends_closed() {
    let breaker = breaker();
    let shares = [0, 4_999_999, 5_000_000, 9_999_999, 10_000_000].map(|at| breaker.share(Micros(at)).0);
    assert_eq!(shares, [100, 100, 500, 500, 1000]);
    let mut record = ramping(Micros::ZERO);
    let ends = NOW + breaker.ramp_for();
    let before = step_at(&mut record, &Event::Look, ends - Micros(1));
    assert_eq!(before.view.stance, Stance::Ramping { elapsed: breaker.ramp_for() - Micros(1) });
    assert_eq!(before.view.stance.state(), State::HalfOpen, "as it is called outwardly");
    let after = step_at(&mut record, &Event::Look, ends);
    assert_eq!((after.view.stance, after.transitions[0].cause), (Stance::Closed, Cause::Ramped));
}

#[test]
fn without_a_ramp_it_closes_at_once() {
    let mut record = half_open(1, &[1]);
    let event = settle(1, EPOCH, Outcome::Success);
    let done = with(|settings| settings.ramp.clear()).step(&mut record, &event, NOW, Permille(0));
    assert_eq!((done.view.stance, done.transitions[0].cause), (Stance::Closed, Cause::Probed));
}

#[test]
fn open_ends_at_its_end_and_not_a_microsecond_before() {
    let mut record = crate::stand::open(SECOND);
    let before = step_at(&mut record, &Event::Lease { token: 1 }, NOW + SECOND - Micros(1));
    assert_eq!((before.answer, before.view.stance), (Answer::Moot, Stance::Open { left: Micros(1) }));
    let after = step_at(&mut record, &Event::Lease { token: 1 }, NOW + SECOND);
    assert_eq!(after.answer, Answer::Granted { left: seconds(2) });
}

#[test]
fn a_lease_asked_for_twice_is_one_lease_and_one_that_ends_frees_its_place() {
    let mut record = half_open(0, &[]);
    let lease = |record: &mut Record, token, at| step_at(record, &Event::Lease { token }, at).answer;
    assert_eq!(lease(&mut record, 1, NOW), Answer::Granted { left: seconds(2) });
    assert_eq!(lease(&mut record, 1, NOW + SECOND), Answer::Granted { left: SECOND });
    assert_eq!(lease(&mut record, 2, NOW + SECOND), Answer::Granted { left: seconds(2) });
    assert_eq!(lease(&mut record, 3, NOW + SECOND), Answer::Full { wait: SECOND });
    assert_eq!(lease(&mut record, 3, NOW + seconds(2) - Micros(1)), Answer::Full { wait: Micros(1) });
    assert_eq!(lease(&mut record, 3, NOW + seconds(2)), Answer::Granted { left: seconds(2) });
    let late = step_at(&mut record, &settle(1, EPOCH, Outcome::Failure), NOW + seconds(2));
    assert_eq!((late.answer, late.view.stance), (Answer::Late, Stance::HalfOpen));
}

#[test]
fn what_is_forced_ends_as_it_should() {
    let mut record = closed();
    step(&mut record, &decide(Mode::ForcedOpen));
    let during = step_at(&mut record, &Event::Lease { token: 1 }, NOW + seconds(10) - Micros(1));
    assert_eq!(during.view.overridden, Some((Mode::ForcedOpen, Micros(1))));
    assert_eq!((during.answer, during.view.stance), (Answer::Moot, Stance::Open { left: Micros(1) }));
    let after = step_at(&mut record, &Event::Look, NOW + seconds(10));
    assert_eq!((after.view.overridden, after.view.stance), (None, Stance::HalfOpen), "it probes first");
    assert_eq!(record.trips, 0, "a person's decision is no trip");

    let mut record = overridden(Mode::ForcedClosed, SECOND);
    step(&mut record, &report(1, EPOCH, counts(0, 1000, 0), Health::Failing));
    let after = step_at(&mut record, &Event::Look, NOW + SECOND);
    assert_eq!((after.view.stance, after.view.overridden), (Stance::Closed, None));
    assert_eq!(record.window.total(), counts(0, 0, 0), "what failed meanwhile trips nothing");
}

#[test]
fn metrics_only_tells_once_of_what_would_have_been() {
    let mut record = overridden(Mode::MetricsOnly, SECOND);
    let bad = report(1, EPOCH, counts(0, 10, 0), Health::Troubled);
    let done = step(&mut record, &bad);
    let told = done.transitions[0];
    assert_eq!((told.cause, told.from, told.to), (Cause::FailureRatio, Stance::Closed, Stance::Closed));
    assert_eq!((told.counts, told.reporters, told.troubled), (counts(0, 10, 0), 1, 1));
    let one_more = report(1, EPOCH, counts(0, 1, 0), Health::Troubled);
    assert!(step(&mut record, &one_more).transitions.is_empty(), "counting began anew");
}
