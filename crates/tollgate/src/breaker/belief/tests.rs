//! What an instance does with what it hears, in any order, and with what it does not.

use tollgate_core::breaker::{
    Answer, Breaker, Counts, Event, Health, Mode, Outcome, Permille, Report, Settings, Stance, View,
};
use tollgate_core::units::Micros;

use super::super::gate::Way;
use super::{Asked, Belief, Came, Change};

const NOW: Micros = Micros(1_800_000_000_000_000);
const SECOND: Micros = Micros::SECOND;

fn belief() -> Belief {
    let settings = Settings { failures: Some(3), jitter: Permille(0), ..Settings::default() };
    Belief::new(&Breaker::try_new(settings).expect("settings of a test's"), NOW)
}

fn view(epoch: u64, stance: Stance) -> View {
    View { epoch, stance, overridden: None }
}

/// Heard just now, as an answer.
fn hear(belief: &mut Belief, epoch: u64, stance: Stance, now: Micros) -> Change {
    belief.adopt(view(epoch, stance), Came::Answer { sent_at: now }, now)
}

fn fail(belief: &mut Belief, run: u32, now: Micros) -> Change {
    belief.count(Counts { ok: 0, failed: u64::from(run), slow: 0 }, run, now)
}

#[test]
fn the_first_call_asks_and_whoever_is_not_answered_decides_alone() {
    let mut belief = belief();
    assert_eq!((belief.way(NOW), belief.asked()), (Way::Ask, Asked::Look));
    belief.lose_touch();
    assert_eq!(belief.way(NOW), Way::Pass);
    assert_eq!(fail(&mut belief, 3, NOW), Change::Yes);
    assert_eq!(belief.way(NOW), Way::Refuse { until: NOW + Micros::from_secs(5) });
    assert_eq!((belief.way(NOW + Micros::from_secs(5)), belief.asked()), (Way::Ask, Asked::Own));
}

#[test]
fn an_open_that_was_seen_stays_to_its_end_whatever_becomes_of_redis() {
    let open = Stance::Open { left: SECOND };
    let refused = Way::Refuse { until: NOW + SECOND };
    let mut away = belief();
    assert_eq!(hear(&mut away, 7, open, NOW), Change::Yes);
    away.lose_touch();
    assert_eq!(away.way(NOW + SECOND - Micros(1)), refused);
    assert_eq!(
        (away.way(NOW + SECOND), away.asked()),
        (Way::Ask, Asked::Own),
        "and then it probes by itself"
    );

    let mut lost = belief();
    let _ = hear(&mut lost, 7, open, NOW);
    assert_eq!(hear(&mut lost, 9, Stance::Closed, NOW + Micros(1)), Change::No, "Redis has lost its data");
    assert_eq!(lost.way(NOW + Micros(1)), refused);
    assert_eq!(hear(&mut lost, 9, Stance::Closed, NOW + SECOND), Change::Yes);
    assert_eq!(lost.way(NOW + SECOND), Way::Pass);
}

#[test]
fn what_was_overtaken_on_its_way_changes_nothing() {
    let mut belief = belief();
    let _ = hear(&mut belief, 7, Stance::HalfOpen, NOW);
    let late = Came::Answer { sent_at: NOW - Micros(1) };
    assert_eq!(belief.adopt(view(6, Stance::Closed), late, NOW + SECOND), Change::No);
    assert_eq!(belief.adopt(view(6, Stance::Closed), Came::Push, NOW + SECOND), Change::No);
    assert_eq!(belief.way(NOW + SECOND), Way::Ask);
    // Asked for afterwards, and older all the same: a replica that missed something is the primary now.
    let then = Came::Answer { sent_at: NOW + SECOND };
    assert_eq!(belief.adopt(view(6, Stance::Closed), then, NOW + SECOND), Change::Yes);
    assert_eq!(belief.way(NOW + SECOND), Way::Pass);
}

