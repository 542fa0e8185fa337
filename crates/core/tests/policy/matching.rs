//! Each word of a rule, by what it does to an ask.

use std::collections::HashMap;

use tollgate_core::ask::{Ask, AskProblem, By, Want};
use tollgate_core::attributes::{Attributes, Known};
use tollgate_core::policy::{
    CostBy, List, Matched, Mode, Origin, Override, Overrides, Policy, PolicyError, Role, Rule, When,
};
use tollgate_core::units::Cost;

use super::{attribute, bucket, call, condition, key, when};

fn want<'a>(by: By<'a>, key: &'a str, cost: u32) -> Want<'a> {
    Want { by, key: key.as_bytes(), cost: Cost::new(cost).unwrap(), takes: &[] }
}

/// What an ask by attributes meets: rule, subject, limit, cost and role of each check.
fn met(policy: &Policy, known: &dyn Attributes) -> Vec<(String, String, u32, u32, Role)> {
    let wants = [want(By::Attributes(known), "", 1)];
    rows(policy, &policy.matched(&Ask { wants: &wants }).unwrap())
}

fn rows(policy: &Policy, matched: &Matched<'_>) -> Vec<(String, String, u32, u32, Role)> {
    let entries = matched.enforced.iter().chain(&matched.advisory);
    entries
        .map(|entry| {
            let rule = policy.rule_of(entry.origin).map_or("inline", Rule::name).to_owned();
            let subject = String::from_utf8(entry.subject.to_vec()).unwrap();
            (rule, subject, entry.algorithm.limit(), entry.cost.get(), entry.role)
        })
        .collect()
}

fn row(rule: &str, subject: &str, limit: u32, cost: u32) -> (String, String, u32, u32, Role) {
    (rule.to_owned(), subject.to_owned(), limit, cost, Role::Enforced)
}

fn one(rule: Rule) -> Policy {
    Policy::try_new(1, vec![rule]).unwrap()
}

#[test]
fn every_rule_that_applies_is_met_in_the_order_written() {
    let rule = |name: &str, when: When, template: &str| {
        Rule::builder(name).when(when).key(key(template)).limits(vec![bucket("10/s")]).build().unwrap()
    };
    let policy = Policy::try_new(
        1,
        vec![
            rule("all", When::default(), "everyone"),
            rule("api", when(&[("path", &["/api/**"])]), "{address}"),
            rule("login", when(&[("path", &["/login"]), ("method", &["POST"])]), "{address}"),
            rule("user", when(&[("path", &["/api/users/{user}"])]), "{path.user}"),
            Rule::try_new("named", vec![bucket("1/s")], None).unwrap(),
        ],
    )
    .unwrap();
    let from = |method, path| call(&[("method", method), ("path", path), ("address", "203.0.113.9")]);
    assert_eq!(
        met(&policy, &from("GET", "/api/users/7")),
        [row("all", "everyone", 10, 1), row("api", "203.0.113.9", 10, 1), row("user", "7", 10, 1)]
    );
    assert_eq!(
        met(&policy, &from("POST", "/login")),
        [row("all", "everyone", 10, 1), row("login", "203.0.113.9", 10, 1)]
    );
    assert_eq!(met(&policy, &from("GET", "/login")), [row("all", "everyone", 10, 1)]);
    // Without an address nothing can be counted by it.
    assert_eq!(met(&policy, &call(&[("path", "/api")])), [row("all", "everyone", 10, 1)]);
}

#[test]
fn an_exception_holds_where_all_of_it_does() {
    let but = vec![condition("path", &["/health"]), condition("method", &["GET"])];
    let when = When::new(vec![condition("host", &["*.example.com"])], but);
    let policy =
        one(Rule::builder("api").when(when).key(key("k")).limits(vec![bucket("1/s")]).build().unwrap());
    let is_met = |method, path, host| {
        !met(&policy, &call(&[("method", method), ("path", path), ("host", host)])).is_empty()
    };
    assert!(is_met("GET", "/a", "api.example.com"));
    assert!(is_met("POST", "/health", "api.example.com"));
    assert!(!is_met("GET", "/health", "api.example.com"));
    assert!(!is_met("GET", "/a", "example.org"));
}

