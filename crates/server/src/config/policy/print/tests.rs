//! Whatever the policy, what is printed reads as the same policy.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use tollgate::Cost;
use tollgate::core::attributes::Attribute;
use tollgate::core::policy::{KeyTemplate, Mode, RuleBuilder, When};

use super::*;
use crate::config::{Config, Overrides};
use crate::facing::Facing;
use crate::limit::Written;

/// Any text a key or a header could be.
fn text() -> impl Strategy<Value = String> {
    let odd =
        prop_oneof!["[a-z~*:#{}\\[\\]'\"\\\\ %|>&!-]{1,12}", "\\PC{1,8}", "[\\x00-\\x20\\x7f-\\u{a0}]{1,4}"];
    prop_oneof![odd, any::<String>().prop_filter("never empty", |text| !text.is_empty())]
}

fn limit() -> impl Strategy<Value = Algorithm> {
    let unit = prop_oneof![Just("us"), Just("ms"), Just("s"), Just("min"), Just("h"), Just("d")];
    let algorithm =
        prop_oneof![Just("token_bucket"), Just("sliding_log"), Just("sliding_window"), Just("fixed_window")];
    let count = prop_oneof![1..50_000_u32, any::<u32>(), Just(u32::MAX)];
    (count, 1..400_u32, unit, algorithm, option::of(1..1000_u32)).prop_filter_map(
        "a limit that can be kept",
        |(count, times, unit, algorithm, burst)| {
            let limit = format!("{count}/{times}{unit}");
            let burst = burst.filter(|_| algorithm == "token_bucket");
            let written = Written { limit: &limit, burst, algorithm: Some(algorithm), time_zone: None };
            written.build(1_000_000).ok().map(|built| built.algorithm)
        },
    )
}

fn condition() -> impl Strategy<Value = Condition> {
    let name = prop_oneof![Just("header.x-a"), Just("query.b"), Just("claim.c"), Just("tier")];
    let texts = (name, vec(text(), 1..4));
    let known = prop_oneof![
        Just(("path", vec!["/a/{b}/*".to_owned(), "/c/**".to_owned()])),
        Just(("path", vec!["*".to_owned()])),
        Just(("method", vec!["get".to_owned(), "POST".to_owned()])),
        Just(("host", vec!["*.Example.com".to_owned()])),
        Just(("address", vec!["*".to_owned()])),
        Just(("address", vec!["10.0.0.0/8".to_owned(), "2001:db8::/32".to_owned()])),
    ];
    prop_oneof![texts, known].prop_map(|(name, values)| {
        let attribute = Attribute::parse(name).unwrap();
        Condition::new(attribute, values.iter().map(String::as_str)).unwrap()
    })
}

/// At most one condition for an attribute, as a mapping has it.
fn conditions() -> impl Strategy<Value = Vec<Condition>> {
    vec(condition(), 0..3).prop_map(|all| {
        let mut each: Vec<Condition> = Vec::new();
        for one in all {
            if each.iter().all(|known| known.attribute() != one.attribute()) {
                each.push(one);
            }
        }
        each
    })
}

fn list() -> impl Strategy<Value = List> {
    let keys = vec(text().prop_map(|key| key.into_bytes().into()), 0..3);
    (conditions(), keys).prop_map(|(conditions, keys)| List { conditions, keys })
}

fn cost() -> impl Strategy<Value = CostBy> {
    let attribute = |name| Attribute::parse(name).unwrap();
    let by = vec(text(), 0..3).prop_map(move |values| CostBy::Value {
        by: attribute("header.x-kind"),
        costs: values.into_iter().map(|value| (value.into(), Cost::ONE)).collect(),
        default: Cost::ONE,
    });
    let from = (1..9_u32).prop_map(move |max| CostBy::Number {
        from: attribute("header.x-units"),
        max: Cost::new(max).unwrap(),
        default: Cost::ONE,
    });
    prop_oneof![Just(CostBy::default()), by, from]
}

fn lease() -> impl Strategy<Value = Lease> {
    let within = (2..100_u32, 1..=1000_u64)
        .prop_map(|(max, millis)| Lease::Within { max, time: tollgate::Micros::from_millis(millis) });
    prop_oneof![Just(Lease::Auto), within]
}

fn rule() -> impl Strategy<Value = RuleBuilder> {
    let limits = vec(limit(), 1..3);
    let key = prop_oneof![Just("{claim.sub}"), Just("{tier}:{header.x-a}"), Just("all #1")];
    let instead = vec((text(), any::<bool>()), 0..3);
    let parts = (conditions(), conditions(), limits, key, cost(), list(), list());
    let others = (option::of(limit()), option::of(lease()), any::<bool>());
    (parts, instead, others).prop_map(|(parts, instead, (candidate, lease, is_shadow))| {
        let (all, unless, limits, key, cost, allow, deny) = parts;
        let mut builder = Rule::builder("unnamed")
            .when(When::new(all, unless))
            .key(KeyTemplate::parse(key).unwrap())
            .limits(limits.clone())
            .cost(cost)
            .allow(allow)
            .deny(deny)
            .candidate(candidate.into_iter().collect())
            .mode(if is_shadow { Mode::Shadow } else { Mode::Enforce });
        if let Some(lease) = lease
            && let [limit] = limits.as_slice()
            && lease.check(limit).is_ok()
        {
            builder = builder.lease(lease);
        }
        for (key, is_blocked) in instead {
            let instead = if is_blocked { Override::Blocked } else { Override::Limits(limits.clone()) };
            builder = builder.override_key(key.as_bytes(), instead);
        }
        builder
    })
}

fn policy() -> impl Strategy<Value = Policy> {
    let list = list().prop_map(|list| List { keys: Vec::new(), ..list });
    (rule(), list, 16..=128_u8).prop_map(|(rule, deny, v6)| {
        let builder = Policy::builder(1).rules(vec![rule.build().unwrap()]).deny(deny);
        builder.grouping(Grouping { v4: 32, v6 }).build().unwrap()
    })
}

proptest! {
    #[test]
    fn what_is_printed_reads_as_the_same(policy in policy()) {
        let printed = print(&policy, OnOutage::Local);
        let read = Config::parse("printed.yaml", &printed, Overrides::default());
        let read = read.map_err(|problems| TestCaseError::fail(format!("{problems}\n{printed}")))?;
        let again = read.policy.build(1, &Facing::default()).unwrap();
        prop_assert_eq!(print(&again, OnOutage::Local), printed);
    }
}
