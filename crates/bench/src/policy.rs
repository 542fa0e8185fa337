//! What it costs to find the rules that apply, by how many there are: instructions, as callgrind counts
//! them, with one rule and with ten thousand of which one applies.

use std::hint::black_box;
use std::process::Command;

use anyhow::{Context, Result, bail};
use tollgate::{Algorithm, Ask, By, Cost, Kind, Policy, Rate, Rule, Want};
use tollgate_core::attributes::{Attribute, Known};
use tollgate_core::policy::{Condition, KeyTemplate, When};

const MANY: usize = 10_000;
const MATCHES: [u64; 2] = [20_000, 60_000];

/// By what the rules are told apart: the condition of rule `n`, and the call that meets rule 7.
struct Case {
    name: &'static str,
    attribute: &'static str,
    value: fn(usize) -> String,
    call: &'static str,
}

const CASES: &[Case] = &[
    Case {
        name: "a path",
        attribute: "path",
        value: |n| format!("/service{n}/orders"),
        call: "/service7/orders",
    },
    Case {
        name: "the beginning of a path",
        attribute: "path",
        value: |n| format!("/service{n}/**"),
        call: "/service7/a/b/c",
    },
    Case {
        name: "a path with a parameter",
        attribute: "path",
        value: |n| format!("/service{n}/users/{{user}}"),
        call: "/service7/users/42",
    },
    Case {
        name: "a host",
        attribute: "host",
        value: |n| format!("tenant{n}.example.com"),
        call: "tenant7.example.com",
    },
    Case { name: "a header", attribute: "header.x-tenant", value: |n| format!("tenant{n}"), call: "tenant7" },
    Case {
        name: "a network",
        attribute: "address",
        value: |n| format!("10.{}.{}.0/24", n / 256, n % 256),
        call: "10.0.7.9",
    },
];

/// Prints the table.
pub(crate) fn run() -> Result<()> {
    println!("\n### Instructions per match (callgrind), by how many rules there are; one applies\n");
    println!("| rules are told apart by | 1 rule | {MANY} rules | ratio |\n|---|---|---|---|");
    for (at, case) in CASES.iter().enumerate() {
        let (one, many) = (per_match(at, 1)?, per_match(at, MANY)?);
        println!("| {} | {one:.0} | {many:.0} | {:.2} |", case.name, many / one);
    }
    Ok(())
}

/// What many matches cost more than few do.
#[expect(clippy::cast_precision_loss, reason = "whole instructions are printed")]
fn per_match(case: usize, rules: usize) -> Result<f64> {
    let [few, many] = MATCHES.map(|matches| count(case, rules, matches));
    Ok((many? - few?) as f64 / (MATCHES[1] - MATCHES[0]) as f64)
}

fn count(case: usize, rules: usize, matches: u64) -> Result<u64> {
    let this = std::env::current_exe().context("this program's own path")?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(this)
        .arg("policy-child")
        .args([case.to_string(), rules.to_string(), matches.to_string()])
        .output()
        .context("valgrind must be installed")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("valgrind failed: {said}");
    }
    let counted = said.lines().find_map(|line| line.split("Collected :").nth(1)).context("no count")?;
    Ok(counted.trim().replace(',', "").parse()?)
}

/// Builds a policy and matches that often.
pub(crate) fn child(words: &[&str]) -> Result<()> {
    let [case, rules, matches] = words else { bail!("usage: bench policy-child CASE RULES MATCHES") };
    let (rules, matches): (usize, u64) = (rules.parse()?, matches.parse()?);
    let case = CASES.get(case.parse::<usize>()?).context("no such case")?;
    let attribute = Attribute::parse(case.attribute)?;
    let limit = Algorithm::try_new(Kind::TokenBucket, Rate::parse("100/s")?, None, 0)?;
    let rule = |n: usize| -> Result<Rule> {
        let value = (case.value)(n);
        let condition = Condition::new(attribute.clone(), [value.as_str()])?;
        let rule = Rule::builder(&format!("rule{n}")).when(When::new(vec![condition], Vec::new()));
        Ok(rule.key(KeyTemplate::parse("{address}")?).limits(vec![limit.clone()]).build()?)
    };
    // The one that applies is there in both.
    let others = (0..).filter(|n| *n != 7).take(rules - 1);
    let policy = Policy::try_new(1, std::iter::once(7).chain(others).map(rule).collect::<Result<_>>()?)?;
    let mut known = Known::default().with(Attribute::Address, "203.0.113.9").context("an address")?;
    known = known.with(attribute, case.call).context("an address")?;
    let wants = [Want { by: By::Attributes(&known), key: b"", cost: Cost::ONE, takes: &[] }];
    let ask = Ask { wants: &wants };
    let met = policy.matched(&ask)?.enforced.len();
    if met != 1 {
        bail!("{met} rules apply instead of one");
    }
    for _ in 0..matches {
        black_box(policy.matched(black_box(&ask)))?;
    }
    Ok(())
}
