//! Tollgate, the library.

pub mod clock;
pub mod store;

pub use store::MemoryStore;
