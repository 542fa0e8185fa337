//! A store's clock that steps: nothing is locked for the length of it.

use tollgate_core::breaker::{Answer, Event, Health, Mode, Record, Stance};
use tollgate_core::units::Micros;

use crate::stand::{
    EPOCH, NOW, SECOND, closed, counts, decide, half_open, open, overridden, ramping, report, step_at,
};

const DAY: Micros = Micros::from_secs(86_400);

#[test]
fn a_day_back_leaves_what_is_left_to_wait_as_it_was() {
    let stance = |mut record: Record| step_at(&mut record, &Event::Look, NOW - DAY).view;
    assert_eq!(stance(open(SECOND)).stance, Stance::Open { left: SECOND });
    assert_eq!(stance(ramping(SECOND)).stance, Stance::Ramping { elapsed: SECOND });
    let forced = stance(overridden(Mode::ForcedOpen, SECOND));
    assert_eq!(
        (forced.stance, forced.overridden),
        (Stance::Open { left: SECOND }, Some((Mode::ForcedOpen, SECOND)))
    );
    let mut record = half_open(0, &[1, 2]);
    assert_eq!(
        step_at(&mut record, &Event::Lease { token: 3 }, NOW - DAY).answer,
        Answer::Full { wait: SECOND }
    );
    let later = NOW - DAY + SECOND;
    assert!(matches!(step_at(&mut record, &Event::Lease { token: 3 }, later).answer, Answer::Granted { .. }));
}

#[test]
fn a_second_back_is_waited_for() {
    let mut record = closed();
    step_at(&mut record, &report(1, EPOCH, counts(1, 2, 3), Health::Well), NOW);
    step_at(&mut record, &report(1, EPOCH, counts(1, 2, 3), Health::Well), NOW - SECOND);
    assert_eq!((record.window.total(), record.seen), (counts(2, 4, 6), NOW));
    let mut record = open(SECOND);
    let done = step_at(&mut record, &Event::Look, NOW - SECOND);
    assert_eq!(done.view.stance, Stance::Open { left: SECOND });
}

#[test]
fn further_back_a_window_by_time_begins_anew() {
    let mut record = closed();
    step_at(&mut record, &report(1, EPOCH, counts(0, 2, 0), Health::Troubled), NOW);
    step_at(&mut record, &report(2, EPOCH, counts(1, 0, 0), Health::Well), NOW - SECOND - Micros(1));
    assert_eq!((record.window.total(), record.reporters.len()), (counts(1, 0, 0), 1));
}

#[test]
fn an_epoch_never_comes_again_though_the_record_was_lost() {
    let mut record = closed();
    step_at(&mut record, &report(1, EPOCH, counts(0, 3, 0), Health::Failing), NOW);
    let before = record.epoch;
    assert!(before > EPOCH, "it trips");
    let mut record = Record::default();
    step_at(&mut record, &decide(Mode::ForcedOpen), NOW + Micros(1));
    assert!(record.epoch > before, "{} after {before}", record.epoch);
    // And though the clock stands still.
    let before = record.epoch;
    step_at(&mut record, &decide(Mode::ForcedClosed), NOW + Micros(1));
    assert!(record.epoch > before);
}
