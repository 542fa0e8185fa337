//! Random histories through both twins: the same integers, or the seed is printed.
//!
//! `TOLLGATE_SEED=n cargo test -p tollgate --test twins histories` plays that one first.

use std::fmt::Write as _;

use fastrand::Rng;
use testkit::RedisServer;
use tollgate::core::algorithm::fixed_window::Windows;
use tollgate::core::check::{Check, Refund};
use tollgate::core::decision::{Decision, Outcome, Refunded, Take, Verb};
use tollgate::core::key::Scope;
use tollgate::core::store::Store;
use tollgate::store::redis::{Layout, RedisStore};
use tollgate::{Algorithm, Cost, Kind, Micros};

#[path = "together.rs"]
mod together;

use crate::limits::Limits;
use crate::reference::Reference;
use crate::world::{self, NOON, Named, WAYS, Way};

/// Histories of each way in a normal run.
const HISTORIES: u64 = 750;

/// Histories in a campaign, all ways together.
const CAMPAIGN: u64 = 100_000;

/// Times beyond the year 2240 are left alone: from 2255 on they are no exact Lua numbers.
const TIME_MAX: u64 = 8_520_000_000_000_000;

#[tokio::test]
async fn histories_give_the_same_numbers_packed_by_function() {
    run(Way { layout: Layout::Packed, functions: true }, HISTORIES).await;
}

#[tokio::test]
async fn histories_give_the_same_numbers_packed_by_script() {
    run(Way { layout: Layout::Packed, functions: false }, HISTORIES).await;
}

#[tokio::test]
async fn histories_give_the_same_numbers_hash_by_function() {
    run(Way { layout: Layout::Hash, functions: true }, HISTORIES).await;
}

#[tokio::test]
async fn histories_give_the_same_numbers_hash_by_script() {
    run(Way { layout: Layout::Hash, functions: false }, HISTORIES).await;
}

#[tokio::test]
#[ignore = "campaign"]
async fn campaign_of_histories_gives_the_same_numbers() {
    let each = CAMPAIGN / WAYS.len() as u64;
    let running = WAYS.map(|way| tokio::spawn(run(way, each)));
    for way in running {
        way.await.expect("no history disagrees");
    }
}

/// `histories` of them, each from its own seed, on one Redis.
#[expect(clippy::print_stdout, reason = "a campaign says what it did")]
async fn run(way: Way, histories: u64) {
    let first_seed = seed().unwrap_or_else(|| fastrand::u64(..u64::MAX / 2));
    println!("{}: seeds from {first_seed}, {histories} histories", way.name());
    let began = tollgate::clock::instant();
    let server = world::frozen_redis().await;
    let store = world::store(&server, way);
    let limits = Limits::new();
    let mut operations = 0;
    for seed in first_seed..first_seed + histories {
        if seed % 512 == 0 {
            server.command(&["FLUSHALL"]).await;
        }
        operations += History::new(seed, way.layout, &limits, &server, &store).play().await;
    }
    let batches = store.stats().batches;
    let calls: u64 = batches.calls.iter().sum();
    println!(
        "{}: {operations} operations in {:?}, {} takes in {calls} calls",
        way.name(),
        began.elapsed(),
        batches.asks
    );
    assert!(batches.asks > calls * 2, "most takes travel with others: {batches:?}");
}

#[expect(clippy::disallowed_methods, reason = "a failed history is replayed by its seed")]
pub(crate) fn seed() -> Option<u64> {
    Some(std::env::var("TOLLGATE_SEED").ok()?.parse().expect("TOLLGATE_SEED is a number"))
}

/// One history under way.
struct History<'a> {
    seed: u64,
    rng: Rng,
    limits: &'a Limits,
    server: &'a RedisServer,
    store: &'a RedisStore,
    now: u64,
    keys: Vec<Named>,
    /// What each key's last answer said must be waited.
    waits: Vec<(Micros, Micros)>,
    /// Takes that passed: which key, the limit then, the cost and the name of the spend.
    takes: Vec<(usize, Algorithm, u32, Take)>,
    reference: Reference,
    told: String,
}

