//! The stores.

pub mod memory;

pub use memory::MemoryStore;
