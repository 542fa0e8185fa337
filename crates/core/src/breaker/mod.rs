//! The circuit breaker: Closed lets calls through, Open refuses them, HalfOpen probes.
//!
//! One pure function, [`Breaker::step`], of a record, an event, the time and a throw of dice. The fleet
//! runs it inside Redis, on Redis' clock, over one record that all instances share; each instance runs it over a
//! record of its own, which decides alone while Redis is away, and opens for this instance alone when it
//! fails and the others do not.
//!
//! ```text
//!             a rule is reached                     its time is over
//!             and enough agree                      (the first event after it)
//!  Closed ─────────────────────────► Open ─────────────────────────► HalfOpen
//!    ▲                                ▲ ▲                              │   │
//!    │                                │ └──── a probe fails or is slow ┘   │ enough
//!    │ the ramp is climbed            │            for longer              │ succeed
//!    └─────────────────────── Ramping ┴── a rule is reached                ▼
//!                                ▲                                         │
//!                                └─────────────────────────────────────────┘
//! ```
//!
//! Every change begins a new epoch. A report or a probe that belongs to another one decides nothing, so
//! that nothing which was let through in an older phase can open, close or reopen anything.
//!
//! Twin:      tollgate/scripts/breaker.lua
//! Proved by: tests/breaker.rs: every event in every phase, and three instances explored to the end;
//!            tollgate/tests/twins.rs

mod event;
mod fleet;
mod record;
mod settings;
mod trip;
mod window;

pub use event::{Answer, Cause, Event, Outcome, Report, Stance, State, Step, Transition, View};
pub use fleet::{Fleet, Pushed};
pub use record::{
    Health, Mode, Override, Phase, REASON_BYTES_MAX, REPORTERS_MAX, Record, Reporter, TRIPS_MAX,
    WHO_BYTES_MAX,
};
pub use settings::{CALLS_MAX, PROBES_MAX, Permille, RAMP_MAX, SPAN_MAX, Settings, SettingsError, Window};
pub use window::{BUCKETS, Bucket, Buckets, COUNT_MAX, Counts};

use crate::units::Micros;

/// The longest an override stays.
pub const OVERRIDE_MAX: Micros = Micros::from_secs(30 * 86_400);

/// How one breaker behaves, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breaker {
    settings: Settings,
}

/// A step under way.
struct Stepping<'a> {
    settings: &'a Settings,
    record: &'a mut Record,
    now: Micros,
    dice: Permille,
    transitions: Vec<Transition>,
}

impl Breaker {
    /// A breaker of these settings, or all that is wrong with them.
    pub fn try_new(settings: Settings) -> Result<Breaker, Vec<SettingsError>> {
        let problems = settings.problems();
        if problems.is_empty() { Ok(Breaker { settings }) } else { Err(problems) }
    }

    /// As it was set.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What an event does to a record at `now`. The dice, up to 1000, say by how much an open time is
    /// lengthened if the event opens it.
    pub fn step(&self, record: &mut Record, event: &Event, now: Micros, dice: Permille) -> Step {
        let now = record.read_clock(&self.settings, now);
        record.count_by(self.settings.window);
        let mut stepping = Stepping { settings: &self.settings, record, now, dice, transitions: Vec::new() };
        stepping.elapse();
        let answer = match event {
            Event::Report(report) => stepping.report(report),
            Event::Lease { token } => stepping.lease(*token),
            Event::Settle { token, epoch, outcome, hint } => stepping.settle(*token, *epoch, *outcome, *hint),
            Event::Return { token, epoch } => stepping.take_lease(*token, *epoch),
            Event::Override { mode, keep_for, reason, who } => {
                let until = now + (*keep_for).min(OVERRIDE_MAX);
                let overridden = Override { mode: *mode, until, reason: reason.clone(), who: who.clone() };
                stepping.overrule(overridden)
            }
            Event::Lift => stepping.lift(Cause::Lifted),
            Event::Look => Answer::Done,
        };
        let transitions = stepping.transitions;
        Step { answer, view: record.view(now), transitions }
    }

    /// How long a ramp takes from its first step to its end.
    pub fn ramp_for(&self) -> Micros {
        self.settings.ramp_for()
    }

    /// The share of calls that passes so long after a ramp began.
    pub fn share(&self, elapsed: Micros) -> Permille {
        self.settings.share(elapsed)
    }

