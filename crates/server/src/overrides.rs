//! Overrides: other limits for single keys, made while the server runs and obeyed by every instance.
//!
//! One is a notice on the store's board, named by rule and key. Every instance looks at the board four times
//! a second; the one on which it was made looks at once. What was read holds until its own end, also
//! while the board is out of reach. What a notice says is understood here and nowhere else: it is written
//! as people write limits, because each instance builds it for the rule that it has itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tollgate::core::algorithm::fixed_window::Windows;
use tollgate::core::board::{Notice, Post, Posted};
use tollgate::core::policy::{self, RuleLimit};
use tollgate::core::store::StoreError;
use tollgate::{Algorithm, Rule, clock};

use crate::engine::Engine;
use crate::limit::{LimitProblem, Written};
use crate::telemetry::control::ControlMetrics;

/// How often the board is looked at, give or take a quarter. Often enough that a change holds within a second
/// even if one look fails.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The pause after a look that failed.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// How long the board may be out of reach before anybody is told: one late answer is none of their business.
const QUIET_FOR: Duration = Duration::from_secs(1);

/// Another limit for one key, as it stands on the board.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Change {
    pub(crate) what: What,
    /// Why, for people.
    pub(crate) reason: String,
    /// Who, for people.
    #[serde(default)]
    pub(crate) by: String,
}

/// What holds instead of the rule's limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum What {
    /// These, one for each of the rule's.
    Limits(Vec<LimitText>),
    /// None.
    Unlimited,
    /// A refusal.
    Blocked,
}

/// A limit as people write it; its algorithm is the rule's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LimitText {
    pub(crate) limit: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) burst: Option<u32>,
}

/// Whom an override is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    pub(crate) rule: String,
    pub(crate) key: Vec<u8>,
}

/// One override that is known here.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) change: Change,
    /// By this host's monotonic clock: the hosts of a fleet need not agree on the time of day.
    pub(crate) ends: Instant,
    /// Why it is not in force here, if it is not: no such rule, or one with other limits.
    pub(crate) idle: Option<String>,
}

/// What is known of the board.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) known: BTreeMap<Target, Known>,
    /// Since when it has been out of reach, and why.
    pub(crate) unreachable: Option<(Instant, StoreError)>,
}

/// Makes overrides, and obeys them.
#[derive(Debug)]
pub(crate) struct Overrides {
    engine: Engine,
    /// The longest `sliding_log`.
    log_max: u32,
    metrics: Arc<ControlMetrics>,
    /// The version of the board that was seen. Held by whoever looks.
    seen: Mutex<u64>,
    snapshot: ArcSwap<Snapshot>,
    /// Whether the log has been told that the board is out of reach.
    is_told: AtomicBool,
}

/// Why a change cannot be made to a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Misfit {
    /// Which of the limits it is, if it is one.
    pub(crate) at: Option<usize>,
    pub(crate) problem: LimitProblem,
}

impl Target {
    /// Its name on the board. No rule has a zero byte in its name.
    fn name(&self) -> Vec<u8> {
        [self.rule.as_bytes(), b"\0", &self.key].concat()
    }

    fn parse(name: &[u8]) -> Option<Target> {
        let end = name.iter().position(|&byte| byte == 0)?;
        let (rule, key) = (name.get(..end)?, name.get(end.saturating_add(1)..)?);
        Some(Target { rule: String::from_utf8(rule.to_vec()).ok()?, key: key.to_vec() })
    }
}

impl Change {
    /// As the core has it, for the rule as it is here.
    pub(crate) fn build(&self, rule: &Rule, log_max: u32) -> Result<policy::Override, Misfit> {
        let texts = match &self.what {
            What::Blocked => return Ok(policy::Override::Blocked),
            What::Unlimited => return Ok(policy::Override::Unlimited),
            What::Limits(texts) => texts,
        };
        let limits = rule.limits();
        if texts.len() != limits.len() {
            let why = format!("rule \"{}\" has {} limits: give one for each", rule.name(), limits.len());
            return Err(Misfit {
                at: None,
                problem: LimitProblem { field: "limits", why, is_conflict: false },
            });
        }
        let built = limits.iter().zip(texts).enumerate().map(|(at, (limit, text))| {
            text.build(limit, log_max).map_err(|problem| Misfit { at: Some(at), problem })
        });
        built.collect::<Result<_, _>>().map(policy::Override::Limits)
    }
}

