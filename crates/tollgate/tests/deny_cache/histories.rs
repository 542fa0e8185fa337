//! Random histories of two instances, every refusal from a cache held against the store at the very instant it was given.

use std::collections::HashMap;

use tollgate::core::decision::Take;
use tollgate::core::units::Cost;
use tollgate::{Algorithm, Ask, By, InlineLimit, Kind, Micros, Rate, Source, Verdict, Want};

use crate::world::{World, pushed};

/// The longest that a cache may be wrong, as promised.
const WRONG_MAX: Micros = Micros::SECOND;

const HISTORIES: u64 = 400;
const STEPS: usize = 300;

/// Two limits of one scope for each kind: what is asked for under one is not known under the other.
fn limits() -> Vec<[InlineLimit; 2]> {
    let limit = |kind, rate: &str| {
        let rate = Rate::parse(rate).expect("a rate");
        InlineLimit::new(Algorithm::try_new(kind, rate, None, 1000).expect("a limit"), rate.period())
    };
    let of = |kind| {
        ["s", "min"].map(|period| [limit(kind, &format!("7/{period}")), limit(kind, &format!("12/{period}"))])
    };
    Kind::ALL.into_iter().flat_map(of).collect()
}

/// What an ask is for: a place in `limits`, which of the two, whose, and how much.
#[derive(Debug, Clone, Copy)]
struct Wish {
    kind: usize,
    which: usize,
    subject: usize,
    cost: u32,
}

const SUBJECTS: [&[u8]; 2] = [b"ann", b"bob"];

impl Wish {
    fn random(world: &World, kinds: usize) -> Wish {
        let pick = |most: usize| usize::try_from(world.chance(most as u64)).expect("small");
        // The second limit is rare, or nothing would ever be remembered for long.
        let which = usize::from(world.chance(20) == 0);
        let cost = [1, 1, 1, 2, 3, 7, 8][pick(7)];
        Wish { kind: pick(kinds), which, subject: pick(SUBJECTS.len()), cost }
    }

    fn want<'a>(&self, limits: &'a [[InlineLimit; 2]], takes: &'a [Take]) -> Want<'a> {
        let cost = Cost::new(self.cost).expect("at least one");
        Want { by: By::Inline(&limits[self.kind][self.which]), key: SUBJECTS[self.subject], cost, takes }
    }

    /// What is counted together, whatever the limit.
    fn key(&self) -> (usize, usize) {
        (self.kind, self.subject)
    }
}

/// When a key was last given more than time gives, as far as instances may not know it yet.
#[derive(Debug, Default)]
struct Eased {
    unheard: HashMap<(usize, usize), Micros>,
    under: HashMap<(usize, usize), usize>,
}

impl Eased {
    /// Whether a cache may still be wrong about a key.
    fn excuses(&self, key: (usize, usize), now: Micros) -> bool {
        self.unheard.get(&key).is_some_and(|&at| now < at + WRONG_MAX)
    }

    /// A key that is visited under another limit is changed by that.
    fn visited(&mut self, wish: &Wish, now: Micros) {
        if self.under.insert(wish.key(), wish.which).is_some_and(|before| before != wish.which) {
            self.unheard.insert(wish.key(), now);
        }
    }
}

