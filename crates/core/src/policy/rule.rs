//! One rule: when it applies, what is counted together, the limit, and what happens around it.

use std::collections::HashMap;

use super::lease::{Lease, LeaseError};
use super::template::KeyTemplate;
use super::when::{Condition, When};
use super::{OnOutage, PolicyError};
use crate::algorithm::Algorithm;
use crate::attributes::{Attribute, Attributes};
use crate::key::Scope;
use crate::units::Cost;

/// One named rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    name: Box<str>,
    when: When,
    key: Option<KeyTemplate>,
    /// The limits of each plan; a rule without plans has one, without a name.
    plans: Vec<Plan>,
    picks: Option<Picks>,
    cost: CostBy,
    allow: List,
    deny: List,
    overrides: HashMap<Box<[u8]>, Override>,
    candidate: Vec<RuleLimit>,
    lease: Option<Lease>,
    on_outage: Option<OnOutage>,
    mode: Mode,
}

/// One limit of a rule, and where its state lives.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleLimit {
    algorithm: Algorithm,
    scope: Scope,
}

/// A named set of limits, all spent together.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    name: Box<str>,
    limits: Vec<RuleLimit>,
}

/// How a rule picks a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Picks {
    by: Attribute,
    /// The place of the plan for everyone else.
    default: usize,
}

/// Whether a rule refuses, or only says that it would have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// It refuses.
    #[default]
    Enforce,
    /// It counts and reports, and never refuses.
    Shadow,
}

/// How much one ask costs under a rule; an ask that names a cost of its own pays so many times this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CostBy {
    /// Always the same.
    Fixed(Cost),
    /// By the value of an attribute.
    Value {
        /// The attribute.
        by: Attribute,
        /// What some values cost.
        costs: HashMap<Box<str>, Cost>,
        /// What everything else costs.
        default: Cost,
    },
    /// The number that an attribute is.
    Number {
        /// The attribute.
        from: Attribute,
        /// The most that is believed.
        max: Cost,
        /// What it costs where there is no such number.
        default: Cost,
    },
}

impl Default for CostBy {
    fn default() -> CostBy {
        CostBy::Fixed(Cost::ONE)
    }
}

/// Whom a rule lets through, or refuses, whatever has been spent. Any one entry is enough.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct List {
    /// Calls that any of these holds for.
    pub conditions: Vec<Condition>,
    /// Subjects by their keys.
    pub keys: Vec<Box<[u8]>>,
}

/// Another limit for one key.
#[derive(Debug, Clone, PartialEq)]
pub enum Override {
    /// These limits instead of the rule's, one by one and of the same algorithms.
    Limits(Vec<Algorithm>),
    /// No limit at all.
    Unlimited,
    /// Refused, whatever is left.
    Blocked,
}

impl Mode {
    /// Its name in files and answers.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Enforce => "enforce",
            Mode::Shadow => "shadow",
        }
    }

    /// Reads the name.
    pub fn parse(name: &str) -> Option<Mode> {
        [Mode::Enforce, Mode::Shadow].into_iter().find(|mode| mode.name() == name)
    }
}

impl CostBy {
    /// What an ask costs that asks for so many times the usual.
    pub(super) fn of(&self, times: Cost, attributes: Option<&dyn Attributes>) -> Cost {
        let each = match self {
            CostBy::Fixed(cost) => *cost,
            CostBy::Value { by, costs, default } => {
                let value = attributes.and_then(|known| known.text(by));
                value.and_then(|value| costs.get(&*value).copied()).unwrap_or(*default)
            }
            CostBy::Number { from, max, default } => {
                let value = attributes.and_then(|known| known.text(from));
                // What is there and is no number costs the most: a caller must not choose the default.
                value.map_or(*default, |value| {
                    let number = value
                        .trim()
                        .parse::<u64>()
                        .map_or(u32::MAX, |number| u32::try_from(number).unwrap_or(u32::MAX));
                    Cost::new(number).unwrap_or(Cost::ONE).min(*max)
                })
            }
        };
        Cost::new(each.get().saturating_mul(times.get())).unwrap_or(Cost::ONE)
    }
}

