//! How one breaker behaves, as a person sets it, and what of that is refused.
//!
//! All integers: shares in permille, times in microseconds. A ratio of 0.5 and one of 500 permille are
//! the same to a person; only the second is the same to Rust and to Lua.

use std::fmt;

use crate::units::Micros;

/// The most probe leases at a time, and the most steps of a ramp.
pub const PROBES_MAX: u32 = 100;
/// The most steps of a ramp.
pub const RAMP_MAX: usize = 8;
/// The longest time a breaker may be set to.
pub const SPAN_MAX: Micros = Micros::from_secs(86_400);
/// The largest number of calls a breaker may be set to.
pub const CALLS_MAX: u32 = 1_000_000;

/// A share, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Permille(pub u16);

impl Permille {
    /// All of it.
    pub const WHOLE: Permille = Permille(1000);

    /// Whether `part` is at least this share of `whole`.
    pub(super) fn is_reached(self, part: u64, whole: u64) -> bool {
        part.saturating_mul(1000) >= u64::from(self.0).saturating_mul(whole)
    }

    /// This share of a number, rounded up.
    pub(super) fn of_ceil(self, number: u64) -> u64 {
        number.saturating_mul(u64::from(self.0)).div_ceil(1000)
    }

    /// Half of it, rounded up, so that nothing but nothing is half of it.
    pub(super) fn half(self) -> Permille {
        Permille(self.0.div_ceil(2))
    }
}

/// What outcomes are counted over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// The last so long, in ten steps.
    Time(Micros),
    /// The last so many calls of all instances together, nearly: outcomes arrive by the handful.
    Calls(u32),
}

/// How one breaker behaves. Fields are as a person writes them; [`Breaker::try_new`](super::Breaker::try_new)
/// believes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// So many failures one after the other, on one instance, are a reason to trip.
    pub failures: Option<u32>,
    /// Such a share of failed calls in the window is one.
    pub failure_ratio: Option<Permille>,
    /// Such a share of slow calls in the window is one.
    pub slow_ratio: Option<Permille>,
    /// A call that succeeds after this long is slow.
    pub slow_after: Micros,
    /// What the ratios are taken over.
    pub window: Window,
    /// A ratio of fewer calls than this says nothing.
    pub minimum_calls: u32,
    /// Such a share of the instances with calls in the window must be in trouble for the fleet to trip.
    pub quorum: Permille,
    /// How long the first trip opens it for.
    pub open_for: Micros,
    /// Each trip that follows doubles that, up to this.
    pub open_max: Micros,
    /// Up to such a share is added to it, by chance.
    pub jitter: Permille,
    /// One trip is forgotten for each of these spent closed.
    pub decay_every: Micros,
    /// A `Retry-After` opens it at once for as long as it says, up to this. Zero takes no hints.
    pub hint_max: Micros,
    /// Probes under way at a time, in the whole fleet.
    pub probes: u32,
    /// How long a probe may take; then its lease ends.
    pub probe_for: Micros,
    /// So many successful probes end HalfOpen.
    pub successes_to_close: u32,
    /// The shares of calls let through, step by step, before Closed. None: at once.
    pub ramp: Vec<Permille>,
    /// How long each step of the ramp lasts.
    pub ramp_step: Micros,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            failures: Some(5),
            failure_ratio: Some(Permille(500)),
            slow_ratio: None,
            slow_after: Micros::from_secs(5),
            window: Window::Time(Micros::from_secs(10)),
            minimum_calls: 20,
            quorum: Permille(600),
            open_for: Micros::from_secs(5),
            open_max: Micros::from_secs(300),
            jitter: Permille(100),
            decay_every: Micros::from_secs(60),
            hint_max: Micros::ZERO,
            probes: 3,
            probe_for: Micros::from_secs(10),
            successes_to_close: 5,
            ramp: vec![Permille(100), Permille(250), Permille(500), Permille(1000)],
            ramp_step: Micros::from_secs(5),
        }
    }
}

/// What is wrong with a setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {what}")]
pub struct SettingsError {
    /// The setting.
    pub field: &'static str,
    /// What is allowed.
    pub what: String,
}

impl Settings {
    /// Everything that is wrong with them.
    pub(super) fn problems(&self) -> Vec<SettingsError> {
        let mut problems = Problems(Vec::new());
        problems.numbers(self);
        problems.shares(self);
        problems.times(self);
        problems.0
    }
}

struct Problems(Vec<SettingsError>);

impl Problems {
    fn add(&mut self, field: &'static str, what: impl fmt::Display) {
        self.0.push(SettingsError { field, what: what.to_string() });
    }

    fn within<T: PartialOrd + Copy + fmt::Display>(
        &mut self,
        field: &'static str,
        value: T,
        least: T,
        most: T,
    ) {
        if value < least || value > most {
            self.add(field, format_args!("{value} is not from {least} to {most}"));
        }
    }

    fn numbers(&mut self, settings: &Settings) {
        if let Some(failures) = settings.failures {
            self.within("failures", failures, 1, CALLS_MAX);
        }
        if let Window::Calls(calls) = settings.window {
            self.within("window", calls, 1, CALLS_MAX);
            if settings.minimum_calls > calls {
                self.add("minimum_calls", format_args!("a window of {calls} calls never holds more"));
            }
        }
        self.within("minimum_calls", settings.minimum_calls, 1, CALLS_MAX);
        self.within("probes", settings.probes, 1, PROBES_MAX);
        self.within("successes_to_close", settings.successes_to_close, 1, CALLS_MAX);
    }

    fn shares(&mut self, settings: &Settings) {
        let Settings { failures, failure_ratio, slow_ratio, quorum, jitter, ramp, .. } = settings;
        if failures.is_none() && failure_ratio.is_none() && slow_ratio.is_none() {
            self.add("failures", "without failures, failure_ratio and slow_ratio it could never trip");
        }
        for (field, ratio) in [("failure_ratio", failure_ratio), ("slow_ratio", slow_ratio)] {
            if let Some(Permille(ratio)) = ratio {
                self.within(field, *ratio, 1, 1000);
            }
        }
        self.within("quorum", quorum.0, 0, 1000);
        self.within("jitter", jitter.0, 0, 1000);
        if ramp.len() > RAMP_MAX {
            self.add("ramp", format_args!("at most {RAMP_MAX} steps"));
        }
        if ramp.iter().any(|share| share.0 == 0 || share.0 > 1000) || !ramp.is_sorted() {
            self.add("ramp", "shares from 1 to 1000 permille, none smaller than the one before");
        }
    }

    fn times(&mut self, settings: &Settings) {
        let Settings { window, slow_after, open_for, open_max, decay_every, .. } = *settings;
        let Settings { hint_max, probe_for, ramp_step, .. } = *settings;
        if let Window::Time(span) = window {
            self.within("window", span, Micros::from_millis(1), SPAN_MAX);
        }
        if settings.slow_ratio.is_some() {
            self.within("slow_after", slow_after, Micros(1), SPAN_MAX);
        }
        self.within("open_for", open_for, Micros(1), SPAN_MAX);
        self.within("open_max", open_max, open_for.min(SPAN_MAX), SPAN_MAX);
        self.within("decay_every", decay_every, Micros(1), SPAN_MAX);
        self.within("hint_max", hint_max, Micros::ZERO, SPAN_MAX);
        self.within("probe_for", probe_for, Micros(1), SPAN_MAX);
        if !settings.ramp.is_empty() {
            self.within("ramp_step", ramp_step, Micros(1), SPAN_MAX);
        }
    }
}
