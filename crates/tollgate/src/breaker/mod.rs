//! Circuit breakers that a whole fleet shares, at no cost per call.
//!
//! While a breaker is Closed or Open, a permit is one load and its outcome one compare-and-swap: no lock, no
//! allocation, no round trip. What was counted is told to the fleet's record in the background, ten times a second and at
//! once when it might trip; what changes there is pushed to every instance. HalfOpen alone asks, for a
//! lease, and asks Redis: how many probes are under way is the fleet's to know.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use tollgate::breaker::Breakers;
//! # use tollgate::core::breaker::{Breaker, Settings};
//! # use tollgate::store::redis::{RedisConfig, RedisStore, RedisUrl};
//! # #[derive(Debug)] struct Failed;
//! # async fn call_it() -> Result<(), Failed> { Ok(()) }
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Arc::new(RedisStore::new(RedisConfig::new(RedisUrl::parse("redis://localhost")?))?);
//! let behaviour = Breaker::try_new(Settings::default()).map_err(|problems| problems[0].clone())?;
//! let breakers = Breakers::start(store, behaviour);
//!
//! let payments = breakers.handle(b"payments")?;
//! match payments.permit().await {
//!     Ok(permit) => match call_it().await {
//!         Ok(()) => permit.success(),
//!         Err(Failed) => permit.failure(),
//!     },
//!     Err(refused) => println!("not now: {refused}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! `cell.rs` is one breaker of one instance: `gate.rs` what a call meets, `tally.rs` what is counted, `belief.rs` what is
//! thought of it. `hub.rs` does what happens in the background. `plain.rs` has the decision record's calls.

mod belief;
mod cell;
mod gate;
mod hub;
mod permit;
mod plain;
mod tally;

pub use cell::Handle;
pub use permit::{Permit, Refused};

use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;
use tollgate_core::breaker::{
    Breaker, Event, Fleet, Mode, OVERRIDE_MAX, REASON_BYTES_MAX, View, WHO_BYTES_MAX,
};
use tollgate_core::store::StoreError;
use tollgate_core::units::Micros;

use crate::clock::Clock;
use hub::Hub;

/// The most breakers of one [`Breakers`] at a time.
pub const BREAKERS_MAX: usize = 100_000;

/// The longest name of a breaker, in bytes.
pub const ID_BYTES_MAX: usize = 1024;

/// The breakers of one instance, all of one behaviour.
#[derive(Debug)]
pub struct Breakers<F: Fleet> {
    hub: Arc<Hub<F>>,
    background: AbortHandle,
}

/// Why there is no breaker of that name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoBreaker {
    /// All there may be are in use.
    #[error("{BREAKERS_MAX} breakers are in use")]
    TooMany,
    /// A name of another length.
    #[error("id: {length} bytes are not from 1 to {ID_BYTES_MAX}")]
    Id {
        /// What it is.
        length: usize,
    },
}

/// Why a call may not be made, by the breaker of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoPermit {
    /// The breaker refuses it.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// There is none of that name.
    #[error(transparent)]
    NoBreaker(#[from] NoBreaker),
}

/// Why an override was not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OverrideError {
    /// Something that cannot be.
    #[error("{field}: {what}")]
    Field {
        /// Which.
        field: &'static str,
        /// What is allowed.
        what: String,
    },
    /// The fleet's record could not be reached; the override may have been made.
    #[error("the fleet's record: {0}")]
    Store(#[from] StoreError),
}

/// What a person decides instead of the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decree {
    /// What.
    pub mode: Mode,
    /// For how long.
    pub keep_for: Duration,
    /// Why.
    pub reason: String,
    /// Who.
    pub who: String,
}

impl<F: Fleet> Breakers<F> {
    /// Breakers on a fleet's records. Starts what goes on in the background, on the current runtime.
    pub fn start(fleet: Arc<F>, breaker: Breaker) -> Breakers<F> {
        Breakers::start_with(fleet, breaker, Clock::system())
    }

    /// The same, by another clock.
    pub fn start_with(fleet: Arc<F>, breaker: Breaker, clock: Clock) -> Breakers<F> {
        let (hub, background) = Hub::start(fleet, breaker, clock);
        Breakers { hub, background }
    }

    /// The breaker of that name. Keep it where many calls are made: it spares the look-up.
    pub fn handle(&self, id: &[u8]) -> Result<Handle<F>, NoBreaker> {
        if id.is_empty() || id.len() > ID_BYTES_MAX {
            return Err(NoBreaker::Id { length: id.len() });
        }
        self.hub.handle(id).ok_or(NoBreaker::TooMany)
    }

    /// Decides for the whole fleet.
    pub async fn overrule(&self, id: &[u8], decree: Decree) -> Result<View, OverrideError> {
        let Decree { mode, keep_for, reason, who } = decree;
        let keep_for = Micros::from(keep_for);
        let field = |field, what: String| Err(OverrideError::Field { field, what });
        if keep_for == Micros::ZERO || keep_for > OVERRIDE_MAX {
            return field("keep_for", format!("{keep_for} is not from 1us to {OVERRIDE_MAX}"));
        }
        if reason.len() > REASON_BYTES_MAX {
            return field("reason", format!("at most {REASON_BYTES_MAX} bytes"));
        }
        if who.len() > WHO_BYTES_MAX {
            return field("who", format!("at most {WHO_BYTES_MAX} bytes"));
        }
        Ok(self.hub.tell(id, Event::Override { mode, keep_for, reason, who }).await?)
    }

    /// Lets the rules decide again.
    pub async fn lift(&self, id: &[u8]) -> Result<View, OverrideError> {
        Ok(self.hub.tell(id, Event::Lift).await?)
    }

    /// Tells the fleet now what would be told soon, as before the end of a process.
    pub async fn flush(&self) {
        self.hub.flush().await;
    }
}

impl<F: Fleet> Drop for Breakers<F> {
    fn drop(&mut self) {
        self.background.abort();
        self.hub.forget_all();
    }
}
