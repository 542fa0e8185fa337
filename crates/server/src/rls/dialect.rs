//! envoyproxy/ratelimit's limits, compiled: which one a descriptor meets.
//!
//! At each entry of a descriptor the very value is tried, then patterns in the order they were written,
//! then the key alone; a limit holds if it sits at the last entry. Values are told from keys here, where
//! the original compares `key_value` and lets `{key: a, value: b}` meet an entry of the key `a_b`.
//!
//! Model: `tests.rs`, which reads a list of paths and is obviously right.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate::core::policy::TextPattern;
use tollgate::{InlineLimit, Micros};

use super::{Entry, Metadata, Unit};

/// The limits of every domain.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Dialect {
    domains: HashMap<Box<str>, Level>,
}

/// One limit, and what its descriptor says around it.
#[derive(Debug, PartialEq)]
pub(crate) struct Limit {
    pub(crate) spec: LimitSpec,
    /// The limit's own name, which others may replace.
    pub(crate) name: Option<Arc<str>>,
    /// The names of limits that do not count where this one does.
    pub(crate) replaces: Vec<Box<str>>,
    pub(crate) is_shadow: bool,
    pub(crate) is_quota: bool,
    pub(crate) has_detailed_metric: bool,
    pub(crate) metadata: Metadata,
    /// Where it stands: `domain.key1_value1.key2`.
    pub(crate) path: Box<str>,
    /// For each of its levels, whether the value counts as its pattern, and whether metrics name it.
    pub(crate) levels: Vec<LevelFacts>,
}

/// How much a limit admits.
#[derive(Debug, PartialEq)]
pub(crate) enum LimitSpec {
    /// Everything.
    Unlimited,
    /// Nothing: none per unit.
    Nothing { unit: Option<Unit>, span: Micros },
    /// So many per unit.
    Rate { requests_per_unit: u32, unit: Option<Unit>, inline: Arc<InlineLimit> },
}

/// What one level of a limit's path says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LevelFacts {
    /// The key as written, with its value.
    pub(super) composite: Box<str>,
    /// The pattern under which all matches are counted.
    pub(super) shared: Option<Box<str>>,
    /// Whether metrics name the value.
    pub(super) has_value_in_metric: bool,
}

/// The descriptors of one depth.
#[derive(Debug, Default, PartialEq)]
struct Level {
    keys: HashMap<Box<str>, Key>,
    /// Patterns in the order written.
    patterns: Vec<Wild>,
}

/// What a level knows of a key.
#[derive(Debug, Default, PartialEq)]
struct Key {
    values: HashMap<Box<str>, Node>,
    bare: Option<Node>,
}

#[derive(Debug, PartialEq)]
struct Wild {
    key: WildKey,
    pattern: TextPattern,
    node: Node,
}

#[derive(Debug, PartialEq)]
enum WildKey {
    /// The pattern is about the value of this key.
    Is(Box<str>),
    /// The pattern is the key itself, and about key and value together.
    Pattern,
}

#[derive(Debug, Default, PartialEq)]
struct Node {
    limit: Option<Arc<Limit>>,
    below: Level,
}

impl Dialect {
    /// Whether there are limits of that domain.
    pub(crate) fn has(&self, domain: &str) -> bool {
        self.domains.contains_key(domain)
    }

    /// How many domains there are.
    pub(crate) fn domains(&self) -> usize {
        self.domains.len()
    }

    /// The limit that a descriptor meets.
    ///
    /// hot path: a hash look-up per entry; allocates only where there are patterns to try.
    pub(crate) fn find(&self, domain: &str, entries: &[Entry<'_>]) -> Option<&Arc<Limit>> {
        let mut level = self.domains.get(domain)?;
        let (last, first) = entries.split_last()?;
        for entry in first {
            level = &level.next(entry)?.below;
        }
        level.next(last)?.limit.as_ref()
    }

    /// Every limit, by its path, for showing.
    pub(crate) fn limits(&self) -> Vec<&Arc<Limit>> {
        let mut limits = Vec::new();
        self.domains.values().for_each(|level| level.collect(&mut limits));
        limits.sort_by(|one, other| one.path.cmp(&other.path));
        limits
    }
}

impl Level {
    fn next(&self, entry: &Entry<'_>) -> Option<&Node> {
        let key = self.keys.get(&*entry.key);
        if let Some(node) = key.and_then(|key| key.values.get(&*entry.value)) {
            return Some(node);
        }
        if !self.patterns.is_empty()
            && let Some(wild) = self.patterns.iter().find(|wild| wild.matches(entry))
        {
            return Some(&wild.node);
        }
        key?.bare.as_ref()
    }