impl LimitText {
    fn build(&self, instead_of: &RuleLimit, log_max: u32) -> Result<Algorithm, LimitProblem> {
        let time_zone = match instead_of.algorithm() {
            Algorithm::FixedWindow(fixed) => match fixed.windows() {
                // `month in Europe/Berlin`
                Windows::Calendar(calendar) => calendar.name().rsplit_once(" in ").map(|(_, zone)| zone),
                Windows::Every(_) => None,
            },
            _ => None,
        };
        let written = Written {
            limit: &self.limit,
            burst: self.burst,
            algorithm: Some(instead_of.algorithm().kind().name()),
            time_zone,
        };
        written.build(log_max).map(|built| built.algorithm)
    }
}

impl Overrides {
    /// None are known yet.
    pub(crate) fn new(engine: Engine, log_max: u32, metrics: Arc<ControlMetrics>) -> Overrides {
        let (seen, snapshot) = (Mutex::new(0), ArcSwap::default());
        Overrides { engine, log_max, metrics, seen, snapshot, is_told: AtomicBool::new(false) }
    }

    /// What is known of the board.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Puts an override on the board for all instances, and in force here.
    pub(crate) async fn put(
        &self,
        target: &Target,
        change: &Change,
        keep_for: Duration,
    ) -> Result<Post, StoreError> {
        let text = serde_json::to_vec(change).unwrap_or_else(|_| unreachable!("texts and numbers alone"));
        let post = self.engine.post(&target.name(), Some(Notice { text: &text, keep_for })).await?;
        self.look().await?;
        Ok(post)
    }

    /// Takes an override down.
    pub(crate) async fn remove(&self, target: &Target) -> Result<Post, StoreError> {
        let post = self.engine.post(&target.name(), None).await?;
        self.look().await?;
        Ok(post)
    }

    /// The look before any door opens. A store that does not answer keeps nobody from starting, and yet who is
    /// blocked elsewhere may not be blocked here.
    pub(crate) async fn first_look(&self) {
        if let Err(error) = self.look().await {
            self.is_told.store(true, Ordering::Relaxed);
            tracing::warn!(%error, "the board of overrides cannot be read: those made elsewhere do not hold here yet");
        }
    }

    /// Looks at the board, and obeys what it says. What is known stays known where it cannot be seen.
    pub(crate) async fn look(&self) -> Result<(), StoreError> {
        let mut seen = self.seen.lock().await;
        let looked = self.engine.board(*seen).await;
        let before = self.snapshot.load();
        let known = match &looked {
            Ok(Some(board)) => {
                *seen = board.version;
                read(&board.notices)
            }
            Ok(None) | Err(_) => before.known.clone(),
        };
        let unreachable = looked.as_ref().err().map(|error| {
            let since = before.unreachable.as_ref().map_or_else(clock::instant, |(since, _)| *since);
            (since, error.clone())
        });
        self.told(unreachable.as_ref());
        self.obey(known, unreachable);
        looked.map(drop)
    }

    /// Builds what is known anew, for a policy that is another.
    pub(crate) async fn reapply(&self) {
        let _seen = self.seen.lock().await;
        let Snapshot { known, unreachable } = (*self.snapshot()).clone();
        self.obey(known, unreachable);
    }

    /// Puts what has not ended in force. Only by whoever holds `seen`.
    fn obey(&self, mut known: BTreeMap<Target, Known>, unreachable: Option<(Instant, StoreError)>) {
        let now = clock::instant();
        known.retain(|_, one| one.ends > now);
        let policy = self.engine.policy();
        let mut overrides = policy::Overrides::default();
        for (Target { rule, key }, one) in &mut known {
            let built = match policy.rule(rule) {
                Some(rule) => one.change.build(rule, self.log_max).map_err(|misfit| misfit.problem.why),
                None => Err("there is no such rule here".to_owned()),
            };
            one.idle = match built {
                Ok(instead) => {
                    overrides.insert(rule, key, instead);
                    None
                }
                Err(why) => Some(why),
            };
        }
        self.metrics.overrides(known.len());
        if *policy.overrides() != overrides {
            self.engine.swap_overrides(overrides);
        }
        self.snapshot.store(Arc::new(Snapshot { known, unreachable }));
    }

    /// Says in the log that the board is out of reach, and that it is not any more, once each.
    fn told(&self, now: Option<&(Instant, StoreError)>) {
        let is_long = |since: &Instant| since.elapsed() >= QUIET_FOR;
        self.metrics.board_unreachable(now.is_some_and(|(since, _)| is_long(since)));
        match now {
            Some((since, error)) if is_long(since) && !self.is_told.swap(true, Ordering::Relaxed) => {
                tracing::warn!(%error, "the board of overrides is out of reach; those that are known hold on");
            }
            None if self.is_told.swap(false, Ordering::Relaxed) => {
                tracing::warn!("the board of overrides is within reach again");
            }
            _ => {}
        }
    }