impl List {
    /// Whether it means this call, or this subject.
    pub(super) fn means(&self, attributes: Option<&dyn Attributes>, subject: &[u8]) -> bool {
        self.keys.iter().any(|key| **key == *subject) || self.means_call(attributes)
    }

    /// Whether it means this call, whoever it is counted for.
    pub(super) fn means_call(&self, attributes: Option<&dyn Attributes>) -> bool {
        !self.conditions.is_empty()
            && attributes.is_some_and(|known| self.conditions.iter().any(|condition| condition.holds(known)))
    }

    /// Whether it means nobody.
    pub fn is_empty(&self) -> bool {
        self.conditions.is_empty() && self.keys.is_empty()
    }
}

/// Puts a rule together.
#[derive(Debug, Clone)]
pub struct RuleBuilder {
    name: String,
    when: When,
    key: Option<KeyTemplate>,
    plans: Vec<(String, Vec<Algorithm>)>,
    picks: Option<(Attribute, String)>,
    cost: CostBy,
    allow: List,
    deny: List,
    overrides: Vec<(Box<[u8]>, Override)>,
    candidate: Vec<Algorithm>,
    lease: Option<Lease>,
    on_outage: Option<OnOutage>,
    mode: Mode,
}

impl Rule {
    /// Starts a rule.
    pub fn builder(name: &str) -> RuleBuilder {
        RuleBuilder {
            name: name.to_owned(),
            when: When::default(),
            key: None,
            plans: Vec::new(),
            picks: None,
            cost: CostBy::default(),
            allow: List::default(),
            deny: List::default(),
            overrides: Vec::new(),
            candidate: Vec::new(),
            lease: None,
            on_outage: None,
            mode: Mode::default(),
        }
    }

    /// Whether a name will do in keys, metrics and headers.
    pub fn check_name(name: &str) -> Result<(), PolicyError> {
        let is_good = (1..=64).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        if is_good { Ok(()) } else { Err(PolicyError::BadName { name: name.chars().take(64).collect() }) }
    }

    /// A rule that is asked for by name, with at least one limit, all spent together.
    pub fn try_new(
        name: &str,
        limits: Vec<Algorithm>,
        on_outage: Option<OnOutage>,
    ) -> Result<Rule, PolicyError> {
        let builder = Rule::builder(name).limits(limits);
        match on_outage {
            Some(on_outage) => builder.on_outage(on_outage),
            None => builder,
        }
        .build()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// When it applies by itself.
    pub fn when(&self) -> &When {
        &self.when
    }

    /// What it counts together; `None` for a rule that is only asked for by name.
    pub fn key(&self) -> Option<&KeyTemplate> {
        self.key.as_ref()
    }

    /// Its limits, all spent together: those of the plan for everyone, if it has plans.
    #[inline]
    pub fn limits(&self) -> &[RuleLimit] {
        self.default_plan().map_or(&[], |plan| &plan.limits)
    }

    /// The plan for everyone who has no other.
    #[inline]
    pub fn default_plan(&self) -> Option<&Plan> {
        self.plans.get(self.picks.as_ref().map_or(0, |picks| picks.default))
    }

    /// Its plans; a rule without any has one that has no name.
    pub fn plans(&self) -> &[Plan] {
        &self.plans
    }

    /// The attribute a plan is picked by.
    pub fn picks_by(&self) -> Option<&Attribute> {
        self.picks.as_ref().map(|picks| &picks.by)
    }

    /// What an ask costs.
    pub fn cost(&self) -> &CostBy {
        &self.cost
    }

    /// Whom it lets through.
    pub fn allow(&self) -> &List {
        &self.allow
    }

    /// Whom it refuses.
    pub fn deny(&self) -> &List {
        &self.deny
    }

    /// The keys that have limits of their own.
    pub fn overrides(&self) -> &HashMap<Box<[u8]>, Override> {
        &self.overrides
    }

    /// Limits that are tried out beside its own.
    pub fn candidate(&self) -> &[RuleLimit] {
        &self.candidate
    }

    /// Whether instances may take its tokens ahead, a handful at a time, for keys that are hot.
    #[inline]
    pub fn lease(&self) -> Option<Lease> {
        self.lease
    }

    /// What it answers when its store cannot; `None` leaves that to the configuration.
    pub fn on_outage(&self) -> Option<OnOutage> {
        self.on_outage
    }

    /// Whether it refuses.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The limits for whoever these attributes describe.
    #[inline]
    pub(super) fn limits_for(&self, attributes: Option<&dyn Attributes>) -> &[RuleLimit] {
        let (Some(picks), Some(attributes)) = (&self.picks, attributes) else { return self.limits() };
        let picked =
            attributes.text(&picks.by).and_then(|name| self.plans.iter().find(|plan| *plan.name == *name));
        picked.map_or_else(|| self.limits(), |plan| plan.limits.as_slice())
    }

    /// Whether there is nothing to it but limits: no list, no override, no plan, no cost of its own.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.picks.is_none()
            && self.allow.is_empty()
            && self.deny.is_empty()
            && self.overrides.is_empty()
            && self.candidate.is_empty()
            && self.mode == Mode::Enforce
            && matches!(self.cost, CostBy::Fixed(Cost::ONE))
    }
}

