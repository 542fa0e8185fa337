//! Requests decided in memory.

use std::sync::Arc;

use tollgate::{InlineLimit, Kind};

use super::Unit;
use crate::inline;
use crate::limit::Written;

/// A fixed window of so many per unit.
pub(super) fn inline(requests_per_unit: u32, unit: Unit) -> Arc<InlineLimit> {
    let limit = format!("{requests_per_unit}/{}", unit.span());
    let written =
        Written { limit: &limit, burst: None, algorithm: Some(Kind::FixedWindow.name()), time_zone: None };
    inline::limit(&written, 0).unwrap()
}