    /// How well an instance is whose own record this is, with a run of so many failures.
    pub fn health(&self, own: &Record, now: Micros, run: u32) -> Health {
        self.settings.health(own, now, run)
    }

    /// How long a record must be kept after it was last changed, for nothing in it to be missed; what a
    /// person has decided comes on top.
    pub fn keep_for(&self) -> Micros {
        let Settings { window, open_max, hint_max, probe_for, decay_every, .. } = self.settings;
        let window = match window {
            Window::Time(span) => span,
            Window::Calls(_) => Micros::ZERO,
        };
        // Trips enough to be at `open_max` are remembered as long as the breaker is used at all; of one
        // that is not used, as long as it would take to forget most of them.
        let calm = Micros(decay_every.0.saturating_mul(16));
        open_max.max(hint_max) + probe_for + window + self.ramp_for() + calm + Micros::from_secs(60)
    }
}

impl Record {
    /// Where it stands.
    fn view(&self, now: Micros) -> View {
        let overridden = self.overridden.as_ref().map(|standing| (standing.mode, standing.until - now));
        View { epoch: self.epoch, stance: self.stance(now), overridden }
    }

    fn stance(&self, now: Micros) -> Stance {
        match self.phase {
            Phase::Closed { .. } => Stance::Closed,
            Phase::Open { until, .. } => Stance::Open { left: until - now },
            Phase::HalfOpen { .. } => Stance::HalfOpen,
            Phase::Ramping { since } => Stance::Ramping { elapsed: now - since },
        }
    }
}