impl RuleLimit {
    /// How it limits.
    pub fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    /// Where its state lives.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }
}

impl Plan {
    /// Its name; empty for the only one of a rule without plans.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its limits.
    pub fn limits(&self) -> &[RuleLimit] {
        &self.limits
    }
}

impl RuleBuilder {
    /// When it applies by itself. Needs a key.
    #[must_use]
    pub fn when(mut self, when: When) -> Self {
        self.when = when;
        self
    }

    /// What is counted together. With a key the rule applies by itself to asks by attributes.
    #[must_use]
    pub fn key(mut self, key: KeyTemplate) -> Self {
        self.key = Some(key);
        self
    }

    /// Its limits, all spent together.
    #[must_use]
    pub fn limits(mut self, limits: Vec<Algorithm>) -> Self {
        self.plans = vec![(String::new(), limits)];
        self
    }

    /// Limits by plan, picked by the value of an attribute; whoever has no plan of these has `default`.
    #[must_use]
    pub fn plans(mut self, by: Attribute, plans: Vec<(String, Vec<Algorithm>)>, default: &str) -> Self {
        self.plans = plans;
        self.picks = Some((by, default.to_owned()));
        self
    }

    /// What an ask costs.
    #[must_use]
    pub fn cost(mut self, cost: CostBy) -> Self {
        self.cost = cost;
        self
    }

    /// Whom it lets through.
    #[must_use]
    pub fn allow(mut self, allow: List) -> Self {
        self.allow = allow;
        self
    }

    /// Whom it refuses, before it looks at whom it lets through.
    #[must_use]
    pub fn deny(mut self, deny: List) -> Self {
        self.deny = deny;
        self
    }

    /// Another limit for one key.
    #[must_use]
    pub fn override_key(mut self, key: &[u8], instead: Override) -> Self {
        self.overrides.push((key.into(), instead));
        self
    }

    /// Limits to try out: they count and report beside its own, and refuse nobody.
    #[must_use]
    pub fn candidate(mut self, limits: Vec<Algorithm>) -> Self {
        self.candidate = limits;
        self
    }

    /// Lets instances take tokens ahead for keys that are hot.
    #[must_use]
    pub fn lease(mut self, lease: Lease) -> Self {
        self.lease = Some(lease);
        self
    }

    /// What it answers when its store cannot.
    #[must_use]
    pub fn on_outage(mut self, on_outage: OnOutage) -> Self {
        self.on_outage = Some(on_outage);
        self
    }

