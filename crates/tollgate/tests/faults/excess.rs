//! What was admitted in the worst interval, from the instants at which it was.

use std::time::Duration;

/// max over j of (n_j − r·t_j) − min over i ≤ j of the same before i: what the worst interval held
/// beyond r·T, in one pass.
pub(crate) fn worst_excess(mut at_us: Vec<u64>, rate: f64) -> f64 {
    at_us.sort_unstable();
    let Some(&first) = at_us.first() else { return 0.0 };
    let (mut worst, mut least, mut count) = (0.0_f64, f64::INFINITY, 0.0);
    for at in at_us {
        let due = Duration::from_micros(at - first).as_secs_f64() * rate;
        least = least.min(count - due);
        count += 1.0;
        worst = worst.max(count - due - least);
    }
    // A microsecond's worth of arithmetic on floats.
    (worst - 1e-3).max(0.0)
}

#[test]
fn the_interval_check_finds_the_worst_interval() {
    let close = |a: f64, b: f64| (a - b).abs() < 0.01;
    assert!(close(worst_excess(vec![], 1.0), 0.0));
    assert!(close(worst_excess(vec![5], 1.0), 1.0));
    // Ten at once, one per second for ten seconds, then three at once.
    let mut at: Vec<u64> = vec![0; 10];
    at.extend((1..=10).map(|second| second * 1_000_000));
    assert!(close(worst_excess(at.clone(), 1.0), 10.0));
    at.extend([10_000_000; 3]);
    assert!(close(worst_excess(at.clone(), 1.0), 13.0));
    assert!(close(worst_excess(at, 2.0), 10.0));
}
