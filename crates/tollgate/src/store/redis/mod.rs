//! Placeholder.

mod config;

pub use config::{Endpoint, Layout, RedisConfig, RedisUrl, Secret, UrlError};

use tollgate_core::check::{Check, Refund};
use tollgate_core::decision::{Decision, Refunded};
use tollgate_core::few::Few;
use tollgate_core::key::Key;
use tollgate_core::store::{Heartbeat, Store, StoreError};

/// Keeps state in Redis.
#[derive(Debug)]
pub struct RedisStore {}

/// What a Redis store can say about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedisStats {
    /// Connections that are open.
    pub connections_open: u64,
    /// Of those, the ones with a request under way.
    pub connections_busy: u64,
    /// Dials that succeeded, since start.
    pub dials: u64,
    /// Dials that failed, since start.
    pub dial_errors: u64,
    /// Values that were not ours, since start.
    pub malformed: u64,
    /// Redis' `used_memory`, where we may ask.
    pub used_memory: Option<u64>,
    /// Redis' `maxmemory`, where we may ask and there is one.
    pub max_memory: Option<u64>,
    /// Keys in the database, where we may ask.
    pub keys: Option<u64>,
    /// Whether time comes from our own reckoning because scripts may not read Redis' clock.
    pub client_time: bool,
}

impl RedisStore {
    /// A store for the Redis that `config` names. Nothing is dialled yet.
    pub fn new(_config: RedisConfig) -> Result<RedisStore, RedisSetupError> {
        Ok(RedisStore {})
    }

    /// What the store can say about itself.
    pub fn stats(&self) -> RedisStats {
        RedisStats::default()
    }

    /// Dials this thread's connection, so that the first check does not have to.
    pub fn warm(&self) {}
}

/// Why a Redis store could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedisSetupError {
    /// A TLS file could not be used.
    #[error("{path}: {why}")]
    Tls {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
}

fn nope<T>() -> Result<T, StoreError> {
    Err(StoreError::Unreachable { why: "not built".into() })
}

impl Store for RedisStore {
    async fn take(&self, _: &[Check<'_>]) -> Result<Few<Decision>, StoreError> {
        nope()
    }
    async fn peek(&self, _: &[Check<'_>]) -> Result<Few<Decision>, StoreError> {
        nope()
    }
    async fn refund(&self, _: &[Refund<'_>]) -> Result<Few<Refunded>, StoreError> {
        nope()
    }
    async fn forget(&self, _: &[Key<'_>]) -> Result<(), StoreError> {
        nope()
    }
    async fn heartbeat(&self) -> Result<Heartbeat, StoreError> {
        nope()
    }
}