impl<'a> History<'a> {
    fn new(
        seed: u64,
        layout: Layout,
        limits: &'a Limits,
        server: &'a RedisServer,
        store: &'a RedisStore,
    ) -> History<'a> {
        let mut rng = Rng::with_seed(seed);
        let keys = if rng.u32(..8) == 0 { rng.usize(7..=60) } else { rng.usize(1..=6) };
        let keys: Vec<Named> = (0..keys)
            .map(|at| {
                let kind = Kind::ALL[rng.usize(..4)];
                let algorithm = limits.draw(&mut rng, kind);
                let scope = Scope::of_rule("twin", at, kind);
                Named { scope, subject: format!("{seed}").into_bytes(), algorithm }
            })
            .collect();
        let now = match rng.u32(..4) {
            0 => tollgate::clock::wall().0,
            1 => rng.u64(63_100_000_000_000..TIME_MAX / 2),
            _ => NOON,
        };
        let told = listed(&keys);
        let waits = vec![(Micros::ZERO, Micros::ZERO); keys.len()];
        let (takes, reference) = (Vec::new(), Reference::new(layout));
        History { seed, rng, limits, server, store, now, keys, waits, takes, reference, told }
    }

    /// Plays it to its end, and says how many operations that were.
    async fn play(mut self) -> u64 {
        let operations = self.rng.u64(10..50);
        for _ in 0..operations {
            self.pass_time();
            world::freeze(self.server, self.now);
            match self.rng.u32(..100) {
                0..35 => self.visit(1, Verb::Take).await,
                35..50 => self.visit(6, Verb::Take).await,
                50..65 => self.take_together().await,
                65..75 => self.visit(6, Verb::Peek).await,
                75..92 => self.refund().await,
                92..98 => self.change_a_limit(),
                _ => self.forget().await,
            }
        }
        operations
    }

    /// Most of the time a little, or none; now and then to where something is about to change.
    fn pass_time(&mut self) {
        let at = self.rng.usize(..self.keys.len());
        let (retry_after, reset_after) = self.waits[at];
        let algorithm = &self.keys[at].algorithm;
        let now = self.now;
        let near = |rng: &mut Rng, time: u64| (time + rng.u64(..3)).saturating_sub(1);
        let then = match self.rng.u32(..24) {
            0..6 => now,
            6 => now + 1,
            7 => now + self.rng.u64(..1_000),
            8 => now + self.rng.u64(..1_000_000),
            9..12 => near(&mut self.rng, now + retry_after.0),
            12 => near(&mut self.rng, now + reset_after.0),
            13 | 14 => near(&mut self.rng, window_end(algorithm, Micros(now)).0),
            15 => now + self.rng.u64(..=algorithm.time_to_whole().0),
            // About to expire, just expired, and long expired.
            16 | 17 => match self.reference.gone_at(&self.keys[at].key().to_string()) {
                Some(gone_at) => near(&mut self.rng, gone_at.0),
                None => now + 1,
            },
            18 => now + algorithm.keep_for().0 + self.rng.u64(..2_000_000),
            19 => now.saturating_sub(self.rng.u64(..=1_000_000)),
            20 => now.saturating_sub(near(&mut self.rng, 1_000_000)),
            21 => now.saturating_sub(self.rng.u64(1_000_001..10_000_000)),
            22 => now.saturating_sub(3_600_000_000),
            _ => now + 3_600_000_000,
        };
        if (1_000_000_000..TIME_MAX).contains(&then) {
            self.now = then;
        }
    }

    async fn visit(&mut self, checks_max: usize, verb: Verb) {
        let mut picked: Vec<usize> = (0..self.keys.len()).collect();
        self.rng.shuffle(&mut picked);
        picked.truncate(self.rng.usize(1..=checks_max));
        let costs: Vec<u32> = picked.iter().map(|&at| self.cost(at)).collect();
        let checks: Vec<Check<'_>> =
            picked.iter().zip(&costs).map(|(&at, &cost)| self.keys[at].check(cost)).collect();

        let _ = writeln!(self.told, "{} {verb:?} {picked:?} costs {costs:?}", self.now);
        let expected = self.reference.visit(&checks, Micros(self.now), verb);
        let answered = match verb {
            Verb::Take => self.store.take(&checks).await,
            Verb::Peek => self.store.peek(&checks).await,
        };
        let answered: Vec<Decision> = match answered {
            Ok(decisions) => decisions.to_vec(),
            Err(error) => self.fail(&format!("{error}")),
        };
        if answered != expected {
            self.fail(&format!("Redis answers {answered:?}\nRust answers  {expected:?}"));
        }

        let is_spent = verb == Verb::Take && expected.iter().all(|one| one.outcome == Outcome::Allowed);
        for ((&at, &cost), decision) in picked.iter().zip(&costs).zip(&expected) {
            let retry_after = match decision.outcome {
                Outcome::Denied { retry_after } => retry_after,
                Outcome::Allowed | Outcome::Never => Micros::ZERO,
            };
            self.waits[at] = (retry_after, decision.reset_after);
            if is_spent {
                self.takes.push((at, self.keys[at].algorithm.clone(), cost, decision.take));
            }
        }
    }

    fn cost(&mut self, at: usize) -> u32 {
        let limit = self.keys[at].algorithm.limit();
        match self.rng.u32(..20) {
            0..9 => 1,
            9..12 => self.rng.u32(1..=5),
            12 | 13 => limit,
            14 => (limit / 2).max(1),
            15 => limit.saturating_sub(1).max(1),
            16 => limit.saturating_add(1),
            _ => self.rng.u32(1..=limit),
        }
    }

    /// Gives back earlier takes: as they were, once more, or not quite as they were.
    async fn refund(&mut self) {
        if self.takes.is_empty() {
            return;
        }
        let mut wanted: Vec<(usize, Algorithm, u32, Take)> = Vec::new();
        for _ in 0..self.rng.usize(1..=3) {
            // The latest are the likeliest to count still.
            let recent = self.takes.len().min(1 << self.rng.u32(..6));
            let back = self.rng.usize(..recent);
            let (at, then, mut cost, mut take) = self.takes[self.takes.len() - 1 - back].clone();
            if wanted.iter().any(|(other, ..)| *other == at) {
                continue; // No two refunds of one call have the same key.
            }
            let algorithm = if self.rng.bool() { then } else { self.keys[at].algorithm.clone() };
            match self.rng.u32(..12) {
                0 => cost = cost.saturating_add(self.rng.u32(1..3)),
                1 => cost = (cost / 2).max(1),
                2 => cost = u32::MAX,
                3 => take.entry += self.rng.u32(1..3),
                4 => take.at = Micros(take.at.0 + self.rng.u64(1..2_000_000)),
                5 => take.at = Micros(take.at.0 - self.rng.u64(1..2_000_000)),
                _ => {}
            }
            wanted.push((at, algorithm, cost, take));
        }
        let refunds: Vec<Refund<'_>> = wanted
            .iter()
            .map(|(at, algorithm, cost, take)| Refund {
                check: Check {
                    key: self.keys[*at].key(),
                    algorithm,
                    cost: Cost::new(*cost).expect("never zero"),
                },
                take: *take,
            })
            .collect();

        let _ = writeln!(self.told, "{} Refund {wanted:?}", self.now);
        let expected: Vec<Refunded> =
            refunds.iter().map(|refund| self.reference.refund(refund, Micros(self.now))).collect();
        let answered = match self.store.refund(&refunds).await {
            Ok(refunded) => refunded.to_vec(),
            Err(error) => self.fail(&format!("{error}")),
        };
        if answered != expected {
            self.fail(&format!("Redis answers {answered:?}\nRust answers  {expected:?}"));
        }
    }

    fn change_a_limit(&mut self) {
        let at = self.rng.usize(..self.keys.len());
        let changed = self.limits.redraw(&mut self.rng, &self.keys[at].algorithm);
        let _ = writeln!(self.told, "{} key {at} is now {changed:?}", self.now);
        self.keys[at].algorithm = changed;
    }

    async fn forget(&mut self) {
        let at = self.rng.usize(..self.keys.len());
        let _ = writeln!(self.told, "{} Forget {at}", self.now);
        let key = self.keys[at].key();
        self.reference.forget(&key.to_string());
        if let Err(error) = self.store.forget(&[key]).await {
            self.fail(&format!("{error}"));
        }
    }

    fn fail(&self, problem: &str) -> ! {
        let History { seed, now, keys, told, .. } = self;
        let keys = listed(keys);
        panic!(
            "the twins disagree at {now}\n{told}{problem}\nkeys at the end:\n{keys}replay with TOLLGATE_SEED={seed}"
        );
    }
}

/// Keys with their limits, one to a line.
fn listed(keys: &[Named]) -> String {
    let mut text = String::new();
    for key in keys {
        let _ = writeln!(text, "  {} {:?}", key.key(), key.algorithm);
    }
    text
}

/// Where a window ends that holds `now`.
fn window_end(algorithm: &Algorithm, now: Micros) -> Micros {
    let windows = match algorithm {
        Algorithm::TokenBucket(bucket) => Windows::Every(bucket.time_to_full()),
        Algorithm::SlidingLog(log) => Windows::Every(log.span()),
        Algorithm::SlidingWindow(window) => Windows::Every(window.span()),
        Algorithm::FixedWindow(window) => window.windows().clone(),
    };
    windows.window_of(now).end
}
