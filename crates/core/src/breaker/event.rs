//! What can happen to a breaker, and what it answers.

use super::record::{Health, Mode};
use super::window::Counts;
use crate::units::Micros;

/// One thing that happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An instance tells how its calls ended.
    Report(Report),
    /// An instance wants to probe. Asked twice with one token, it has one lease.
    Lease {
        /// Names the lease; no two of one epoch share it.
        token: u64,
    },
    /// A probe has ended.
    Settle {
        /// Its lease.
        token: u64,
        /// The epoch of its lease.
        epoch: u64,
        /// How it ended.
        outcome: Outcome,
        /// What a `Retry-After` said, if anything.
        hint: Option<Micros>,
    },
    /// A lease is given back unused.
    Return {
        /// Which.
        token: u64,
        /// The epoch of the lease.
        epoch: u64,
    },
    /// A person decides instead of the rules.
    Override {
        /// What.
        mode: Mode,
        /// For how long.
        keep_for: Micros,
        /// Why.
        reason: String,
        /// Who.
        who: String,
    },
    /// The rules decide again.
    Lift,
    /// Nobody does anything; time alone may have.
    Look,
}

/// What one instance has to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Report {
    /// Who.
    pub reporter: u64,
    /// The epoch in which the calls were let through.
    pub epoch: u64,
    /// How they ended, since the last report.
    pub counts: Counts,
    /// How well the instance is.
    pub health: Health,
    /// What a `Retry-After` said, if anything.
    pub hint: Option<Micros>,
}

/// How one call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Well, and in time.
    Success,
    /// Badly.
    Failure,
    /// Well, but slowly.
    Slow,
}

/// What a step brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What is answered to the event.
    pub answer: Answer,
    /// Where the breaker stands after it.
    pub view: View,
    /// What has changed: at most one change by time, and one by the event.
    pub transitions: Vec<Transition>,
}

/// What is answered to an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Done,
    /// It came too late to decide anything: of another epoch, or its lease has ended.
    Late,
    /// A lease.
    Granted {
        /// How long it lasts.
        left: Micros,
    },
    /// No lease: as many probes as may be are under way.
    Full {
        /// When the first of their leases ends.
        wait: Micros,
    },
    /// No lease, and none is needed or none is to be had: see the view.
    Moot,
}

/// Where a breaker stands, for an instance to decide by. Times are spans: instances have other clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct View {
    /// The epoch that outcomes of calls let through by this view belong to.
    pub epoch: u64,
    /// What is done with calls.
    pub stance: Stance,
    /// What a person has decided instead, and how long that stays.
    pub overridden: Option<(Mode, Micros)>,
}

/// What is done with calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stance {
    /// They pass.
    Closed,
    /// They are refused.
    Open {
        /// How long it lasts yet.
        left: Micros,
    },
    /// Those with a lease pass.
    HalfOpen,
    /// A share of them passes.
    Ramping {
        /// How long it has.
        elapsed: Micros,
    },
}

/// The states a breaker has outwardly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Calls flow.
    Closed,
    /// Calls are refused.
    Open,
    /// Calls probe.
    HalfOpen,
}

impl State {
    /// Its name in metrics, logs and Redis.
    pub const fn name(self) -> &'static str {
        match self {
            State::Closed => "closed",
            State::Open => "open",
            State::HalfOpen => "half-open",
        }
    }
}

impl Stance {
    /// Its outward name.
    pub const fn state(self) -> State {
        match self {
            Stance::Closed => State::Closed,
            Stance::Open { .. } => State::Open,
            Stance::HalfOpen | Stance::Ramping { .. } => State::HalfOpen,
        }
    }
}

/// One change, and what was known when it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    /// Why.
    pub cause: Cause,
    /// What was done with calls before.
    pub from: Stance,
    /// And is now.
    pub to: Stance,
    /// The epoch that began with it.
    pub epoch: u64,
    /// What the window held.
    pub counts: Counts,
    /// Instances with calls in the window.
    pub reporters: u64,
    /// Those of them in trouble.
    pub troubled: u64,
}

/// Why something changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// An instance had too many failures one after the other, and enough of the others are in trouble.
    Failures,
    /// Too large a share of calls failed.
    FailureRatio,
    /// Too large a share of calls was slow.
    SlowRatio,
    /// The other side said when to come again.
    Hint,
    /// Its time was over.
    Waited,
    /// A probe failed.
    ProbeFailed,
    /// A probe was slow.
    ProbeSlow,
    /// Enough probes succeeded.
    Probed,
    /// The ramp was climbed.
    Ramped,
    /// A person decided so.
    Overridden,
    /// What a person decided has ended.
    Lifted,
}

impl Cause {
    /// Every cause, in the order of the numbers `breaker.lua` answers with, which begin at one.
    pub const ALL: [Cause; 11] = [
        Cause::Failures,
        Cause::FailureRatio,
        Cause::SlowRatio,
        Cause::Hint,
        Cause::Waited,
        Cause::ProbeFailed,
        Cause::ProbeSlow,
        Cause::Probed,
        Cause::Ramped,
        Cause::Overridden,
        Cause::Lifted,
    ];

    /// Its name in metrics, logs and Redis.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Failures => "failures",
            Cause::FailureRatio => "failure_ratio",
            Cause::SlowRatio => "slow_ratio",
            Cause::Hint => "hint",
            Cause::Waited => "waited",
            Cause::ProbeFailed => "probe_failed",
            Cause::ProbeSlow => "probe_slow",
            Cause::Probed => "probed",
            Cause::Ramped => "ramped",
            Cause::Overridden => "overridden",
            Cause::Lifted => "lifted",
        }
    }
}
