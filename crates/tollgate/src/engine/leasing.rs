//! The engine's part in leases: what was decided to be fetched is fetched, and what is left is given back.
//!
//! Fetches run beside the calls that caused them, one per key, so that a caller that gives up does not
//! take the tokens of all others with it.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::futures::OwnedNotified;
use tollgate_core::decision::{Outcome, Returned};
use tollgate_core::few::Few;
use tollgate_core::policy::{Entry, Lease};
use tollgate_core::store::{Store, StoreError};
use tollgate_core::verdict::{Answer, Judged, Source};

use super::{Inner, WeakEngine, together};
use crate::lease::{Fetch, Fetched, GiveBack, Turn};
use crate::observe::{LeaseChange, Operation};

/// How often leases that have ended, or are wanted no more, are looked for.
const SWEEP_EVERY: Duration = Duration::from_millis(50);

/// How often a call waits for tokens that others may take before it.
const WAITS_MAX: usize = 8;

/// How many give-backs are under way at a time.
const TOGETHER: usize = 32;

/// What came of asking the leases.
pub(super) enum Leased {
    /// It is decided.
    Answered((Answer, Source, Few<Judged>)),
    /// The store decides, in the time that is left.
    Ask(Duration),
}

impl<S: Store> Inner<S> {
    /// One call of a rule that leases.
    ///
    /// hot path: no round trip and no allocation while tokens are held.
    #[inline]
    pub(super) async fn leased(self: &Arc<Self>, entry: &Entry<'_>, lease: Lease) -> Leased {
        let (turn, fetch) = self.leases.ask(&entry.check(), lease, true);
        if let Some(fetch) = fetch {
            self.fetch(fetch);
        }
        match turn {
            Turn::Decided(decision) => answered(entry, decision),
            Turn::Exact => Leased::Ask(self.guard.deadline()),
            // Boxed, like all that is rare.
            Turn::Wait(landed) => Box::pin(self.waited(entry, lease, landed)).await,
        }
    }

    /// A call that waits for tokens which are on their way. If others were faster it waits for the next ones,
    /// a few times; whoever goes short then asks for itself.
    async fn waited(self: &Arc<Self>, entry: &Entry<'_>, lease: Lease, landed: OwnedNotified) -> Leased {
        // The clock that the timeout below is measured by.
        let started = tokio::time::Instant::now();
        let deadline = self.guard.deadline();
        let left = || deadline.saturating_sub(started.elapsed());
        let mut landed = landed;
        for _ in 0..WAITS_MAX {
            if tokio::time::timeout(left(), landed).await.is_err() {
                return Leased::Ask(Duration::ZERO);
            }
            let (turn, fetch) = self.leases.ask(&entry.check(), lease, false);
            if let Some(fetch) = fetch {
                self.fetch(fetch);
            }
            match turn {
                Turn::Decided(decision) => return answered(entry, decision),
                Turn::Wait(next) => landed = next,
                Turn::Exact => break,
            }
        }
        Leased::Ask(left())
    }

