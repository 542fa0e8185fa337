//! Nanoseconds per check.
//!
//! Rounds are short and many and the two limiters take turns, so that a busy neighbour spoils a
//! few rounds of both and the median of neither. One thread is measured by its own processor time;
//! two threads by the clock on the wall, because waiting for each other is what they do.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

use super::subject::{Governor, Limiter, Load, Tollgate, keys, order};

const ASKS: usize = 1 << 20;
const ASKS_PER_ROUND: usize = 1 << 12;

/// Prints the table of times.
pub(crate) fn table(rounds: usize) {
    println!("| ns/check, median of {rounds} alternating rounds | tollgate | governor | ratio |");
    println!("|---|---|---|---|");
    for (load, name) in [(Load::Allowed, "mostly allowed"), (Load::Refused, "mostly refused")] {
        for (count, what) in [(1_000, "1 k keys"), (1_000_000, "1 M keys")] {
            let times = measure(count, load, rounds, alone);
            print(&format!("{what}, one thread, {name}"), times);
        }
        for (count, what) in [(1, "one hot key"), (1_000, "1 k keys")] {
            let times = measure(count, load, rounds, in_pairs);
            print(&format!("{what}, two threads, {name}"), times);
        }
    }
    println!();
}

#[derive(Debug, Clone, Copy)]
struct Times {
    ours: f64,
    theirs: f64,
}

fn print(name: &str, Times { ours, theirs }: Times) {
    println!("| {name} | {ours:.1} | {theirs:.1} | {:.2} |", ours / theirs);
}

fn measure(
    count: u32,
    load: Load,
    rounds: usize,
    round: fn(&dyn Limiter, &[String], &[u32]) -> f64,
) -> Times {
    let (keys, order) = (keys(count), order(count, ASKS));
    let ours = Tollgate::new(load, 1_000_000);
    let theirs = Governor::new(load);
    for key in &keys {
        ours.passes(key);
        theirs.passes(key);
    }
    let mut times = (Vec::new(), Vec::new());
    // Half the order apart: whoever asks with the same keys at once finds them in the cache.
    let chunks = order.chunks(ASKS_PER_ROUND);
    let later = chunks.clone().cycle().skip(chunks.len() / 2);
    for (asks, asks_later) in chunks.cycle().zip(later).take(rounds) {
        times.0.push(round(&ours, &keys, asks));
        times.1.push(round(&theirs, &keys, asks_later));
    }
    Times { ours: median(times.0), theirs: median(times.1) }
}

/// What a check of one of 1 k keys takes one thread, and each of two.
pub(crate) fn of_one_and_two_threads(limiter: &impl Limiter, rounds: usize) -> [f64; 2] {
    let (keys, order) = (keys(1_000), order(1_000, ASKS));
    for key in &keys {
        limiter.passes(key);
    }
    [alone, in_pairs].map(|round| {
        let asks = order.chunks(ASKS_PER_ROUND).cycle().take(rounds);
        median(asks.map(|asks| round(limiter, &keys, asks)).collect())
    })
}

/// Processor time per check of one thread.
fn alone(limiter: &dyn Limiter, keys: &[String], order: &[u32]) -> f64 {
    let start = processor_time();
    limiter.ask(keys, order);
    per_check(processor_time() - start, order)
}

/// Time on the wall per check of each of two threads that start together.
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn in_pairs(limiter: &dyn Limiter, keys: &[String], order: &[u32]) -> f64 {
    let here = AtomicU64::new(0);
    let ask = || {
        here.fetch_add(1, Ordering::AcqRel);
        while here.load(Ordering::Acquire) < 2 {
            spin_loop();
        }
        let start = Instant::now();
        limiter.ask(keys, order);
        per_check(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX), order)
    };
    thread::scope(|scope| {
        let other = scope.spawn(ask);
        let mine = ask();
        f64::midpoint(mine, other.join().expect("a thread that asks"))
    })
}

impl dyn Limiter + '_ {
    fn ask(&self, keys: &[String], order: &[u32]) {
        black_box(self.count_passes(keys, order));
    }
}

fn processor_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or(0)
}

#[expect(clippy::cast_precision_loss, reason = "one decimal is printed")]
fn per_check(nanos: u64, order: &[u32]) -> f64 {
    nanos as f64 / order.len() as f64
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
