//! An ask walked through the policy: what the store is to decide, and what is decided already.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::rule::{Mode, Override, Rule, RuleLimit};
use super::template::Filling;
use super::{Origin, Policy};
use crate::algorithm::Algorithm;
use crate::ask::{Ask, AskProblem, By, WANTS_MAX, Want, check_key};
use crate::attributes::{Attributes, SubjectKind};
use crate::check::Check;
use crate::few::Few;
use crate::key::{Key, Scope};
use crate::units::Cost;

/// An ask matched against a policy.
#[derive(Debug)]
pub struct Matched<'a> {
    /// What must pass, all together or not at all.
    pub enforced: Few<Entry<'a>>,
    /// What only counts and reports, each by itself.
    pub advisory: Vec<Entry<'a>>,
    /// What a list or an override refuses, whatever has been spent.
    pub blocked: Vec<Blocked>,
}

/// One limit applied to one ask.
#[derive(Debug, Clone)]
pub struct Entry<'a> {
    /// Where its state lives.
    pub scope: &'a Scope,
    /// Whose.
    pub subject: Cow<'a, [u8]>,
    /// What kind of subject that is.
    pub kind: SubjectKind,
    /// How it limits.
    pub algorithm: &'a Algorithm,
    /// How much is asked for.
    pub cost: Cost,
    /// Where it came from.
    pub origin: Origin,
    /// Which want it serves.
    pub want: usize,
    /// Whether it may refuse.
    pub role: Role,
}

/// One refusal that no store was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocked {
    /// Whose list it was.
    pub origin: Origin,
    /// Which want it met.
    pub want: usize,
    /// What kind of subject it met.
    pub kind: SubjectKind,
    /// Whether it may refuse.
    pub role: Role,
}

/// Whether a check may refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// It may.
    Enforced,
    /// Its rule only watches.
    Shadow,
    /// It is tried out beside the limits of its rule.
    Candidate,
}

impl Role {
    /// Its name in answers.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Enforced => "enforced",
            Role::Shadow => "shadow",
            Role::Candidate => "candidate",
        }
    }
}

impl Entry<'_> {
    /// As a store is asked it.
    #[inline]
    pub fn check(&self) -> Check<'_> {
        Check {
            key: Key { scope: self.scope, subject: &self.subject },
            algorithm: self.algorithm,
            cost: self.cost,
        }
    }
}

impl Matched<'_> {
    /// Whether there is something that must pass, and nothing else.
    #[inline]
    pub fn is_usual(&self) -> bool {
        self.blocked.is_empty() && self.advisory.is_empty() && !self.enforced.is_empty()
    }

    /// What must pass, as a store is asked it.
    #[inline]
    pub fn checks(&self) -> Few<Check<'_>> {
        match &self.enforced {
            Few::One(entry) => Few::One(entry.check()),
            Few::Many(entries) => Few::Many(entries.iter().map(Entry::check).collect()),
        }
    }
}

/// Whom a want is about.
struct Subject<'a> {
    key: Cow<'a, [u8]>,
    kind: SubjectKind,
    attributes: Option<&'a dyn Attributes>,
}

impl Policy {
    /// Turns an ask into checks, or says what is wrong with it.
    ///
    /// hot path: one hash look-up per want; no allocation for one want of one plain limit.
    #[inline]
    pub fn matched<'a>(&'a self, ask: &Ask<'a>) -> Result<Matched<'a>, AskProblem> {
        if let [want] = ask.wants
            && let Some((scope, algorithm, origin)) = self.only_limit(want)
        {
            check_key(0, want.key)?;
            let entry = Entry {
                scope,
                subject: Cow::Borrowed(want.key),
                kind: SubjectKind::Key,
                algorithm,
                cost: want.cost,
                origin,
                want: 0,
                role: Role::Enforced,
            };
            return Ok(Matched { enforced: Few::One(entry), advisory: Vec::new(), blocked: Vec::new() });
        }
        self.matched_slowly(ask)
    }

