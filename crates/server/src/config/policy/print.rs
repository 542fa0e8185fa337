//! The policy in force, as a file that says the same: defaults spelled out, plans put in their places.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tollgate::core::address::Grouping;
use tollgate::core::policy::{Condition, CostBy, Lease, List, Override, Plan, RuleLimit};
use tollgate::{Algorithm, Kind, OnOutage, Policy, Rule};

use crate::limit::{SLIDING_LOG_MAX, rate_in_words};

/// Writes a policy. `on_outage` is what rules have that name none.
pub(crate) fn print(policy: &Policy, on_outage: OnOutage) -> String {
    let mut out = Out { text: String::new() };
    // What the rules could not be read without.
    let Grouping { v4, v6 } = policy.grouping();
    if policy.grouping() != Grouping::default() {
        out.line(0, &format!("identity: {{ ipv4_prefix: {v4}, ipv6_prefix: {v6} }}"));
    }
    if let Some(longest) = longest_log(policy).filter(|longest| *longest > SLIDING_LOG_MAX) {
        out.line(0, &format!("limits: {{ sliding_log_max: {longest} }}"));
    }
    out.list(0, "allow", policy.allow());
    out.list(0, "deny", policy.deny());
    // Each rule has its own plans under its own names: two rules may mean different ones by "free".
    let mut plans: BTreeMap<String, Vec<&Algorithm>> = BTreeMap::new();
    for rule in policy.rules().iter().filter(|rule| rule.picks_by().is_some()) {
        for plan in rule.plans() {
            let limits = plan.limits().iter().map(RuleLimit::algorithm).collect();
            plans.insert(plan.name().to_owned(), limits);
        }
    }
    if !plans.is_empty() {
        out.line(0, "plans:");
        for (name, limits) in &plans {
            out.line(1, &format!("{}:", quoted(name)));
            out.limits(2, limits);
        }
    }
    out.line(0, if policy.rules().is_empty() { "rules: []" } else { "rules:" });
    for rule in policy.rules() {
        out.rule(rule, on_outage);
    }
    out.text
}

struct Out {
    text: String,
}

impl Out {
    fn line(&mut self, depth: usize, text: &str) {
        let _ = writeln!(self.text, "{:1$}{text}", "", depth * 2); // writing to a String cannot fail
    }

    fn rule(&mut self, rule: &Rule, on_outage: OnOutage) {
        self.line(1, &format!("- name: {}", quoted(rule.name())));
        let when = rule.when();
        if !when.conditions().is_empty() || !when.exceptions().is_empty() {
            self.line(2, "when:");
            self.conditions(3, when.conditions());
            if !when.exceptions().is_empty() {
                self.line(3, "not:");
                self.conditions(4, when.exceptions());
            }
        }
        if let Some(key) = rule.key() {
            self.line(2, &format!("key: {}", quoted(&key.to_string())));
        }
        if let Some(by) = rule.picks_by() {
            let name = |plan: &Plan| quoted(plan.name());
            let of: Vec<String> = rule.plans().iter().map(name).collect();
            let default = rule.default_plan().map(name);
            self.line(2, "plan:");
            self.line(3, &format!("by: {}", quoted(&by.to_string())));
            self.line(3, &format!("of: [{}]", of.join(", ")));
            self.line(3, &format!("default: {}", default.unwrap_or_default()));
        } else {
            let limits: Vec<_> = rule.limits().iter().map(RuleLimit::algorithm).collect();
            self.limits(2, &limits);
        }
        self.cost(rule.cost());
        self.list(2, "allow", rule.allow());
        self.list(2, "deny", rule.deny());
        self.overrides(rule);
        if !rule.candidate().is_empty() {
            self.line(2, "candidate:");
            let limits: Vec<_> = rule.candidate().iter().map(RuleLimit::algorithm).collect();
            self.limits(3, &limits);
        }
        match rule.lease() {
            None => {}
            Some(Lease::Auto) => self.line(2, "lease: auto"),
            Some(Lease::Within { max, time }) => {
                self.line(2, &format!("lease: {{ max: {max}, for: {time} }}"));
            }
        }
        self.line(2, &format!("on_outage: {}", rule.on_outage().unwrap_or(on_outage)));
        self.line(2, &format!("mode: {}", rule.mode().name()));
    }

