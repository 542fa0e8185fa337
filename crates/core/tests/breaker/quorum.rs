//! Who must agree before the fleet trips.

use tollgate_core::breaker::{Breaker, Event, Health, Permille, Record, Report, Stance, Window};
use tollgate_core::units::Micros;

use crate::stand::{EPOCH, NOW, breaker, closed, counts, report, seconds, settings, step, step_at};

/// Reports of so many in trouble and so many that are well; whether the fleet has tripped.
fn trips(breaker: &Breaker, well: u64, troubled: u64, health: Health) -> bool {
    let mut record = closed();
    for reporter in 0..well {
        // So few that the ratio is reached whatever they say.
        let event = report(reporter, EPOCH, counts(1, 0, 0), Health::Well);
        breaker.step(&mut record, &event, NOW, Permille(0));
    }
    for reporter in well..well + troubled {
        let event = report(reporter, EPOCH, counts(0, 100, 0), health);
        breaker.step(&mut record, &event, NOW, Permille(0));
    }
    record.epoch != EPOCH
}

#[test]
fn enough_is_the_share_rounded_up_and_at_least_one() {
    for per in [0, 1, 333, 334, 500, 600, 1000] {
        let mut settings = settings();
        settings.quorum = Permille(per);
        let breaker = Breaker::try_new(settings).expect("settings of a test's");
        for reporters in 1..=10_u64 {
            // The slow and obvious way: the smallest number that is such a share.
            let share = |troubled: u64| troubled * 1000 >= u64::from(per) * reporters;
            let needed = (1..=reporters).find(|&troubled| share(troubled)).expect("all are enough");
            for troubled in 1..=reporters {
                for health in [Health::Troubled, Health::Failing] {
                    let expected = troubled >= needed;
                    let tripped = trips(&breaker, reporters - troubled, troubled, health);
                    assert_eq!(tripped, expected, "{troubled} of {reporters} at {per} permille");
                }
            }
        }
    }
}

/// Reports of three, the bad one first, ten times a second for ten seconds from `NOW` on.
fn a_bad_one_and_two_good(record: &mut Record) {
    let epoch = step(record, &Event::Look).view.epoch;
    for round in 0..100 {
        for reporter in 0..3 {
            let (counts, health) = match reporter {
                0 => (counts(0, 1000, 0), Health::Failing),
                _ => (counts(1, 0, 0), Health::Well),
            };
            step_at(record, &report(reporter, epoch, counts, health), NOW + Micros(round * 100_000));
        }
    }
}

#[test]
fn one_bad_instance_of_three_opens_nothing_however_many_calls_it_fails() {
    let mut new = Record::default();
    a_bad_one_and_two_good(&mut new);
    assert_eq!(new.epoch, NOW.0, "though the record was new, and it was the first to report");
    let mut ramping = crate::stand::ramping(Micros::ZERO);
    a_bad_one_and_two_good(&mut ramping);
    assert_eq!(ramping.epoch, EPOCH, "though a ramp had just begun");
}

#[test]
fn who_was_there_before_a_change_is_there_after_it() {
    let mut record = closed();
    for reporter in 1..=2 {
        step(&mut record, &report(reporter, EPOCH, counts(1, 0, 0), Health::Well));
    }
    let hint = Report {
        reporter: 3,
        epoch: EPOCH,
        counts: counts(0, 1, 0),
        health: Health::Failing,
        hint: Some(Micros(1)),
    };
    step(&mut record, &Event::Report(hint));
    assert_eq!(record.reporters.len(), 3);
    assert!(record.reporters.values().all(|one| one.health == Health::Well), "{record:?}");
}

#[test]
fn what_was_told_too_early_is_put_to_the_vote_again_by_a_report_of_nothing() {
    let mut record = Record::default();
    let epoch = step(&mut record, &Event::Look).view.epoch;
    for reporter in 0..3 {
        let done = step(&mut record, &report(reporter, epoch, counts(0, 3, 0), Health::Failing));
        assert_eq!(done.view.stance, Stance::Closed);
    }
    let nothing = report(0, epoch, counts(0, 0, 0), Health::Well);
    let early = step_at(&mut record, &nothing, NOW + Micros(999_999));
    assert_eq!(early.view.stance, Stance::Closed);
    let done = step_at(&mut record, &nothing, NOW + Micros(1_000_000));
    assert!(matches!(done.view.stance, Stance::Open { .. }), "{done:?}");
}

