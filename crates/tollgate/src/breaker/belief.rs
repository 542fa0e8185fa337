//! What one instance believes about one breaker: what it has seen of the fleet's record, and its own.
//!
//! The fleet's word goes first while it is in reach. The instance's own record mirrors every change it sees
//! of the fleet's, so that when Redis goes away it goes on from there; and it trips by itself when this
//! instance fails and the others do not, in which case it decides until it has closed again.
//!
//! Pure: told the time, and told what came.

use tollgate_core::breaker::{
    Answer, Breaker, Counts, Event, Health, Mode, Outcome, Permille, Phase, Record, Report, Stance, Step,
    Transition, View,
};
use tollgate_core::units::Micros;

use super::gate::Way;

/// How long after a trip of its own an instance puts it to the fleet's vote again. The fleet is not judged in
/// the first second of an epoch, and whoever is open makes no calls to report.
const VOTE_FOR: Micros = Micros::from_millis(1_500);

/// How long a full HalfOpen is not asked again: a call that is refused must not cost a round trip each time.
const FULL_PAUSE: Micros = Micros::from_millis(20);

/// By what way something was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Came {
    /// As an answer to what was sent then.
    Answer {
        /// When.
        sent_at: Micros,
    },
    /// As a push, which may be of any age.
    Push,
}

/// Who is to be asked for a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// The fleet, for how it stands: it was never heard of.
    Look,
    /// The fleet, for a lease.
    Fleet,
    /// This instance's own record.
    Own,
}

#[derive(Debug)]
pub(super) struct Belief {
    /// The breaker without a quorum.
    alone: Breaker,
    seen: Option<Seen>,
    /// Whether the fleet's record was in reach when it was last asked for; `None` before the first time.
    is_in_reach: Option<bool>,
    own: Record,
    /// Whether the own record has tripped by itself and has not closed since.
    is_own_trip: bool,
    /// When it last did.
    tripped_at: Micros,
    /// Outcomes the fleet has not been told.
    unsent: Counts,
    /// How unwell this instance has been since the fleet was last told.
    health: Health,
    hint: Option<Micros>,
    full_until: Micros,
    /// Changes of the own record that nobody was told of.
    changes: Vec<Transition>,
}

/// The fleet's record as it was last seen, its spans as instants of this instance's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    epoch: u64,
    phase: Seeing,
    overridden: Option<(Mode, Micros)>,
    at: Micros,
    /// When the epoch was first seen.
    since: Micros,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seeing {
    Closed,
    Open { until: Micros },
    HalfOpen,
    Ramping { since: Micros },
}

/// Whether what was let through until now belongs to another stretch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum Change {
    /// It does.
    Yes,
    /// It does not.
    No,
}

impl Change {
    fn when(is_changed: bool) -> Change {
        if is_changed { Change::Yes } else { Change::No }
    }
}

impl Belief {
    pub(super) fn new(breaker: &Breaker, now: Micros) -> Belief {
        let alone = alone(breaker);
        let mut own = Record::default();
        alone.step(&mut own, &Event::Look, now, Permille(0));
        Belief {
            alone,
            seen: None,
            is_in_reach: None,
            own,
            is_own_trip: false,
            tripped_at: Micros::ZERO,
            unsent: Counts::default(),
            health: Health::Well,
            hint: None,
            full_until: Micros::ZERO,
            changes: Vec::new(),
        }
    }

    /// Other settings hold from here on. How it stands stays: an Open has the end it was given.
    pub(super) fn behave(&mut self, breaker: &Breaker) {
        self.alone = alone(breaker);
    }

    /// What has changed in the own record since this was last asked.
    pub(super) fn take_changes(&mut self) -> Vec<Transition> {
        std::mem::take(&mut self.changes)
    }

    /// The epoch of the fleet's record, and what a person has decided there, as last seen.
    pub(super) fn fleet(&self, now: Micros) -> (Option<u64>, Option<(Mode, Micros)>) {
        let overridden = self.seen.and_then(|seen| seen.overridden);
        let standing = overridden.filter(|(_, until)| now < *until).map(|(mode, until)| (mode, until - now));
        (self.seen.map(|seen| seen.epoch), standing)
    }

    /// What a call meets.
    pub(super) fn way(&self, now: Micros) -> Way {
        if let Some(seen) = self.seen {
            match seen.overridden {
                Some((Mode::ForcedOpen, until)) if now < until => return Way::Refuse { until },
                Some((Mode::ForcedClosed | Mode::MetricsOnly, until)) if now < until => return Way::Pass,
                _ => {}
            }
            match seen.phase {
                // Stays until its own end, in reach or not.
                Seeing::Open { until } if now < until => return Way::Refuse { until },
                _ if self.is_in_reach != Some(true) || self.is_own_trip => {}
                Seeing::Open { .. } | Seeing::HalfOpen => return self.ask(now),
                Seeing::Ramping { since } => return Way::Share { since },
                Seeing::Closed => return Way::Pass,
            }
        } else if self.is_in_reach.is_none() {
            return Way::Ask;
        }
        match self.own.phase {
            Phase::Closed { .. } => Way::Pass,
            Phase::Open { until, .. } if now < until => Way::Refuse { until },
            Phase::Open { .. } | Phase::HalfOpen { .. } => self.ask(now),
            Phase::Ramping { since } => Way::Share { since },
        }
    }

