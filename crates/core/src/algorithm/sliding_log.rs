//! Sliding log: every admitted instant is kept, so any window holds at most the limit. Exactly.
//!
//! Memory grows with the limit, which is why limits above a configured maximum are refused at
//! construction. Only admitted calls are recorded: recording refused ones too, as is often done,
//! keeps an insistent client out for ever.
//!
//! Tokens taken ahead (a lease) are booked at the end of the time they may be spent in, and everything
//! booked counts, however far ahead it lies. So whenever they are spent, any window holds at most the
//! limit; what that costs is that each of them counts for the lease time longer than it had to.
//!
//! Twin:      tollgate/scripts/sliding_log.lua
//! Model:     tests/models/sliding_log.rs
//! Proved by: tests/algorithms.rs, tollgate/tests/twins.rs

use std::collections::VecDeque;

use crate::decision::{Decision, Found, Outcome, Refunded, Returned, Step, Take, Verb};
use crate::limit::{LimitError, Rate};
use crate::units::{Cost, Micros, Reading, count};

/// The longest log a key may have unless the configuration says otherwise.
pub const LIMIT_MAX: u32 = 10_000;

/// So many per any window, exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlidingLog {
    pub(super) limit: u32,
    pub(super) span: Micros,
    /// How far ahead of the clock entries may be booked: no clock that stepped back, up to there.
    pub(super) lease: Micros,
    /// How far ahead this one books.
    pub(super) ahead: Micros,
}

/// The admitted instants of one key, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Log {
    runs: VecDeque<Run>,
}

/// Entries admitted together: `entries` of them at one instant, numbered from `first`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// When they were admitted.
    pub at: Micros,
    /// The number of the first among all entries of that microsecond.
    pub first: u32,
    /// How many.
    pub entries: u32,
}

/// What a visit changes in a log. (A new log per visit would copy all of it.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edit {
    /// Entries after this instant go: they were written by a clock that has since stepped back.
    pub drop_after: Option<Micros>,
    /// Entries up to this instant have left the window. `None` leaves them for the next spend.
    pub trim_to: Option<Micros>,
    /// What to append.
    pub push: Option<Run>,
}

impl SlidingLog {
    /// At most `count` per any `span`, for counts of at most `max`.
    pub fn try_new(rate: Rate, max: u32) -> Result<SlidingLog, LimitError> {
        let limit = rate.count();
        if limit > max {
            return Err(LimitError::LogTooLong { limit, max });
        }
        Ok(SlidingLog { limit, span: rate.span()?, lease: Micros::ZERO, ahead: Micros::ZERO })
    }

    /// The same limit, of which tokens may be taken ahead that are spent within `lease`.
    #[must_use]
    pub fn leased(self, lease: Micros) -> SlidingLog {
        SlidingLog { lease, ahead: Micros::ZERO, ..self }
    }

    /// The same limit, for a take that is spent within the lease time.
    #[must_use]
    pub fn ahead(self) -> SlidingLog {
        SlidingLog { ahead: self.lease, ..self }
    }

    /// How far ahead of the clock entries may be booked.
    pub fn lease(&self) -> Micros {
        self.lease
    }

    /// How far ahead a take of this books its entries.
    pub fn books_ahead(&self) -> Micros {
        self.ahead
    }

    /// The most that is admitted per window.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// The window's length.
    pub fn span(&self) -> Micros {
        self.span
    }
}

impl Log {
    /// The admitted runs, oldest first.
    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter()
    }

    /// Whether nothing is recorded.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// How many runs are recorded.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// The latest instant recorded.
    pub fn latest(&self) -> Option<Micros> {
        self.runs.back().map(|run| run.at)
    }

    /// Carries out what a visit decided.
    pub fn apply(&mut self, edit: &Edit) {
        let Edit { drop_after, trim_to, push } = *edit;
        if let Some(after) = drop_after {
            while self.runs.back().is_some_and(|run| run.at > after) {
                self.runs.pop_back();
            }
        }
        if let Some(to) = trim_to {
            while self.runs.front().is_some_and(|run| run.at <= to) {
                self.runs.pop_front();
            }
        }
        if let Some(run) = push {
            self.push(run);
        }
    }

    /// In its place: at the end, unless others are booked ahead of it.
    fn push(&mut self, run: Run) {
        let later = self.runs.iter().rev().take_while(|other| other.at > run.at).count();
        let place = self.runs.len().saturating_sub(later);
        match place.checked_sub(1).and_then(|before| self.runs.get_mut(before)) {
            Some(last) if last.at == run.at && last.first.saturating_add(last.entries) == run.first => {
                last.entries = last.entries.saturating_add(run.entries);
            }
            _ => self.runs.insert(place, run),
        }
    }

    /// Removes the named entries, and says how many of them were there.
    fn remove(&mut self, take: Take, cost: Cost) -> u32 {
        let (from, to) = (take.entry, take.entry.saturating_add(cost.get()));
        let mut removed: u32 = 0;
        let mut kept = VecDeque::with_capacity(self.runs.len().saturating_add(1));
        for run in self.runs.drain(..) {
            let (start, end) = (run.first, run.first.saturating_add(run.entries));
            let (cut_start, cut_end) = (start.max(from), end.min(to));
            if run.at != take.at || cut_start >= cut_end {
                kept.push_back(run);
                continue;
            }
            removed = removed.saturating_add(cut_end.saturating_sub(cut_start));
            for (first, end) in [(start, cut_start), (cut_end, end)] {
                if first < end {
                    kept.push_back(Run { at: run.at, first, entries: end.saturating_sub(first) });
                }
            }
        }
        self.runs = kept;
        removed
    }
}