#[test]
fn an_instance_by_itself_waits_for_nobody() {
    let mut settings = settings();
    settings.quorum = Permille(0);
    let alone = Breaker::try_new(settings).expect("settings of a test's");
    let mut record = Record::default();
    let epoch = step(&mut record, &Event::Look).view.epoch;
    let done = alone.step(&mut record, &report(1, epoch, counts(0, 3, 0), Health::Failing), NOW, Permille(0));
    assert!(matches!(done.view.stance, Stance::Open { .. }), "{done:?}");
}

#[test]
fn a_quiet_instance_has_no_say_once_its_calls_have_left_the_window() {
    let mut record = closed();
    step(&mut record, &report(1, EPOCH, counts(1, 0, 0), Health::Well));
    let failing = report(2, EPOCH, counts(0, 3, 0), Health::Failing);
    let before = step_at(&mut record, &failing, NOW + seconds(10) - Micros(1));
    assert_eq!(before.view.stance, Stance::Closed, "half of two is not enough");
    let after = step_at(&mut record, &failing, NOW + seconds(10));
    assert!(matches!(after.view.stance, Stance::Open { .. }), "{after:?}");
}

#[test]
fn an_instance_that_is_well_again_takes_its_word_back() {
    let mut record = closed();
    step(&mut record, &report(1, EPOCH, counts(1, 0, 0), Health::Well));
    step(&mut record, &report(2, EPOCH, counts(0, 3, 0), Health::Failing));
    step(&mut record, &report(2, EPOCH, counts(3, 0, 0), Health::Well));
    let done = step(&mut record, &report(1, EPOCH, counts(0, 1, 0), Health::Troubled));
    assert_eq!(done.view.stance, Stance::Closed, "one is in trouble, nobody fails, and calls are few");
}

#[test]
fn fifty_instances_with_two_calls_each_reach_a_minimum_of_a_hundred() {
    let mut settings = settings();
    (settings.minimum_calls, settings.failures) = (100, None);
    let breaker = Breaker::try_new(settings).expect("settings of a test's");
    let mut record = closed();
    for reporter in 0..50 {
        assert_eq!(record.epoch, EPOCH, "{reporter} have reported");
        let event = report(reporter, EPOCH, counts(0, 2, 0), Health::Troubled);
        breaker.step(&mut record, &event, NOW, Permille(0));
    }
    assert_ne!(record.epoch, EPOCH);
}

#[test]
fn by_calls_a_reporter_counts_as_long_as_its_calls_are_among_the_last() {
    let mut settings = settings();
    settings.window = Window::Calls(20);
    let breaker = Breaker::try_new(settings).expect("settings of a test's");
    let say = |record: &mut Record, reporter, failed, health, days: u64| {
        let event = report(reporter, EPOCH, counts(0, failed, 0), health);
        breaker.step(record, &event, NOW + seconds(days * 86_400), Permille(0));
        record.epoch != EPOCH
    };
    let mut record = closed();
    let well = report(1, EPOCH, counts(1, 0, 0), Health::Well);
    breaker.step(&mut record, &well, NOW, Permille(0));
    assert!(!say(&mut record, 2, 19, Health::Failing, 9), "the other's call is the twentieth, nine days ago");
    assert!(say(&mut record, 2, 1, Health::Failing, 9), "and now it is the twenty-first");
}

#[test]
fn half_of_what_trips_is_trouble() {
    let breaker = breaker();
    let own = |ok, failed, slow| {
        let mut record = closed();
        step(&mut record, &report(1, EPOCH, counts(ok, failed, slow), Health::Well));
        record
    };
    let health = |record: &Record, run| breaker.health(record, NOW, run);
    assert_eq!(health(&closed(), 0), Health::Well, "nothing was called");
    assert_eq!(health(&own(76, 24, 0), 0), Health::Well);
    assert_eq!(health(&own(75, 25, 0), 0), Health::Troubled);
    assert_eq!(health(&own(75, 0, 25), 0), Health::Troubled);
    assert_eq!(health(&own(100, 0, 0), 2), Health::Well);
    assert_eq!(health(&own(100, 0, 0), 3), Health::Failing);
    assert_eq!(breaker.health(&own(0, 9, 0), NOW + seconds(11), 0), Health::Well, "it was long ago");
}

#[test]
fn reporters_are_bounded_and_outcomes_of_the_rest_still_count() {
    let mut record = closed();
    for reporter in 0..2000 {
        step(&mut record, &report(reporter, EPOCH, counts(1, 0, 0), Health::Well));
    }
    assert_eq!(record.reporters.len(), tollgate_core::breaker::REPORTERS_MAX);
    assert_eq!(record.window.total().calls(), 2000);
}
