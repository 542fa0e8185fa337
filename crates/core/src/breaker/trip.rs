//! When a breaker trips, for how long, and how its ramp climbs: arithmetic alone.

use super::event::Cause;
use super::record::{Health, Phase, Record};
use super::settings::{Permille, Settings, Window};
use super::window::Counts;
use crate::units::Micros;

impl Settings {
    /// The rule that what was reported reaches, if enough instances are in trouble.
    ///
    /// Enough: ⌈quorum · instances with calls in the window⌉, and at least one. A share, not a number: in
    /// a fleet of two, one bad instance is half of all. And not at the very beginning of an epoch: whoever
    /// reports first would be all there is.
    pub(super) fn reason_to_trip(&self, record: &Record, now: Micros) -> Option<Cause> {
        let (since, share) = match record.phase {
            Phase::Closed { since } => (since, Permille::WHOLE),
            // A share of the calls is enough to judge by.
            Phase::Ramping { since } => (since, self.share(now - since)),
            Phase::Open { .. } | Phase::HalfOpen { .. } => return None,
        };
        if self.quorum.0 > 0 && now - since < self.gather_for() {
            return None;
        }
        let (reporters, troubled, failing) = self.roll_call(record, now);
        if troubled < self.quorum.of_ceil(reporters).max(1) {
            return None;
        }
        if failing > 0 {
            return Some(Cause::Failures);
        }
        let counts = record.window.total();
        if counts.calls() < share.of_ceil(u64::from(self.minimum_calls)) {
            return None;
        }
        let is_reached = |ratio: Option<Permille>, part: u64| {
            ratio.is_some_and(|ratio| ratio.is_reached(part, counts.calls()))
        };
        if is_reached(self.failure_ratio, counts.failed) {
            Some(Cause::FailureRatio)
        } else if is_reached(self.slow_ratio, counts.slow) {
            Some(Cause::SlowRatio)
        } else {
            None
        }
    }

    /// How long an epoch waits for the reports of those who are there, which come ten times a second: a second,
    /// or half of a short window.
    fn gather_for(&self) -> Micros {
        match self.window {
            Window::Time(span) => Micros(span.0.div_euclid(2)).min(Micros::SECOND),
            Window::Calls(_) => Micros::SECOND,
        }
    }

    /// Instances with calls in the window, those of them in trouble, and those of these that fail.
    pub(super) fn roll_call(&self, record: &Record, now: Micros) -> (u64, u64, u64) {
        let at = record.window.position(self.window, now);
        let reach = self.window.reach();
        let present = record.reporters.values().filter(|one| one.at.saturating_add(reach) > at);
        present.fold((0, 0, 0), |(all, troubled, failing), reporter| {
            let is_at_least = |health| u64::from(reporter.health >= health);
            (
                u64::saturating_add(all, 1),
                u64::saturating_add(troubled, is_at_least(Health::Troubled)),
                u64::saturating_add(failing, is_at_least(Health::Failing)),
            )
        })
    }

    /// How long the `trips`-th trip in a row opens for: doubled each time, and a little more by chance;
    /// at its most a little less by chance, or else all breakers that stay open would probe together.
    pub(super) fn open_for(&self, trips: u32, dice: Permille) -> Micros {
        let mut open_for = self.open_for;
        for _ in 1..trips {
            open_for = (open_for + open_for).min(self.open_max);
        }
        // Order: in two steps, so that no product passes 2^53.
        let thousandths = |number: u64, of: u64| number.saturating_mul(of).div_euclid(1000);
        let thrown = thousandths(open_for.0, u64::from(dice.0.min(1000)));
        let spread = Micros(thousandths(thrown, u64::from(self.jitter.0)));
        if open_for == self.open_max { open_for - spread } else { (open_for + spread).min(self.open_max) }
    }

    pub(super) fn ramp_for(&self) -> Micros {
        Micros(self.ramp_step.0.saturating_mul(u64::try_from(self.ramp.len()).unwrap_or(0)))
    }

    pub(super) fn share(&self, elapsed: Micros) -> Permille {
        let step = elapsed.0.checked_div(self.ramp_step.0).unwrap_or(u64::MAX);
        let share = usize::try_from(step).ok().and_then(|step| self.ramp.get(step));
        share.copied().unwrap_or(Permille::WHOLE)
    }

    pub(super) fn health(&self, own: &Record, now: Micros, run: u32) -> Health {
        if self.failures.is_some_and(|failures| run >= failures) {
            return Health::Failing;
        }
        let counts = self.recent(own, now);
        let is_half = |ratio: Option<Permille>, part: u64| {
            ratio.is_some_and(|ratio| ratio.half().is_reached(part, counts.calls()))
        };
        if counts.calls() > 0
            && (is_half(self.failure_ratio, counts.failed) || is_half(self.slow_ratio, counts.slow))
        {
            return Health::Troubled;
        }
        Health::Well
    }

    /// What of a window counts at `now`.
    fn recent(&self, own: &Record, now: Micros) -> Counts {
        let mut window = own.window.clone();
        window.forget(self.window, now);
        window.total()
    }
}
