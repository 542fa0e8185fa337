//! The engine every door asks: over whichever store the configuration chose.
//!
//! Named here once, so that no door has to know that there are stores.

use tollgate::store::AnyStore;

/// The engine of this process.
pub(crate) type Engine = tollgate::Engine<AnyStore>;
