//! What a file may say of breakers, and that what is printed reads as the same.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::config::{Config, Overrides};

fn read(breakers: &str) -> Result<Arc<BreakerPolicy>, String> {
    let text = format!("rules: []\nbreakers:\n{breakers}");
    let config = Config::parse("f.yaml", &text, Overrides::default());
    config.map(|config| config.breakers).map_err(|problems| problems.to_string())
}

#[test]
fn what_is_left_out_is_as_in_the_library() {
    let policy = read("  - name: payments\n  - match: \"mail-*\"\n  - {name: rest, match: \"*\"}\n").unwrap();
    let names: Vec<_> = policy.kinds().iter().map(|kind| kind.behaviour.name()).collect();
    assert_eq!(names, ["payments", "mail-*", "rest"]);
    for kind in policy.kinds() {
        assert_eq!(*kind.behaviour.breaker().settings(), Settings::default());
        assert_eq!(kind.report_within, REPORT_WITHIN);
    }
    assert_eq!(policy.find("mail-eu").map(|(at, _)| at), Some(1));
    assert_eq!(policy.find("payments-eu").map(|(at, _)| at), Some(2));
}

#[test]
fn every_field_says_what_is_wrong_with_it_and_where() {
    for (written, path, what) in [
        ("{}", "name", "is missing: give the id"),
        ("{name: a b}", "name", "letters"),
        ("{name: 7}", "name", "must be text"),
        ("{match: \"\"}", "match", "must have 1 to 1024 bytes"),
        ("{name: a, failures: 0}", "failures", "from 1 to 1000000, or off"),
        ("{name: a, failures: many}", "failures", "from 1 to 1000000, or off"),
        ("{name: a, failure_ratio: 50}", "failure_ratio", "write 50% or 2.5%, from 0.1% to 100%"),
        ("{name: a, failure_ratio: 0%}", "failure_ratio", "from 0.1% to 100%"),
        ("{name: a, failure_ratio: 100.1%}", "failure_ratio", "is not a share"),
        ("{name: a, slow_ratio: 2.55%}", "slow_ratio", "is not a share"),
        ("{name: a, slow_after: 0s}", "slow_after", "out of bounds"),
        ("{name: a, window: 10}", "window", "must be text"),
        ("{name: a, window: ten}", "window", "or a number of calls: 100 calls"),
        ("{name: a, window: 0 calls}", "window", "must be 1 to 1000000 calls"),
        ("{name: a, window: 10 calls, minimum_calls: 11}", "minimum_calls", "never holds more"),
        ("{name: a, minimum_calls: 0}", "minimum_calls", "from 1 to 1000000"),
        ("{name: a, quorum: 101%}", "quorum", "from 0% to 100%"),
        ("{name: a, jitter: -1}", "jitter", "must be text"),
        ("{name: a, open_for: 5}", "open_for", "a time with its unit"),
        ("{name: a, open_for: 10s, open_max: 9s}", "open_max", "9s is not from 10s to 1d"),
        ("{name: a, open_max: 2d}", "open_max", "out of bounds"),
        ("{name: a, decay_every: 0s}", "decay_every", "out of bounds"),
        ("{name: a, hint_max: 2d}", "hint_max", "out of bounds"),
        ("{name: a, probes: 101}", "probes", "from 1 to 100"),
        ("{name: a, probe_for: 0s}", "probe_for", "out of bounds"),
        ("{name: a, successes_to_close: 0}", "successes_to_close", "from 1 to 1000000"),
        ("{name: a, ramp: [50%, 10%]}", "ramp", "no share is smaller"),
        ("{name: a, ramp: [0%]}", "ramp[0]", "from 0.1% to 100%"),
        ("{name: a, ramp: [1%,2%,3%,4%,5%,6%,7%,8%,9%]}", "ramp", "at most 8"),
        ("{name: a, ramp_step: 0s}", "ramp_step", "out of bounds"),
        ("{name: a, report_within: 2d}", "report_within", "out of bounds"),
        ("{name: a, failures: off, failure_ratio: off}", "failures", "could never trip"),
        ("{name: a, failure_rate: 50%}", "failure_rate", "unknown field: use name, match"),
    ] {
        let problems = read(&format!("  - {written}\n")).unwrap_err();
        let wanted = format!(": breakers[0].{path}: ");
        let line = problems.lines().find(|line| line.contains(&wanted));
        assert!(line.is_some_and(|line| line.contains(what)), "{written}\n{problems}");
        assert!(problems.starts_with("f.yaml:3:"), "{problems}");
        assert_eq!(problems.lines().count(), 1, "{written}\n{problems}");
    }
}