async fn history(seed: u64, drift_ppm: i64) -> (u64, u64) {
    let world = World::new(seed, drift_ppm, Micros(3_000));
    let engines = [world.instance(), world.instance()];
    let limits = limits();
    // Few kinds to a history, so that keys are met again.
    let kinds = 1 + usize::try_from(world.chance(3)).expect("small");
    let first = usize::try_from(world.chance((limits.len() - kinds) as u64)).expect("small");
    let limits = &limits[first..first + kinds];
    let (mut eased, mut taken) = (Eased::default(), Vec::<(Wish, Take)>::new());
    let (mut from_cache, mut wrong) = (0, 0);
    // The last refusal: whose, of what, and when that is to end.
    let mut last: Option<(usize, Vec<Wish>, Micros)> = None;

    for step in 0..STEPS {
        let mut instance = usize::try_from(world.chance(2)).expect("one of two");
        let mut wishes = wishes(&world, kinds);
        match &last {
            // About the instant at which it may pass, or at which nothing is remembered any more.
            Some((whose, what, ends)) if world.chance(6) == 0 => {
                (instance, wishes) = (*whose, what.clone());
                let ends = (*ends).min(world.now() + WRONG_MAX);
                let short_of = Micros(world.chance(1 << world.chance(13)));
                world.pass((ends - short_of - world.now()).0);
            }
            // From nothing to three seconds, short pauses as likely as long ones.
            _ => world.pass(world.chance(1 << world.chance(22))),
        }
        let engine = &engines[instance];
        match world.chance(20) {
            0 if !taken.is_empty() => {
                let at = usize::try_from(world.chance(taken.len() as u64)).expect("small");
                let (wish, take) = taken.swap_remove(at);
                let are_lost = world.chance(2) == 0;
                world.lose_pushes(are_lost);
                let before = world.published();
                eased.visited(&wish, world.now());
                engine.refund(&Ask { wants: &[wish.want(limits, &[take])] }).await;
                let at = world.now();
                pushed(&world, before).await;
                note(&mut eased, &wish, are_lost, at);
            }
            1 => {
                let wish = Wish::random(&world, kinds);
                let are_lost = world.chance(2) == 0;
                world.lose_pushes(are_lost);
                let before = world.published();
                engine.forget(&Ask { wants: &[wish.want(limits, &[])] }).await.expect("it is forgotten");
                let at = world.now();
                pushed(&world, before).await;
                note(&mut eased, &wish, are_lost, at);
            }
            _ => {
                let wants: Vec<Want<'_>> = wishes.iter().map(|wish| wish.want(limits, &[])).collect();
                let ask = Ask { wants: &wants };
                let now = world.now();
                // A peek asks the store, here and now.
                let truth = engine.peek(&ask).await;
                assert_eq!((truth.source, world.now()), (Source::Store, now));
                let verdict = engine.decide(&ask).await;
                if verdict.source == Source::DenyCache {
                    from_cache += 1;
                    assert_eq!(world.now(), now, "it made a trip");
                    if truth.is_allowed() {
                        wrong += 1;
                        let is_excused = wishes.iter().any(|wish| eased.excuses(wish.key(), now));
                        assert!(is_excused, "seed {seed}, step {step}: {wishes:?}\n{verdict:#?}\n{truth:#?}");
                    }
                } else {
                    for wish in &wishes {
                        eased.visited(wish, now);
                    }
                    remember_takes(&wishes, &verdict, &mut taken);
                }
                if let Some(retry_after) = verdict.retry_after() {
                    last = Some((instance, wishes, world.now() + retry_after));
                }
            }
        }
    }
    (from_cache, wrong)
}

/// One thing mostly, sometimes two that are counted apart.
fn wishes(world: &World, kinds: usize) -> Vec<Wish> {
    let first = Wish::random(world, kinds);
    let second = Wish::random(world, kinds);
    if world.chance(4) == 0 && first.key() != second.key() { vec![first, second] } else { vec![first] }
}

fn note(eased: &mut Eased, wish: &Wish, are_lost: bool, at: Micros) {
    if are_lost {
        eased.unheard.insert(wish.key(), at);
    } else {
        // Everybody has heard of this, and of all that was before.
        eased.unheard.remove(&wish.key());
    }
}

fn remember_takes(wishes: &[Wish], verdict: &Verdict, taken: &mut Vec<(Wish, Take)>) {
    if verdict.is_allowed() {
        taken.extend(verdict.checks.iter().map(|judged| (wishes[judged.want], judged.decision.take)));
    }
}

#[tokio::test]
async fn a_cache_refuses_nothing_that_the_store_would_allow() {
    let (mut from_cache, mut wrong) = (0, 0);
    for seed in 0..HISTORIES {
        // Clocks that run apart by up to 900 millionths, either way, or not at all.
        let drift_ppm = [0, 900, -900, 450][usize::try_from(seed % 4).expect("small")];
        let (more_from_cache, more_wrong) = history(seed, drift_ppm).await;
        from_cache += more_from_cache;
        wrong += more_wrong;
    }
    // Neither would the histories say anything if nothing was remembered, nor if no push that was lost mattered.
    assert!(from_cache > 5_000 && wrong > 30, "{from_cache} from the cache, {wrong} of them out of date");
}
