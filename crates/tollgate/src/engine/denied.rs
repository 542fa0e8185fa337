//! The engine's part in the deny cache: what is remembered, who waits, and what is forgotten again.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tollgate_core::decision::{Decision, Outcome};
use tollgate_core::few::Few;
use tollgate_core::key::Key;
use tollgate_core::policy::{Matched, Policy};
use tollgate_core::push::{Push, Topic};
use tollgate_core::store::{Reach, Store};
use tollgate_core::verdict::{Answer, Judged, Source};

use super::{Engine, Inner, judged};
use crate::clock;
use crate::deny_cache::{self, Asking, DenyCache, Look};
use crate::observe::Operation;

impl<S: Store> Inner<S> {
    /// What was remembered of these keys holds no more: here at once, elsewhere as soon as the push is heard.
    pub(super) fn eased<'k>(self: &Arc<Self>, keys: impl Iterator<Item = Key<'k>> + Clone) {
        if let Some(cache) = &self.deny_cache {
            keys.clone().for_each(|key| cache.ease(&key));
        }
        let texts = match self.store.reach() {
            Reach::Process => return,
            Reach::Fleet => deny_cache::texts(keys),
        };
        // On the side: nobody waits for a push that may be lost anyway.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let engine = Engine { inner: Arc::clone(self) };
            runtime.spawn(async move {
                for text in texts {
                    let _ = engine.publish(Push { topic: Topic::Eased, text: &text }).await;
                }
            });
        }
    }

    /// What the store decided; a refusal is remembered.
    #[inline]
    pub(super) fn as_decided(
        &self,
        asking: Option<Asking<'_>>,
        matched: &Matched<'_>,
        decisions: &Few<Decision>,
    ) -> (Answer, Source, Few<Judged>) {
        let is_refused = decisions.iter().any(|decision| decision.outcome != Outcome::Allowed);
        if is_refused && let (Some(cache), Some(asking)) = (&self.deny_cache, &asking) {
            cache.remember(asking, &matched.enforced, decisions);
        }
        // Order: whoever waits for this ask is woken only now, and finds what it was told.
        drop(asking);
        let answer = if is_refused { Answer::Refused } else { Answer::Allowed };
        (answer, Source::Store, judged(&matched.enforced, decisions))
    }

    /// A take that first waits for another one of a drained key, within one deadline for both.
    pub(super) async fn after_another(
        &self,
        cache: &DenyCache,
        gate: &Notify,
        policy: &Policy,
        matched: &Matched<'_>,
        patience: Duration,
    ) -> (Answer, Source, Few<Judged>) {
        let started = clock::instant();
        let asking = match cache.queue(gate, &matched.enforced, patience / 2).await {
            Look::Refused(checks) => return (Answer::Refused, Source::DenyCache, checks),
            Look::Ask(asking) => Some(asking),
            Look::Queue(_) => None,
        };
        let checks = matched.checks();
        let left = patience.saturating_sub(started.elapsed());
        let shards = self.store.shards_of(checks.iter().map(|check| check.key));
        match self.guard.run_within(&shards, Operation::Take, left, pin!(self.store.take(&checks))).await {
            Ok(decisions) => self.as_decided(asking, matched, &decisions),
            Err(_) => Box::pin(self.fallback.decide(policy, &matched.enforced, false)).await,
        }
    }
}