    /// Fetches beside the calls.
    fn fetch(self: &Arc<Self>, fetch: Fetch) {
        let under_way = UnderWay::new(Arc::clone(self));
        let flight = Flight { inner: Arc::clone(self), fetch, is_landed: false, _under_way: under_way };
        // Elsewhere than on a runtime nothing can be fetched: the flight lands at once, and calls ask for
        // themselves.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(flight.fly());
        }
    }

    /// Asks the store for as much as is wanted, and then for as much as there is.
    async fn fetched(&self, fetch: &Fetch) -> Result<Option<Fetched>, StoreError> {
        let mut amount = fetch.amount();
        let mut last = None;
        for _ in 0..2 {
            let sent = self.leases.now();
            let decisions = self.store.take(&[fetch.check(amount)]).await?;
            let Some(decision) = decisions.first().copied() else { break };
            last = Some(Fetched { sent, amount, decision });
            let rather = fetch.rather(decision.remaining).filter(|_| decision.outcome != Outcome::Allowed);
            match rather {
                Some(rather) => amount = rather,
                None => break,
            }
        }
        Ok(last)
    }

    /// Gives back what was not spent, as far as the store takes it.
    pub(super) async fn give_back(self: &Arc<Self>, unspent: Vec<GiveBack>) {
        let one = async |back: &GiveBack| {
            let refund = [back.refund()];
            let shards = self.store.shards_of(refund.iter().map(|refund| refund.check.key));
            let answered = self.guard.run(&shards, Operation::Refund, self.store.refund(&refund)).await;
            let returned = answered.ok().and_then(|refunded| Some(refunded.first()?.returned));
            self.eased(refund.iter().map(|refund| refund.check.key));
            let tokens = back.unspent.amount.get();
            self.observer.leased(&match returned {
                Some(Returned::All | Returned::Part) => LeaseChange::Returned { tokens },
                Some(Returned::Nothing) | None => LeaseChange::Expired { tokens },
            });
        };
        for some in unspent.chunks(TOGETHER) {
            together(some.iter().map(one)).await;
        }
    }

    /// Gives back beside whatever else goes on.
    pub(super) fn give_back_aside(self: &Arc<Self>, unspent: Vec<GiveBack>) {
        if unspent.is_empty() {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            let inner = Arc::clone(self);
            let under_way = UnderWay::new(inner);
            runtime.spawn(async move { under_way.inner.give_back(unspent).await });
        }
    }

    /// Gives back what has ended or is wanted no more, until the engine is dropped.
    pub(super) async fn sweep_leases(watched: WeakEngine<S>) {
        loop {
            let Some(inner) = watched.inner.upgrade() else { return };
            let unspent = inner.leases.sweep();
            inner.give_back(unspent).await;
            let stirred = inner.leases.stirred();
            drop(inner);
            if let Some(stirred) = stirred {
                stirred.notified().await;
            }
            tokio::time::sleep(SWEEP_EVERY).await;
        }
    }
}

fn answered(entry: &Entry<'_>, decision: tollgate_core::decision::Decision) -> Leased {
    let answer = if decision.outcome == Outcome::Allowed { Answer::Allowed } else { Answer::Refused };
    Leased::Answered((answer, Source::Lease, Few::One(Judged::new(entry, decision))))
}

/// Something that must have ended before what it runs on does.
struct UnderWay<S: Store> {
    inner: Arc<Inner<S>>,
}

impl<S: Store> UnderWay<S> {
    fn new(inner: Arc<Inner<S>>) -> UnderWay<S> {
        inner.leases.set_out();
        UnderWay { inner }
    }
}

impl<S: Store> Drop for UnderWay<S> {
    fn drop(&mut self) {
        self.inner.leases.arrived();
    }
}

/// A fetch under way. It lands even if its runtime ends: callers may be waiting for it elsewhere.
struct Flight<S: Store> {
    inner: Arc<Inner<S>>,
    fetch: Fetch,
    is_landed: bool,
    _under_way: UnderWay<S>,
}

impl<S: Store> Flight<S> {
    async fn fly(mut self) {
        let shards = self.inner.store.shards_of(std::iter::once(self.fetch.check(self.fetch.amount()).key));
        let call = self.inner.fetched(&self.fetch);
        let fetched = self.inner.guard.run(&shards, Operation::Take, call).await.ok().flatten();
        let unspent = self.land(fetched);
        self.inner.give_back(unspent).await;
    }

    fn land(&mut self, fetched: Option<Fetched>) -> Vec<GiveBack> {
        self.is_landed = true;
        if let Some(Fetched { amount, decision, .. }) = fetched
            && decision.outcome == Outcome::Allowed
        {
            self.inner.observer.leased(&LeaseChange::Taken { tokens: amount.get() });
        }
        self.inner.leases.landed(&self.fetch, fetched)
    }
}

impl<S: Store> Drop for Flight<S> {
    fn drop(&mut self) {
        if !self.is_landed {
            self.land(None);
        }
    }
}