    /// When the next one ends, or the board is to be looked at anyway.
    fn pause(&self) -> Duration {
        let snapshot = self.snapshot.load();
        let pause = if snapshot.unreachable.is_some() { LOOK_AGAIN } else { LOOK_EVERY };
        // Jittered: a fleet that was started together need not look in step.
        let pause = pause.mul_f64(0.75 + fastrand::f64() / 2.0);
        let now = clock::instant();
        let ends = snapshot.known.values().map(|one| one.ends).min();
        ends.map_or(pause, |ends| pause.min(ends.saturating_duration_since(now)))
    }
}

impl Snapshot {
    /// Since when, and why, the board has been out of reach for longer than it takes to blink.
    pub(crate) fn is_out_of_reach(&self) -> Option<&(Instant, StoreError)> {
        self.unreachable.as_ref().filter(|(since, _)| since.elapsed() >= QUIET_FOR)
    }
}

/// Looks at the board for ever.
pub(crate) async fn watch(overrides: Arc<Overrides>) {
    loop {
        tokio::time::sleep(overrides.pause()).await;
        // What went wrong is in the snapshot, for health to show.
        let _ = overrides.look().await;
    }
}

/// What a board says. A notice of another release that is not understood here is left alone.
fn read(notices: &[Posted]) -> BTreeMap<Target, Known> {
    let now = clock::instant();
    let understood = notices.iter().filter_map(|notice| {
        let parsed = Target::parse(&notice.name).zip(serde_json::from_slice::<Change>(&notice.text).ok());
        let Some((target, change)) = parsed else {
            tracing::warn!(bytes = notice.text.len(), "a notice on the board is not understood here");
            return None;
        };
        let ends = now.checked_add(notice.left)?;
        Some((target, Known { change, ends, idle: None }))
    });
    understood.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::{Kind, Rate};

    fn limits(texts: &[(&str, Option<u32>)]) -> Change {
        let texts =
            texts.iter().map(|(limit, burst)| LimitText { limit: (*limit).to_owned(), burst: *burst });
        Change { what: What::Limits(texts.collect()), reason: "because".to_owned(), by: String::new() }
    }

    #[test]
    fn what_is_written_on_the_board_is_read_back() {
        for what in [What::Blocked, What::Unlimited, limits(&[("5/s", None), ("9/h", Some(3))]).what] {
            let change = Change { what, reason: "a \"quoted\" word".to_owned(), by: "ann".to_owned() };
            let target = Target { rule: "api".to_owned(), key: b"a\0b\xff".to_vec() };
            let text = serde_json::to_vec(&change).unwrap();
            let posted = Posted { name: target.name(), text, left: Duration::from_secs(5) };
            let foreign = Posted { name: b"x".to_vec(), text: b"{}".to_vec(), left: Duration::from_secs(5) };
            let known = read(&[foreign, posted]);
            assert_eq!(known.len(), 1);
            assert_eq!(known[&target].change, change);
        }
    }

    #[test]
    fn limits_are_built_with_the_algorithms_of_the_rule() {
        let of = |kind, rate: &str| Algorithm::try_new(kind, Rate::parse(rate).unwrap(), None, 100).unwrap();
        let rule = [of(Kind::TokenBucket, "5/s"), of(Kind::SlidingLog, "7/h")];
        let rule = Rule::try_new("api", rule.into(), None).unwrap();
        let built = limits(&[("10/s", Some(20)), ("70/h", None)]).build(&rule, 100).unwrap();
        let policy::Override::Limits(built) = built else { panic!("{built:?}") };
        assert_eq!(
            built.iter().map(Algorithm::kind).collect::<Vec<_>>(),
            [Kind::TokenBucket, Kind::SlidingLog]
        );
        assert_eq!((built[0].limit(), built[1].limit()), (20, 70));

        for (change, field) in [
            (limits(&[("10/s", None)]), "limits"),
            (limits(&[("10", None), ("1/s", None)]), "limit"),
            (limits(&[("10/s", None), ("1/s", Some(2))]), "burst"),
            (limits(&[("10/s", None), ("101/s", None)]), "limit"),
        ] {
            assert_eq!(change.build(&rule, 100).unwrap_err().problem.field, field, "{change:?}");
        }
    }

    #[test]
    fn a_calendar_stays_the_calendar_of_the_rule() {
        let written = Written {
            limit: "9/month",
            burst: None,
            algorithm: Some("fixed_window"),
            time_zone: Some("Europe/Berlin"),
        };
        let rule = Rule::try_new("q", vec![written.build(1).unwrap().algorithm], None).unwrap();
        let built = limits(&[("99/month", None)]).build(&rule, 1).unwrap();
        let policy::Override::Limits(built) = built else { panic!("{built:?}") };
        assert_eq!(crate::limit::rate_in_words(&built[0]), "99/month in Europe/Berlin");
    }
}
