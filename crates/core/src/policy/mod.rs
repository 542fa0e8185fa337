//! The rules: what turns an ask into checks. Immutable, and swapped as one.

mod names;

use std::collections::HashMap;
use std::fmt;

use crate::algorithm::Algorithm;
use crate::ask::{Ask, AskProblem, By, WANTS_MAX, Want};
use crate::check::Check;
use crate::few::Few;
use crate::key::{Key, SUBJECT_BYTES_MAX, Scope};
use names::NameHasher;

/// The whole set of rules, with a version that every verdict names.
#[derive(Debug)]
pub struct Policy {
    version: u64,
    rules: Vec<Rule>,
    by_name: HashMap<String, usize, NameHasher>,
}

/// One named rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    name: String,
    limits: Vec<RuleLimit>,
    on_outage: Option<OnOutage>,
}

/// One limit of a rule, and where its state lives.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleLimit {
    algorithm: Algorithm,
    scope: Scope,
}

/// Where a check came from: a rule by its place in the policy, or the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The rule at this place in [`Policy::rules`].
    Rule(usize),
    /// A limit the caller brought along.
    Inline,
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
}

/// An ask matched against a policy: what to check, and where each check came from.
#[derive(Debug, Clone)]
pub struct Matched<'a> {
    /// What the store is to decide.
    pub checks: Few<Check<'a>>,
    /// Where each came from, in the same order.
    pub origins: Few<Origin>,
    /// Which want each serves, in the same order.
    pub wants: Few<usize>,
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

impl Rule {
    /// A rule with at least one limit, all spent together.
    pub fn try_new(
        name: &str,
        limits: Vec<Algorithm>,
        on_outage: Option<OnOutage>,
    ) -> Result<Rule, PolicyError> {
        let is_good = (1..=64).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        if !is_good {
            return Err(PolicyError::BadName { name: name.chars().take(64).collect() });
        }
        if limits.is_empty() {
            return Err(PolicyError::NoLimit { name: name.to_owned() });
        }
        let limits = limits
            .into_iter()
            .enumerate()
            .map(|(at, algorithm)| RuleLimit { scope: Scope::of_rule(name, at, algorithm.kind()), algorithm })
            .collect();
        Ok(Rule { name: name.to_owned(), limits, on_outage })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its limits, all spent together.
    pub fn limits(&self) -> &[RuleLimit] {
        &self.limits
    }

    /// What it answers when its store cannot; `None` leaves that to the configuration.
    pub fn on_outage(&self) -> Option<OnOutage> {
        self.on_outage
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

impl Policy {
    /// A policy of these rules.
    pub fn try_new(version: u64, rules: Vec<Rule>) -> Result<Policy, PolicyError> {
        let mut by_name = HashMap::with_capacity_and_hasher(rules.len(), NameHasher);
        for (at, rule) in rules.iter().enumerate() {
            if by_name.insert(rule.name.clone(), at).is_some() {
                return Err(PolicyError::Repeated { name: rule.name.clone() });
            }
        }
        Ok(Policy { version, rules, by_name })
    }

    /// A policy without rules: only inline limits can be asked for.
    pub fn empty() -> Policy {
        Policy { version: 0, rules: Vec::new(), by_name: HashMap::with_hasher(NameHasher) }
    }

    /// Which policy this is; verdicts name it.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Its rules, in the order written.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The rule of that name.
    pub fn rule(&self, name: &str) -> Option<&Rule> {
        self.by_name.get(name).and_then(|&at| self.rules.get(at))
    }

    /// The rule a check came from.
    pub fn rule_of(&self, origin: Origin) -> Option<&Rule> {
        match origin {
            Origin::Rule(at) => self.rules.get(at),
            Origin::Inline => None,
        }
    }

    /// Turns an ask into checks, or says what is wrong with it.
    ///
    /// hot path: one hash look-up per want; no allocation for one want of one limit.
    #[inline]
    pub fn checks_for<'a>(&'a self, ask: &Ask<'a>) -> Result<Matched<'a>, AskProblem> {
        if let [want] = ask.wants {
            let (origin, limits) = self.limits_of(0, want)?;
            if let Limits::One(algorithm, scope) = limits {
                let check = check_of(want, algorithm, scope);
                return Ok(Matched {
                    checks: Few::One(check),
                    origins: Few::One(origin),
                    wants: Few::One(0),
                });
            }
        }
        self.checks_for_many(ask)
    }

    fn checks_for_many<'a>(&'a self, ask: &Ask<'a>) -> Result<Matched<'a>, AskProblem> {
        if ask.wants.is_empty() {
            return Err(AskProblem::Empty);
        }
        if ask.wants.len() > WANTS_MAX {
            return Err(AskProblem::TooMany { wants: ask.wants.len() });
        }
        let mut checks = Vec::with_capacity(ask.wants.len());
        let mut origins = Vec::with_capacity(ask.wants.len());
        let mut wants = Vec::with_capacity(ask.wants.len());
        // Which want each check came from, to name the place of a repetition.
        let mut seen: HashMap<Key<'_>, usize> = HashMap::with_capacity(ask.wants.len());
        for (at, want) in ask.wants.iter().enumerate() {
            let (origin, limits) = self.limits_of(at, want)?;
            let mut add = |algorithm: &'a Algorithm, scope: &'a Scope| {
                let check = check_of(want, algorithm, scope);
                if let Some(first) = seen.insert(check.key, at) {
                    return Err(AskProblem::Repeated { at, first });
                }
                checks.push(check);
                origins.push(origin);
                wants.push(at);
                Ok(())
            };
            match limits {
                Limits::One(algorithm, scope) => add(algorithm, scope)?,
                Limits::Several(limits) => {
                    for limit in limits {
                        add(&limit.algorithm, &limit.scope)?;
                    }
                }
            }
            if checks.len() > WANTS_MAX {
                return Err(AskProblem::TooMany { wants: ask.wants.len().max(checks.len()) });
            }
        }
        Ok(Matched { checks: Few::Many(checks), origins: Few::Many(origins), wants: Few::Many(wants) })
    }

    #[inline]
    fn limits_of<'a>(&'a self, at: usize, want: &Want<'a>) -> Result<(Origin, Limits<'a>), AskProblem> {
        if want.key.is_empty() {
            return Err(AskProblem::EmptyKey { at });
        }
        if want.key.len() > SUBJECT_BYTES_MAX {
            return Err(AskProblem::LongKey { at, bytes: want.key.len() });
        }
        match want.by {
            By::Inline(inline) => Ok((Origin::Inline, Limits::One(inline.algorithm(), inline.scope()))),
            By::Rule(name) => {
                let known = self.by_name.get(name).and_then(|&place| Some((place, self.rules.get(place)?)));
                let Some((place, rule)) = known else {
                    return Err(AskProblem::UnknownRule { at, rule: name.chars().take(64).collect() });
                };
                let limits = match rule.limits.as_slice() {
                    [only] => Limits::One(&only.algorithm, &only.scope),
                    several => Limits::Several(several),
                };
                Ok((Origin::Rule(place), limits))
            }
        }
    }
}

/// The limits one want is measured by.
enum Limits<'a> {
    One(&'a Algorithm, &'a Scope),
    Several(&'a [RuleLimit]),
}

#[inline]
fn check_of<'a>(want: &Want<'a>, algorithm: &'a Algorithm, scope: &'a Scope) -> Check<'a> {
    Check { key: Key { scope, subject: want.key }, algorithm, cost: want.cost }
}
