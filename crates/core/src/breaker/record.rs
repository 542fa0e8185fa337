//! What is remembered about one breaker: by the fleet in Redis, and by each instance about itself.
//!
//! One record for both, because it is one state machine: what an instance does alone while Redis is away is
//! what the fleet does together.

use std::collections::BTreeMap;

use super::settings::{Settings, Window};
use super::window::Buckets;
use crate::units::{EXACT_MAX, Micros, Reading};

/// The most reporters that are told apart. Outcomes of others count, their health does not.
pub const REPORTERS_MAX: usize = 1024;

/// The most trips that are remembered.
pub const TRIPS_MAX: u32 = 32;

/// The longest reason of an override, in bytes.
pub const REASON_BYTES_MAX: usize = 256;

/// The longest name of who made an override, in bytes.
pub const WHO_BYTES_MAX: usize = 128;

/// What is remembered about one breaker. The default is one nobody has used: Closed, and empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct Record {
    /// Another one with every change of phase, and never one that was before: at least one more, and at
    /// least the time in microseconds. A count alone would come again after Redis has lost its data, and
    /// with it outcomes of long ago would count. Zero in a record that nobody has used.
    pub epoch: u64,
    /// Where it stands.
    pub phase: Phase,
    /// Trips that have not been forgotten, as of the last of them.
    pub trips: u32,
    /// The latest time it was changed at.
    pub seen: Micros,
    /// Outcomes since the epoch began.
    pub window: Buckets,
    /// Who reported them, and how well each is.
    pub reporters: BTreeMap<u64, Reporter>,
    /// Probes under way: when each lease ends, by its token.
    pub leases: BTreeMap<u64, Micros>,
    /// What a person has decided instead.
    pub overridden: Option<Override>,
}

/// Where a breaker stands. Outwardly a ramp is HalfOpen: its calls are probes, only more of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Calls flow.
    Closed {
        /// Since when. Zero in a record that nobody has used.
        since: Micros,
    },
    /// Calls are refused.
    Open {
        /// Since when.
        opened_at: Micros,
        /// Until when.
        until: Micros,
    },
    /// A few calls probe, each with a lease.
    HalfOpen {
        /// Probes that have succeeded.
        successes: u32,
    },
    /// A share of calls flows, and grows with time.
    Ramping {
        /// Since when.
        since: Micros,
    },
}

impl Default for Phase {
    fn default() -> Phase {
        Phase::Closed { since: Micros::ZERO }
    }
}

/// The last word of one instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reporter {
    /// Where the window stood.
    pub at: u64,
    /// How well it was.
    pub health: Health,
}

/// How well an instance is, by its own calls alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Health {
    /// Well.
    Well,
    /// A share of its calls fails, or is slow, that is at least half of what trips.
    Troubled,
    /// As many of its calls failed one after the other as trip.
    Failing,
}

/// What a person has decided instead of the rules.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Override {
    /// What.
    pub mode: Mode,
    /// Until when.
    pub until: Micros,
    /// Why, in a person's words.
    pub reason: String,
    /// Who.
    pub who: String,
}

/// What a person may decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Nothing passes. At its end it probes, as after a trip.
    ForcedOpen,
    /// Everything passes, and nothing trips.
    ForcedClosed,
    /// Everything passes; what would have tripped is told and does nothing.
    MetricsOnly,
}

impl Mode {
    /// Every mode, in the order of the numbers `breaker.lua` knows them by, which begin at one.
    pub const ALL: [Mode; 3] = [Mode::ForcedOpen, Mode::ForcedClosed, Mode::MetricsOnly];

    /// Its name, wherever people read or write one.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::ForcedOpen => "forced_open",
            Mode::ForcedClosed => "forced_closed",
            Mode::MetricsOnly => "metrics_only",
        }
    }

    /// The mode of that name.
    pub fn parse(name: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

impl Record {
    /// Brings the clock it is read by in line with the times it holds, and says what time it is.
    ///
    /// A clock that is behind by up to a second is waited for. One that is behind by more was set back: what
    /// is left to wait stays what it was, so that nothing is locked for the length of the step.
    pub(super) fn read_clock(&mut self, settings: &Settings, now: Micros) -> Micros {
        let now = match Reading::of(now, self.seen) {
            Reading::Steady { now, .. } => now,
            Reading::Stepped => {
                self.shift(self.seen - now);
                if matches!(settings.window, Window::Time(_)) {
                    self.window.buckets.clear();
                    self.reporters.clear();
                }
                now
            }
        };
        self.seen = now;
        now
    }

    /// Begins to count anew where another window has counted so far, as after a reload: places in one mean nothing in
    /// the other, and would stay there for ever.
    pub(super) fn count_by(&mut self, window: Window) {
        if self.window.counted_by != window.mark() {
            self.window.counted_by = window.mark();
            self.window.buckets.clear();
            self.reporters.clear();
        }
    }

    fn shift(&mut self, back: Micros) {
        self.phase = match self.phase {
            Phase::Closed { since } => Phase::Closed { since: since - back },
            Phase::Open { opened_at, until } => {
                Phase::Open { opened_at: opened_at - back, until: until - back }
            }
            Phase::Ramping { since } => Phase::Ramping { since: since - back },
            phase @ Phase::HalfOpen { .. } => phase,
        };
        for ends in self.leases.values_mut() {
            *ends = *ends - back;
        }
        if let Some(overridden) = &mut self.overridden {
            overridden.until = overridden.until - back;
        }
    }

    /// Goes on to another phase, where nothing of the one before counts.
    pub(super) fn enter(&mut self, phase: Phase, now: Micros) {
        self.epoch = self.epoch.saturating_add(1).max(now.0).min(EXACT_MAX);
        self.phase = phase;
        self.leases.clear();
        self.begin_anew();
    }

    /// Forgets the outcomes and who was in trouble, but not who is there: a fleet does not shrink to
    /// whoever reports first.
    pub(super) fn begin_anew(&mut self) {
        self.window.buckets.clear();
        for reporter in self.reporters.values_mut() {
            reporter.health = Health::Well;
        }
    }

    /// Trips that have not been forgotten by now.
    pub(super) fn trips_left(&self, settings: &Settings, now: Micros) -> u32 {
        let Phase::Closed { since } = self.phase else { return self.trips };
        let calm = (now - since).0.checked_div(settings.decay_every.0).unwrap_or(0);
        self.trips.saturating_sub(u32::try_from(calm).unwrap_or(u32::MAX))
    }

    /// What a person has decided that is in force.
    pub(super) fn mode(&self) -> Option<Mode> {
        self.overridden.as_ref().map(|overridden| overridden.mode)
    }
}
