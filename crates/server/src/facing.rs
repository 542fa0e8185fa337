//! How callers are seen, and how they are answered.

use tollgate::Policy;
use tollgate::answer::Style;
use tollgate::identity::Identity;

use crate::rls;

/// Who is asking, how a verdict is said, and how Envoy is answered. Travels with the policy, so that all are of
/// one reload.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facing {
    pub(crate) identity: Identity,
    pub(crate) style: Style,
    pub(crate) rls: rls::Settings,
}

impl Facing {
    /// What travels with a policy; every policy of the server has one.
    pub(crate) fn of(policy: &Policy) -> Option<&Facing> {
        policy.companion()
    }
}