    /// Whether it refuses.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// The rule, or what is wrong with it.
    pub fn build(self) -> Result<Rule, PolicyError> {
        let RuleBuilder {
            name,
            when,
            key,
            plans,
            picks,
            cost,
            allow,
            deny,
            overrides,
            candidate,
            lease,
            on_outage,
            mode,
        } = self;
        Rule::check_name(&name)?;
        if plans.is_empty() || plans.iter().any(|(_, limits)| limits.is_empty()) {
            return Err(PolicyError::NoLimit { name });
        }
        if key.is_none() && when != When::default() {
            return Err(PolicyError::NoKey { name });
        }
        if let Some(parameter) = key.as_ref().and_then(|key| missing_parameter(key, &when)) {
            return Err(PolicyError::NoParameter { name, parameter });
        }
        let kinds = |limits: &[Algorithm]| limits.iter().map(Algorithm::kind).collect::<Vec<_>>();
        let first = plans.first().map(|(_, limits)| kinds(limits)).unwrap_or_default();
        if let Some((plan, _)) = plans.iter().find(|(_, limits)| kinds(limits) != first) {
            return Err(PolicyError::PlansDiffer { plan: plan.clone(), name });
        }
        for (key, instead) in &overrides {
            if matches!(instead, Override::Limits(limits) if kinds(limits) != first) {
                let key = String::from_utf8_lossy(key).chars().take(64).collect();
                return Err(PolicyError::OverrideDiffers { key, name });
            }
        }
        if let Some(Err(why)) = lease.map(|lease| check_lease(lease, &plans)) {
            return Err(PolicyError::Lease { name, why });
        }
        let picks = match picks {
            None => None,
            Some((by, default)) => match plans.iter().position(|(plan, _)| *plan == default) {
                Some(default) => Some(Picks { by, default }),
                None => return Err(PolicyError::NoPlan { plan: default, name }),
            },
        };
        // A log must know how far ahead tokens may be booked.
        let leased = |algorithm: Algorithm| match lease.and_then(|lease| lease.terms(&algorithm)) {
            Some(terms) => algorithm.leased(terms.time),
            None => algorithm,
        };
        let scoped = |limits: Vec<Algorithm>, scope: fn(&str, usize, crate::algorithm::Kind) -> Scope| {
            let limits = limits.into_iter().enumerate();
            limits
                .map(|(at, algorithm)| RuleLimit { scope: scope(&name, at, algorithm.kind()), algorithm })
                .collect::<Vec<_>>()
        };
        let plans = plans
            .into_iter()
            .map(|(plan, limits)| {
                let limits = limits.into_iter().map(leased).collect();
                Plan { name: plan.into(), limits: scoped(limits, Scope::of_rule) }
            })
            .collect();
        let overrides = overrides.into_iter().map(|(key, instead)| match instead {
            Override::Limits(limits) => (key, Override::Limits(limits.into_iter().map(leased).collect())),
            other => (key, other),
        });
        Ok(Rule {
            plans,
            candidate: scoped(candidate, Scope::of_candidate),
            name: name.into(),
            when,
            key,
            picks,
            cost,
            allow,
            deny,
            overrides: overrides.collect(),
            lease,
            on_outage,
            mode,
        })
    }
}

/// Whether every plan can be leased so.
fn check_lease(lease: Lease, plans: &[(String, Vec<Algorithm>)]) -> Result<(), LeaseError> {
    for (_, limits) in plans {
        let [limit] = limits.as_slice() else { return Err(LeaseError::Several { limits: limits.len() }) };
        lease.check(limit)?;
    }
    Ok(())
}

/// A parameter the key uses and that not every path of the rule has.
fn missing_parameter(key: &KeyTemplate, when: &When) -> Option<String> {
    key.attributes().find_map(|attribute| match attribute {
        Attribute::Parameter(name) => {
            let is_known =
                !when.paths().is_empty() && when.paths().iter().all(|path| path.has_parameter(name));
            (!is_known).then(|| name.to_string())
        }
        _ => None,
    })
}
