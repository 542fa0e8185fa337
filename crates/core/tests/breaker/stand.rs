//! A small breaker, records in every phase, and events by short names.

use tollgate_core::breaker::{
    Breaker, Counts, Event, Health, Mode, Outcome, Override, Permille, Phase, Record, Report, Settings, Step,
    Window,
};
use tollgate_core::units::Micros;

/// A moment when nothing is zero.
pub(crate) const NOW: Micros = Micros(1_800_000_000_000_000);

/// The epoch every record here is in.
pub(crate) const EPOCH: u64 = 1_799_999_000_000_000;

pub(crate) const SECOND: Micros = Micros::SECOND;

pub(crate) fn seconds(n: u64) -> Micros {
    Micros::from_secs(n)
}

/// Two probes, two successes, a ramp of two steps; trips after three failures in a row, or at half of
/// ten calls failed or slow.
pub(crate) fn settings() -> Settings {
    Settings {
        failures: Some(3),
        failure_ratio: Some(Permille(500)),
        slow_ratio: Some(Permille(500)),
        slow_after: SECOND,
        window: Window::Time(seconds(10)),
        minimum_calls: 10,
        quorum: Permille(600),
        open_for: seconds(5),
        open_max: seconds(60),
        jitter: Permille(0),
        decay_every: seconds(60),
        hint_max: seconds(30),
        probes: 2,
        probe_for: seconds(2),
        successes_to_close: 2,
        ramp: vec![Permille(100), Permille(500)],
        ramp_step: seconds(5),
    }
}

pub(crate) fn breaker() -> Breaker {
    Breaker::try_new(settings()).expect("settings of a test's")
}

pub(crate) fn closed() -> Record {
    Record { epoch: EPOCH, phase: Phase::Closed { since: NOW - SECOND }, seen: NOW, ..Record::default() }
}

pub(crate) fn open(left: Micros) -> Record {
    let phase = Phase::Open { opened_at: NOW - SECOND, until: NOW + left };
    Record { phase, trips: 1, ..closed() }
}

/// With the leases of these tokens, none older than the next.
pub(crate) fn half_open(successes: u32, tokens: &[u64]) -> Record {
    let leases = tokens.iter().map(|&token| (token, NOW + SECOND)).collect();
    Record { phase: Phase::HalfOpen { successes }, trips: 1, leases, ..closed() }
}

pub(crate) fn ramping(elapsed: Micros) -> Record {
    Record { phase: Phase::Ramping { since: NOW - elapsed }, trips: 1, ..closed() }
}

pub(crate) fn overridden(mode: Mode, left: Micros) -> Record {
    let until = NOW + left;
    let phase = match mode {
        Mode::ForcedOpen => Phase::Open { opened_at: NOW - SECOND, until },
        Mode::ForcedClosed | Mode::MetricsOnly => Phase::Closed { since: NOW - SECOND },
    };
    let overridden = Some(Override { mode, until, reason: "why".into(), who: "ann".into() });
    Record { phase, overridden, ..closed() }
}

pub(crate) fn counts(ok: u64, failed: u64, slow: u64) -> Counts {
    Counts { ok, failed, slow }
}

pub(crate) fn report(reporter: u64, epoch: u64, counts: Counts, health: Health) -> Event {
    Event::Report(Report { reporter, epoch, counts, health, hint: None })
}

pub(crate) fn settle(token: u64, epoch: u64, outcome: Outcome) -> Event {
    Event::Settle { token, epoch, outcome, hint: None }
}

pub(crate) fn decide(mode: Mode) -> Event {
    Event::Override { mode, keep_for: seconds(10), reason: "why".into(), who: "ann".into() }
}

/// One step at [`NOW`], with the dice at zero.
pub(crate) fn step(record: &mut Record, event: &Event) -> Step {
    step_at(record, event, NOW)
}

pub(crate) fn step_at(record: &mut Record, event: &Event, now: Micros) -> Step {
    breaker().step(record, event, now, Permille(0))
}
