//! The rules: what turns an ask into checks. Immutable, and swapped as one.
//!
//! `pattern`, `when` and `template` are the words of a rule, `rule` puts them together, `index` finds the
//! rules that may apply to a call, and `matching` walks an ask through them.

mod index;
mod lease;
mod matching;
mod names;
mod overrides;
mod pattern;
mod rule;
mod template;
mod when;

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::address::Grouping;
use index::Index;
use names::NameHasher;

pub use lease::{LEASE_TIME_MAX, LEASE_TIME_MIN, Lease, LeaseError, LeaseTerms};
pub use matching::{Blocked, Entry, Matched, Role};
pub use overrides::Overrides;
pub use pattern::{PATTERN_BYTES_MAX, PathError, PathPattern, TextPattern};
pub use rule::{CostBy, List, Mode, Override, Plan, Rule, RuleBuilder, RuleLimit};
pub use template::{KeyTemplate, TemplateError, write_hash};
pub use when::{Condition, ConditionError, When};

/// The whole set of rules, with a version that every verdict names. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Policy {
    body: Arc<Body>,
    overrides: Arc<Overrides>,
}

#[derive(Debug)]
struct Body {
    version: u64,
    rules: Vec<Rule>,
    by_name: HashMap<String, usize, NameHasher>,
    index: Index,
    allow: List,
    deny: List,
    grouping: Grouping,
    companion: Option<Companion>,
}

/// Settings of somebody else's that are swapped together with the policy.
#[derive(Clone)]
struct Companion(Arc<dyn Any + Send + Sync>);

impl fmt::Debug for Companion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Companion")
    }
}

/// Where a check came from: a rule by its place in the policy, or the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The rule at this place in [`Policy::rules`].
    Rule(usize),
    /// A limit the caller brought along.
    Inline,
    /// A list of the whole policy's.
    Policy,
}

/// What a rule answers when its store cannot. Written per rule, because a login limit and a
/// thumbnail limit fail in opposite directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnOutage {
    /// Let it through: availability over accuracy.
    Allow,
    /// Refuse it: safety over availability.
    Deny,
    /// Decide from this instance's own memory, with a share of the limit.
    #[default]
    Local,
}

/// Why a policy was not built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A rule's name would not do in keys, metrics and headers.
    #[error("rule name \"{name}\": use 1 to 64 letters, digits, '-', '_' or '.'")]
    BadName {
        /// The name, clipped.
        name: String,
    },
    /// Two rules have one name.
    #[error("rule name \"{name}\" is used twice")]
    Repeated {
        /// The name.
        name: String,
    },
    /// A rule limits nothing.
    #[error("rule \"{name}\" has no limit")]
    NoLimit {
        /// The rule.
        name: String,
    },
    /// A rule that applies by itself does not say what it counts together.
    #[error(
        "rule \"{name}\" says when it applies but has no key: say what is counted together, such as \"{{address}}\""
    )]
    NoKey {
        /// The rule.
        name: String,
    },
    /// A key uses a parameter that not every path of the rule has.
    #[error(
        "the key of rule \"{name}\" uses {{path.{parameter}}}: every path it applies to must have {{{parameter}}} in it"
    )]
    NoParameter {
        /// The rule.
        name: String,
        /// The parameter.
        parameter: String,
    },
    /// Two plans of one rule count differently, so that a change of plan would forget what was spent.
    #[error(
        "plan \"{plan}\" has other algorithms than the first plan of rule \"{name}\": a change of plan would forget what was spent"
    )]
    PlansDiffer {
        /// The rule.
        name: String,
        /// The plan.
        plan: String,
    },
    /// An override counts differently from its rule.
    #[error(
        "the override for \"{key}\" has other algorithms than rule \"{name}\": it would forget what was spent"
    )]
    OverrideDiffers {
        /// The rule.
        name: String,
        /// The key, clipped.
        key: String,
    },
    /// A rule's limits cannot be leased as it asks for.
    #[error("the lease of rule \"{name}\": {why}")]
    Lease {
        /// The rule.
        name: String,
        /// What is wrong with it.
        why: LeaseError,
    },
    /// The plan for everyone else is not among the plans.
    #[error("rule \"{name}\" has no plan \"{plan}\"")]
    NoPlan {
        /// The rule.
        name: String,
        /// The plan.
        plan: String,
    },
}

impl OnOutage {
    /// Its name in files, metrics and answers.
    pub const fn name(self) -> &'static str {
        match self {
            OnOutage::Allow => "allow",
            OnOutage::Deny => "deny",
            OnOutage::Local => "local",
        }
    }

    /// Reads the name.
    pub fn parse(name: &str) -> Option<OnOutage> {
        [OnOutage::Allow, OnOutage::Deny, OnOutage::Local].into_iter().find(|choice| choice.name() == name)
    }
}

