//! Circuit breakers that a whole fleet shares, at no cost per call.
//!
//! While a breaker is Closed or Open, a permit is one load and its outcome one compare-and-swap: no lock, no
//! allocation, no round trip. What was counted is told to the fleet's record in the background, ten times a second (once, while all
//! is well) and at once when it might trip; what changes there is pushed to every instance. HalfOpen alone asks, for a
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
//! thought of it. `hub.rs` does what happens in the background, `remote.rs` is for those who make their calls elsewhere,
//! `local.rs` is a fleet of one, and `plain.rs` has the decision record's calls.

mod belief;
mod cell;
mod gate;
mod hub;
mod local;
mod permit;
mod plain;
mod remote;
mod tally;

pub use cell::Handle;
pub use local::LocalFleet;
pub use permit::{Lease, Permit, Refused, Whose};
pub use remote::{Heard, Status};

use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;
use tollgate_core::breaker::{Breaker, Fleet, Mode, Permille, View, Window};
use tollgate_core::store::StoreError;
use tollgate_core::units::Micros;

use crate::clock::Clock;
use crate::observe::{Observer, Silent};
use hub::Hub;

/// The most breakers of one [`Breakers`] at a time.
pub const BREAKERS_MAX: usize = 100_000;

/// The longest name of a breaker, in bytes.
pub const ID_BYTES_MAX: usize = 1024;

/// How breakers of one kind behave, and what the kind is called in metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Behaviour {
    name: Box<str>,
    breaker: Breaker,
    /// So many failures might trip by themselves.
    early_at: u32,
    /// How long calls that went well need not be told.
    calm_for: Micros,
}

/// The longest that calls are not told.
const CALM_MAX: Micros = Micros::SECOND;

impl Behaviour {
    /// A kind of that name.
    pub fn new(name: &str, breaker: Breaker) -> Behaviour {
        let settings = breaker.settings();
        let ratio = settings.failure_ratio.map_or(1000, |Permille(ratio)| u32::from(ratio));
        let early_at = settings.minimum_calls.saturating_mul(ratio).div_ceil(1000).max(1);
        // A window by time looks no closer than at a tenth of itself, and a window by calls at each.
        let calm_for = match settings.window {
            Window::Time(_) => Micros(settings.window.width()).min(CALM_MAX),
            Window::Calls(_) => Micros::ZERO,
        };
        Behaviour { name: name.into(), breaker, early_at, calm_for }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its settings, checked.
    pub fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    fn is_timed(&self) -> bool {
        self.breaker.settings().slow_ratio.is_some()
    }

    fn is_slow(&self, took: Micros) -> bool {
        took >= self.breaker.settings().slow_after
    }

    /// Whether so many failures one after the other are just as many as trip.
    fn is_run(&self, run: u64) -> bool {
        self.breaker.settings().failures.is_some_and(|failures| run == u64::from(failures))
    }
}

/// The breakers of one instance.
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
    /// There is no such breaker.
    #[error(transparent)]
    NoBreaker(#[from] NoBreaker),
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
        Breakers::start_watched(fleet, breaker, clock, Arc::new(Silent))
    }

    /// The same, with somebody who hears of it.
    pub fn start_watched(
        fleet: Arc<F>,
        breaker: Breaker,
        clock: Clock,
        observer: Arc<dyn Observer>,
    ) -> Breakers<F> {
        let (hub, background) = Hub::start(fleet, Behaviour::new("default", breaker), clock, observer);
        Breakers { hub, background }
    }

    /// The breaker of that name. Keep it where many calls are made: it spares the look-up.
    pub fn handle(&self, id: &[u8]) -> Result<Handle<F>, NoBreaker> {
        self.handle_as(id, &self.hub.behaviour)
    }

    /// The same, which behaves so; one that is there already does from now on.
    pub fn handle_as(&self, id: &[u8], behaviour: &Arc<Behaviour>) -> Result<Handle<F>, NoBreaker> {
        if id.is_empty() || id.len() > ID_BYTES_MAX {
            return Err(NoBreaker::Id { length: id.len() });
        }
        self.hub.handle(id, behaviour).ok_or(NoBreaker::TooMany)
    }

    /// Gives every breaker in use another behaviour, by its id; those that are to have none are forgotten
    /// here. How each stands stays.
    pub fn behave(&self, of: impl Fn(&[u8]) -> Option<Arc<Behaviour>>) {
        self.hub.behave(of);
    }

    /// Shows every breaker in use here, in no order. Keep it short: no other can be made meanwhile.
    pub fn each(&self, mut see: impl FnMut(&[u8], &Handle<F>)) {
        self.hub.each(|cell| see(&cell.id, &Handle::new(Arc::clone(cell))));
    }

    /// Decides for the whole fleet.
    pub async fn overrule(&self, id: &[u8], decree: Decree) -> Result<View, OverrideError> {
        self.handle(id)?.overrule(decree).await
    }

    /// Lets the rules decide again.
    pub async fn lift(&self, id: &[u8]) -> Result<View, OverrideError> {
        self.handle(id)?.lift().await
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