    /// The limit of a want to which nothing but one limit applies.
    #[inline]
    fn only_limit<'a>(&'a self, want: &Want<'a>) -> Option<(&'a Scope, &'a Algorithm, Origin)> {
        match want.by {
            By::Inline(inline) => Some((inline.scope(), inline.algorithm(), Origin::Inline)),
            By::Rule(name) if self.overrides.is_empty() => {
                let (place, rule) = self.place_of(name)?;
                match rule.limits() {
                    [only] if rule.is_plain() => Some((only.scope(), only.algorithm(), Origin::Rule(place))),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn matched_slowly<'a>(&'a self, ask: &Ask<'a>) -> Result<Matched<'a>, AskProblem> {
        if ask.wants.is_empty() {
            return Err(AskProblem::Empty);
        }
        if ask.wants.len() > WANTS_MAX {
            return Err(AskProblem::TooMany { wants: ask.wants.len() });
        }
        let mut walk = Walk { policy: self, enforced: Vec::new(), advisory: Vec::new(), blocked: Vec::new() };
        for (at, want) in ask.wants.iter().enumerate() {
            walk.want(at, want)?;
            if walk.enforced.len() > WANTS_MAX {
                return Err(AskProblem::TooMany { wants: walk.enforced.len() });
            }
        }
        let Walk { enforced, advisory, blocked, .. } = walk;
        if ask.wants.len() > 1 {
            check_repetition(&enforced)?;
        }
        let advisory = advisable(advisory, ask.wants.len() > 1);
        Ok(Matched { enforced: enforced.into_iter().collect(), advisory, blocked })
    }
}

struct Walk<'a> {
    policy: &'a Policy,
    enforced: Vec<Entry<'a>>,
    advisory: Vec<Entry<'a>>,
    blocked: Vec<Blocked>,
}

impl<'a> Walk<'a> {
    fn want(&mut self, at: usize, want: &Want<'a>) -> Result<(), AskProblem> {
        match want.by {
            By::Inline(inline) => {
                check_key(at, want.key)?;
                self.enforced.push(Entry {
                    scope: inline.scope(),
                    subject: Cow::Borrowed(want.key),
                    kind: SubjectKind::Key,
                    algorithm: inline.algorithm(),
                    cost: want.cost,
                    origin: Origin::Inline,
                    want: at,
                    role: Role::Enforced,
                });
            }
            By::Rule(name) => self.named(at, want, name, None)?,
            By::RuleFor(name, attributes) => {
                if !self.is_listed(at, attributes) {
                    self.named(at, want, name, Some(attributes))?;
                }
            }
            By::Attributes(attributes) => {
                if !self.is_listed(at, attributes) {
                    self.by_attributes(at, want, attributes);
                }
            }
        }
        Ok(())
    }

    /// Whether the policy's own lists have settled it.
    fn is_listed(&mut self, at: usize, attributes: &'a dyn Attributes) -> bool {
        let body = &self.policy.body;
        if body.deny.means_call(Some(attributes)) {
            let (origin, role) = (Origin::Policy, Role::Enforced);
            self.blocked.push(Blocked { origin, want: at, kind: SubjectKind::Attribute, role });
            return true;
        }
        body.allow.means_call(Some(attributes))
    }

    fn named(
        &mut self,
        at: usize,
        want: &Want<'a>,
        name: &str,
        attributes: Option<&'a dyn Attributes>,
    ) -> Result<(), AskProblem> {
        check_key(at, want.key)?;
        let Some((place, rule)) = self.policy.place_of(name) else {
            return Err(AskProblem::UnknownRule { at, rule: name.chars().take(64).collect() });
        };
        let subject = Subject { key: Cow::Borrowed(want.key), kind: SubjectKind::Key, attributes };
        self.apply(at, want.cost, place, rule, subject);
        Ok(())
    }

    fn by_attributes(&mut self, at: usize, want: &Want<'a>, attributes: &'a dyn Attributes) {
        let body = &self.policy.body;
        for place in body.index.candidates(attributes) {
            let Ok(place) = usize::try_from(place) else { continue };
            let Some(rule) = body.rules.get(place) else { continue };
            let Some(key) = rule.key() else { continue };
            if !rule.when().holds(attributes) {
                continue;
            }
            let filling = Filling { attributes, paths: rule.when().paths(), grouping: body.grouping };
            let Some((subject, kind)) = key.fill(filling) else { continue };
            let key = Cow::Owned(subject.into_bytes());
            self.apply(at, want.cost, place, rule, Subject { key, kind, attributes: Some(attributes) });
        }
    }

    /// One rule applied to one subject.
    fn apply(&mut self, want: usize, times: Cost, place: usize, rule: &'a Rule, subject: Subject<'a>) {
        let Subject { key, kind, attributes } = subject;
        let origin = Origin::Rule(place);
        let own_role = if rule.mode() == Mode::Shadow { Role::Shadow } else { Role::Enforced };
        let blocked = Blocked { origin, want, kind, role: own_role };
        if rule.deny().means(attributes, &key) {
            self.blocked.push(blocked);
            return;
        }
        if rule.allow().means(attributes, &key) {
            return;
        }
        let policy = self.policy;
        let changed = policy.overrides.find(rule.name(), &key).or_else(|| rule.overrides().get(&*key));
        let instead: &[Algorithm] = match changed {
            Some(Override::Blocked) => {
                self.blocked.push(blocked);
                return;
            }
            Some(Override::Unlimited) => return,
            Some(Override::Limits(limits)) => limits,
            None => &[],
        };
        let cost = rule.cost().of(times, attributes);
        let entry = |limit: &'a RuleLimit, algorithm, subject, role| Entry {
            scope: limit.scope(),
            subject,
            kind,
            algorithm,
            cost,
            origin,
            want,
            role,
        };
        for candidate in rule.candidate() {
            self.advisory.push(entry(candidate, candidate.algorithm(), key.clone(), Role::Candidate));
        }
        let into = if own_role == Role::Shadow { &mut self.advisory } else { &mut self.enforced };
        for (at, limit) in rule.limits_for(attributes).iter().enumerate() {
            // An override made under another policy may fit no more; then the rule's own limit stands.
            let instead = instead.get(at).filter(|instead| instead.kind() == limit.algorithm().kind());
            into.push(entry(limit, instead.unwrap_or(limit.algorithm()), key.clone(), own_role));
        }
    }
}

/// What only watches never keeps an ask from being answered: of two on one key the first speaks, and
/// beyond what an ask may carry none does.
fn advisable(mut advisory: Vec<Entry<'_>>, may_repeat: bool) -> Vec<Entry<'_>> {
    if may_repeat && advisory.len() > 1 {
        let mut seen: HashSet<(&Scope, Vec<u8>)> = HashSet::with_capacity(advisory.len());
        advisory.retain(|entry| seen.insert((entry.scope, entry.subject.to_vec())));
    }
    advisory.truncate(WANTS_MAX);
    advisory
}

/// A store is never asked for one key twice at once.
fn check_repetition(entries: &[Entry<'_>]) -> Result<(), AskProblem> {
    let mut seen: HashMap<Key<'_>, usize> = HashMap::with_capacity(entries.len());
    for entry in entries {
        let key = Key { scope: entry.scope, subject: &entry.subject };
        if let Some(first) = seen.insert(key, entry.want) {
            return Err(AskProblem::Repeated { at: entry.want, first });
        }
    }
    Ok(())
}
