//! The places where limiter state can live.

mod ears;
pub mod memory;
pub mod redis;

use std::sync::Arc;

use tollgate_core::board::{Board, Notice, Post};
use tollgate_core::check::{Check, Refund};
use tollgate_core::decision::{Decision, Refunded};
use tollgate_core::few::Few;
use tollgate_core::key::Key;
use tollgate_core::push::{Listener, Push};
use tollgate_core::store::{AtOnce, Heartbeat, Reach, Shard, Store, StoreError};

use memory::MemoryStore;
use redis::RedisStore;

/// A store chosen when the program starts, without boxing every call.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one of it in a process")]
pub enum AnyStore {
    /// This process' own memory.
    Memory(MemoryStore),
    /// A shared Redis.
    Redis(RedisStore),
}

impl Store for AnyStore {
    async fn take(&self, checks: &[Check<'_>]) -> Result<Few<Decision>, StoreError> {
        match self {
            AnyStore::Memory(store) => store.take(checks).await,
            // Boxed: beside a round trip it costs nothing, and an ask of the memory need not make room for it.
            AnyStore::Redis(store) => Box::pin(store.take(checks)).await,
        }
    }

    #[inline]
    fn take_each<'c>(
        &self,
        checks: impl Iterator<Item = Check<'c>> + Clone,
        each: impl FnMut(&Decision),
    ) -> AtOnce {
        match self {
            AnyStore::Memory(store) => store.take_each(checks, each),
            AnyStore::Redis(store) => store.take_each(checks, each),
        }
    }

    async fn peek(&self, checks: &[Check<'_>]) -> Result<Few<Decision>, StoreError> {
        match self {
            AnyStore::Memory(store) => store.peek(checks).await,
            AnyStore::Redis(store) => Box::pin(store.peek(checks)).await,
        }
    }

    async fn refund(&self, refunds: &[Refund<'_>]) -> Result<Few<Refunded>, StoreError> {
        match self {
            AnyStore::Memory(store) => store.refund(refunds).await,
            AnyStore::Redis(store) => store.refund(refunds).await,
        }
    }

    async fn forget(&self, keys: &[Key<'_>]) -> Result<(), StoreError> {
        match self {
            AnyStore::Memory(store) => store.forget(keys).await,
            AnyStore::Redis(store) => store.forget(keys).await,
        }
    }

    async fn post(&self, name: &[u8], notice: Option<Notice<'_>>) -> Result<Post, StoreError> {
        match self {
            AnyStore::Memory(store) => store.post(name, notice).await,
            AnyStore::Redis(store) => store.post(name, notice).await,
        }
    }

    async fn board(&self, seen: u64) -> Result<Option<Board>, StoreError> {
        match self {
            AnyStore::Memory(store) => store.board(seen).await,
            AnyStore::Redis(store) => store.board(seen).await,
        }
    }

    async fn publish(&self, push: Push<'_>) -> Result<(), StoreError> {
        match self {
            AnyStore::Memory(store) => store.publish(push).await,
            AnyStore::Redis(store) => store.publish(push).await,
        }
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        match self {
            AnyStore::Memory(store) => store.listen(listener),
            AnyStore::Redis(store) => store.listen(listener),
        }
    }

    fn reach(&self) -> Reach {
        match self {
            AnyStore::Memory(store) => store.reach(),
            AnyStore::Redis(store) => store.reach(),
        }
    }

    fn shards(&self) -> u16 {
        match self {
            AnyStore::Memory(store) => store.shards(),
            AnyStore::Redis(store) => store.shards(),
        }
    }

    fn shards_of<'a>(&self, keys: impl Iterator<Item = Key<'a>>) -> Few<Shard> {
        match self {
            AnyStore::Memory(store) => store.shards_of(keys),
            AnyStore::Redis(store) => store.shards_of(keys),
        }
    }

    async fn heartbeat_of(&self, shard: Shard) -> Result<Heartbeat, StoreError> {
        match self {
            AnyStore::Memory(store) => store.heartbeat_of(shard).await,
            AnyStore::Redis(store) => store.heartbeat_of(shard).await,
        }
    }

    async fn heartbeat(&self) -> Result<Heartbeat, StoreError> {
        match self {
            AnyStore::Memory(store) => store.heartbeat().await,
            AnyStore::Redis(store) => store.heartbeat().await,
        }
    }
}
