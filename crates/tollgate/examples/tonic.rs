//! A gRPC service behind a limit: whoever asks too often hears `RESOURCE_EXHAUSTED`.
//!
//! The service is gRPC's own health check, so that nothing has to be generated; any other stands behind the
//! layer in the same way.
//!
//! ```text
//! cargo run -p tollgate --features tower --example tonic
//! grpcurl -plaintext 127.0.0.1:50051 grpc.health.v1.Health/Check    # three times: the third is refused
//! ```

use std::error::Error;

use tokio::net::TcpListener;
use tollgate::core::store::Store;
use tollgate::middleware::LimitLayer;
use tollgate::{Algorithm, Engine, KeyTemplate, Kind, MemoryStore, Policy, Rate, Rule};
use tonic::transport::Server;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::builder(MemoryStore::new()).policy(policy()?).build();
    let listener = TcpListener::bind("127.0.0.1:50051").await?;
    serve(listener, engine).await?;
    Ok(())
}

/// One rule: `grpc`, two a minute, by token if there is one, else by address.
pub(crate) fn policy() -> Result<Policy, Box<dyn Error>> {
    let two = Algorithm::try_new(Kind::TokenBucket, Rate::parse("2/min")?, None, 1000)?;
    let key = KeyTemplate::parse("{token|address}")?;
    let grpc = Rule::builder("grpc").key(key).limits(vec![two]).build()?;
    Ok(Policy::try_new(1, vec![grpc])?)
}

/// The service behind the limit.
pub(crate) async fn serve<S: Store>(
    listener: TcpListener,
    engine: Engine<S>,
) -> Result<(), tonic::transport::Error> {
    let limit = LimitLayer::new(engine)
        .peer(|left| left.get::<TcpConnectInfo>()?.remote_addr().map(Into::into))
        .bodiless();
    let (_, health) = tonic_health::server::health_reporter();
    Server::builder().layer(limit).add_service(health).serve_with_incoming(TcpIncoming::from(listener)).await
}
