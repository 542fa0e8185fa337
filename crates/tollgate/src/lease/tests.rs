//! Fleets under driven time: random traffic, slow wires, instances that die, and every admitted call
//! held against the bound.
//!
//! The store is the one in memory, on the same hand of a clock; a fetch is decided some time after it was
//! sent and lands some time after that. A failure names its seed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;
use tollgate_core::algorithm::{Algorithm, Kind};
use tollgate_core::check::Check;
use tollgate_core::decision::{Decision, Outcome};
use tollgate_core::key::{Key, Scope};
use tollgate_core::limit::Rate;
use tollgate_core::policy::Lease;
use tollgate_core::store::Store;
use tollgate_core::units::{Cost, Micros};

use super::{Fetch, Fetched, GiveBack, Leases, Turn};
use crate::clock::Clock;
use crate::store::memory::MemoryStore;

const START: u64 = 1_700_000_000_000_000;

/// What happens at an instant.
enum Event {
    Call { instance: usize },
    Decide { instance: usize, life: u32, fetch: Fetch, sent: Micros, tries: u32, amount: Cost },
    Land { instance: usize, life: u32, fetch: Fetch, fetched: Option<Fetched> },
    Exact { cost: Cost },
    Refund { back: GiveBack },
    Sweep { instance: usize },
    Turmoil,
}

struct Instance {
    leases: Leases,
    life: u32,
    /// Calls that wait for a fetch to land.
    waiting: Vec<Cost>,
    /// Microseconds between calls, on average.
    every: u64,
}

struct Fleet {
    rng: Rng,
    hand: Arc<AtomicU64>,
    store: MemoryStore,
    scope: Scope,
    algorithm: Algorithm,
    lease: Lease,
    instances: Vec<Instance>,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: std::collections::HashMap<u64, Event>,
    next: u64,
    costs: u32,
    wire: u64,
    admitted: Vec<(u64, u32)>,
    locally: u64,
    refused: u64,
    store_calls: u64,
}

/// What a fleet is made of.
#[derive(Clone)]
struct Scene {
    kind: Kind,
    rate: &'static str,
    burst: Option<u32>,
    lease: Lease,
    instances: usize,
    /// Microseconds between calls of one instance.
    every: u64,
    costs: u32,
    /// The longest a message is under way.
    wire: u64,
    is_calm: bool,
}

impl Fleet {
    fn new(scene: &Scene, seed: u64) -> Fleet {
        // Pauses are spread by it.
        fastrand::seed(seed);
        let (clock, hand) = Clock::manual(Micros(START));
        let algorithm =
            Algorithm::try_new(scene.kind, Rate::parse(scene.rate).unwrap(), scene.burst, 100_000).unwrap();
        let terms = scene.lease.terms(&algorithm).unwrap();
        let algorithm = algorithm.leased(terms.time);
        let instance = |_| Instance {
            leases: Leases::new(clock.clone(), true),
            life: 0,
            waiting: Vec::new(),
            every: scene.every,
        };
        let mut fleet = Fleet {
            rng: Rng::with_seed(seed),
            store: MemoryStore::builder().max_keys(1024).clock(clock.clone()).build(),
            scope: Scope::of_rule("hot", 0, scene.kind),
            lease: scene.lease,
            instances: (0..scene.instances).map(instance).collect(),
            hand,
            algorithm,
            queue: BinaryHeap::new(),
            events: std::collections::HashMap::new(),
            next: 0,
            costs: scene.costs,
            wire: scene.wire,
            admitted: Vec::new(),
            locally: 0,
            refused: 0,
            store_calls: 0,
        };
        for instance in 0..scene.instances {
            fleet.after(fleet.wire, Event::Call { instance });
            fleet.after(10_000, Event::Sweep { instance });
        }
        if !scene.is_calm {
            fleet.after(50_000, Event::Turmoil);
        }
        fleet
    }

    fn now(&self) -> u64 {
        self.hand.load(Ordering::Relaxed)
    }

    fn at(&mut self, at: u64, event: Event) {
        self.next += 1;
        self.queue.push(Reverse((at, self.next)));
        self.events.insert(self.next, event);
    }

    /// Up to twice `about` from now.
    fn after(&mut self, about: u64, event: Event) {
        let at = self.now() + 1 + self.rng.u64(0..=2 * about);
        self.at(at, event);
    }