#[test]
fn a_plan_is_picked_by_an_attribute_and_shares_the_state() {
    let plans =
        vec![("free".to_owned(), vec![bucket("10/s")]), ("premium".to_owned(), vec![bucket("100/s")])];
    let policy = one(Rule::builder("api")
        .key(key("{claim.sub}"))
        .plans(attribute("claim.plan"), plans, "free")
        .build()
        .unwrap());
    let limit = |plan: &str| met(&policy, &call(&[("claim.sub", "ann"), ("claim.plan", plan)]))[0].2;
    assert_eq!((limit("free"), limit("premium"), limit("gold"), limit("")), (10, 100, 10, 10));
    let scopes: Vec<_> = policy.rules()[0].plans().iter().map(|plan| plan.limits()[0].scope()).collect();
    assert_eq!(scopes[0], scopes[1], "an upgrade does not refill");
    // By name there is the plan for everyone, unless the call is described.
    let premium = call(&[("claim.plan", "premium")]);
    for (by, limit) in [(By::Rule("api"), 10), (By::RuleFor("api", &premium), 100)] {
        let wants = [want(by, "ann", 1)];
        assert_eq!(
            rows(&policy, &policy.matched(&Ask { wants: &wants }).unwrap()),
            [row("api", "ann", limit, 1)]
        );
    }
}

#[test]
fn costs_come_from_the_rule_and_the_ask() {
    let by_value = CostBy::Value {
        by: attribute("method"),
        costs: HashMap::from([("POST".into(), Cost::new(5).unwrap())]),
        default: Cost::ONE,
    };
    let number = CostBy::Number {
        from: attribute("header.x-units"),
        max: Cost::new(50).unwrap(),
        default: Cost::new(2).unwrap(),
    };
    for (cost, known, times, expected) in [
        (CostBy::Fixed(Cost::new(3).unwrap()), call(&[]), 1, 3),
        (CostBy::Fixed(Cost::new(3).unwrap()), call(&[]), 4, 12),
        (by_value.clone(), call(&[("method", "POST")]), 1, 5),
        (by_value.clone(), call(&[("method", "GET")]), 2, 2),
        (by_value, call(&[]), 1, 1),
        (number.clone(), call(&[("header.x-units", "7")]), 1, 7),
        (number.clone(), call(&[("header.x-units", "700")]), 1, 50),
        (number.clone(), call(&[("header.x-units", "99999999999999999999999")]), 1, 50),
        (number.clone(), call(&[("header.x-units", "0")]), 1, 1),
        (number.clone(), call(&[("header.x-units", "-3")]), 1, 50),
        (number.clone(), call(&[("header.x-units", "1e1")]), 1, 50),
        (number, call(&[]), 1, 2),
        (CostBy::Fixed(Cost::new(u32::MAX).unwrap()), call(&[]), 2, u32::MAX),
    ] {
        let rule = Rule::builder("api").key(key("k")).limits(vec![bucket("10/s")]).cost(cost.clone());
        let policy = one(rule.build().unwrap());
        let wants = [want(By::Attributes(&known), "", times)];
        let matched = policy.matched(&Ask { wants: &wants }).unwrap();
        assert_eq!(matched.enforced[0].cost.get(), expected, "{cost:?} {known:?}");
    }
}

#[test]
fn a_list_settles_a_call_before_anything_is_counted() {
    let rule = |mode| {
        Rule::builder("api")
            .key(key("{header.x-user}"))
            .limits(vec![bucket("10/s")])
            .deny(List {
                conditions: vec![condition("address", &["10.6.0.0/16"])],
                keys: vec![b"eve"[..].into()],
            })
            .allow(List {
                conditions: vec![condition("address", &["10.0.0.0/8"])],
                keys: vec![b"root"[..].into()],
            })
            .mode(mode)
            .build()
            .unwrap()
    };
    let policy = one(rule(Mode::Enforce));
    let shadow = one(rule(Mode::Shadow));
    let outcome = |policy: &Policy, user, address| {
        let known = call(&[("header.x-user", user), ("address", address)]);
        let wants = [want(By::Attributes(&known), "", 1)];
        let matched = policy.matched(&Ask { wants: &wants }).unwrap();
        let blocked = matched.blocked.iter().map(|blocked| (blocked.origin, blocked.role));
        (matched.enforced.len(), blocked.collect::<Vec<_>>())
    };
    assert_eq!(outcome(&policy, "ann", "192.0.2.1"), (1, vec![]));
    assert_eq!(outcome(&policy, "ann", "10.1.1.1"), (0, vec![]));
    assert_eq!(outcome(&policy, "root", "192.0.2.1"), (0, vec![]));
    assert_eq!(outcome(&policy, "root", "10.6.0.1"), (0, vec![(Origin::Rule(0), Role::Enforced)]));
    assert_eq!(outcome(&policy, "eve", "10.1.1.1"), (0, vec![(Origin::Rule(0), Role::Enforced)]));
    assert_eq!(outcome(&shadow, "eve", "10.1.1.1"), (0, vec![(Origin::Rule(0), Role::Shadow)]));
    // By name the key alone is known.
    let wants = [want(By::Rule("api"), "eve", 1)];
    assert_eq!(policy.matched(&Ask { wants: &wants }).unwrap().blocked.len(), 1);
}

