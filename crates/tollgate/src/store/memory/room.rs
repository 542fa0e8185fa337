//! How much may be remembered, and how much is.
//!
//! Shared by all shards, and touched only when a key comes or goes.

use std::sync::atomic::{AtomicU64, Ordering};

/// The bounds of a store and what is used of them.
#[derive(Debug)]
#[repr(align(128))] // by itself: shards must not wait for a cache line that others write
pub(super) struct Room {
    keys: AtomicU64,
    keys_max: u64,
    log_bytes: AtomicU64,
    log_bytes_max: u64,
}

impl Room {
    /// Room for so many keys and so many bytes of logs.
    pub(super) fn new(keys_max: u64, log_bytes_max: u64) -> Room {
        Room { keys: AtomicU64::new(0), keys_max, log_bytes: AtomicU64::new(0), log_bytes_max }
    }

    /// Keys remembered now.
    pub(super) fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    /// The most keys there may be.
    pub(super) fn keys_max(&self) -> u64 {
        self.keys_max
    }

    /// Whether it is time to sweep: seven eighths are taken.
    pub(super) fn is_tight(&self) -> bool {
        self.keys() >= self.keys_max - self.keys_max / 8
    }

    /// Whether one key more would fit.
    pub(super) fn has_key(&self) -> bool {
        self.keys() < self.keys_max
    }

    /// Takes room for one key, if there is any.
    pub(super) fn take_key(&self) -> bool {
        take(&self.keys, 1, self.keys_max)
    }

    /// Gives back room for one key.
    pub(super) fn give_key(&self) {
        self.keys.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether so many bytes of logs more would fit.
    pub(super) fn has_log_bytes(&self, bytes: u64) -> bool {
        self.log_bytes.load(Ordering::Relaxed) + bytes <= self.log_bytes_max
    }

    /// Takes room for so many bytes of logs, if there is that much.
    pub(super) fn take_log_bytes(&self, bytes: u64) -> bool {
        take(&self.log_bytes, bytes, self.log_bytes_max)
    }

    /// Gives back room for so many bytes of logs.
    pub(super) fn give_log_bytes(&self, bytes: u64) {
        self.log_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Adds and looks, rather than looks and adds: two who come at once cannot both have the last place.
fn take(used: &AtomicU64, more: u64, max: u64) -> bool {
    if used.fetch_add(more, Ordering::Relaxed) + more <= max {
        return true;
    }
    used.fetch_sub(more, Ordering::Relaxed);
    false
}