    fn run(&mut self, span: u64) {
        let end = START + span;
        while let Some(Reverse((at, id))) = self.queue.pop() {
            if at > end {
                break;
            }
            self.hand.store(at, Ordering::Relaxed);
            let event = self.events.remove(&id).unwrap();
            self.happens(event);
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Call { instance } => {
                let cost = Cost::new(self.rng.u32(1..=self.costs)).unwrap();
                self.call(instance, cost, true);
                let every = self.instances[instance].every;
                self.after(every, Event::Call { instance });
            }
            Event::Decide { instance, life, fetch, sent, tries, amount } => {
                let decision = self.take(&fetch, amount);
                let rather = fetch.rather(decision.remaining);
                if decision.outcome != Outcome::Allowed
                    && tries == 0
                    && let Some(amount) = rather
                {
                    let sent = Micros(self.now());
                    let again = Event::Decide { instance, life, fetch, sent, tries: 1, amount };
                    return self.after(self.wire, again);
                }
                let fetched = Some(Fetched { sent, amount, decision });
                self.after(self.wire, Event::Land { instance, life, fetch, fetched });
            }
            Event::Land { instance, life, fetch, fetched } => self.land(instance, life, &fetch, fetched),
            Event::Exact { cost } => {
                let check = check(&self.scope, &self.algorithm, cost);
                self.store_calls += 1;
                let decisions = ready(self.store.take(&[check])).unwrap();
                if decisions[0].outcome == Outcome::Allowed {
                    self.admitted.push((self.now(), cost.get()));
                } else {
                    self.refused += 1;
                }
            }
            Event::Refund { back } => {
                self.store_calls += 1;
                ready(self.store.refund(&[back.refund()])).unwrap();
            }
            Event::Sweep { instance } => {
                let back = self.instances[instance].leases.sweep();
                self.give_back(back);
                self.after(20_000, Event::Sweep { instance });
            }
            Event::Turmoil => {
                self.turmoil();
                self.after(50_000, Event::Turmoil);
            }
        }
    }

    fn take(&mut self, fetch: &Fetch, amount: Cost) -> Decision {
        self.store_calls += 1;
        ready(self.store.take(&[fetch.check(amount)])).unwrap()[0]
    }

    fn call(&mut self, instance: usize, cost: Cost, is_first: bool) {
        let check = check(&self.scope, &self.algorithm, cost);
        let (turn, fetch) = self.instances[instance].leases.ask(&check, self.lease, is_first);
        match turn {
            Turn::Decided(decision) if decision.outcome == Outcome::Allowed => {
                self.locally += 1;
                self.is_in_its_window(decision.take.at);
                self.admitted.push((self.now(), cost.get()));
            }
            Turn::Decided(decision) => {
                assert!(matches!(decision.outcome, Outcome::Denied { retry_after } if retry_after.0 > 0));
                self.refused += 1;
            }
            Turn::Wait(_) if is_first => self.instances[instance].waiting.push(cost),
            Turn::Wait(_) | Turn::Exact => self.after(self.wire, Event::Exact { cost }),
        }
        if let Some(fetch) = fetch {
            let (sent, amount, life) = (Micros(self.now()), fetch.amount(), self.instances[instance].life);
            self.after(self.wire, Event::Decide { instance, life, fetch, sent, tries: 0, amount });
        }
    }

    /// What a counter's window counts is spent in it.
    fn is_in_its_window(&self, taken_at: Micros) {
        let window = |at: Micros| match &self.algorithm {
            Algorithm::TokenBucket(_) | Algorithm::SlidingLog(_) => 0,
            Algorithm::SlidingWindow(window) => at.0 / window.span().0,
            Algorithm::FixedWindow(window) => window.windows().window_of(at).start.0,
        };
        assert_eq!(window(taken_at), window(Micros(self.now())), "spent after its window");
    }

    fn land(&mut self, instance: usize, life: u32, fetch: &Fetch, fetched: Option<Fetched>) {
        if self.instances[instance].life != life {
            return; // Whoever fetched is dead, and so is the lease.
        }
        let back = self.instances[instance].leases.landed(fetch, fetched);
        self.give_back(back);
        for cost in std::mem::take(&mut self.instances[instance].waiting) {
            self.call(instance, cost, false);
        }
    }

    fn give_back(&mut self, back: Vec<GiveBack>) {
        for back in back {
            // Some are lost on the way.
            if self.rng.u32(..10) > 0 {
                self.after(self.wire, Event::Refund { back });
            }
        }
    }

    /// Traffic changes, somebody dies, or leases are revoked.
    fn turmoil(&mut self) {
        let instance = self.rng.usize(..self.instances.len());
        match self.rng.u32(..10) {
            0..=5 => self.instances[instance].every = 1 << self.rng.u32(4..16),
            6 => {
                let clock = Clock::Manual(Arc::clone(&self.hand));
                let dead = &mut self.instances[instance];
                dead.leases = Leases::new(clock, true);
                dead.life += 1;
                dead.waiting.clear();
            }
            7 => {
                let back = self.instances[instance].leases.revoke_all();
                self.give_back(back);
            }
            _ => {}
        }
    }

