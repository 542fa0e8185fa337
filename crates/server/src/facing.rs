//! How callers are seen, and how they are answered, over HTTP.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tollgate::answer::Style;
use tollgate::identity::Identity;

/// Who is asking, and how a verdict is said.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facing {
    pub(crate) identity: Identity,
    pub(crate) style: Style,
}

/// The one in force: a reload swaps it.
pub(crate) type SharedFacing = Arc<ArcSwap<Facing>>;
