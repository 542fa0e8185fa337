//! Asking as fast as is answered, and asking at a rate whatever is answered.
//!
//! Everything happens on one thread, as in a worker of the server: the generator, the engine and its connections.
//! The closed loop keeps so many asks under way. The open loop has asks fall due at random (exponential) gaps, and
//! an ask's time begins when it fell due, not when the generator came round to it: a pause of whatever kind is
//! paid for by every ask that should have gone out in it.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tollgate::store::AnyStore;
use tollgate::{Ask, By, Cost, Engine, Want, clock};
use tollgate_core::verdict::Source;

use super::work::{DRAINED_KEYS, Keys, Work, spell};
use crate::measure::micros_each;

/// Asks under way in the closed loop.
pub(super) const TOGETHER: usize = 64;

/// Whatever an ask waits for, others get their turn after so many.
const TURN: u32 = 32;

/// Asks of the open loop that may be unanswered: more of them, and the rate cannot be kept up.
const UNANSWERED_MAX: u64 = 100_000;

/// An engine, the keys it is asked for, and what it said.
#[derive(Debug)]
pub(super) struct Asked {
    engine: Engine<AnyStore>,
    keys: Keys,
    admitted: AtomicU64,
    /// Answered without the store, because it did not answer in time.
    guessed: AtomicU64,
    began: Instant,
}

/// What a closed loop came to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Did {
    pub asked: u64,
    pub elapsed: Duration,
    /// Of this thread.
    pub cpu: Duration,
}

impl Asked {
    /// Ready to be asked: drained keys are drained.
    pub(super) async fn new(engine: Engine<AnyStore>, keys: Keys, work: Work) -> Arc<Asked> {
        let (admitted, guessed) = (AtomicU64::new(0), AtomicU64::new(0));
        let asked = Arc::new(Asked { engine, keys, admitted, guessed, began: clock::instant() });
        let first = if work == Work::Drained { 2 * DRAINED_KEYS } else { 1 };
        for _ in 0..first {
            asked.ask().await;
        }
        asked
    }

    async fn ask(&self) {
        let mut text = [0; 25];
        let key = spell(self.keys.next(), &mut text);
        let want = Want { by: By::Rule("api"), key, cost: Cost::ONE, takes: &[] };
        let verdict = self.engine.decide(&Ask { wants: &[want] }).await;
        self.admitted.fetch_add(u64::from(verdict.is_allowed()), Ordering::Relaxed);
        if matches!(verdict.source, Source::Fallback(_)) {
            self.guessed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Admitted, of what the limits allow; and how many the store did not decide, if there are any.
    #[expect(clippy::cast_precision_loss, reason = "counts of asks are far below 2^52")]
    pub(super) fn admitted_of_allowed(&self) -> String {
        let admitted = self.admitted.load(Ordering::Relaxed) as f64;
        let ratio = admitted / self.keys.allowed(self.began.elapsed());
        match self.guessed.load(Ordering::Relaxed) {
            0 => format!("{ratio:.3}"),
            guessed => format!("{ratio:.3} ({guessed} asks not decided by the store)"),
        }
    }

    /// Gives back what is on lease.
    pub(super) async fn close(&self) {
        self.engine.close().await;
    }
}

/// As fast as is answered.
pub(super) async fn closed(asked: &Arc<Asked>, span: Duration) -> Result<Did> {
    closed_by(std::slice::from_ref(asked), TOGETHER, span).await
}

/// As fast as is answered, so many asks under way with each.
pub(super) async fn closed_by(all: &[Arc<Asked>], together: usize, span: Duration) -> Result<Did> {
    let count = || all.iter().map(|asked| asked.keys.asked()).sum::<u64>();
    let (before, cpu, started) = (count(), cpu_time(), clock::instant());
    let mut tasks = Vec::new();
    for asked in all.iter().flat_map(|asked| std::iter::repeat_n(asked, together)) {
        let asked = Arc::clone(asked);
        tasks.push(tokio::spawn(async move {
            while started.elapsed() < span {
                for _ in 0..TURN {
                    asked.ask().await;
                }
                tokio::task::yield_now().await;
            }
        }));
    }
    for task in tasks {
        task.await?;
    }
    let cpu = cpu_time().saturating_sub(cpu);
    Ok(Did { asked: count() - before, elapsed: started.elapsed(), cpu })
}

/// So many a second; nanoseconds from when each fell due to its answer.
#[expect(clippy::cast_precision_loss, reason = "nanoseconds of seconds are far below 2^52")]
pub(super) async fn open(asked: &Arc<Asked>, per_second: f64, span: Duration) -> Result<Vec<u32>> {
    let took = Arc::new(Mutex::new(Vec::new()));
    let (mut made, started) = (0, clock::instant());
    let (mut due, end, mean) = (0.0, span.as_nanos() as f64, 1e9 / per_second);
    while due < end {
        for _ in 0..TURN {
            if due >= end || (started.elapsed().as_nanos() as f64) < due {
                break;
            }
            one(asked, started, due, &took).await;
            made += 1;
            due -= mean * (1.0 - fastrand::f64()).ln();
        }
        let unanswered = made - answered(&took);
        ensure!(unanswered < UNANSWERED_MAX, "{unanswered} asks wait: {per_second:.0} a second is too much");
        tokio::task::yield_now().await;
    }
    while answered(&took) < made {
        tokio::task::yield_now().await;
    }
    let took = std::mem::take(&mut *took.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(took)
}

type Took = Arc<Mutex<Vec<u32>>>;

fn answered(took: &Took) -> u64 {
    took.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
}

/// One ask of the open loop: what is decided here is decided at once, what is not goes on by itself.
async fn one(asked: &Arc<Asked>, started: Instant, due: f64, took: &Took) {
    let (asked, took) = (Arc::clone(asked), Arc::clone(took));
    let mut ask = Box::pin(async move {
        asked.ask().await;
        #[expect(clippy::cast_precision_loss, reason = "nanoseconds of seconds are far below 2^52")]
        let late = (started.elapsed().as_nanos() as f64 - due).max(0.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
        took.lock().unwrap_or_else(PoisonError::into_inner).push(late as u32);
    });
    let is_done = poll_fn(|context| Poll::Ready(ask.as_mut().poll(context).is_ready())).await;
    if !is_done {
        tokio::spawn(ask);
    }
}

/// What this thread has used of the processor.
pub(super) fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// What the generator does on the engine's thread, microseconds for each ask.
pub(super) fn generator(keys: &Keys) -> f64 {
    const TIMES: u64 = 1_000_000;
    let before = cpu_time();
    for _ in 0..TIMES {
        let mut text = [0; 25];
        std::hint::black_box(spell(keys.next(), &mut text));
    }
    micros_each(cpu_time().saturating_sub(before), TIMES)
}
