//! What a rule's `on_outage` means, carried out.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tollgate_core::algorithm::Algorithm;
use tollgate_core::check::Check;
use tollgate_core::decision::{Decision, Found, Outcome, Take};
use tollgate_core::few::Few;
use tollgate_core::policy::{Entry, OnOutage, Policy, Rule};
use tollgate_core::store::Store;
use tollgate_core::units::Micros;
use tollgate_core::verdict::{Answer, Judged, Source};

use crate::clock;
use crate::store::memory::MemoryStore;

/// When to come back, said under `deny`: nobody knows when the store will be well.
const RETRY_UNDER_DENY: Micros = Micros::SECOND;

/// How long fewer instances must be seen before they are believed to be all. A store that lost its
/// state shows an instance only itself at first; by then every one that is alive has been heard.
const FEWER_AFTER: Duration = Duration::from_secs(2);

/// Decides while the store does not.
#[derive(Debug)]
pub struct Fallback {
    /// This instance's own buckets. They survive a flapping guard: nothing here is cleared when
    /// the store comes back, so an outage of seconds cannot be used as a refill.
    local: MemoryStore,
    on_outage: OnOutage,
    instances_min: u32,
    instances_seen: AtomicU32,
    /// Since when fewer have been seen than are believed in.
    fewer_since: Mutex<Option<Instant>>,
}

impl Fallback {
    /// A fallback that answers `on_outage` for what names none, and shares limits among at least
    /// `instances_min`.
    pub fn new(local: MemoryStore, on_outage: OnOutage, instances_min: u32) -> Fallback {
        Fallback {
            local,
            on_outage,
            instances_min: instances_min.max(1),
            instances_seen: AtomicU32::new(1),
            fewer_since: Mutex::new(None),
        }
    }

    /// Remembers how many instances a heartbeat saw: more at once, fewer only after a while.
    pub fn saw_instances(&self, instances: u32) {
        let mut fewer_since = self.fewer_since.lock();
        if instances < self.instances_seen.load(Ordering::Relaxed)
            && fewer_since.get_or_insert_with(clock::instant).elapsed() < FEWER_AFTER
        {
            return;
        }
        *fewer_since = None;
        self.instances_seen.store(instances, Ordering::Relaxed);
    }

    /// How many instances a limit is shared among.
    pub fn instances(&self) -> u32 {
        self.instances_seen.load(Ordering::Relaxed).max(self.instances_min)
    }

    /// The memory that `local` decides from.
    pub fn local(&self) -> &MemoryStore {
        &self.local
    }

    /// Answers an ask whose store did not.
    ///
    /// One rule that says `deny` refuses the ask; otherwise those that say `local` decide together
    /// and those that say `allow` pass.
    pub async fn decide(
        &self,
        policy: &Policy,
        entries: &[Entry<'_>],
        peeks: bool,
    ) -> (Answer, Source, Few<Judged>) {
        let checks: Few<Check<'_>> = entries.iter().map(Entry::check).collect();
        let choice_of = |origin| policy.rule_of(origin).and_then(Rule::on_outage).unwrap_or(self.on_outage);
        let choices: Few<OnOutage> = entries.iter().map(|entry| choice_of(entry.origin)).collect();

        let shares: Vec<(usize, Algorithm)> = choices
            .iter()
            .enumerate()
            .filter(|(_, choice)| **choice == OnOutage::Local)
            .filter_map(|(at, _)| {
                Some((at, checks.get(at)?.algorithm.share(self.instances(), checks.get(at)?.cost)))
            })
            .collect();
        let local: Vec<Check<'_>> = shares
            .iter()
            .filter_map(|(at, algorithm)| checks.get(*at).map(|check| Check { algorithm, ..*check }))
            .collect();

        let mut decisions: Vec<Decision> =
            checks.iter().zip(&choices).map(|(check, choice)| guess(check, *choice)).collect();
        let spoken_for = |decisions: &[Decision]| decisions.iter().any(|d| d.outcome != Outcome::Allowed);

        // A refusal must not spend: only if nothing else refuses may the local limits be taken.
        if !local.is_empty() {
            let answered = if peeks || spoken_for(&decisions) {
                self.local.peek(&local).await
            } else {
                self.local.take(&local).await
            };
            if let Ok(answered) = answered {
                for ((at, _), decision) in shares.iter().zip(&answered) {
                    if let Some(place) = decisions.get_mut(*at) {
                        // The share decides; the rule's own limit is what the caller knows.
                        let limit = checks.get(*at).map_or(decision.limit, |check| check.algorithm.limit());
                        *place = Decision { limit, ..*decision };
                    }
                }
            }
        }

        let source = [OnOutage::Deny, OnOutage::Local, OnOutage::Allow]
            .into_iter()
            .find(|choice| choices.contains(choice))
            .map_or(Source::Unlimited, Source::Fallback);
        let answer = if spoken_for(&decisions) { Answer::Refused } else { Answer::Allowed };
        let judged =
            entries.iter().zip(decisions).map(|(entry, decision)| Judged::new(entry, decision)).collect();
        (answer, source, judged)
    }
}

/// What can be said of a check without any state.
fn guess(check: &Check<'_>, choice: OnOutage) -> Decision {
    let limit = check.algorithm.limit();
    let outcome = match choice {
        _ if check.cost.get() > limit => Outcome::Never,
        OnOutage::Deny => Outcome::Denied { retry_after: RETRY_UNDER_DENY },
        OnOutage::Allow | OnOutage::Local => Outcome::Allowed,
    };
    Decision {
        outcome,
        limit,
        remaining: if outcome == Outcome::Allowed { limit } else { 0 },
        reset_after: check.algorithm.time_to_whole(),
        take: Take { at: clock::wall(), entry: 0 },
        found: Found::Nothing,
    }
}