    /// Between any two admitted instants no more was admitted than `burst + rate * time`, where `rate` is
    /// so many `parts` a microsecond and `unit` parts are one.
    fn between_any_two(&self, unit: u64, parts: u64, burst: i128, seed: u64) {
        // Of all that came before, the least of (admitted before it) - rate * (its instant).
        let (mut before, mut lowest) = (0_i128, i128::MAX);
        for (at, cost) in &self.admitted {
            let poured = i128::from(at - START) * i128::from(parts);
            lowest = lowest.min(before - poured);
            before += i128::from(*cost) * i128::from(unit);
            let over = before - poured - lowest - burst;
            assert!(over <= 0, "seed {seed}: {over} parts of {unit} too many at {}", at - START);
        }
    }

    fn holds_its_bound(&self, seed: u64) {
        let most = i128::from(self.algorithm.limit());
        let lease = i128::from(self.lease.terms(&self.algorithm).unwrap().time.0);
        let slides = |span: Micros, more: i128| {
            let (span, count) = (span.0, self.algorithm.limit());
            let burst = most * (i128::from(span) + lease) + more * i128::from(span);
            self.between_any_two(span, u64::from(count), burst, seed);
        };
        match &self.algorithm {
            Algorithm::TokenBucket(bucket) => {
                let burst = most * i128::from(bucket.unit()) + lease * i128::from(bucket.pour());
                self.between_any_two(bucket.unit(), u64::from(bucket.pour()), burst, seed);
            }
            Algorithm::SlidingWindow(window) => slides(window.span(), 1),
            Algorithm::SlidingLog(log) => {
                slides(log.span(), 0);
                // And more than the bound asks for: whenever it is spent, any window holds the limit.
                let (mut oldest, mut sum) = (self.admitted.iter().peekable(), 0);
                for (at, cost) in &self.admitted {
                    sum += i128::from(*cost);
                    while let Some((_, left)) = oldest.next_if(|(first, _)| at - first >= log.span().0) {
                        sum -= i128::from(*left);
                    }
                    assert!(sum <= most, "seed {seed}: {sum} in the window up to {}", at - START);
                }
            }
            Algorithm::FixedWindow(window) => {
                let mut per_window = std::collections::BTreeMap::<u64, i128>::new();
                for (at, cost) in &self.admitted {
                    let start = window.windows().window_of(Micros(*at)).start;
                    *per_window.entry(start.0).or_default() += i128::from(*cost);
                }
                assert!(per_window.values().all(|count| *count <= most), "seed {seed}: {per_window:?}");
            }
        }
    }

    fn tokens_admitted(&self) -> u64 {
        self.admitted.iter().map(|(_, cost)| u64::from(*cost)).sum()
    }
}

fn check<'a>(scope: &'a Scope, algorithm: &'a Algorithm, cost: Cost) -> Check<'a> {
    Check { key: Key { scope, subject: b"everybody" }, algorithm, cost }
}

/// What a store in memory answers, which is there at once.
fn ready<F: Future>(call: F) -> F::Output {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(call).poll(&mut context) {
        std::task::Poll::Ready(done) => done,
        std::task::Poll::Pending => panic!("memory answers at once"),
    }
}

const KINDS: [Kind; 4] = Kind::ALL;

/// Any fleet.
fn any_scene(rng: &mut Rng) -> Scene {
    let kind = KINDS[rng.usize(..KINDS.len())];
    let rate = ["50/100ms", "300/s", "37/300ms", "1000/s"][rng.usize(..4)];
    let burst = (kind == Kind::TokenBucket && rng.bool()).then(|| rng.u32(10..300));
    let within = Lease::Within { max: rng.u32(2..50), time: Micros::from_millis(rng.u64(5..100)) };
    Scene {
        kind,
        rate,
        burst,
        lease: if rng.bool() { Lease::Auto } else { within },
        instances: rng.usize(1..9),
        every: 1 << rng.u32(6..14),
        costs: if rng.bool() { 1 } else { rng.u32(2..6) },
        wire: 1 << rng.u32(4..14),
        is_calm: false,
    }
}

#[test]
fn no_fleet_admits_more_than_the_bound() {
    let (mut locally, mut refused) = (0, 0);
    for seed in 0..120 {
        let scene = any_scene(&mut Rng::with_seed(seed));
        let mut fleet = Fleet::new(&scene, seed);
        fleet.run(1_500_000);
        fleet.holds_its_bound(seed);
        locally += fleet.locally;
        refused += fleet.refused;
    }
    assert!(locally > 10_000 && refused > 10_000, "{locally} {refused}: the scenes are too tame");
}

