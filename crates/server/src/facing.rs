//! How callers are seen, and how they are answered, over HTTP.

use tollgate::Policy;
use tollgate::answer::Style;
use tollgate::identity::Identity;

/// Who is asking, and how a verdict is said. Travels with the policy, so that both are of one reload.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facing {
    pub(crate) identity: Identity,
    pub(crate) style: Style,
}

impl Facing {
    /// What travels with a policy; every policy of the server has one.
    pub(crate) fn of(policy: &Policy) -> Option<&Facing> {
        policy.companion()
    }
}
