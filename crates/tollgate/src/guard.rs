//! Deadline and breaker around the store: a dead Redis costs a check nothing.
//!
//! A check waits at most the deadline. After several failures in a row the guard opens, and from
//! then on a check is not even sent; a background heartbeat probes the store and closes the guard
//! when it answers. Waiting for the next check to probe instead would make some user's request
//! the guinea pig, every time.
//!
//! A store may have shards that fail by themselves, and so each has a breaker of its own: a sick one keeps
//! nobody from a healthy one. A call that involves several is kept back by any that is open, but opens none:
//! which of them was at fault it cannot tell, so all are probed.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tollgate_core::few::Few;
use tollgate_core::store::{Shard, StoreError};

use crate::clock;
use crate::observe::{Call, GuardChange, Observer, Operation};

/// How long a check waits for the store unless set otherwise.
pub const DEADLINE: Duration = Duration::from_millis(25);

/// How many failures in a row open the guard unless set otherwise.
pub const FAILURES_TO_OPEN: u32 = 5;

/// Shards that have a breaker of their own; any beyond share that of the whole.
const SHARDS_MAX: usize = 1024;

/// Deadline and breaker around a store.
pub struct Guard {
    deadline: Duration,
    failures_to_open: u32,
    made: Instant,
    /// How many shards are set aside.
    open: AtomicUsize,
    whole: Breaker,
    /// The breakers of shards, made as they are heard of.
    others: OnceLock<Box<[OnceLock<Box<Breaker>>]>>,
    opened: Arc<Notify>,
    observer: Arc<dyn Observer>,
}

/// How one shard has been doing.
#[derive(Debug, Default)]
struct Breaker {
    failures: AtomicU32,
    /// When the first of the present failures came, in microseconds since the guard was made.
    failing_since_us: AtomicU64,
    /// Odd while open. Counting transitions lets a late failure tell that it is of an older time.
    epoch: AtomicU64,
    outage: Mutex<Option<Outage>>,
}

/// What is known of the present outage.
#[derive(Debug, Clone)]
pub struct Outage {
    /// Since when.
    pub since: Instant,
    /// The failure that opened the guard.
    pub error: StoreError,
}

impl Guard {
    /// A closed guard.
    pub fn new(deadline: Duration, failures_to_open: u32, observer: Arc<dyn Observer>) -> Guard {
        Guard {
            deadline,
            failures_to_open: failures_to_open.max(1),
            made: clock::instant(),
            open: AtomicUsize::new(0),
            whole: Breaker::default(),
            others: OnceLock::new(),
            opened: Arc::default(),
            observer,
        }
    }

    /// Whether calls are being kept from any shard of the store.
    pub fn is_open(&self) -> bool {
        self.shards_open() != 0
    }

    /// Whether calls are being kept from one shard.
    pub fn is_open_for(&self, shard: Shard) -> bool {
        self.breaker(shard).is_open()
    }

    /// Whether calls are being kept from any of these shards.
    pub fn is_open_for_any(&self, shards: &[Shard]) -> bool {
        self.is_open() && shards.iter().any(|&shard| self.is_open_for(shard))
    }

    /// The present outage, the first of them if there are several.
    pub fn outage(&self) -> Option<Outage> {
        self.breakers().find_map(|breaker| breaker.outage.lock().clone())
    }

