//! The step that ships, with one of its checks taken out from outside.

use tollgate_core::breaker::{Answer, Breaker, Event, Permille, Record, Report, Step};
use tollgate_core::units::Micros;

/// What is taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mutant {
    /// Nothing.
    None,
    /// Whatever epoch a report is of, it is taken for the current one.
    ReportsOfAnyEpoch,
    /// Whatever epoch a probe is of, it is taken for the current one.
    ProbesOfAnyEpoch,
    /// A lease that is granted stays for good.
    EndlessLeases,
    /// An epoch is the one before and one, whatever the time.
    CountedEpochs,
}

const FOR_GOOD: Micros = Micros(1 << 52);

impl Mutant {
    pub(super) fn step(self, breaker: &Breaker, record: &mut Record, event: &Event, now: Micros) -> Step {
        let before = record.epoch;
        let event = self.blind(breaker, record, event, now);
        let step = breaker.step(record, &event, now, Permille(0));
        if self == Mutant::EndlessLeases && matches!(step.answer, Answer::Granted { .. }) {
            record.leases.values_mut().for_each(|ends| *ends = FOR_GOOD);
        }
        if self == Mutant::CountedEpochs && record.epoch != before {
            record.epoch = before + step.transitions.len() as u64;
        }
        step
    }

    /// The event as it would be if its epoch were not looked at.
    fn blind(self, breaker: &Breaker, record: &Record, event: &Event, now: Micros) -> Event {
        let mut looked = record.clone();
        breaker.step(&mut looked, &Event::Look, now, Permille(0));
        let current = looked.epoch;
        match (self, event) {
            (Mutant::ReportsOfAnyEpoch, Event::Report(report)) => {
                Event::Report(Report { epoch: current, ..*report })
            }
            (Mutant::ProbesOfAnyEpoch, Event::Settle { token, outcome, hint, .. }) => {
                Event::Settle { token: *token, epoch: current, outcome: *outcome, hint: *hint }
            }
            (Mutant::ProbesOfAnyEpoch, Event::Return { token, .. }) => {
                Event::Return { token: *token, epoch: current }
            }
            _ => event.clone(),
        }
    }
}