impl Stepping<'_> {
    /// What time alone does: at most one change.
    fn elapse(&mut self) {
        let now = self.now;
        self.record.leases.retain(|_, ends| *ends > now);
        if self.record.overridden.as_ref().is_some_and(|standing| standing.until <= now) {
            // One that was forced open has come to the end of its Open with it.
            self.lift(Cause::Waited);
        }
        match self.record.phase {
            // Nobody has used it, or it was lost: what was told of the one before is not of this one.
            Phase::Closed { since: Micros::ZERO } => {
                self.record.enter(Phase::Closed { since: now }, now);
            }
            // Open -> HalfOpen
            Phase::Open { until, .. } if until <= now => {
                self.enter(Phase::HalfOpen { successes: 0 }, Cause::Waited);
            }
            // Ramping -> Closed
            Phase::Ramping { since } if now - since >= self.settings.ramp_for() => {
                self.enter(Phase::Closed { since: now }, Cause::Ramped);
            }
            _ => {}
        }
    }

    /// Counts what is told, and puts it to the vote. A report of no calls puts to it what others have told.
    fn report(&mut self, report: &Report) -> Answer {
        if report.epoch != self.record.epoch {
            return Answer::Late;
        }
        // Nothing is let through but probes, and those settle.
        if matches!(self.record.phase, Phase::Open { .. } | Phase::HalfOpen { .. }) {
            return Answer::Done;
        }
        self.count(report);
        let hint = report.hint.filter(|_| self.settings.hint_max > Micros::ZERO);
        let cause = match hint {
            Some(hint) if hint > Micros::ZERO => Some(Cause::Hint),
            _ => self.settings.reason_to_trip(self.record, self.now),
        };
        match (cause, self.record.mode()) {
            (None, _) | (_, Some(Mode::ForcedClosed)) => {}
            (Some(cause), Some(Mode::MetricsOnly)) => {
                self.note(cause);
                self.record.begin_anew();
            }
            // Closed -> Open, Ramping -> Open
            (Some(cause), _) => self.trip(cause, hint),
        }
        Answer::Done
    }

    fn count(&mut self, report: &Report) {
        if report.counts.calls() == 0 {
            return;
        }
        let Record { window, reporters, .. } = &mut *self.record;
        window.add(self.settings.window, self.now, report.counts);
        let at = window.position(self.settings.window, self.now);
        let reach = self.settings.window.reach();
        reporters.retain(|_, reporter| reporter.at.saturating_add(reach) > at);
        if reporters.len() < REPORTERS_MAX || reporters.contains_key(&report.reporter) {
            reporters.insert(report.reporter, Reporter { at, health: report.health });
        }
    }

    fn lease(&mut self, token: u64) -> Answer {
        let Record { phase: Phase::HalfOpen { .. }, leases, .. } = &mut *self.record else {
            return Answer::Moot;
        };
        if let Some(ends) = leases.get(&token) {
            return Answer::Granted { left: *ends - self.now };
        }
        if leases.len() >= usize::try_from(self.settings.probes).unwrap_or(usize::MAX) {
            let first = leases.values().min().copied().unwrap_or(self.now);
            return Answer::Full { wait: first - self.now };
        }
        leases.insert(token, self.now + self.settings.probe_for);
        Answer::Granted { left: self.settings.probe_for }
    }

    /// Takes a lease back, if it is one of this epoch that has not ended.
    fn take_lease(&mut self, token: u64, epoch: u64) -> Answer {
        let is_current = epoch == self.record.epoch && self.record.leases.remove(&token).is_some();
        if is_current { Answer::Done } else { Answer::Late }
    }

    fn settle(&mut self, token: u64, epoch: u64, outcome: Outcome, hint: Option<Micros>) -> Answer {
        if self.take_lease(token, epoch) == Answer::Late {
            return Answer::Late;
        }
        // Leases are of HalfOpen alone; a record that says otherwise is not ours to go on from.
        let Phase::HalfOpen { successes } = self.record.phase else { return Answer::Late };
        match outcome {
            Outcome::Success => {
                let successes = successes.saturating_add(1);
                if successes < self.settings.successes_to_close {
                    self.record.phase = Phase::HalfOpen { successes };
                } else if self.settings.ramp.is_empty() {
                    // HalfOpen -> Closed
                    self.enter(Phase::Closed { since: self.now }, Cause::Probed);
                } else {
                    // HalfOpen -> Ramping
                    self.enter(Phase::Ramping { since: self.now }, Cause::Probed);
                }
            }
            // HalfOpen -> Open
            Outcome::Failure => self.trip(Cause::ProbeFailed, hint),
            Outcome::Slow => self.trip(Cause::ProbeSlow, hint),
        }
        Answer::Done
    }

    /// any -> Open or Closed
    fn overrule(&mut self, overridden: Override) -> Answer {
        let phase = match overridden.mode {
            Mode::ForcedOpen => Phase::Open { opened_at: self.now, until: overridden.until },
            Mode::ForcedClosed | Mode::MetricsOnly => Phase::Closed { since: self.now },
        };
        self.record.overridden = Some(overridden);
        self.enter(phase, Cause::Overridden);
        Answer::Done
    }

    /// Forced open -> HalfOpen, any other -> Closed, where what was counted meanwhile trips nothing.
    fn lift(&mut self, cause: Cause) -> Answer {
        match self.record.overridden.take().map(|standing| standing.mode) {
            None => {}
            Some(Mode::ForcedOpen) => self.enter(Phase::HalfOpen { successes: 0 }, cause),
            Some(Mode::ForcedClosed | Mode::MetricsOnly) => {
                self.enter(Phase::Closed { since: self.now }, Cause::Lifted);
            }
        }
        Answer::Done
    }

    fn trip(&mut self, cause: Cause, hint: Option<Micros>) {
        let trips = self.record.trips_left(self.settings, self.now).saturating_add(1).min(TRIPS_MAX);
        let hint = hint.unwrap_or(Micros::ZERO).min(self.settings.hint_max);
        let open_for = match cause {
            Cause::Hint => hint,
            _ => self.settings.open_for(trips, self.dice).max(hint),
        };
        self.record.trips = trips;
        self.enter(Phase::Open { opened_at: self.now, until: self.now + open_for }, cause);
    }

    fn enter(&mut self, phase: Phase, cause: Cause) {
        self.note(cause);
        self.record.enter(phase, self.now);
        if let Some(noted) = self.transitions.last_mut() {
            noted.to = self.record.stance(self.now);
            noted.epoch = self.record.epoch;
        }
    }

    /// Tells of a cause, and what was known; so far nothing has changed.
    fn note(&mut self, cause: Cause) {
        let (reporters, troubled, _) = self.settings.roll_call(self.record, self.now);
        let (stance, epoch) = (self.record.stance(self.now), self.record.epoch);
        let counts = self.record.window.total();
        self.transitions.push(Transition {
            cause,
            from: stance,
            to: stance,
            epoch,
            counts,
            reporters,
            troubled,
        });
    }
}