#[test]
fn the_policy_s_own_lists_come_before_all_rules() {
    let rule = Rule::builder("api").key(key("k")).limits(vec![bucket("10/s")]).build().unwrap();
    let policy = Policy::builder(1)
        .rules(vec![rule])
        .deny(List { conditions: vec![condition("header.x-bot", &["*"])], keys: vec![] })
        .allow(List { conditions: vec![condition("address", &["127.0.0.0/8"])], keys: vec![] })
        .build()
        .unwrap();
    let outcome = |known: &Known, by_name: bool| {
        let by = if by_name { By::RuleFor("api", known) } else { By::Attributes(known) };
        let wants = [want(by, "x", 1)];
        let matched = policy.matched(&Ask { wants: &wants }).unwrap();
        (matched.enforced.len(), matched.blocked.len())
    };
    for by_name in [false, true] {
        assert_eq!(outcome(&call(&[("address", "192.0.2.1")]), by_name), (1, 0));
        assert_eq!(outcome(&call(&[("address", "127.0.0.1")]), by_name), (0, 0));
        assert_eq!(outcome(&call(&[("address", "127.0.0.1"), ("header.x-bot", "1")]), by_name), (0, 1));
    }
}

#[test]
fn single_keys_have_limits_of_their_own() {
    let policy = one(Rule::builder("api")
        .key(key("{claim.sub}"))
        .limits(vec![bucket("10/s")])
        .override_key(b"ann", Override::Limits(vec![bucket("500/s")]))
        .override_key(b"bob", Override::Unlimited)
        .override_key(b"eve", Override::Blocked)
        .build()
        .unwrap());
    let outcome = |policy: &Policy, sub: &str| {
        let known = call(&[("claim.sub", sub)]);
        let wants = [want(By::Attributes(&known), "", 1)];
        let matched = policy.matched(&Ask { wants: &wants }).unwrap();
        (
            matched.enforced.iter().map(|entry| entry.algorithm.limit()).collect::<Vec<_>>(),
            matched.blocked.len(),
        )
    };
    assert_eq!(outcome(&policy, "zoe"), (vec![10], 0));
    assert_eq!(outcome(&policy, "ann"), (vec![500], 0));
    assert_eq!(outcome(&policy, "bob"), (vec![], 0));
    assert_eq!(outcome(&policy, "eve"), (vec![], 1));
    // What was changed while it is in force wins over what is written.
    let mut changed = Overrides::default();
    changed.insert("api", b"ann", Override::Blocked);
    changed.insert("api", b"eve", Override::Limits(vec![bucket("7/s")]));
    changed.insert("other", b"zoe", Override::Blocked);
    let changed = policy.with_overrides(changed);
    assert_eq!(outcome(&changed, "ann"), (vec![], 1));
    assert_eq!(outcome(&changed, "eve"), (vec![7], 0));
    assert_eq!(outcome(&changed, "zoe"), (vec![10], 0));
    let wants = [want(By::Rule("api"), "eve", 1)];
    assert_eq!(changed.matched(&Ask { wants: &wants }).unwrap().enforced[0].algorithm.limit(), 7);
}

#[test]
fn what_only_watches_stands_beside_what_refuses() {
    let policy = Policy::try_new(
        1,
        vec![
            Rule::builder("api")
                .key(key("k"))
                .limits(vec![bucket("10/s"), bucket("100/min")])
                .candidate(vec![bucket("5/s")])
                .build()
                .unwrap(),
            Rule::builder("new")
                .key(key("k"))
                .limits(vec![bucket("1/s")])
                .mode(Mode::Shadow)
                .build()
                .unwrap(),
        ],
    )
    .unwrap();
    let roles: Vec<_> = met(&policy, &call(&[])).into_iter().map(|row| (row.0, row.2, row.4)).collect();
    let expected = [
        ("api".to_owned(), 10, Role::Enforced),
        ("api".to_owned(), 100, Role::Enforced),
        ("api".to_owned(), 5, Role::Candidate),
        ("new".to_owned(), 1, Role::Shadow),
    ];
    assert_eq!(roles, expected);
    let rule = &policy.rules()[0];
    assert_ne!(rule.candidate()[0].scope(), rule.limits()[0].scope(), "a candidate has state of its own");
}

#[test]
fn what_only_watches_makes_no_ask_too_large_or_contradictory() {
    let watching = |n: usize| {
        let rule = Rule::builder(&format!("w{n}")).key(key("everyone")).limits(vec![bucket("1/s")]);
        rule.mode(Mode::Shadow).build().unwrap()
    };
    let enforced = Rule::builder("api").key(key("{tier}")).limits(vec![bucket("10/s")]).build().unwrap();
    let policy = Policy::try_new(1, (0..70).map(watching).chain([enforced]).collect()).unwrap();
    let (one, two) = (call(&[("tier", "a")]), call(&[("tier", "b")]));
    let wants = [want(By::Attributes(&one), "", 1), want(By::Attributes(&two), "", 1)];
    let matched = policy.matched(&Ask { wants: &wants }).unwrap();
    assert_eq!((matched.enforced.len(), matched.advisory.len()), (2, 64));
}

