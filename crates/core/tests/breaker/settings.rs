//! What is refused of settings, all at once and each by name.

use tollgate_core::breaker::{Breaker, Permille, Settings, Window};
use tollgate_core::units::Micros;

fn refused(change: impl FnOnce(&mut Settings)) -> Vec<&'static str> {
    let mut settings = Settings::default();
    change(&mut settings);
    match Breaker::try_new(settings) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(|problem| problem.field).collect(),
    }
}

#[test]
fn the_defaults_are_fine() {
    assert_eq!(refused(|_| {}), [""; 0]);
}

#[test]
fn whatever_cannot_be_is_named() {
    assert_eq!(refused(|one| one.failures = Some(0)), ["failures"]);
    assert_eq!(refused(|one| (one.failures, one.failure_ratio) = (None, None)), ["failures"]);
    assert_eq!(refused(|one| one.failure_ratio = Some(Permille(0))), ["failure_ratio"]);
    assert_eq!(refused(|one| one.failure_ratio = Some(Permille(1001))), ["failure_ratio"]);
    assert_eq!(refused(|one| one.slow_ratio = Some(Permille(1001))), ["slow_ratio"]);
    assert_eq!(refused(|one| one.quorum = Permille(1001)), ["quorum"]);
    assert_eq!(refused(|one| one.minimum_calls = 0), ["minimum_calls"]);
    assert_eq!(refused(|one| one.window = Window::Calls(19)), ["minimum_calls"]);
    assert_eq!(refused(|one| one.window = Window::Time(Micros(999))), ["window"]);
    assert_eq!(refused(|one| one.open_max = Micros::from_secs(4)), ["open_max"]);
    assert_eq!(refused(|one| one.open_for = Micros::ZERO), ["open_for"]);
    assert_eq!(refused(|one| one.probes = 0), ["probes"]);
    assert_eq!(refused(|one| one.probes = 101), ["probes"]);
    assert_eq!(refused(|one| one.probe_for = Micros::ZERO), ["probe_for"]);
    assert_eq!(refused(|one| one.successes_to_close = 0), ["successes_to_close"]);
    assert_eq!(refused(|one| one.ramp = vec![Permille(500), Permille(100)]), ["ramp"]);
    assert_eq!(refused(|one| one.ramp = vec![Permille(0)]), ["ramp"]);
    assert_eq!(refused(|one| one.ramp = vec![Permille(1); 9]), ["ramp"]);
    assert_eq!(refused(|one| one.ramp_step = Micros::ZERO), ["ramp_step"]);
    assert_eq!(refused(|one| (one.ramp, one.ramp_step) = (vec![], Micros::ZERO)), [""; 0]);
    let both = refused(|one| (one.probes, one.open_for) = (0, Micros::ZERO));
    assert_eq!(both, ["probes", "open_for"], "all at once");
}

#[test]
fn a_problem_says_what_is_allowed() {
    let problems = Breaker::try_new(Settings { probes: 0, ..Settings::default() }).unwrap_err();
    assert_eq!(problems[0].to_string(), "probes: 0 is not from 1 to 100");
}
