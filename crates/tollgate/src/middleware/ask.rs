//! The one place where a layer turns what is known about a request into an ask.

use tollgate_core::ask::{Ask, By, Want};
use tollgate_core::store::Store;
use tollgate_core::units::Cost;
use tollgate_core::verdict::Verdict;

use crate::engine::Engine;
use crate::identity::HttpAttributes;

/// Asks every rule that applies to the request, all or nothing.
pub(super) async fn ask<S: Store>(
    engine: &Engine<S>,
    cost: Cost,
    attributes: &HttpAttributes<'_>,
) -> Verdict {
    let want = Want { by: By::Attributes(attributes), key: b"", cost, takes: &[] };
    engine.decide(&Ask { wants: &[want] }).await
}