    fn ask(&self, now: Micros) -> Way {
        if now < self.full_until { Way::Refuse { until: self.full_until } } else { Way::Ask }
    }

    /// Who is asked when the way is to ask.
    pub(super) fn asked(&self) -> Asked {
        match (self.seen, self.is_in_reach) {
            (_, None) => Asked::Look,
            (Some(_), Some(true)) if !self.is_own_trip => Asked::Fleet,
            _ => Asked::Own,
        }
    }

    /// Time has passed; what the own record makes of it.
    pub(super) fn look(&mut self, now: Micros) -> Change {
        self.step_own(&Event::Look, now).1
    }

    /// The first answer is waited for no longer.
    pub(super) fn stop_waiting(&mut self) {
        self.is_in_reach.get_or_insert(false);
    }

    /// The fleet's record was asked for, and nobody answered.
    pub(super) fn lose_touch(&mut self) {
        self.is_in_reach = Some(false);
    }

    /// Takes in how the fleet stands.
    pub(super) fn adopt(&mut self, view: View, came: Came, now: Micros) -> Change {
        if let Came::Answer { .. } = came {
            self.is_in_reach = Some(true);
        }
        if let Some(seen) = self.seen {
            // An older epoch was overtaken on its way, unless it was asked for after the newer was seen: then
            // Redis has lost something.
            let is_overtaken = match came {
                Came::Push => view.epoch <= seen.epoch,
                Came::Answer { sent_at } => view.epoch < seen.epoch && sent_at <= seen.at,
            };
            if is_overtaken || is_lost_open(&seen, &view, now) {
                return Change::No;
            }
        }
        let before = self.seen;
        let is_new = before.is_none_or(|seen| seen.epoch != view.epoch);
        let phase = match (view.stance, before) {
            // Of one epoch, the first word: each later one would have waited longer on its way.
            (Stance::Open { .. } | Stance::Ramping { .. }, Some(seen)) if !is_new => seen.phase,
            (Stance::Closed, _) => Seeing::Closed,
            (Stance::Open { left }, _) => Seeing::Open { until: now + left },
            (Stance::HalfOpen, _) => Seeing::HalfOpen,
            (Stance::Ramping { elapsed }, _) => Seeing::Ramping { since: now - elapsed },
        };
        let overridden = view.overridden.map(|(mode, left)| (mode, now + left));
        let since = before.filter(|_| !is_new).map_or(now, |seen| seen.since);
        self.seen = Some(Seen { epoch: view.epoch, phase, overridden, at: now, since });
        if is_new {
            let is_first_closed = before.is_none() && phase == Seeing::Closed;
            self.unsent = Counts::default();
            self.health = Health::Well;
            self.hint = None;
            self.full_until = Micros::ZERO;
            // Whoever has tripped by itself before it heard of the fleet has its reasons.
            if !is_first_closed {
                self.mirror(phase, now);
            }
        }
        Change::when(is_new)
    }

    /// Makes the own record go on from where the fleet's stands.
    fn mirror(&mut self, phase: Seeing, now: Micros) {
        let phase = match phase {
            Seeing::Closed => Phase::Closed { since: now },
            Seeing::Open { until } => Phase::Open { opened_at: now, until },
            Seeing::HalfOpen => Phase::HalfOpen { successes: 0 },
            Seeing::Ramping { since } => Phase::Ramping { since },
        };
        let epoch = self.own.epoch.saturating_add(1).max(now.0);
        self.own = Record { epoch, phase, trips: self.own.trips, seen: now, ..Record::default() };
        self.is_own_trip = false;
    }

    fn step_own(&mut self, event: &Event, now: Micros) -> (Step, Change) {
        let before = self.own.epoch;
        let step = self.alone.step(&mut self.own, event, now, Permille(fastrand::u16(..=1000)));
        for change in &step.transitions {
            match change.to {
                Stance::Open { .. } => (self.is_own_trip, self.tripped_at) = (true, now),
                Stance::Closed => self.is_own_trip = false,
                Stance::HalfOpen | Stance::Ramping { .. } => {}
            }
        }
        self.changes.extend_from_slice(&step.transitions);
        (step, Change::when(before != self.own.epoch))
    }

