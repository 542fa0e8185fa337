//! Random histories of one key, walked by an algorithm and its model side by side.
//!
//! A history is decided by its seed alone. Whatever fails prints that seed and every operation so far;
//! `TOLLGATE_SEED` set to it walks the same history first.

pub(crate) mod pairs;
pub(crate) mod random;

use std::fmt;
use std::thread;

use tollgate_core::decision::{Decision, Outcome, Returned, Take, Verb};
use tollgate_core::units::{EXACT_MAX, Micros};

use crate::models::{GiveBack, Others, Visit};
use pairs::Pair;
use random::Random;

/// What may happen in a history beside asks at their times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weather {
    /// The clock runs, the limit stays, refunds name true takes, each once.
    Fair,
    /// The clock steps, the limit changes, the store forgets, refunds name anything.
    Foul,
}

/// What happened, over many histories.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    histories: u64,
    operations: u64,
    allowed: u64,
    denied: u64,
    never: u64,
    refunds: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { histories, operations, allowed, denied, never, refunds } = self;
        write!(f, "{histories} histories, {operations} operations: ")?;
        write!(f, "{allowed} allowed, {denied} denied, {never} never, {refunds} refunds that gave")
    }
}

/// One admitted cost that was not given back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Admitted {
    pub(crate) at: u64,
    pub(crate) cost: u32,
}

/// The seed to begin with.
pub(crate) fn seed() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "how a failed history is walked again")]
    let seed = std::env::var("TOLLGATE_SEED");
    seed.map_or(1, |seed| seed.parse().expect("TOLLGATE_SEED is a whole number"))
}

/// Walks many histories, and calls `after` with each one's limit and what it admitted.
pub(crate) fn walk_many<P: Pair>(
    histories: u64,
    operations: u64,
    weather: impl Fn(&mut Random) -> Weather,
    after: impl Fn(&P::Limit, &[Admitted]),
) -> Tally {
    let first = seed();
    let mut tally = Tally::default();
    for seed in (first..).take(usize::try_from(histories).expect("a count of histories")) {
        let mut random = Random::new(seed);
        let weather = weather(&mut random);
        let mut walk = Walk::<P>::new(seed, random, weather);
        walk.run(operations, &mut tally);
        after(&walk.limit, &walk.admitted());
        tally.histories += 1;
    }
    println!("{} from seed {first}: {tally}", P::NAME);
    tally
}

/// One history on its way.
struct Walk<P: Pair> {
    seed: u64,
    random: Random,
    weather: Weather,
    pair: P,
    limit: P::Limit,
    now: u64,
    last: Option<Decision>,
    takes: Vec<Taken>,
    so_far: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
struct Taken {
    at: u64,
    take: Take,
    cost: u32,
    is_undone: bool,
}

impl<P: Pair> Drop for Walk<P> {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("{} differs. TOLLGATE_SEED={} walks this history first:", P::NAME, self.seed);
            for line in &self.so_far {
                println!("  {line}");
            }
        }
    }
}

impl<P: Pair> Walk<P> {
    fn new(seed: u64, mut random: Random, weather: Weather) -> Walk<P> {
        let now = match random.between(0, 9) {
            0 => 0,
            1 => random.magnitude(10_000_000),
            2 => EXACT_MAX - random.magnitude(EXACT_MAX / 4),
            _ => random.between(1_600_000_000_000_000, 2_000_000_000_000_000),
        };
        let limit = P::any_limit(&mut random, now);
        let so_far = vec![format!("{weather:?}, {limit:?}")];
        Walk { seed, random, weather, pair: P::default(), limit, now, last: None, takes: Vec::new(), so_far }
    }

    fn run(&mut self, operations: u64, tally: &mut Tally) {
        for _ in 0..operations {
            self.move_clock();
            if self.now > EXACT_MAX {
                return;
            }
            if self.weather == Weather::Foul && self.random.one_in(12) {
                self.limit = P::other_limit(&mut self.random, self.now, &self.limit);
                self.so_far.push(format!("{:?}", self.limit));
            }
            if self.weather == Weather::Foul && self.random.one_in(40) {
                self.pair = P::default();
                self.so_far.push("forgotten".to_owned());
            }
            match self.random.between(0, 9) {
                0..=5 => self.visit(Verb::Take, tally),
                6..=7 => self.visit(Verb::Peek, tally),
                _ => self.refund(tally),
            }
            tally.operations += 1;
        }
    }

    fn move_clock(&mut self) {
        const SECOND: u64 = 1_000_000;
        if self.weather == Weather::Foul && self.random.one_in(12) {
            let back = match self.random.between(0, 5) {
                0 => self.random.magnitude(SECOND),
                1 => self.random.pick(&[1, SECOND - 1, SECOND, SECOND + 1]),
                2 => self.random.between(SECOND + 1, 10 * SECOND),
                3 => self.random.magnitude(400 * 86_400 * SECOND),
                4 => self.random.magnitude(2 * P::span(&self.limit)),
                _ => {
                    self.now += 3600 * SECOND;
                    return;
                }
            };
            self.now = self.now.saturating_sub(back);
            return;
        }
        let span = P::span(&self.limit);
        let retry = self.last.and_then(|decision| match decision.outcome {
            Outcome::Denied { retry_after } => Some(retry_after.0),
            Outcome::Allowed | Outcome::Never => None,
        });
        let reset = self.last.map_or(0, |decision| decision.reset_after.0);
        let to_edge = P::next_edge(&self.limit, self.now) - self.now;
        let off_by = |n: u64, random: &mut Random| random.pick(&[n.saturating_sub(1), n, n, n + 1]);
        let gap = match self.random.between(0, 15) {
            0..=2 => 0,
            3 => 1,
            4 => self.random.magnitude(span),
            5 => self.random.between(0, span / u64::from(P::most(&self.limit)) * 2),
            6..=8 => off_by(retry.unwrap_or(0), &mut self.random),
            9 => off_by(reset, &mut self.random),
            10 | 11 => off_by(to_edge, &mut self.random),
            12 => off_by(span, &mut self.random),
            13 => self.random.between(0, span),
            14 => self.random.between(0, 3 * span),
            _ if self.random.one_in(5) => self.random.magnitude(10 * 366 * 86_400 * SECOND),
            _ => self.random.magnitude(span),
        };
        self.now += gap;
    }

