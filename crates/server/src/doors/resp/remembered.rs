//! Limits that callers bring along, remembered: whoever sends `15 30 60` a million times sends it a million
//! times alike.
//!
//! Bounded: callers choose what stands here, so a full memory is emptied and begins again.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use tollgate::InlineLimit;

use super::throttle::{Asked, Made as Built, Unfit};

/// The most limits one thread remembers.
const REMEMBERED_MAX: usize = 512;

thread_local! {
    static KNOWN: RefCell<HashMap<Asked, Made>> = RefCell::default();
}

/// A limit that is shared.
pub(super) type Made = Built<Arc<InlineLimit>>;

/// What a connection remembers: its last limit, which is nearly always its next.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    last: Option<(Asked, Arc<InlineLimit>)>,
}

impl Remembered {
    /// The limit of these numbers, built or remembered.
    ///
    /// hot path: a comparison.
    #[inline]
    pub(super) fn made(&mut self, asked: Asked) -> Result<Made, Unfit> {
        if let Some((last, limit)) = &self.last
            && *last == asked
        {
            return Ok(Built::Limit(Arc::clone(limit)));
        }
        let made = known(asked)?;
        if let Built::Limit(limit) = &made {
            self.last = Some((asked, Arc::clone(limit)));
        }
        Ok(made)
    }

    /// Some limit by key alone: to forget a key it does not matter which.
    pub(super) fn any(&mut self) -> Arc<InlineLimit> {
        let asked = Asked { max_burst: 0, count: 1, period_us: 1_000_000 };
        match self.made(asked) {
            Ok(Built::Limit(limit)) => limit,
            Ok(Built::Closed) | Err(_) => unreachable!("one a second is a rate"),
        }
    }
}

fn known(asked: Asked) -> Result<Made, Unfit> {
    KNOWN.with_borrow_mut(|known| {
        if let Some(made) = known.get(&asked) {
            return Ok(made.clone());
        }
        let made = match asked.make()? {
            Built::Limit(limit) => Built::Limit(Arc::new(limit)),
            Built::Closed => Built::Closed,
        };
        if known.len() == REMEMBERED_MAX {
            known.clear();
        }
        known.insert(asked, made.clone());
        Ok(made)
    })
}