    /// Counts outcomes, for the own record at once and for the fleet's next report.
    pub(super) fn count(&mut self, counts: Counts, run: u32, now: Micros) -> Change {
        self.unsent.ok += counts.ok;
        self.unsent.failed += counts.failed;
        self.unsent.slow += counts.slow;
        if self.seen.is_some_and(|seen| seen.overridden.is_some_and(|(_, until)| now < until)) {
            return Change::No;
        }
        let is_run = self.alone.settings().failures.is_some_and(|failures| run >= failures);
        // Whoever is asked alone is a quorum by itself; the ratios say the rest.
        let health = if is_run { Health::Failing } else { Health::Troubled };
        let (epoch, hint) = (self.own.epoch, self.hint);
        let report = Report { reporter: 0, epoch, counts, health, hint };
        let (step, change) = self.step_own(&Event::Report(report), now);
        // A trip has emptied the window that told of it.
        let tripped = step.transitions.iter().any(|change| matches!(change.to, Stance::Open { .. }));
        let health = if tripped { health } else { self.alone.health(&self.own, now, run) };
        self.health = self.health.max(health);
        change
    }

    /// Remembers what a `Retry-After` said.
    pub(super) fn hint(&mut self, hint: Micros) {
        self.hint = Some(self.hint.map_or(hint, |other| other.max(hint)));
    }

    /// What the fleet is to be told next.
    pub(super) fn next_report(&mut self, reporter: u64) -> Event {
        let Some(seen) = self.seen else { return Event::Look };
        let health = std::mem::replace(&mut self.health, Health::Well);
        let counts = std::mem::take(&mut self.unsent);
        Event::Report(Report { reporter, epoch: seen.epoch, counts, health, hint: self.hint.take() })
    }

    /// Asks the own record for a lease.
    pub(super) fn lease_own(&mut self, token: u64, now: Micros) -> (Answer, u64, Change) {
        let (step, change) = self.step_own(&Event::Lease { token }, now);
        self.heard_full(step.answer, now);
        (step.answer, step.view.epoch, change)
    }

    /// A lease was refused for now.
    pub(super) fn heard_full(&mut self, answer: Answer, now: Micros) {
        if let Answer::Full { wait } = answer {
            self.full_until = now + wait.min(FULL_PAUSE);
        }
    }

    /// A probe of the own record has ended; or was not made.
    pub(super) fn end_own(
        &mut self,
        token: u64,
        epoch: u64,
        outcome: Option<(Outcome, Option<Micros>)>,
        now: Micros,
    ) -> (Answer, Change) {
        let event = match outcome {
            Some((outcome, hint)) => Event::Settle { token, epoch, outcome, hint },
            None => Event::Return { token, epoch },
        };
        self.full_until = Micros::ZERO;
        let (step, change) = self.step_own(&event, now);
        (step.answer, change)
    }

    /// How it stands, as this instance goes by: who decides, and since which epoch.
    pub(super) fn stance(&self, now: Micros) -> Stance {
        match self.way(now) {
            Way::Pass => Stance::Closed,
            Way::Refuse { until } if until != self.full_until => Stance::Open { left: until - now },
            Way::Share { since } => Stance::Ramping { elapsed: now - since },
            Way::Refuse { .. } | Way::Ask => Stance::HalfOpen,
        }
    }

    /// Whether nothing hangs on when the fleet hears of calls that went well. At the beginning of an epoch it does: who is
    /// there is found out in its first second.
    pub(super) fn is_calm(&self, now: Micros) -> bool {
        let is_settled = |seen: Seen| seen.phase == Seeing::Closed && now - seen.since >= VOTE_FOR;
        self.is_in_reach()
            && !self.is_own_trip
            && self.health == Health::Well
            && self.seen.is_some_and(is_settled)
    }

    /// Whether the fleet is to vote again on what this instance has told.
    pub(super) fn is_to_vote(&self, now: Micros) -> bool {
        self.is_own_trip && self.is_in_reach() && now - self.tripped_at < VOTE_FOR
    }

    /// Whether the fleet has been heard of, and its record was in reach when last asked for.
    pub(super) fn is_in_reach(&self) -> bool {
        self.is_in_reach == Some(true)
    }
}

/// The same breaker, where nobody else is asked.
fn alone(breaker: &Breaker) -> Breaker {
    let mut settings = breaker.settings().clone();
    settings.quorum = Permille(0);
    // What is allowed of a quorum includes none, so these are as good as the others.
    Breaker::try_new(settings).unwrap_or_else(|_| breaker.clone())
}

/// Open does not end before its end unless a person decides so. A record that says otherwise was lost.
fn is_lost_open(seen: &Seen, view: &View, now: Micros) -> bool {
    let is_open = matches!(seen.phase, Seeing::Open { until } if now < until);
    is_open
        && seen.overridden.is_none()
        && seen.epoch != view.epoch
        && view.overridden.is_none()
        && view.stance == Stance::Closed
}

#[cfg(test)]
mod tests;
