//! A gRPC client behind a breaker: while the service is not well, calls end at once with `UNAVAILABLE`.
//!
//! ```text
//! cargo run -p tollgate --features tower --example tonic            # a service to call
//! cargo run -p tollgate --features tower --example breaker_tonic
//! ```
//!
//! Needs a Redis on this host; without one, each instance finds out alone.

use std::error::Error;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tollgate::breaker::{Breakers, NoBreaker};
use tollgate::core::breaker::{Breaker, Fleet, Settings};
use tollgate::middleware::{AsResponse, AtEnd, Bodiless, BreakerLayer, ByStatus, Guarded, Named, Unlimited};
use tollgate::store::redis::{RedisConfig, RedisStore, RedisUrl};
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower::Layer as _;

/// One breaker; refusals are responses that say so in gRPC; and trailers are read.
type GrpcBreaker<F> = BreakerLayer<F, Named<F>, ByStatus, AsResponse<Bodiless>, AtEnd>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = RedisStore::new(RedisConfig::new(RedisUrl::parse("redis://127.0.0.1")?))?;
    let behaviour = Breaker::try_new(Settings::default()).map_err(|problems| problems[0].clone())?;
    let breakers = Arc::new(Breakers::start(Arc::new(store), behaviour));
    let channel = Endpoint::from_static("http://127.0.0.1:50051").connect_lazy();
    let mut client = client(&breakers, channel)?;
    for _ in 0..100 {
        let came = client.check(HealthCheckRequest::default()).await;
        let said = came.map_or_else(|status| status.to_string(), |answer| format!("{:?}", answer.get_ref()));
        writeln!(std::io::stdout(), "{said}")?;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// A client of the health service, all of whose calls are made under one breaker.
pub(crate) fn client<F: Fleet>(
    breakers: &Arc<Breakers<F>>,
    channel: Channel,
) -> Result<HealthClient<Guarded<Channel, GrpcBreaker<F>, Unlimited>>, NoBreaker> {
    // A unary call fails in its headers with some servers and in its trailers with others.
    let breaker = BreakerLayer::named(breakers, b"health")?.respond(Bodiless).until_end();
    Ok(HealthClient::new(breaker.layer(channel)))
}