#[test]
fn one_that_is_never_met_is_refused() {
    for (written, at, what) in [
        ("  - name: a\n  - name: a\n", "breakers[1].name", "is what breakers[0] is called too"),
        ("  - name: a\n  - {name: b, match: a}\n", "breakers[1].match", "breakers[0] before it"),
        ("  - match: \"*\"\n  - name: b\n", "breakers[1].name", "breakers[0] before it"),
        ("  - a\n", "breakers[0]", "must be a mapping with a name or a match"),
    ] {
        let problems = read(written).unwrap_err();
        assert!(problems.contains(at) && problems.contains(what), "{problems}");
    }
}

fn shares(least: u16) -> impl Strategy<Value = Permille> {
    (least..=1000).prop_map(Permille)
}

fn spans() -> impl Strategy<Value = Micros> {
    let any = (1..=SPAN_MAX.0).prop_map(Micros);
    prop_oneof![any, (1..=86_400_u64).prop_map(Micros::from_secs)]
}

fn any_settings() -> impl Strategy<Value = Settings> {
    let windows = prop_oneof![
        (1_000..=SPAN_MAX.0).prop_map(|span| Window::Time(Micros(span))),
        (1..=CALLS_MAX).prop_map(Window::Calls),
    ];
    let calls = || 1..=CALLS_MAX;
    let rules = (option::of(calls()), option::of(shares(1)), option::of(shares(1)), windows, calls());
    let times = (spans(), spans(), spans(), spans(), spans(), spans(), option::of(spans()));
    let others = (shares(0), shares(0), 1..=PROBES_MAX, calls(), vec(shares(1), 0..=RAMP_MAX));
    (rules, times, others).prop_map(|(rules, times, others)| {
        let (failures, failure_ratio, slow_ratio, window, minimum_calls) = rules;
        let (slow_after, one, other, decay_every, probe_for, ramp_step, hint) = times;
        let (quorum, jitter, probes, successes_to_close, mut ramp) = others;
        ramp.sort();
        let (open_for, open_max) = (one.min(other), one.max(other));
        let minimum_calls = match window {
            Window::Calls(calls) => minimum_calls.min(calls),
            Window::Time(_) => minimum_calls,
        };
        let failures = if failure_ratio.or(slow_ratio).is_none() { failures.or(Some(1)) } else { failures };
        let hint_max = hint.unwrap_or(Micros::ZERO);
        Settings {
            failures,
            failure_ratio,
            slow_ratio,
            slow_after,
            window,
            minimum_calls,
            quorum,
            open_for,
            open_max,
            jitter,
            decay_every,
            hint_max,
            probes,
            probe_for,
            successes_to_close,
            ramp,
            ramp_step,
        }
    })
}

proptest! {
    #[test]
    fn what_is_printed_reads_as_the_same(
        all in vec((any_settings(), "[a-z]{1,8}", "\\PC{1,12}", any::<bool>(), 1..=86_400_u64), 1..4),
    ) {
        let mut kinds: Vec<Kind> = Vec::new();
        for (settings, name, ids, is_named, seconds) in all {
            let (name, ids) = match (is_named, ids) {
                (true, ids) if ids.contains('\'') => (name.clone(), name),
                (true, ids) => (name, ids),
                (false, ids) => (ids.clone(), ids),
            };
            let is_new = kinds.iter().all(|kind| kind.behaviour.name() != name && kind.ids.to_string() != ids);
            let is_after_all = kinds.iter().any(|kind| kind.ids.to_string() == "*");
            if !is_new || is_after_all {
                continue;
            }
            let behaviour = Arc::new(Behaviour::new(&name, Breaker::try_new(settings).unwrap()));
            let report_within = Duration::from_secs(seconds);
            kinds.push(Kind { ids: TextPattern::new(&ids), behaviour, report_within });
        }
        let policy = BreakerPolicy::new(kinds);
        let printed = print(&policy);
        let text = format!("rules: []\n{printed}");
        let read = Config::parse("printed.yaml", &text, Overrides::default());
        let read = read.map_err(|problems| TestCaseError::fail(format!("{problems}\n{printed}")))?;
        prop_assert_eq!(&*read.breakers, &policy);
    }
}
