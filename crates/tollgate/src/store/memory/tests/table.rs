//! The table is a map, however it is churned.

use std::collections::HashMap;

use proptest::prelude::*;

use super::super::hash::KeyHash;
use super::super::table::{Slot, Table};

/// Hashes that share homes and tags far more often than chance would have it.
fn hashes() -> impl Strategy<Value = KeyHash> {
    (0_u64..4, 0_u64..3, 0_u64..40).prop_map(|(home, tag, rest)| KeyHash {
        first: home << 62 | (rest + 1) << 37 | tag,
        second: rest * 0x9e37_79b9,
    })
}

#[derive(Debug, Clone)]
enum Op {
    Put(KeyHash, u64),
    Remove(KeyHash),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        3 => (hashes(), any::<u64>()).prop_map(|(hash, word)| Op::Put(hash, word)),
        2 => hashes().prop_map(Op::Remove),
    ];
    proptest::collection::vec(op, 1..400)
}

proptest! {
    #[test]
    fn a_churned_table_is_still_a_map(ops in ops(), slots in 1_usize..60) {
        let table = Table::new(slots);
        let mut model: HashMap<KeyHash, Slot> = HashMap::new();
        for op in ops {
            match op {
                Op::Put(hash, word) => {
                    #[expect(clippy::cast_possible_truncation, reason = "any bits will do")]
                    let slot = Slot { shape: word as u16, anchor: !word, word };
                    if let Some(at) = table.find(hash) {
                        table.write(at, slot);
                        model.insert(hash, slot);
                    } else {
                        let is_full = table.is_full();
                        let at = table.insert(hash, slot);
                        prop_assert_eq!(at.is_none(), is_full);
                        if at.is_some() {
                            model.insert(hash, slot);
                        }
                    }
                }
                Op::Remove(hash) => {
                    let at = table.find(hash);
                    prop_assert_eq!(at.is_some(), model.remove(&hash).is_some());
                    if let Some(at) = at {
                        table.remove(at);
                    }
                }
            }
            for (hash, slot) in &model {
                prop_assert_eq!(table.find(*hash).map(|at| table.read(at)), Some(*slot));
            }
        }
        let taken: usize = (0..table.groups()).map(|group| table.taken(group).count()).sum();
        prop_assert_eq!(taken, model.len());
        for hash in model.keys() {
            table.remove(table.find(*hash).unwrap());
        }
        // Nothing is left behind, so the longest chain is as short as in a new table.
        prop_assert!(table.is_pristine());
    }
}

/// More than a count can hold pass one group; it then stays on, and nothing is lost.
#[test]
fn a_count_that_ran_over_loses_nobody() {
    let table = Table::new(700);
    let hash = |n: u64| KeyHash { first: n + 1, second: n };
    for n in 0..700 {
        table.insert(hash(n), Slot { shape: 0, anchor: 0, word: n }).unwrap();
    }
    for n in 0..350 {
        table.remove(table.find(hash(n)).unwrap());
    }
    for n in 350..700 {
        assert_eq!(table.read(table.find(hash(n)).unwrap()).word, n);
    }
}
