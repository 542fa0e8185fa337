//! An axum service behind a limit: five calls a second, by token if there is one, else by address.
//!
//! ```text
//! cargo run -p tollgate --features tower --example axum
//! curl -i http://127.0.0.1:3000/                                   # six times: the sixth is refused
//! curl -i -H 'Authorization: Bearer ann' http://127.0.0.1:3000/    # ann has a limit of her own
//! ```

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use tokio::net::TcpListener;
use tollgate::core::store::Store;
use tollgate::middleware::LimitLayer;
use tollgate::{Algorithm, Engine, KeyTemplate, Kind, MemoryStore, Policy, Rate, Rule};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // For a limit that holds over several processes, a RedisStore in place of the memory.
    let engine = Engine::builder(MemoryStore::new()).policy(policy()?).build();
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    serve(listener, engine).await?;
    Ok(())
}

/// One rule: `api`, five a second, by token if there is one, else by address.
pub(crate) fn policy() -> Result<Policy, Box<dyn Error>> {
    let five = Algorithm::try_new(Kind::TokenBucket, Rate::parse("5/s")?, None, 1000)?;
    let key = KeyTemplate::parse("{token|address}")?;
    let api = Rule::builder("api").key(key).limits(vec![five]).build()?;
    Ok(Policy::try_new(1, vec![api])?)
}

/// The service behind the limit.
pub(crate) async fn serve<S: Store>(listener: TcpListener, engine: Engine<S>) -> std::io::Result<()> {
    // axum knows who is connected; this is how the layer finds out.
    let limit =
        LimitLayer::new(engine).peer(|left| left.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.into()));
    let app = Router::new().route("/", get(|| async { "hello\n" })).layer(limit);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await
}
