//! The tonic example, asked by tonic's own client.

use std::sync::atomic::Ordering;

use tokio::net::TcpListener;
use tonic::Code;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::example_tonic::{policy, serve};
use crate::stand::engine;

#[tokio::test]
async fn whoever_asks_too_often_hears_resource_exhausted() {
    let (engine, hand) = engine(policy().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, engine));

    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut client = HealthClient::new(endpoint.connect().await.unwrap());
    let ask = HealthCheckRequest { service: String::new() };

    let passed = client.check(ask.clone()).await.unwrap();
    assert_eq!(passed.metadata().get("ratelimit").unwrap(), "\"grpc\";r=1;t=30");
    // Another connection is the same caller.
    let mut other = HealthClient::new(endpoint.connect().await.unwrap());
    assert!(other.check(ask.clone()).await.is_ok());

    let refused = client.check(ask.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refused.message(), "rule grpc refuses this call: try again in 30000 ms");
    assert_eq!(refused.metadata().get("retry-after").unwrap(), "30");
    assert_eq!(refused.metadata().get("grpc-retry-pushback-ms").unwrap(), "30000");
    assert_eq!(refused.metadata().get("ratelimit").unwrap(), "\"grpc\";r=0;t=30");

    hand.fetch_add(30_000_000, Ordering::SeqCst);
    assert!(client.check(ask.clone()).await.is_ok());
    assert_eq!(client.check(ask).await.unwrap_err().code(), Code::ResourceExhausted);
}