impl fmt::Display for OnOutage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Policy {
    /// A policy of these rules.
    pub fn try_new(version: u64, rules: Vec<Rule>) -> Result<Policy, PolicyError> {
        Policy::builder(version).rules(rules).build()
    }

    /// Starts a policy.
    pub fn builder(version: u64) -> PolicyBuilder {
        PolicyBuilder { version, ..PolicyBuilder::default() }
    }

    /// A policy without rules: only inline limits can be asked for.
    pub fn empty() -> Policy {
        Policy::builder(0).build().unwrap_or_else(|_| unreachable!("no rules, no problems"))
    }

    /// The same policy with other overrides.
    #[must_use]
    pub fn with_overrides(&self, overrides: Overrides) -> Policy {
        Policy { body: Arc::clone(&self.body), overrides: Arc::new(overrides) }
    }

    /// The overrides in force beside those of its rules.
    pub fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    /// Which policy this is; verdicts name it.
    #[inline]
    pub fn version(&self) -> u64 {
        self.body.version
    }

    /// Its rules, in the order written.
    pub fn rules(&self) -> &[Rule] {
        &self.body.rules
    }

    /// The rule of that name.
    pub fn rule(&self, name: &str) -> Option<&Rule> {
        self.place_of(name).map(|(_, rule)| rule)
    }

    /// The rule a check came from.
    pub fn rule_of(&self, origin: Origin) -> Option<&Rule> {
        match origin {
            Origin::Rule(at) => self.body.rules.get(at),
            Origin::Inline | Origin::Policy => None,
        }
    }

    /// Who passes whatever the rules say.
    pub fn allow(&self) -> &List {
        &self.body.allow
    }

    /// Who is refused whatever the rules say.
    pub fn deny(&self) -> &List {
        &self.body.deny
    }

    /// How many addresses count as one client.
    pub fn grouping(&self) -> Grouping {
        self.body.grouping
    }

    /// What was put beside its rules, if it is of that type.
    ///
    /// Whoever reads an ask with it and decides the ask under this same policy sees both of one reload.
    pub fn companion<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.body.companion.as_ref()?.0.downcast_ref()
    }

    #[inline]
    fn place_of(&self, name: &str) -> Option<(usize, &Rule)> {
        self.body.by_name.get(name).and_then(|&place| Some((place, self.body.rules.get(place)?)))
    }
}

/// Puts a policy together.
#[derive(Debug, Clone, Default)]
pub struct PolicyBuilder {
    version: u64,
    rules: Vec<Rule>,
    allow: List,
    deny: List,
    grouping: Grouping,
    companion: Option<Companion>,
}

impl PolicyBuilder {
    /// Its rules.
    #[must_use]
    pub fn rules(mut self, rules: Vec<Rule>) -> Self {
        self.rules = rules;
        self
    }

    /// Calls that pass whatever the rules say.
    #[must_use]
    pub fn allow(mut self, allow: List) -> Self {
        self.allow = allow;
        self
    }

    /// Calls that are refused whatever the rules say, even if they are on the other list.
    #[must_use]
    pub fn deny(mut self, deny: List) -> Self {
        self.deny = deny;
        self
    }

    /// How many addresses count as one client.
    #[must_use]
    pub fn grouping(mut self, grouping: Grouping) -> Self {
        self.grouping = grouping;
        self
    }

    /// Settings that are not rules and yet must change together with them: how callers are told apart,
    /// say. The policy carries them and never looks at them.
    #[must_use]
    pub fn companion<T: Any + Send + Sync>(mut self, companion: T) -> Self {
        self.companion = Some(Companion(Arc::new(companion)));
        self
    }

    /// The policy, or what is wrong with it.
    pub fn build(self) -> Result<Policy, PolicyError> {
        let PolicyBuilder { version, rules, allow, deny, grouping, companion } = self;
        let mut by_name = HashMap::with_capacity_and_hasher(rules.len(), NameHasher);
        for (at, rule) in rules.iter().enumerate() {
            if by_name.insert(rule.name().to_owned(), at).is_some() {
                return Err(PolicyError::Repeated { name: rule.name().to_owned() });
            }
        }
        let index = Index::new(&rules);
        let body = Body { version, rules, by_name, index, allow, deny, grouping, companion };
        Ok(Policy { body: Arc::new(body), overrides: Arc::default() })
    }
}
