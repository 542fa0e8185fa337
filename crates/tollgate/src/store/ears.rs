//! Those who listen to a store.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tollgate_core::push::{Heard, Listener};

/// Those who listen to a store, told without a lock: a listener may listen in turn.
#[derive(Default)]
pub(super) struct Ears {
    all: ArcSwap<Vec<Arc<dyn Listener>>>,
}

impl Ears {
    pub(super) fn add(&self, listener: &Arc<dyn Listener>) {
        self.all.rcu(|all| {
            let mut all = Vec::clone(all);
            all.push(Arc::clone(listener));
            all
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.load().is_empty()
    }

    pub(super) fn tell(&self, heard: Heard<'_>) {
        for listener in self.all.load().iter() {
            listener.heard(heard);
        }
    }
}

impl std::fmt::Debug for Ears {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Ears").field(&self.all.load().len()).finish()
    }
}
