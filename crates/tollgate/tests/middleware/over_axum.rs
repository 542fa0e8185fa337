//! The axum example, on real sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::example_axum::{policy, serve};
use crate::stand::{Answered, Connection, engine};

async fn started() -> (SocketAddr, Arc<AtomicU64>) {
    let (engine, hand) = engine(policy().expect("a policy"));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(serve(listener, engine));
    (address, hand)
}

/// Every connection sends four requests, all at once; how many passed.
async fn crowd(address: SocketAddr, connections: usize) -> usize {
    let mut crowd = JoinSet::new();
    for _ in 0..connections {
        crowd.spawn(async move {
            let mut connection = Connection::open(address).await;
            let mut passed = 0;
            for _ in 0..4 {
                let answered = connection.get(&[]).await;
                assert!(matches!(answered.status, 200 | 429), "{answered:?}");
                passed += usize::from(answered.status == 200);
            }
            passed
        });
    }
    crowd.join_all().await.into_iter().sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_a_second_is_five_over_fifty_connections() {
    let (address, hand) = started().await;
    assert_eq!(crowd(address, 50).await, 5);
    assert_eq!(crowd(address, 50).await, 0);
    hand.fetch_add(1_000_000, Ordering::SeqCst);
    assert_eq!(crowd(address, 50).await, 5);
    hand.fetch_add(400_000, Ordering::SeqCst);
    assert_eq!(crowd(address, 50).await, 2);
}

#[tokio::test]
async fn a_passed_call_is_told_what_is_left_and_a_refused_one_when_to_come_again() {
    let (address, _hand) = started().await;
    let mut connection = Connection::open(address).await;
    let answered = connection.get(&[]).await;
    assert_eq!((answered.status, answered.body.as_str()), (200, "hello\n"));
    assert_eq!(answered.header("ratelimit-policy"), Some("\"api\";q=5;w=1"));
    assert_eq!(answered.header("ratelimit"), Some("\"api\";r=4;t=1"));
    assert_eq!(answered.header("retry-after"), None);
    for _ in 0..4 {
        assert_eq!(connection.get(&[]).await.status, 200);
    }
    let answered = connection.get(&[]).await;
    assert_eq!(answered.status, 429);
    assert_eq!(answered.header("ratelimit"), Some("\"api\";r=0;t=1"));
    assert_eq!(answered.header("retry-after"), Some("1"));
    assert_eq!(answered.header("content-type"), Some("application/problem+json"));
    assert!(answered.body.contains("\"retry_after_ms\":200,"), "{}", answered.body);
}

#[tokio::test]
async fn each_token_has_a_limit_of_its_own_and_the_rest_share_their_address() {
    let (address, _hand) = started().await;
    let mut connection = Connection::open(address).await;
    let left = |answered: &Answered| answered.header("ratelimit").map(str::to_owned);
    for (lines, expected) in [
        (&[][..], "\"api\";r=4;t=1"),
        (&["Authorization: Bearer ann"], "\"api\";r=4;t=1"),
        (&["Authorization: Bearer ann"], "\"api\";r=3;t=1"),
        (&["X-Api-Key: bob"], "\"api\";r=4;t=1"),
        (&["API_KEY: bob"], "\"api\";r=3;t=1"),
        (&["Authorization: Basic eDp5"], "\"api\";r=3;t=1"),
        // Nobody trusts this peer: what it says of itself changes nothing.
        (&["X-Forwarded-For: 203.0.113.9", "Forwarded: for=203.0.113.9"], "\"api\";r=2;t=1"),
    ] {
        let answered = connection.get(lines).await;
        assert_eq!(left(&answered).as_deref(), Some(expected), "{lines:?}");
    }
}