    fn collect<'a>(&'a self, limits: &mut Vec<&'a Arc<Limit>>) {
        let of_keys = self.keys.values().flat_map(|key| key.values.values().chain(&key.bare));
        for node in of_keys.chain(self.patterns.iter().map(|wild| &wild.node)) {
            limits.extend(&node.limit);
            node.below.collect(limits);
        }
    }
}

impl Wild {
    fn matches(&self, entry: &Entry<'_>) -> bool {
        match &self.key {
            WildKey::Is(key) => **key == *entry.key && self.pattern.matches(&entry.value),
            WildKey::Pattern => self.pattern.matches(&format!("{}_{}", entry.key, entry.value)),
        }
    }
}

/// Puts a dialect together, one descriptor at a time.
#[derive(Debug, Default)]
pub(crate) struct DialectBuilder {
    dialect: Dialect,
}

/// One step of a path: a key, and the value or pattern it must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) key: String,
    pub(crate) value: Option<String>,
    pub(crate) shares_threshold: bool,
    pub(crate) has_value_in_metric: bool,
}

impl Step {
    /// `key_value`, as the original calls it.
    pub(crate) fn composite(&self) -> String {
        match &self.value {
            Some(value) => format!("{}_{value}", self.key),
            None => self.key.clone(),
        }
    }

    fn facts(&self) -> LevelFacts {
        let shared = self.shares_threshold.then(|| self.value.clone().unwrap_or_else(|| self.key.clone()));
        LevelFacts {
            composite: self.composite().into(),
            shared: shared.map(Into::into),
            has_value_in_metric: self.has_value_in_metric,
        }
    }
}

impl DialectBuilder {
    /// A domain, even if it limits nothing.
    pub(crate) fn domain(&mut self, domain: &str) {
        self.dialect.domains.entry(domain.into()).or_default();
    }

    /// A descriptor at this path, and the limit that sits there. Paths come in the order written, each
    /// after the one it continues.
    pub(crate) fn descriptor(&mut self, domain: &str, path: &[Step], limit: Option<Limit>) {
        let mut level = self.dialect.domains.entry(domain.into()).or_default();
        let Some((last, first)) = path.split_last() else { return };
        for step in first {
            level = &mut level.node(step).below;
        }
        let limit = limit.map(|limit| {
            let levels = path.iter().map(Step::facts).collect();
            Arc::new(Limit { levels, ..limit })
        });
        level.node(last).limit = limit;
    }

    /// The dialect.
    pub(crate) fn build(self) -> Dialect {
        self.dialect
    }
}

impl Level {
    /// The node of a step, made if it is not there.
    fn node(&mut self, step: &Step) -> &mut Node {
        let is_wild = step.value.as_ref().unwrap_or(&step.key).contains('*');
        if is_wild {
            let key = match &step.value {
                Some(_) => WildKey::Is(step.key.as_str().into()),
                None => WildKey::Pattern,
            };
            let pattern = TextPattern::new(step.value.as_ref().unwrap_or(&step.key));
            let at = self.patterns.iter().position(|wild| wild.key == key && wild.pattern == pattern);
            let at = at.unwrap_or_else(|| {
                self.patterns.push(Wild { key, pattern, node: Node::default() });
                self.patterns.len() - 1
            });
            return &mut self.patterns[at].node;
        }
        let key = self.keys.entry(step.key.as_str().into()).or_default();
        match &step.value {
            Some(value) => key.values.entry(value.as_str().into()).or_default(),
            None => key.bare.get_or_insert_default(),
        }
    }
}

#[cfg(test)]
mod tests;