/// Eight instances that all ask for one key.
fn eight(kind: Kind, rate: &'static str, every: u64) -> Scene {
    let (lease, burst, costs, wire) = (Lease::Auto, None, 1, 100);
    Scene { kind, rate, burst, lease, instances: 8, every, costs, wire, is_calm: true }
}

/// All of them together ask ten times what the limit lets pass. A log books its tokens a 50th of its window
/// late, and so stays below its limit by that; its windows are longer here, for its leases to be as long as
/// the others'.
#[test]
fn a_drained_limit_is_used_up_with_few_calls() {
    for (kind, rate, every, seconds, full, least, calls) in [
        (Kind::TokenBucket, "1000/s", 800, 20, 21_000, 98, 10),
        (Kind::SlidingWindow, "1000/s", 800, 20, 20_000, 98, 40),
        (Kind::FixedWindow, "1000/s", 800, 20, 20_000, 98, 24),
        (Kind::SlidingLog, "1000/20s", 16_000, 99, 4_950, 96, 24),
    ] {
        let mut fleet = Fleet::new(&eight(kind, rate, every), 1);
        fleet.run(seconds * 1_000_000);
        fleet.holds_its_bound(1);
        let admitted = fleet.tokens_admitted();
        assert!(admitted * 100 >= full * least, "{kind}: {admitted} of {full}");
        let made = fleet.store_calls / seconds / 8;
        assert!(made <= calls, "{kind}: {made} calls a second and instance");
    }
}

#[test]
fn a_limit_above_demand_admits_every_call_with_few_calls() {
    for (kind, rate, every) in [
        (Kind::TokenBucket, "40000/s", 1_000),
        (Kind::SlidingWindow, "40000/s", 1_000),
        (Kind::FixedWindow, "40000/s", 1_000),
        (Kind::SlidingLog, "20000/20s", 10_000),
    ] {
        let mut fleet = Fleet::new(&eight(kind, rate, every), 2);
        fleet.run(5_000_000);
        assert_eq!(fleet.refused, 0, "{kind}");
        let calls = fleet.store_calls / 5 / 8;
        assert!(calls <= 13, "{kind}: {calls} calls a second and instance");
        let share = fleet.locally * 100 / fleet.admitted.len() as u64;
        assert!(share >= 98, "{kind}: {share} % without the store");
    }
}

/// What is out on lease here is missed there: a sliding window feels that most, whose room is all new at
/// the start of a window only by and by.
#[test]
fn demand_just_below_the_limit_is_hardly_refused() {
    for (kind, seed) in KINDS.into_iter().zip(1..) {
        // 95 % of the limit, all together.
        let mut fleet = Fleet::new(&eight(kind, "10000/s", 840), seed);
        fleet.run(5_000_000);
        fleet.holds_its_bound(seed);
        let asked = fleet.admitted.len() as u64 + fleet.refused;
        assert!(fleet.refused * 100 <= asked * 4, "{kind}: {} of {asked} refused", fleet.refused);
    }
}

#[test]
fn what_was_on_its_way_when_leases_were_revoked_goes_back() {
    let mut fleet = Fleet::new(&eight(Kind::FixedWindow, "1000/s", 1_000), 3);
    let fetch = loop {
        let check = check(&fleet.scope, &fleet.algorithm, Cost::ONE);
        if let (_, Some(fetch)) = fleet.instances[0].leases.ask(&check, Lease::Auto, true) {
            break fetch;
        }
    };
    let (sent, amount) = (Micros(fleet.now()), fetch.amount());
    let decision = fleet.take(&fetch, amount);
    assert!(fleet.instances[0].leases.revoke_all().is_empty());
    let back = fleet.instances[0].leases.landed(&fetch, Some(Fetched { sent, amount, decision }));
    assert_eq!((back.len(), back[0].unspent.amount), (1, amount));
    assert_eq!(fleet.instances[0].leases.active(), 0);
}

#[test]
fn a_cold_key_is_never_leased() {
    for kind in KINDS {
        let (clock, hand) = Clock::manual(Micros(START));
        let leases = Leases::new(clock, true);
        let algorithm = Algorithm::try_new(kind, Rate::parse("1000/s").unwrap(), None, 1000).unwrap();
        let scope = Scope::of_rule("cold", 0, kind);
        let quarter = Lease::Auto.terms(&algorithm).unwrap().time.0 / 4;
        for _ in 0..1000 {
            hand.fetch_add(quarter / 3 + 1, Ordering::Relaxed);
            let (turn, fetch) = leases.ask(&check(&scope, &algorithm, Cost::ONE), Lease::Auto, true);
            assert!(matches!(turn, Turn::Exact) && fetch.is_none(), "{kind}");
        }
        assert_eq!(leases.active(), 0);
    }
}