    /// How many shards are set aside.
    pub fn shards_open(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    fn breakers(&self) -> impl Iterator<Item = &Breaker> {
        let others = self.others.get().into_iter().flatten();
        std::iter::once(&self.whole).chain(others.filter_map(OnceLock::get).map(|breaker| &**breaker))
    }

    fn breaker(&self, shard: Shard) -> &Breaker {
        if shard == Shard::WHOLE {
            return &self.whole;
        }
        let others = self.others.get_or_init(|| (1..SHARDS_MAX).map(|_| OnceLock::new()).collect());
        let other = others.get(usize::from(shard.0) - 1);
        other.map_or(&self.whole, |breaker| breaker.get_or_init(Box::default))
    }

    /// Told each time the guard opens, or has reason to look at every shard, so that whoever probes need
    /// not look all the time.
    pub fn opened(&self) -> Arc<Notify> {
        Arc::clone(&self.opened)
    }

    /// Runs one call on these shards, unless the guard is open for any of them, for at most the deadline.
    ///
    /// hot path: a store that answers at once (memory) costs one poll: no timer, no clock.
    pub async fn run<T>(
        &self,
        shards: &Few<Shard>,
        operation: Operation,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.run_within(shards, operation, self.deadline, call).await
    }

    /// The same for a caller that has waited already, and has only so long left.
    pub async fn run_within<T>(
        &self,
        shards: &Few<Shard>,
        operation: Operation,
        patience: Duration,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let Few::One(shard) = shards else {
            return self.run_on_several(shards, operation, patience, call).await;
        };
        let breaker = self.breaker(*shard);
        let epoch = breaker.epoch.load(Ordering::Acquire);
        if is_open_in(epoch) {
            return Err(set_aside());
        }
        let mut call = pin!(call);
        let failure = match once(call.as_mut()).await {
            Poll::Ready(Ok(done)) => {
                breaker.succeeded();
                return Ok(done);
            }
            Poll::Ready(Err(error)) => Some(error),
            Poll::Pending => None,
        };
        self.settle(*shard, epoch, operation, patience, failure, call).await
    }

    async fn run_on_several<T>(
        &self,
        shards: &[Shard],
        operation: Operation,
        patience: Duration,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        if self.is_open_for_any(shards) {
            return Err(set_aside());
        }
        let (_, result) = self.see_through(operation, patience, None, pin!(call)).await;
        if result.is_err() {
            self.opened.notify_one();
        }
        result
    }

    /// How long a check waits.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Runs one call on a shard even if the guard is open for it, and closes it if the call succeeds.
    pub async fn probe<T>(
        &self,
        shard: Shard,
        operation: Operation,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let breaker = self.breaker(shard);
        let epoch = breaker.epoch.load(Ordering::Acquire);
        let mut call = pin!(call);
        let result = match once(call.as_mut()).await {
            Poll::Ready(Ok(done)) => {
                breaker.succeeded();
                Ok(done)
            }
            Poll::Ready(Err(error)) => {
                self.settle(shard, epoch, operation, self.deadline, Some(error), call).await
            }
            Poll::Pending => self.settle(shard, epoch, operation, self.deadline, None, call).await,
        };
        if result.is_ok() {
            self.close(shard);
        }
        result
    }

    /// Runs one call that no ask waits for, for at most `patience` and whether the guard is open or not.
    /// What comes of it says nothing about the guard: a board out of reach is no outage.
    pub async fn aside<T>(
        &self,
        operation: Operation,
        patience: Duration,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let mut call = pin!(call);
        let failure = match once(call.as_mut()).await {
            Poll::Ready(Ok(done)) => return Ok(done),
            Poll::Ready(Err(error)) => Some(error),
            Poll::Pending => None,
        };
        self.see_through(operation, patience, failure, call).await.1
    }

    /// Sees a call through that its first poll did not: it is waited for, or has failed.
    async fn settle<T>(
        &self,
        shard: Shard,
        epoch: u64,
        operation: Operation,
        patience: Duration,
        failure: Option<StoreError>,
        call: Pin<&mut impl Future<Output = Result<T, StoreError>>>,
    ) -> Result<T, StoreError> {
        let (started, result) = self.see_through(operation, patience, failure, call).await;
        match &result {
            Ok(_) => self.breaker(shard).succeeded(),
            Err(error) => self.failed(shard, epoch, started, error),
        }
        result
    }

    /// Waits for a call for at most `patience`, and tells the observer; says when it began to.
    async fn see_through<T>(
        &self,
        operation: Operation,
        patience: Duration,
        failure: Option<StoreError>,
        call: Pin<&mut impl Future<Output = Result<T, StoreError>>>,
    ) -> (Instant, Result<T, StoreError>) {
        let started = clock::instant();
        let result = match failure {
            Some(error) => Err(error),
            None => match tokio::time::timeout(patience, call).await {
                Ok(result) => result,
                Err(_) => Err(StoreError::TimedOut { waited: patience }),
            },
        };
        self.observer.called(&Call { operation, took: started.elapsed(), error: result.as_ref().err() });
        (started, result)
    }

    /// Counts a failure, and opens the guard if it is one too many.
    ///
    /// Calls that time out together saw one and the same stall. That is one failure, not several in
    /// a row: to open the guard, a call that began after the first of them must time out too.
    fn failed(&self, shard: Shard, epoch: u64, started: Instant, error: &StoreError) {
        let breaker = self.breaker(shard);
        // One that began before the guard last changed says nothing about the store now.
        if is_open_in(epoch) || epoch != breaker.epoch.load(Ordering::Acquire) {
            return;
        }
        let failures = breaker.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if failures == 1 {
            breaker.failing_since_us.store(self.micros_until(clock::instant()), Ordering::Relaxed);
        }
        if failures < self.failures_to_open {
            return;
        }
        if matches!(error, StoreError::TimedOut { .. })
            && self.micros_until(started) < breaker.failing_since_us.load(Ordering::Relaxed)
        {
            return;
        }
        let mut outage = breaker.outage.lock();
        // Closed -> Open, once: of many calls that failed together only the first opens it.
        if breaker.epoch.compare_exchange(epoch, epoch + 1, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            *outage = Some(Outage { since: clock::instant(), error: error.clone() });
            self.open.fetch_add(1, Ordering::AcqRel);
            self.opened.notify_one();
            self.observer.guard_changed(&GuardChange::Opened { error });
            tracing::warn!(error = %error, shard = shard.0, "store set aside after repeated failures; rules answer by on_outage");
        }
    }

    fn micros_until(&self, moment: Instant) -> u64 {
        u64::try_from(moment.saturating_duration_since(self.made).as_micros()).unwrap_or(u64::MAX)
    }

    /// Open -> Closed.
    fn close(&self, shard: Shard) {
        let breaker = self.breaker(shard);
        let mut outage = breaker.outage.lock();
        let Some(Outage { since, .. }) = outage.take() else { return };
        breaker.failures.store(0, Ordering::Relaxed);
        breaker.epoch.fetch_add(1, Ordering::AcqRel);
        self.open.fetch_sub(1, Ordering::AcqRel);
        let after = since.elapsed();
        self.observer.guard_changed(&GuardChange::Closed { after });
        tracing::info!(
            away_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX),
            shard = shard.0,
            "store answers again; decisions come from it"
        );
    }
}

impl Breaker {
    fn is_open(&self) -> bool {
        is_open_in(self.epoch.load(Ordering::Acquire))
    }

    /// A success ends a run of failures. Looked at before it is written: memory never fails, and
    /// all its checks would share this line.
    fn succeeded(&self) {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }
}

fn set_aside() -> StoreError {
    StoreError::Unreachable { why: "set aside after repeated failures".into() }
}

/// Polls once, and says what came of it.
pub(crate) fn once<F: Future>(mut call: Pin<&mut F>) -> impl Future<Output = Poll<F::Output>> {
    poll_fn(move |context| Poll::Ready(call.as_mut().poll(context)))
}

/// Closed before the first transition, open after it, and so on.
fn is_open_in(epoch: u64) -> bool {
    epoch % 2 == 1
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard")
            .field("deadline", &self.deadline)
            .field("is_open", &self.is_open())
            .finish_non_exhaustive()
    }
}