/// A log as seen at the present: what is live, and what the clock has to say.
struct Present<'a> {
    log: Option<&'a Log>,
    now: Micros,
    behind: Micros,
    span: Micros,
    drop_after: Option<Micros>,
}

impl<'a> Present<'a> {
    fn new(sliding: &SlidingLog, log: Option<&'a Log>, now: Micros) -> Present<'a> {
        let latest = log.and_then(Log::latest).unwrap_or(Micros::ZERO);
        let span = sliding.span;
        // What was booked that far ahead was booked no earlier than then.
        match Reading::of(now, latest - sliding.lease) {
            Reading::Steady { now, behind } => Present { log, now, behind, span, drop_after: None },
            Reading::Stepped => Present { log, now, behind: Micros::ZERO, span, drop_after: Some(now) },
        }
    }

    /// Runs inside the window or ahead of it, oldest first. An entry leaves exactly one span after it came.
    fn live(&self) -> impl DoubleEndedIterator<Item = &'a Run> {
        let (now, span, drop_after) = (self.now, self.span, self.drop_after);
        self.log
            .into_iter()
            .flat_map(|log| log.runs.iter())
            .filter(move |run| drop_after.is_none_or(|after| run.at <= after) && run.at + span > now)
    }

    fn used(&self) -> u32 {
        count(self.live().map(|run| u64::from(run.entries)).sum())
    }

    /// Until `leaving` of the oldest live entries have left.
    fn wait_for(&self, leaving: u32) -> Micros {
        let mut left: u32 = 0;
        for run in self.live() {
            left = left.saturating_add(run.entries);
            if left >= leaving {
                return self.behind + (run.at + self.span - self.now);
            }
        }
        self.behind
    }

    fn wait_for_whole(&self) -> Micros {
        self.live().next_back().map_or(Micros::ZERO, |run| self.behind + (run.at + self.span - self.now))
    }

    /// The number for the next entry of this very microsecond.
    fn next_entry(&self, at: Micros) -> u32 {
        match self.live().rev().find(|run| run.at <= at) {
            Some(run) if run.at == at => run.first.saturating_add(run.entries),
            _ => 0,
        }
    }
}

/// Decides one visit at `now`. Records `cost` entries if the window has room for all of them.
pub fn visit(sliding: &SlidingLog, log: Option<&Log>, now: Micros, cost: Cost, verb: Verb) -> Step<Edit> {
    let present = Present::new(sliding, log, now);
    let used = present.used();
    // By what is left, not by a sum: a sum that saturates at the largest limit would always fit.
    let room = sliding.limit.saturating_sub(used);
    let booked_at = present.now + sliding.ahead;
    let take = Take { at: booked_at, entry: present.next_entry(booked_at) };

    let outcome = if cost.get() > sliding.limit {
        Outcome::Never
    } else if cost.get() > room {
        let leaving = used.saturating_sub(sliding.limit.saturating_sub(cost.get()));
        Outcome::Denied { retry_after: present.wait_for(leaving) }
    } else {
        Outcome::Allowed
    };
    let spends = outcome == Outcome::Allowed && verb == Verb::Take;
    let run = Run { at: take.at, first: take.entry, entries: cost.get() };
    Step {
        decision: Decision {
            outcome,
            limit: sliding.limit,
            remaining: if spends { room.saturating_sub(cost.get()) } else { room },
            reset_after: if spends {
                present.wait_for_whole().max(present.behind + sliding.ahead + sliding.span)
            } else {
                present.wait_for_whole()
            },
            take,
            found: if log.is_some() { Found::State } else { Found::Nothing },
        },
        spend: (outcome == Outcome::Allowed).then_some(Edit {
            drop_after: present.drop_after,
            // By the clock itself, not by the latest entry: that may be undone or refunded, and for whoever
            // knows that it was booked ahead, what would leave with it still counts.
            trim_to: now.0.checked_sub(sliding.span.0).map(Micros),
            push: Some(run),
        }),
        mend: present.drop_after.map(|after| Edit { drop_after: Some(after), trim_to: None, push: None }),
    }
}

/// Takes the named entries out of the log, in place.
pub fn refund(sliding: &SlidingLog, log: Option<&mut Log>, now: Micros, cost: Cost, take: Take) -> Refunded {
    let mut given = 0;
    let mut log = log;
    if let Some(log) = log.as_deref_mut() {
        let present = Present::new(sliding, Some(log), now);
        let is_believed = present.drop_after.is_none_or(|after| take.at <= after);
        let is_live = is_believed && take.at + sliding.span > present.now;
        let removed = log.remove(take, cost);
        given = if is_live { removed } else { 0 };
    }
    let present = Present::new(sliding, log.as_deref(), now);
    Refunded {
        returned: Returned::of(u64::from(given), u64::from(cost.get())),
        limit: sliding.limit,
        remaining: sliding.limit.saturating_sub(present.used()),
        reset_after: present.wait_for_whole(),
    }
}
