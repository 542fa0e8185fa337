//! Limits that were changed for single keys while the policy was in force.

use std::collections::HashMap;

use super::rule::Override;

/// Overrides by rule and key. They outlive a reload: the rule is known by its name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Overrides {
    by_rule: HashMap<Box<str>, HashMap<Box<[u8]>, Override>>,
}

impl Overrides {
    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.by_rule.is_empty()
    }

    /// Puts one in the place of any other for that rule and key.
    pub fn insert(&mut self, rule: &str, key: &[u8], instead: Override) {
        self.by_rule.entry(rule.into()).or_default().insert(key.into(), instead);
    }

    /// What holds for a rule and a key.
    pub fn find(&self, rule: &str, key: &[u8]) -> Option<&Override> {
        self.by_rule.get(rule)?.get(key)
    }
}