#[test]
fn one_that_fails_alone_opens_for_itself_and_the_fleet_is_told() {
    let mut belief = belief();
    let _ = hear(&mut belief, 7, Stance::Closed, NOW);
    assert_eq!(fail(&mut belief, 3, NOW), Change::Yes);
    assert!(matches!(belief.way(NOW), Way::Refuse { .. }));
    let report = Report {
        reporter: 5,
        epoch: 7,
        counts: Counts { ok: 0, failed: 3, slow: 0 },
        health: Health::Failing,
        hint: None,
    };
    assert_eq!(belief.next_report(5), Event::Report(report));
    // The fleet goes on as before, and this instance probes by itself until it is well.
    let _ = hear(&mut belief, 7, Stance::Closed, NOW + SECOND);
    let then = NOW + Micros::from_secs(5);
    assert_eq!((belief.way(then), belief.asked()), (Way::Ask, Asked::Own));
    let mut now = then;
    for token in 0..5 {
        let (answer, epoch, _) = belief.lease_own(token, now);
        assert!(matches!(answer, Answer::Granted { .. }), "{answer:?}");
        let _ = belief.end_own(token, epoch, Some((Outcome::Success, None)), now);
    }
    assert_eq!(belief.way(now), Way::Share { since: now });
    now = now + Micros::from_secs(20);
    assert_eq!(belief.look(now), Change::Yes);
    assert_eq!((belief.way(now), belief.asked()), (Way::Pass, Asked::Fleet));
}

#[test]
fn when_the_fleet_opens_it_is_the_fleet_that_probes() {
    let mut belief = belief();
    let _ = hear(&mut belief, 7, Stance::Closed, NOW);
    let _ = fail(&mut belief, 3, NOW);
    assert_eq!(belief.adopt(view(9, Stance::Open { left: SECOND }), Came::Push, NOW), Change::Yes);
    assert_eq!((belief.way(NOW + SECOND), belief.asked()), (Way::Ask, Asked::Fleet));
    assert_eq!(belief.next_report(5), {
        let counts = Counts::default();
        Event::Report(Report { reporter: 5, epoch: 9, counts, health: Health::Well, hint: None })
    });
}

#[test]
fn a_person_decides_over_all_of_it() {
    let mut belief = belief();
    let _ = hear(&mut belief, 7, Stance::Closed, NOW);
    let _ = fail(&mut belief, 3, NOW);
    let forced = |belief: &mut Belief, mode, stance| {
        let view = View { epoch: 10 + mode as u64, stance, overridden: Some((mode, SECOND)) };
        let _ = belief.adopt(view, Came::Push, NOW);
        belief.way(NOW)
    };
    assert_eq!(
        forced(&mut belief, Mode::ForcedOpen, Stance::Open { left: SECOND }),
        Way::Refuse { until: NOW + SECOND }
    );
    assert_ne!(belief.way(NOW + SECOND), Way::Refuse { until: NOW + SECOND }, "and not after its end");
    assert_eq!(forced(&mut belief, Mode::ForcedClosed, Stance::Closed), Way::Pass);
    let _ = fail(&mut belief, 3, NOW);
    assert_eq!(belief.way(NOW), Way::Pass, "whatever fails meanwhile");
    assert_eq!(belief.way(NOW + SECOND), Way::Pass, "and nothing of it trips afterwards");
}

#[test]
fn a_full_half_open_is_not_asked_again_at_once() {
    let mut belief = belief();
    let _ = hear(&mut belief, 7, Stance::HalfOpen, NOW);
    belief.heard_full(Answer::Full { wait: SECOND }, NOW);
    assert_eq!(belief.way(NOW), Way::Refuse { until: NOW + Micros::from_millis(20) });
    assert_eq!(belief.stance(NOW), Stance::HalfOpen);
    assert_eq!(belief.way(NOW + Micros::from_millis(20)), Way::Ask);
}

#[test]
fn calls_that_went_well_may_wait_only_where_nothing_hangs_on_them() {
    let young = Micros::from_millis(1_499);
    let old = NOW + Micros::from_millis(1_500);
    let mut belief = belief();
    assert!(!belief.is_calm(NOW), "the fleet was never heard of");
    let _ = hear(&mut belief, 7, Stance::Closed, NOW);
    assert!(!belief.is_calm(NOW + young), "who is there is found out now");
    let _ = hear(&mut belief, 7, Stance::Closed, NOW + young);
    assert!(belief.is_calm(old), "heard of once more it is no younger");
    belief.lose_touch();
    assert!(!belief.is_calm(old), "the fleet is to be found again");
    let _ = hear(&mut belief, 7, Stance::Closed, old);
    let _ = fail(&mut belief, 2, old);
    assert!(!belief.is_calm(old), "it is in trouble");
    let _ = belief.next_report(5);
    assert!(belief.is_calm(old));
    let _ = fail(&mut belief, 3, old);
    let _ = belief.next_report(5);
    assert!(!belief.is_calm(old), "it has tripped by itself");
    let _ = hear(&mut belief, 8, Stance::Ramping { elapsed: SECOND }, old);
    assert!(!belief.is_calm(old + SECOND + SECOND), "a ramp is watched closely");
}