    fn cost(&mut self, cost: &CostBy) {
        match cost {
            CostBy::Fixed(cost) => self.line(2, &format!("cost: {}", cost.get())),
            CostBy::Value { by, costs, default } => {
                self.line(2, "cost:");
                self.line(3, &format!("by: {}", quoted(&by.to_string())));
                self.line(3, if costs.is_empty() { "values: {}" } else { "values:" });
                let sorted: BTreeMap<_, _> = costs.iter().collect();
                for (value, cost) in sorted {
                    self.line(4, &format!("{}: {}", quoted(value), cost.get()));
                }
                self.line(3, &format!("default: {}", default.get()));
            }
            CostBy::Number { from, max, default } => {
                self.line(2, "cost:");
                self.line(3, &format!("from: {}", quoted(&from.to_string())));
                self.line(3, &format!("max: {}", max.get()));
                self.line(3, &format!("default: {}", default.get()));
            }
        }
    }

    fn overrides(&mut self, rule: &Rule) {
        if rule.overrides().is_empty() {
            return;
        }
        self.line(2, "overrides:");
        let sorted: BTreeMap<_, _> = rule.overrides().iter().collect();
        for (key, instead) in sorted {
            self.line(3, &format!("- key: {}", quoted(&String::from_utf8_lossy(key))));
            match instead {
                Override::Blocked => self.line(4, "blocked: true"),
                Override::Unlimited => self.line(4, "unlimited: true"),
                Override::Limits(limits) => self.limits(4, &limits.iter().collect::<Vec<_>>()),
            }
        }
    }

    fn list(&mut self, depth: usize, name: &str, list: &List) {
        if list.is_empty() {
            return;
        }
        self.line(depth, &format!("{name}:"));
        if !list.keys.is_empty() {
            let keys: Vec<_> = list.keys.iter().map(|key| quoted(&String::from_utf8_lossy(key))).collect();
            self.line(depth + 1, &format!("key: [{}]", keys.join(", ")));
        }
        self.conditions(depth + 1, &list.conditions);
    }

    fn conditions(&mut self, depth: usize, conditions: &[Condition]) {
        for condition in conditions {
            let values: Vec<_> = condition.values().iter().map(|value| quoted(value)).collect();
            self.line(
                depth,
                &format!("{}: [{}]", quoted(&condition.attribute().to_string()), values.join(", ")),
            );
        }
    }

    fn limits(&mut self, depth: usize, limits: &[&Algorithm]) {
        self.line(depth, "limits:");
        for algorithm in limits {
            let rate = rate_in_words(algorithm);
            let (rate, zone) =
                rate.split_once(" in ").map_or((rate.as_str(), None), |(rate, zone)| (rate, Some(zone)));
            self.line(depth + 1, &format!("- limit: {rate}"));
            self.line(depth + 2, &format!("algorithm: {}", algorithm.kind()));
            if algorithm.kind() == Kind::TokenBucket {
                self.line(depth + 2, &format!("burst: {}", algorithm.limit()));
            }
            if let Some(zone) = zone {
                self.line(depth + 2, &format!("time_zone: {zone}"));
            }
        }
    }
}

/// The longest `sliding_log` of a policy, which may be longer than is usual.
fn longest_log(policy: &Policy) -> Option<u32> {
    let of_rule = |rule: &Rule| {
        let planned =
            rule.plans().iter().flat_map(Plan::limits).chain(rule.candidate()).map(RuleLimit::algorithm);
        let instead = rule.overrides().values().flat_map(|instead| match instead {
            Override::Limits(limits) => limits.as_slice(),
            Override::Blocked | Override::Unlimited => &[],
        });
        let logs = planned.chain(instead).map(|algorithm| match algorithm {
            Algorithm::SlidingLog(log) => log.limit(),
            _ => 0,
        });
        logs.max()
    };
    policy.rules().iter().filter_map(of_rule).max()
}

/// Any text as YAML that reads as that text: JSON's strings are YAML's, once what YAML will not have unescaped is escaped.
pub(crate) fn quoted(text: &str) -> String {
    let is_plain = !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte))
        && text.as_bytes()[0].is_ascii_alphabetic()
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
            .contains(&text.to_ascii_lowercase().as_str());
    if is_plain {
        return text.to_owned();
    }
    let mut quoted = String::new();
    for character in serde_json::Value::from(text).to_string().chars() {
        let is_odd = character.is_control()
            || matches!(character, '\u{a0}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}');
        if is_odd {
            let _ = write!(quoted, "\\u{:04x}", u32::from(character)); // writing to a String cannot fail
        } else {
            quoted.push(character);
        }
    }
    quoted
}

#[cfg(test)]
mod tests;