    fn any_cost(&mut self) -> u32 {
        let most = P::most(&self.limit);
        let left = self.last.map_or(most, |decision| decision.remaining).max(1);
        match self.random.between(0, 11) {
            0..=3 => 1,
            4 => self.random.count(1, most.min(5)),
            5 => most,
            6 => most.saturating_add(self.random.count(1, 3)),
            7 => self.random.count(1, most),
            8 => left.saturating_add(1),
            9 => self.random.count(1, left),
            _ => left,
        }
    }

    fn visit(&mut self, verb: Verb, tally: &mut Tally) {
        let others = if self.random.one_in(8) { Others::Refuse } else { Others::Pass };
        let visit = Visit { now: self.now, cost: self.any_cost(), verb, others };
        self.so_far.push(format!("{visit:?}"));
        let (expected, seen) = self.pair.visit(&self.limit, visit);
        self.so_far.push(format!("  {:?}", seen.decision));
        assert_eq!(seen.decision, expected.decision, "the decision");
        assert_eq!(seen.mends, expected.mends, "whether a refusal writes");

        match seen.decision.outcome {
            Outcome::Allowed => {
                tally.allowed += 1;
                if verb == Verb::Take && others == Others::Pass {
                    let take = seen.decision.take;
                    self.takes.push(Taken { at: visit.now, take, cost: visit.cost, is_undone: false });
                }
            }
            Outcome::Denied { retry_after } => {
                tally.denied += 1;
                assert!(!seen.spends, "a refusal spends nothing");
                // Only a take writes what it mends, and so only a take may promise by it.
                if verb == Verb::Take || !seen.mends {
                    self.hold_to(retry_after, visit);
                }
            }
            Outcome::Never => {
                tally.never += 1;
                assert!(!seen.spends, "a refusal spends nothing");
                assert!(visit.cost > P::most(&self.limit), "only what is above the limit is hopeless");
            }
        }
        self.last = Some(seen.decision);
    }

    /// The stated time is the first at which the same ask passes.
    fn hold_to(&self, retry_after: Micros, visit: Visit) {
        let after = |wait: u64| self.pair.outcome(&self.limit, Visit { now: visit.now + wait, ..visit });
        assert_eq!(after(retry_after.0), Outcome::Allowed, "after retry_after it passes");
        assert!(retry_after.0 > 0, "a refusal is not over at once");
        let left = Outcome::Denied { retry_after: Micros(1) };
        assert_eq!(after(retry_after.0 - 1), left, "a microsecond before, it does not");
        let left = Outcome::Denied { retry_after: retry_after - Micros(retry_after.0 / 2) };
        assert_eq!(after(retry_after.0 / 2), left, "half-way there, half is left");
    }

    fn refund(&mut self, tally: &mut Tally) {
        if self.takes.is_empty() {
            return;
        }
        let recent = self.takes.len().saturating_sub(4);
        let from = if self.random.one_in(4) { 0 } else { recent };
        let index = self.random.between(from as u64, self.takes.len() as u64 - 1);
        let taken = &mut self.takes[usize::try_from(index).expect("an index")];
        let mut back = GiveBack { now: self.now, cost: taken.cost, take: taken.take };
        if self.weather == Weather::Fair && taken.is_undone {
            return;
        }
        if self.weather == Weather::Foul && self.random.one_in(3) {
            match self.random.between(0, 4) {
                0 => back.take.at = back.take.at + Micros(self.random.magnitude(1_000_000)),
                1 => back.take.at = back.take.at - Micros(self.random.magnitude(1_000_000)),
                2 => back.take.entry = self.random.count(0, 3),
                3 => back.cost = back.cost.saturating_add(self.random.count(1, 3)),
                _ => back.cost = self.random.count(1, back.cost),
            }
        }
        self.so_far.push(format!("{back:?}"));
        let (expected, seen) = self.pair.refund(&self.limit, back);
        self.so_far.push(format!("  {seen:?}"));
        assert_eq!(seen, expected, "the refund");
        if P::counts_as_undone(seen.returned) {
            taken.is_undone = true;
        }
        tally.refunds += u64::from(seen.returned != Returned::Nothing);
    }

    /// What was admitted and never given back, in order of time.
    fn admitted(&self) -> Vec<Admitted> {
        let kept = self.takes.iter().filter(|taken| !taken.is_undone);
        kept.map(|taken| Admitted { at: taken.at, cost: taken.cost }).collect()
    }
}
