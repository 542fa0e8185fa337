//! A client that keeps to somebody else's limit: its calls wait for their turn instead of being refused.
//!
//! ```text
//! cargo run -p tollgate --features tower --example pacing
//! ```

use std::convert::Infallible;
use std::error::Error;
use std::io::Write as _;
use std::time::Duration;

use tollgate::core::store::Store;
use tollgate::middleware::{PaceError, PaceLayer};
use tollgate::{Algorithm, Engine, Kind, MemoryStore, Policy, Rate, Rule};
use tower::{Service, ServiceBuilder, ServiceExt as _};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::builder(MemoryStore::new()).policy(policy()?).build();
    let mut client = client(engine, Duration::from_secs(2));
    for call in 0..10 {
        let answer = client.ready().await?.call(call).await?;
        writeln!(std::io::stdout(), "{answer}")?;
    }
    Ok(())
}

/// One rule: `upstream`, twenty a second, one at a time.
pub(crate) fn policy() -> Result<Policy, Box<dyn Error>> {
    let evenly = Algorithm::try_new(Kind::TokenBucket, Rate::parse("20/s")?, Some(1), 1000)?;
    Ok(Policy::try_new(1, vec![Rule::try_new("upstream", vec![evenly], None)?])?)
}

/// A client whose calls go out at that pace, each waiting at most so long.
pub(crate) fn client<S: Store>(
    engine: Engine<S>,
    at_most: Duration,
) -> impl Service<u32, Response = String, Error = PaceError<Infallible>> + Clone {
    // In place of this function: a tonic channel, a hyper or reqwest client.
    let upstream = tower::service_fn(|call: u32| async move { Ok(format!("call {call} was sent")) });
    ServiceBuilder::new().layer(PaceLayer::by_rule(engine, "upstream", at_most)).service(upstream)
}
