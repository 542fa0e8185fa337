//! What a policy forgets of the one before it.
//!
//! State is known by a rule's name, the place of the limit among its limits and the algorithm, and by the key. Whatever
//! of these is another after a reload begins anew, which whoever wrote the file may not have meant.

use tollgate::core::attributes::Attribute;
use tollgate::{Policy, Rule};

/// What was spent and does not count any more, rule by rule. A rule of another name is another rule.
pub(super) fn forgets(before: &Policy, after: &Policy) -> Vec<String> {
    let both = after.rules().iter().filter_map(|rule| Some((before.rule(rule.name())?, rule)));
    let is_regrouped = before.grouping() != after.grouping();
    both.flat_map(|(before, after)| {
        let by_address =
            after.key().is_some_and(|key| key.attributes().any(|one| *one == Attribute::Address));
        let why = limits(before, after).into_iter().chain(key(before, after));
        let regrouped = (is_regrouped && by_address).then(|| {
            "addresses are grouped otherwise: what was spent under the others is forgotten".to_owned()
        });
        let why: Vec<String> = why.chain(regrouped).collect();
        why.into_iter().map(|why| format!("rule \"{}\": {why}", after.name()))
    })
    .collect()
}

fn limits(before: &Rule, after: &Rule) -> Vec<String> {
    let (ours, theirs) = (after.limits(), before.limits());
    let changed = theirs.iter().zip(ours).enumerate().filter(|(_, (old, new))| old.scope() != new.scope());
    let mut why: Vec<String> = changed
        .map(|(at, (old, new))| {
            let (old, new) = (old.algorithm().kind(), new.algorithm().kind());
            format!("limits[{at}] counts by another algorithm ({new}, not {old}): what was spent under it is forgotten")
        })
        .collect();
    let gone = ours.len()..theirs.len();
    why.extend(gone.map(|at| format!("limits[{at}] is gone: what was spent under it is forgotten")));
    why
}

fn key(before: &Rule, after: &Rule) -> Option<String> {
    let (old, new) = (before.key()?, after.key()?);
    (old != new)
        .then(|| format!("it counts by {new}, not {old}: what was spent under the other keys is forgotten"))
}
