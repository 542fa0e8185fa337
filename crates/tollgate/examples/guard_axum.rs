//! An axum service behind a breaker and a limit: while what it needs is not well it says so at once, and no call that is not
//! made spends of anybody's limit.
//!
//! ```text
//! cargo run -p tollgate --features tower --example guard_axum
//! curl -i http://127.0.0.1:3000/                          # 200
//! curl -X PUT http://127.0.0.1:3000/answer/500            # from now on it fails
//! curl -i http://127.0.0.1:3000/                          # 500; after five of them 503, at once
//! ```
//!
//! Needs a Redis on this host; without one, each instance decides alone.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use axum::Router;
use axum::extract::{ConnectInfo, Path};
use axum::routing::{get, put};
use http::StatusCode;
use tokio::net::TcpListener;
use tollgate::breaker::Breakers;
use tollgate::core::breaker::{Breaker, Fleet, Settings};
use tollgate::core::store::Store;
use tollgate::middleware::{BreakerLayer, FromBytes, GuardLayer, LimitLayer};
use tollgate::store::redis::{RedisConfig, RedisStore, RedisUrl};
use tollgate::{Algorithm, Engine, KeyTemplate, Kind, Policy, Rate, Rule};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = RedisUrl::parse("redis://127.0.0.1")?;
    let engine = Engine::builder(RedisStore::new(RedisConfig::new(url.clone()))?).policy(policy()?).build();
    let behaviour = Breaker::try_new(Settings::default()).map_err(|problems| problems[0].clone())?;
    let breakers = Arc::new(Breakers::start(Arc::new(RedisStore::new(RedisConfig::new(url))?), behaviour));
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    serve(listener, &breakers, engine).await
}

/// One rule: `api`, a hundred an hour for each address.
pub(crate) fn policy() -> Result<Policy, Box<dyn Error>> {
    let hundred = Algorithm::try_new(Kind::TokenBucket, Rate::parse("100/h")?, None, 1000)?;
    let api = Rule::builder("api").key(KeyTemplate::parse("{address}")?).limits(vec![hundred]).build()?;
    Ok(Policy::try_new(1, vec![api])?)
}

/// The service behind both, and beside it a switch for what it answers with.
pub(crate) async fn serve<F: Fleet, S: Store>(
    listener: TcpListener,
    breakers: &Arc<Breakers<F>>,
    engine: Engine<S>,
) -> Result<(), Box<dyn Error>> {
    let breaker = BreakerLayer::named(breakers, b"orders")?.respond(FromBytes);
    let limit =
        LimitLayer::new(engine).peer(|left| left.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.into()));
    let answer = Arc::new(AtomicU16::new(200));
    let switch = Arc::clone(&answer);
    let orders =
        move || async move { StatusCode::from_u16(answer.load(Ordering::SeqCst)).unwrap_or_default() };
    let set = move |Path(status): Path<u16>| async move { switch.store(status, Ordering::SeqCst) };
    let app = Router::new()
        .route("/", get(orders))
        .layer(GuardLayer::new(breaker, limit))
        .route("/answer/{status}", put(set));
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
