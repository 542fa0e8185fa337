//! The index against a model that is slow and obviously right: look at every rule.

use proptest::prelude::*;

use tollgate_core::ask::{Ask, By, Want};
use tollgate_core::policy::{Origin, Policy, Rule, When};
use tollgate_core::units::Cost;

use super::{bucket, call, condition, key};

const PATHS: &[&str] = &["/", "/a", "/a/b", "/a/b/c", "/b", "/b/a", "/a/", "/ab"];
const PATH_PATTERNS: &[&str] =
    &["/", "/a", "/a/**", "/a/*", "/a/b", "/**", "/*/b", "/a/b/**", "/{x}", "/a/**/c", "*", "/b"];
const HOSTS: &[&str] = &["a.example.com", "b.example.com", "example.com"];
const HOST_PATTERNS: &[&str] = &["a.example.com", "*.example.com", "example.com", "*"];
const ADDRESSES: &[&str] = &["10.0.0.1", "10.1.0.1", "192.0.2.1", "2001:db8::1", "::ffff:10.0.0.1"];
const RANGES: &[&str] = &["10.0.0.0/8", "10.0.0.0/16", "10.0.0.1", "0.0.0.0/0", "2001:db8::/32", "::/0", "*"];
const VALUES: &[&str] = &["x", "y", "z", "xy"];
const VALUE_PATTERNS: &[&str] = &["x", "y", "z", "x*", "*"];
const NAMES: &[(&str, &[&str])] = &[
    ("path", PATH_PATTERNS),
    ("host", HOST_PATTERNS),
    ("address", RANGES),
    ("method", &["GET", "POST"]),
    ("header.x-tenant", VALUE_PATTERNS),
    ("claim.plan", VALUE_PATTERNS),
    ("tier", VALUE_PATTERNS),
];

/// One condition: which attribute, and one or two of its patterns.
fn conditions(at_most: usize) -> impl Strategy<Value = Vec<(usize, usize, Option<usize>)>> {
    prop::collection::vec((0..NAMES.len(), 0..12_usize, prop::option::of(0..12_usize)), 0..=at_most)
}

fn built(drawn: &[(usize, usize, Option<usize>)]) -> Vec<tollgate_core::policy::Condition> {
    let one = |&(name, first, second): &(usize, usize, Option<usize>)| {
        let (name, patterns) = NAMES[name];
        let mut values = vec![patterns[first % patterns.len()]];
        values.extend(second.map(|second| patterns[second % patterns.len()]));
        condition(name, &values)
    };
    drawn.iter().map(one).collect()
}

fn maybe(values: &'static [&'static str]) -> impl Strategy<Value = Option<&'static str>> {
    prop::option::weighted(0.8, prop::sample::select(values))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn the_index_finds_what_a_look_at_every_rule_finds(
        rules in prop::collection::vec((conditions(3), conditions(2), any::<bool>()), 0..20),
        path in maybe(PATHS), host in maybe(HOSTS), address in maybe(ADDRESSES),
        method in maybe(&["GET", "POST", "PUT"]), tenant in maybe(VALUES), plan in maybe(VALUES),
        tier in maybe(VALUES),
    ) {
        let rules: Vec<Rule> = rules
            .iter()
            .enumerate()
            .map(|(at, (all, unless, has_key))| {
                let rule = Rule::builder(&format!("r{at}")).limits(vec![bucket("1/s")]);
                let when = When::new(built(all), built(unless));
                if *has_key { rule.when(when).key(key("k")).build() } else { rule.build() }.unwrap()
            })
            .collect();
        let pairs = [
            ("path", path), ("host", host), ("address", address), ("method", method),
            ("header.x-tenant", tenant), ("claim.plan", plan), ("tier", tier),
        ];
        let known: Vec<_> = pairs.iter().filter_map(|(name, value)| Some((*name, (*value)?))).collect();
        let known = call(&known);
        let expected: Vec<Origin> = rules
            .iter()
            .enumerate()
            .filter(|(_, rule)| rule.key().is_some() && rule.when().holds(&known))
            .map(|(at, _)| Origin::Rule(at))
            .collect();
        let policy = Policy::try_new(1, rules).unwrap();
        let wants = [Want { by: By::Attributes(&known), key: b"", cost: Cost::ONE, takes: &[] }];
        let matched = policy.matched(&Ask { wants: &wants }).unwrap();
        let found: Vec<Origin> = matched.enforced.iter().map(|entry| entry.origin).collect();
        prop_assert_eq!(found, expected);
    }
}
