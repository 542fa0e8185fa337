//! Every state that can be reached, each once, nearest first.
//!
//! Two worlds are one state if nothing that can happen tells them apart. So times are taken relative to
//! now, of an epoch only what comparisons can see of it, and instances have no names; what is too old to
//! matter is all the same.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash, Hasher};

use tollgate_core::breaker::{Health, Phase, Record, Reporter};
use tollgate_core::units::Micros;

use super::mutants::Mutant;
use super::world::{Action, INSTANCES, Message, TICK, What, World, breaker, recovers};

/// What came of an exploration.
#[derive(Debug)]
pub(super) struct Found {
    pub states: usize,
    pub steps: usize,
    /// Different records among them, from each of which it was tried to recover.
    pub records: usize,
    /// What is not as it should be, and the shortest way there.
    pub violation: Option<String>,
}

/// 128 bits stand for a state: of a million, two are alike once in 10^26 explorations.
type Key = [u64; 2];

pub(super) fn explore(mutant: Mutant) -> Found {
    let breaker = breaker();
    let start = World::new(&breaker, mutant);
    let mut ways: HashMap<Key, (Key, Action)> = HashMap::new();
    let mut recovered: HashSet<Key> = HashSet::new();
    let first = key(&start);
    ways.insert(first, (first, Action::Tick));
    let mut queue = VecDeque::from([(first, start)]);
    let mut steps = 0;
    let mut violation = None;
    'explore: while let Some((from, world)) = queue.pop_front() {
        for action in world.actions() {
            steps += 1;
            let mut next = world.clone();
            let mut done = next.act(&breaker, mutant, action);
            let mut record = Digest::default();
            write_record(&next, &mut record);
            if done.is_ok() && recovered.insert(record.key()) {
                done = recovers(&breaker, mutant, &next.record, next.now);
            }
            if let Err(what) = done {
                violation = Some(format!("{what}\n{}", told(&ways, from, first, action)));
                break 'explore;
            }
            let to = key(&next);
            if let std::collections::hash_map::Entry::Vacant(vacant) = ways.entry(to) {
                vacant.insert((from, action));
                queue.push_back((to, next));
            }
        }
    }
    Found { states: ways.len(), steps, records: recovered.len(), violation }
}

/// The way to a state, action by action.
fn told(ways: &HashMap<Key, (Key, Action)>, mut at: Key, first: Key, last: Action) -> String {
    let mut actions = vec![last];
    while at != first {
        let (from, action) = ways[&at];
        actions.push(action);
        at = from;
    }
    actions.iter().rev().fold(String::new(), |told, action| told + &format!("  {action:?}\n"))
}

/// Two hashes of everything written to it.
struct Digest([DefaultHasher; 2]);

impl Default for Digest {
    fn default() -> Digest {
        let mut hashers = [(); 2].map(|()| BuildHasherDefault::<DefaultHasher>::default().build_hasher());
        hashers[1].write_u64(1);
        Digest(hashers)
    }
}

impl Digest {
    fn put(&mut self, value: impl Hash) {
        self.0.iter_mut().for_each(|hasher| value.hash(hasher));
    }

    fn key(&self) -> Key {
        [self.0[0].finish(), self.0[1].finish()]
    }
}

fn key(world: &World) -> Key {
    let mut digest = Digest::default();
    write_record(world, &mut digest);
    write_messages(world, &mut digest);
    digest.put("leases");
    for leased in &world.leased {
        let left = (leased.ends - world.now).0;
        digest.put((leased.token, left, leased.is_over, leased.is_told));
    }
    digest.put((world.successes, world.open_until.map(|until| until - world.now)));
    digest.key()
}

/// What can be told of an epoch: whether it is the record's, and how long ago it began, as far as the
/// clock could still come upon it. Counted ones (of a mutant) are what they are.
fn epoch(world: &World, epoch: u64) -> (bool, u64) {
    let old = TICK.0 * 4;
    let ago =
        if epoch < TICK.0 { epoch } else { (world.now - Micros(epoch)).0.min(old).saturating_add(TICK.0) };
    (epoch == world.record.epoch, ago)
}

fn write_record(world: &World, digest: &mut Digest) {
    let Record { epoch: at, phase, trips, seen: _, window, reporters, leases, overridden: _ } = &world.record;
    let ago = |time: Micros, most: u64| (world.now - time).0.min(most);
    digest.put(epoch(world, *at));
    // From the second trip on it opens for the same time, and here nothing is forgotten.
    digest.put(trips.min(&2));
    match phase {
        // Only the beginning of an epoch is different from the rest of it.
        Phase::Closed { since } => digest.put((0, ago(*since, TICK.0), *since == Micros::ZERO)),
        Phase::Open { until, .. } => digest.put((1, *until - world.now)),
        Phase::HalfOpen { successes } => digest.put((2, successes)),
        Phase::Ramping { since } => digest.put((3, ago(*since, u64::MAX))),
    }
    let width = TICK.0 / 5;
    for bucket in &window.buckets {
        let age = (world.now.0 / width).saturating_sub(bucket.at);
        if age < 10 {
            digest.put((age, bucket.counts));
        }
    }
    let mut there: Vec<_> = reporters.values().filter_map(|reporter| standing(world, reporter)).collect();
    there.sort_unstable();
    digest.put(there);
    digest.put("probes");
    for (token, ends) in leases {
        digest.put((token, *ends - world.now));
    }
}

/// How an instance stands with the record, if it does.
fn standing(world: &World, reporter: &Reporter) -> Option<(u64, bool)> {
    let age = world.now.0.saturating_sub(reporter.at);
    (age < 2 * TICK.0).then_some((age, reporter.health == Health::Failing))
}

/// What is under way: of each instance together with how it stands, and then of leases.
fn write_messages(world: &World, digest: &mut Digest) {
    let seen = |message: &Message| (epoch(world, message.epoch), message.generation == world.generation);
    let mut instances: Vec<_> = (0..INSTANCES)
        .map(|instance| {
            let reporter = world.record.reporters.get(&instance);
            let said: Vec<_> = (world.messages.iter())
                .filter_map(|message| match message.what {
                    What::Well(of) if of == instance => Some((false, seen(message))),
                    What::Failing(of) if of == instance => Some((true, seen(message))),
                    _ => None,
                })
                .collect();
            (reporter.and_then(|reporter| standing(world, reporter)), said)
        })
        .collect();
    instances.sort_unstable();
    digest.put(instances);
    let of_leases = |message: &&Message| !matches!(message.what, What::Well(_) | What::Failing(_));
    for message in world.messages.iter().filter(of_leases) {
        digest.put((message.what, seen(message)));
    }
}
