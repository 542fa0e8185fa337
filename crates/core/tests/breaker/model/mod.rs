//! Three instances and a Redis, explored to the end: every order of every message, lost, late or twice.
//!
//! The model calls the [`Breaker::step`] that ships. Around it stands a world that keeps its own account, in
//! ways too slow or too simple to ship: which leases are out, how many probes have succeeded, when Open
//! ends, and for every message the *generation* it was born in, a number that no record holds. What the
//! step did is held against that account after every action.
//!
//! An instance has no state here beyond its messages. One that acts on an old view is one whose message
//! was sent then and is delivered now; one that crashes, or whose answer is lost, is one that sends nothing
//! more; one that Redis cannot hear is one whose messages are lost. So the messages under way, what Redis
//! holds, and time are all there is, and all orders of them are explored.
//!
//! That the account would notice is shown by taking a check out of the step from outside (`mutants.rs`).

mod explore;
mod mutants;
mod world;

use explore::{Found, explore};
use mutants::Mutant;

/// Nothing in any state that can be reached is as it should not be.
#[test]
fn three_instances_never_break_a_promise() {
    let Found { states, steps, records, violation } = explore(Mutant::None);
    println!("{states} states, {steps} steps, {records} records that recover");
    assert_eq!(violation, None);
    assert!(states > 100_000, "so few that something is never reached: {states}");
}

#[test]
fn reports_whose_epoch_nobody_checks_are_noticed() {
    let violation = explore(Mutant::ReportsOfAnyEpoch).violation.expect("a late report decides something");
    assert!(violation.contains("late"), "{violation}");
}

#[test]
fn probes_whose_epoch_nobody_checks_are_noticed() {
    let violation = explore(Mutant::ProbesOfAnyEpoch).violation.expect("a late probe decides something");
    assert!(violation.contains("late"), "{violation}");
}

#[test]
fn leases_that_never_end_are_noticed() {
    let violation = explore(Mutant::EndlessLeases).violation.expect("a place is never free again");
    assert!(violation.contains("lease"), "{violation}");
}

/// Why an epoch is not a mere count: lost with Redis' data, it would come again.
#[test]
fn epochs_that_begin_again_with_a_lost_record_are_noticed() {
    let violation = explore(Mutant::CountedEpochs).violation.expect("an epoch comes again");
    assert!(violation.contains("late"), "{violation}");
}
