//! Which breakers there are: the file's `breakers`, the first that an id matches.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tollgate::breaker::Behaviour;
use tollgate::core::policy::TextPattern;

/// The most kinds of breakers of a file.
pub(crate) const KINDS_MAX: usize = 1_000;

/// One entry of `breakers`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kind {
    /// The ids it is for.
    pub(crate) ids: TextPattern,
    /// How they behave, and what the kind is called.
    pub(crate) behaviour: Arc<Behaviour>,
    /// How long the outcome of a call that is no probe is waited for.
    pub(crate) report_within: Duration,
}

/// The file's `breakers`, in its order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BreakerPolicy {
    kinds: Vec<Kind>,
    /// Those that are for one id alone.
    exact: HashMap<Box<str>, usize>,
    /// Those that are not.
    globs: Vec<usize>,
}

impl BreakerPolicy {
    /// These, in this order.
    pub(crate) fn new(kinds: Vec<Kind>) -> BreakerPolicy {
        let (mut exact, mut globs) = (HashMap::new(), Vec::new());
        for (at, kind) in kinds.iter().enumerate() {
            match &kind.ids {
                TextPattern::Exact(id) => {
                    exact.entry(id.clone()).or_insert(at);
                }
                TextPattern::Glob(_) => globs.push(at),
            }
        }
        BreakerPolicy { kinds, exact, globs }
    }

    /// All of them.
    pub(crate) fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// The first that is for this id, and its place.
    ///
    /// hot path: one look-up, and a match for each pattern that stands before what it finds.
    pub(crate) fn find(&self, id: &str) -> Option<(usize, &Kind)> {
        let exact = self.exact.get(id).copied();
        let before = self.globs.iter().copied().take_while(|at| exact.is_none_or(|exact| *at < exact));
        let glob = before.into_iter().find(|at| self.kinds.get(*at).is_some_and(|kind| kind.ids.matches(id)));
        let at = glob.or(exact)?;
        Some((at, self.kinds.get(at)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::core::breaker::{Breaker, Settings};

    fn policy(patterns: &[&str]) -> BreakerPolicy {
        let kind = |pattern: &&str| {
            let breaker = Breaker::try_new(Settings::default()).unwrap();
            let behaviour = Arc::new(Behaviour::new(pattern, breaker));
            Kind { ids: TextPattern::new(pattern), behaviour, report_within: Duration::from_secs(1) }
        };
        BreakerPolicy::new(patterns.iter().map(kind).collect())
    }

    #[test]
    fn the_first_that_matches_is_meant_as_if_each_were_tried_in_turn() {
        let ids = ["payments", "payments-eu", "mail", "x", "payments-us", ""];
        for patterns in [
            &["payments", "payments-*", "*"][..],
            &["payments-*", "payments-eu", "mail"],
            &["*", "mail"],
            &["mail", "m*", "payments-us", "*-us", "payments-us"],
            &[],
        ] {
            let policy = policy(patterns);
            for id in ids {
                let slow = patterns.iter().position(|pattern| TextPattern::new(pattern).matches(id));
                assert_eq!(policy.find(id).map(|(at, _)| at), slow, "{patterns:?} {id}");
            }
        }
    }
}
