//! What a fault did, held against what is promised.
//!
//! The bound: over any T on Redis' clock, admitted ≤ C·(1+L) + r·(T+S) + F. Here one Redis accepts
//! at a time, so S is 0; L is stated by each fault; F is counted from the verdicts themselves.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tollgate::core::decision::Outcome;
use tollgate::core::units::Micros;
use tollgate::{OnOutage, Source};

use crate::excess::worst_excess;
use crate::stand::{Asked, CAPACITY, Change, DEADLINE, RATE, RULES};

/// P7: the longest it may take until decisions come from Redis again.
const BACK_MAX: Duration = Duration::from_secs(2);

/// P5, for a machine that is shared with other tests. The campaign holds the strict one.
const LATE_MAX: Duration = Duration::from_millis(60);

/// P5, strictly.
pub(crate) const LATE_MAX_STRICT: Duration = Duration::from_millis(5);

/// What a fault did.
#[derive(Debug)]
pub(crate) struct Report {
    /// Its name.
    pub fault: &'static str,
    /// L: how often Redis lost its state.
    pub losses: u32,
    /// Every ask.
    pub asked: Vec<Asked>,
    /// By how much the machine itself overslept.
    pub stall: Duration,
    /// When Redis failed.
    pub broke: Instant,
    /// When Redis was well again.
    pub well: Instant,
    /// How the guard changed.
    pub changes: Vec<(Instant, Change)>,
    /// How often each error was seen.
    pub errors: BTreeMap<String, u64>,
    /// How many instances a local share was computed for.
    pub instances: u32,
    /// What else is worth saying.
    pub note: String,
}

impl Report {
    /// Holds the fault against every promise but the guard's changes.
    pub(crate) fn keeps_promises(&self) -> &Report {
        println!("{}", self.row());
        println!("    errors {:?}, guard {:?}", self.errors, self.changes_since_broke());
        for rule in RULES {
            let excess = self.excess(rule);
            let bound = f64::from(CAPACITY * (1 + self.losses));
            assert!(excess <= bound, "{}: rule {rule}: {excess} above r·T, bound {bound}", self.fault);
        }
        self.fallback_answers_as_its_rule_says();
        let late = self.longest().saturating_sub(DEADLINE);
        assert!(late <= LATE_MAX + self.stall, "{}: a check took {:?}", self.fault, self.longest());
        assert!(self.back() <= BACK_MAX, "{}: back after {:?}", self.fault, self.back());
        self
    }

    /// Whether the machine itself got in the way: it stalled for a good part of a deadline, or asks
    /// timed out while Redis was well.
    pub(crate) fn is_disturbed(&self) -> bool {
        let is_beside = |asked: &&Asked| {
            let at = asked.at + asked.took;
            at < self.broke || at > self.well + BACK_MAX / 2
        };
        self.stall > DEADLINE / 2 || self.by_fallback().filter(is_beside).count() > 0
    }

    /// The guard opened once and closed once.
    pub(crate) fn guard_opened_once(&self) -> &Report {
        let changes: Vec<Change> = self.changes.iter().map(|(_, change)| change.clone()).collect();
        assert!(
            matches!(changes.as_slice(), [Change::Opened(_), Change::Closed]),
            "{}: the guard went {changes:?}",
            self.fault
        );
        self
    }

    /// An error of this name was seen: the fault was the one it claims to be.
    pub(crate) fn saw(&self, error: &str) -> &Report {
        assert!(self.errors.contains_key(error), "{}: no {error} among {:?}", self.fault, self.errors);
        self
    }

    /// Redis answered all along. A machine that stalls for a deadline's length may time out a few
    /// asks; nothing else may come between.
    pub(crate) fn never_fell_back(&self) -> &Report {
        let (few, all) = (self.by_fallback().count(), self.asked.len());
        let is_by_stall = self.errors.keys().all(|error| error == "timeout");
        assert!(is_by_stall && few * 20 <= all, "{}: {few} of {all}; {:?}", self.fault, self.errors);
        self
    }

    /// P6: every fallback names its rule's choice and answers as that says.
    fn fallback_answers_as_its_rule_says(&self) {
        let retry_after = Micros::SECOND;
        for asked in self.by_fallback() {
            let Asked { rule, is_allowed, source, decision, .. } = asked;
            assert_eq!(*source, Source::Fallback(*rule), "{}", self.fault);
            assert_eq!(decision.limit, CAPACITY);
            match rule {
                OnOutage::Allow => {
                    assert!(is_allowed);
                    assert_eq!(decision.remaining, CAPACITY);
                }
                OnOutage::Deny => {
                    assert!(!is_allowed);
                    assert_eq!(decision.outcome, Outcome::Denied { retry_after });
                }
                OnOutage::Local => assert_eq!(*is_allowed, decision.outcome == Outcome::Allowed),
            }
        }
        let shared_by = f64::from(self.instances);
        let local = self.by_fallback().filter(|asked| asked.rule == OnOutage::Local);
        let local: Vec<u64> =
            local.filter(|asked| asked.is_allowed).map(|asked| asked.decision.take.at.0).collect();
        let excess = worst_excess(local, f64::from(RATE) / shared_by);
        assert!(
            excess <= (f64::from(CAPACITY) / shared_by).max(1.0),
            "{}: local excess {excess}",
            self.fault
        );
    }

    /// The worst over any interval of what Redis admitted beyond r·T, by Redis' clock.
    pub(crate) fn excess(&self, rule: OnOutage) -> f64 {
        let admitted = self.asked.iter().filter(|asked| asked.rule == rule && asked.source == Source::Store);
        let at = admitted.filter(|asked| asked.is_allowed).map(|asked| asked.decision.take.at.0).collect();
        worst_excess(at, f64::from(RATE))
    }

    /// The excess of the worst rule.
    pub(crate) fn excess_max(&self) -> f64 {
        RULES.into_iter().map(|rule| self.excess(rule)).fold(0.0, f64::max)
    }

    /// F of one rule: what its fallback admitted.
    pub(crate) fn fallback_admitted(&self, rule: OnOutage) -> usize {
        self.by_fallback().filter(|asked| asked.rule == rule && asked.is_allowed).count()
    }

    /// The longest check.
    pub(crate) fn longest(&self) -> Duration {
        self.asked.iter().map(|asked| asked.took).max().unwrap_or_default()
    }

    /// From Redis being well until the last answer that came from elsewhere.
    pub(crate) fn back(&self) -> Duration {
        let last = self.by_fallback().map(|asked| asked.at + asked.took).max();
        last.map_or(Duration::ZERO, |last| last.saturating_duration_since(self.well))
    }

    fn by_fallback(&self) -> impl Iterator<Item = &Asked> {
        self.asked.iter().filter(|asked| matches!(asked.source, Source::Fallback(_)))
    }

    fn changes_since_broke(&self) -> Vec<String> {
        let shown = |(at, change): &(Instant, Change)| {
            format!("{}ms {change:?}", at.saturating_duration_since(self.broke).as_millis())
        };
        self.changes.iter().map(shown).collect()
    }

    /// The row of this run in the table of `docs/failure.md`.
    pub(crate) fn row(&self) -> String {
        format!(
            "| {} | {:.0} over r·T | {} | {} | {} by allow, {} by local | {:.1} ms | {:.0} ms | {} |",
            self.fault,
            self.excess_max(),
            CAPACITY * (1 + self.losses),
            self.losses,
            self.fallback_admitted(OnOutage::Allow),
            self.fallback_admitted(OnOutage::Local),
            self.longest().as_secs_f64() * 1000.0,
            self.back().as_secs_f64() * 1000.0,
            self.note,
        )
    }
}
