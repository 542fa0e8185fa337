//! The whole way of an ask through the engine: policy, guard, store, verdict, observer.

use anyhow::Result;
use tollgate::store::memory::MemoryStore;
use tollgate::{Ask, By, Cost, Engine, Policy, Rule, Want};

use super::instructions::{allocations_per_ask, instructions_per_ask};
use super::subject::{Limiter, Load, algorithm, ready};
use super::time;

const RULES: usize = 20;

/// Prints what one decision of a named rule costs.
pub(crate) fn table(rounds: usize) -> Result<()> {
    println!("| one `Engine::decide` by a named rule of {RULES}, 1 k keys | |");
    println!("|---|---|");
    let [alone, in_pairs] = time::of_one_and_two_threads(&Decider::new(), rounds);
    println!("| ns on one thread, median of {rounds} rounds | {alone:.1} |");
    println!("| ns on each of two threads, likewise | {in_pairs:.1} |");
    println!("| instructions | {:.0} |", instructions_per_ask("engine", "1000")?);
    println!("| heap allocations | {:.3} |\n", allocations_per_ask("engine", "1000")?);
    Ok(())
}

/// An engine on a memory store, with one limit per rule.
pub(crate) struct Decider(Engine<MemoryStore>);

impl Decider {
    pub(crate) fn new() -> Decider {
        let names = (1..RULES).map(|n| format!("rule-{n}")).chain(["login".to_owned()]);
        let rules = names.map(|name| Rule::try_new(&name, vec![algorithm(Load::Allowed)], None));
        let rules: Result<Vec<_>, _> = rules.collect();
        let policy = Policy::try_new(1, rules.expect("good names")).expect("different names");
        Decider(Engine::builder(MemoryStore::new()).policy(policy).build())
    }
}

impl Limiter for Decider {
    #[inline]
    fn passes(&self, key: &String) -> bool {
        let want = Want { by: By::Rule("login"), key: key.as_bytes(), cost: Cost::ONE, takes: &[] };
        ready(self.0.decide(&Ask { wants: &[want] })).is_allowed()
    }
}