/// A call that says some things twice.
#[derive(Debug)]
struct Twice(Known, Known);

impl Attributes for Twice {
    fn text(&self, attribute: &tollgate_core::attributes::Attribute) -> Option<std::borrow::Cow<'_, str>> {
        self.0.text(attribute)
    }

    fn any(
        &self,
        attribute: &tollgate_core::attributes::Attribute,
        is_meant: &mut dyn FnMut(&str) -> bool,
    ) -> bool {
        self.0.any(attribute, is_meant) || self.1.any(attribute, is_meant)
    }

    fn address(&self) -> Option<core::net::IpAddr> {
        self.0.address()
    }
}

#[test]
fn nobody_slips_past_a_rule_by_saying_something_twice() {
    let rule = |name: &str, when: When, template: &str| {
        Rule::builder(name).when(when).key(key(template)).limits(vec![bucket("10/s")]).build().unwrap()
    };
    let policy = Policy::builder(1)
        .rules(vec![
            rule("tenant", when(&[("header.x-tenant", &["acme"])]), "{header.x-tenant}"),
            rule("user", when(&[("path", &["/api/users/{user}"])]), "{path.user}"),
            rule("glob", when(&[("header.x-tenant", &["ac*"])]), "k"),
        ])
        .deny(List { conditions: vec![condition("header.user-agent", &["BadBot"])], keys: vec![] })
        .build()
        .unwrap();
    let twice = Twice(
        call(&[("header.x-tenant", "other"), ("path", "/api%2Fusers/7")]),
        call(&[("header.x-tenant", "acme"), ("path", "/api/users/7")]),
    );
    let met: Vec<_> = met(&policy, &twice).into_iter().map(|row| (row.0, row.1)).collect();
    let expected = [("tenant", "other"), ("user", "7"), ("glob", "k")];
    assert_eq!(met, expected.map(|(rule, key)| (rule.to_owned(), key.to_owned())));
    let bot = Twice(call(&[("header.user-agent", "x")]), call(&[("header.user-agent", "BadBot")]));
    let wants = [want(By::Attributes(&bot), "", 1)];
    assert_eq!(policy.matched(&Ask { wants: &wants }).unwrap().blocked.len(), 1);
}

#[test]
fn one_key_is_not_asked_for_twice() {
    let rule = Rule::builder("api").key(key("{claim.sub}")).limits(vec![bucket("10/s")]).build().unwrap();
    let policy = one(rule);
    let known = call(&[("claim.sub", "ann")]);
    let wants = [want(By::Attributes(&known), "", 1), want(By::Rule("api"), "ann", 1)];
    let problem = policy.matched(&Ask { wants: &wants }).unwrap_err();
    assert_eq!(problem, AskProblem::Repeated { at: 1, first: 0 });
}

#[test]
fn rules_that_cannot_be_kept_are_refused() {
    let windowed = tollgate_core::algorithm::Algorithm::try_new(
        tollgate_core::algorithm::Kind::FixedWindow,
        tollgate_core::limit::Rate::parse("10/s").unwrap(),
        None,
        1000,
    )
    .unwrap();
    let no_key = Rule::builder("a").when(when(&[("path", &["/a"])])).limits(vec![bucket("1/s")]).build();
    assert!(matches!(no_key, Err(PolicyError::NoKey { .. })));
    for paths in [&["/a"][..], &["/{user}", "/b/{other}"]] {
        let rule = Rule::builder("a").when(when(&[("path", paths)])).key(key("{path.user}"));
        let built = rule.limits(vec![bucket("1/s")]).build();
        assert!(matches!(built, Err(PolicyError::NoParameter { .. })), "{paths:?}");
    }
    let plans = vec![("a".to_owned(), vec![bucket("1/s")]), ("b".to_owned(), vec![windowed.clone()])];
    let differ = Rule::builder("a").plans(attribute("tier"), plans.clone(), "a").build();
    assert!(matches!(differ, Err(PolicyError::PlansDiffer { plan, .. }) if plan == "b"));
    let no_plan = Rule::builder("a").plans(attribute("tier"), plans[..1].to_vec(), "c").build();
    assert!(matches!(no_plan, Err(PolicyError::NoPlan { plan, .. }) if plan == "c"));
    let differs = Rule::builder("a")
        .limits(vec![bucket("1/s")])
        .override_key(b"ann", Override::Limits(vec![windowed]))
        .build();
    assert!(matches!(differs, Err(PolicyError::OverrideDiffers { key, .. }) if key == "ann"));
}
