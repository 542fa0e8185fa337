//! Where the records of breakers live: in Redis, where limits do, or in this process.

use std::sync::Arc;

use tollgate::breaker::LocalFleet;
use tollgate::clock::Clock;
use tollgate::core::breaker::{Breaker, Event, Fleet, Permille, Step};
use tollgate::core::push::Listener;
use tollgate::core::store::StoreError;
use tollgate::store::AnyStore;

use crate::engine::Engine;

/// The engine's store, for breakers.
#[derive(Debug)]
pub(super) struct Records {
    engine: Engine,
    /// What a store of this process alone keeps.
    local: LocalFleet,
}

impl Records {
    pub(super) fn new(engine: Engine, clock: Clock) -> Records {
        Records { engine, local: LocalFleet::new(clock) }
    }
}

impl Fleet for Records {
    async fn step(
        &self,
        id: &[u8],
        breaker: &Breaker,
        event: &Event,
        dice: Permille,
    ) -> Result<Step, StoreError> {
        match self.engine.store() {
            AnyStore::Redis(store) => store.step(id, breaker, event, dice).await,
            AnyStore::Memory(_) => self.local.step(id, breaker, event, dice).await,
        }
    }

    fn name(&self, id: &[u8]) -> String {
        match self.engine.store() {
            AnyStore::Redis(store) => store.name(id),
            AnyStore::Memory(_) => self.local.name(id),
        }
    }

    fn hear(&self, listener: Arc<dyn Listener>) {
        match self.engine.store() {
            AnyStore::Redis(store) => store.hear(listener),
            AnyStore::Memory(_) => self.local.hear(listener),
        }
    }

    fn is_listening(&self) -> bool {
        match self.engine.store() {
            AnyStore::Redis(store) => store.is_listening(),
            AnyStore::Memory(_) => self.local.is_listening(),
        }
    }
}
