//! Each fault does what its name says, to the connections it says, and nothing else.

#![expect(clippy::disallowed_methods, reason = "measures a delay of real sockets")]

use std::{
    io::ErrorKind,
    time::{Duration, Instant},
};

use testkit::{ChaosProxy, RedisClient, RedisServer, ReplyError, eventually};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// Long enough for a reply that is not kept back; waited out in full only when silence is the point.
const SILENCE: Duration = Duration::from_millis(100);

async fn both() -> (RedisServer, ChaosProxy) {
    let redis = RedisServer::start().await;
    let proxy = ChaosProxy::start(redis.address()).await;
    (redis, proxy)
}

async fn connected(proxy: &ChaosProxy) -> RedisClient {
    let mut client = RedisClient::connect(proxy.address()).await.expect("the proxy accepts");
    assert_eq!(echo(&mut client, "hello").await, "hello");
    client
}

async fn echo(client: &mut RedisClient, word: &str) -> String {
    client.command(&["ECHO", word]).await.expect("the proxy passes").text()
}

async fn is_silent(client: &mut RedisClient) -> bool {
    client.send(&["ECHO", "silence"]).await.expect("the connection is open");
    timeout(SILENCE, client.receive()).await.is_err()
}

fn is_reset(result: Result<testkit::Reply, ReplyError>) -> bool {
    matches!(result, Err(ReplyError::Connection(error)) if error.kind() == ErrorKind::ConnectionReset)
}

#[tokio::test]
async fn bytes_and_connections_are_counted() {
    let (_redis, proxy) = both().await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    stream.write_all(b"PING\r\n").await.unwrap();
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).await.unwrap();

    assert_eq!(&reply, b"+PONG\r\n");
    assert_eq!((proxy.accepted(), proxy.open()), (1, 1));
    assert_eq!(proxy.bytes_up(), 6);
    eventually("the delivery is counted", || proxy.bytes_down() == 7).await;

    drop(stream);
    eventually("the connection is closed", || proxy.open() == 0).await;
    assert_eq!(proxy.accepted(), 1);
}

#[tokio::test]
async fn large_values_pass_whole() {
    let (redis, proxy) = both().await;
    let mut client = connected(&proxy).await;
    let value: Vec<u8> = (0..3_000_000_u32).map(|number| number.to_le_bytes()[0]).collect();

    client.command(&[b"SET".as_slice(), b"key", &value]).await.unwrap();

    let reply = client.command(&["GET", "key"]).await.unwrap();
    assert_eq!(reply, redis.command(&["GET", "key"]).await);
}

#[tokio::test]
async fn blackhole_swallows_old_and_new_connections() {
    let (redis, proxy) = both().await;
    let mut old = connected(&proxy).await;

    proxy.blackhole();
    let mut new = RedisClient::connect(proxy.address()).await.unwrap();

    old.send(&["SET", "key", "value"]).await.unwrap();
    assert!(is_silent(&mut new).await);
    assert!(is_silent(&mut old).await);
    assert_eq!(redis.command(&["EXISTS", "key"]).await.integer(), 0);
    assert_eq!(proxy.open(), 2);
}

#[tokio::test]
async fn connection_that_lost_bytes_stays_silent_after_the_blackhole() {
    let (_redis, proxy) = both().await;
    let mut lossy = connected(&proxy).await;
    let mut idle = connected(&proxy).await;

    proxy.blackhole();
    assert!(is_silent(&mut lossy).await);
    proxy.pass();

    assert!(is_silent(&mut lossy).await);
    assert_eq!(echo(&mut idle, "unharmed").await, "unharmed");
    connected(&proxy).await;
}

#[tokio::test]
async fn blackhole_hides_the_death_of_the_server() {
    let (mut redis, proxy) = both().await;
    let mut client = connected(&proxy).await;

    proxy.blackhole();
    redis.kill();

    assert!(timeout(SILENCE, client.receive()).await.is_err());
    proxy.pass();
    assert!(matches!(client.receive().await, Err(ReplyError::Connection(_))));
}

#[tokio::test]
async fn blackhole_of_existing_connections_lets_new_ones_pass() {
    let (_redis, proxy) = both().await;
    let mut old = connected(&proxy).await;

    proxy.blackhole_existing();

    assert!(is_silent(&mut old).await);
    connected(&proxy).await;
}

#[tokio::test]
async fn delayed_replies_come_late_and_in_order() {
    let (_redis, proxy) = both().await;
    let mut client = connected(&proxy).await;
    let delay = Duration::from_millis(80);

    proxy.delay_replies(delay);
    let sent_at = Instant::now();
    for word in ["one", "two", "three"] {
        client.send(&["ECHO", word]).await.unwrap();
    }
    for word in ["one", "two", "three"] {
        assert_eq!(client.receive().await.unwrap().text(), word);
        assert!(sent_at.elapsed() >= delay);
    }
}

#[tokio::test]
async fn passing_ends_the_wait_of_a_delayed_reply() {
    let (redis, proxy) = both().await;
    let mut client = connected(&proxy).await;
    proxy.delay_replies(Duration::from_secs(1000));
    client.send(&["INCR", "key"]).await.unwrap();
    while redis.command(&["EXISTS", "key"]).await.integer() == 0 {}

    proxy.pass();

    assert_eq!(client.receive().await.unwrap().integer(), 1);
}

#[tokio::test]
async fn held_replies_are_executed_now_and_delivered_later() {
    let (redis, proxy) = both().await;
    let mut client = connected(&proxy).await;

    proxy.hold_replies();
    client.send(&["INCR", "key"]).await.unwrap();
    client.send(&["INCR", "key"]).await.unwrap();
    assert!(timeout(SILENCE, client.receive()).await.is_err());
    assert_eq!(redis.command(&["GET", "key"]).await.integer(), 2);
    proxy.release_replies();

    assert_eq!(client.receive().await.unwrap().integer(), 1);
    assert_eq!(client.receive().await.unwrap().integer(), 2);
    assert_eq!(echo(&mut client, "after").await, "after");
}

#[tokio::test]
async fn cut_resets_old_connections_and_closes_new_ones() {
    let (_redis, proxy) = both().await;
    let mut old = connected(&proxy).await;

    proxy.cut();
    assert!(is_reset(old.receive().await));
    // The reset may come before connect has returned.
    if let Ok(mut new) = RedisClient::connect(proxy.address()).await {
        new.command(&["PING"]).await.unwrap_err();
    }
    eventually("both are gone", || proxy.accepted() == 2 && proxy.open() == 0).await;

    proxy.pass();
    connected(&proxy).await;
}

#[tokio::test]
async fn cut_of_existing_connections_accepts_new_ones() {
    let (_redis, proxy) = both().await;
    let mut old = connected(&proxy).await;

    proxy.cut_existing();
    // What was cut stays cut, however soon the fault ends.
    proxy.pass();

    assert!(is_reset(old.receive().await));
    connected(&proxy).await;
}

#[tokio::test]
async fn cut_after_a_request_loses_the_reply_and_not_the_write() {
    let (redis, proxy) = both().await;
    let mut client = connected(&proxy).await;
    let mut bystander = connected(&proxy).await;

    proxy.cut_after_request_bytes(1);

    assert!(is_reset(client.command(&["INCR", "key"]).await));
    assert_eq!(redis.command(&["GET", "key"]).await.integer(), 1);
    assert_eq!(echo(&mut bystander, "unharmed").await, "unharmed");
    connected(&proxy).await;
}

#[tokio::test]
async fn cut_after_requests_counts_their_bytes() {
    let (_redis, proxy) = both().await;
    let mut client = connected(&proxy).await;
    let before = proxy.bytes_up();
    echo(&mut client, "ab").await;
    let request_bytes = proxy.bytes_up() - before;

    proxy.cut_after_request_bytes(3 * request_bytes);

    echo(&mut client, "cd").await;
    echo(&mut client, "ef").await;
    assert!(is_reset(client.command(&["ECHO", "gh"]).await));
}

#[tokio::test]
async fn cut_within_a_reply_delivers_exactly_its_beginning() {
    let (_redis, proxy) = both().await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();

    proxy.cut_after_reply_bytes(4);
    stream.write_all(b"PING\r\n").await.unwrap();

    let mut reply = Vec::new();
    let error = stream.read_to_end(&mut reply).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(reply, b"+PON");
    connected(&proxy).await;
}

#[tokio::test]
async fn sliced_replies_come_in_pieces() {
    let (_redis, proxy) = both().await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();

    proxy.slice(2);
    stream.write_all(b"PING\r\nPING\r\n").await.unwrap();

    let mut pieces: Vec<Vec<u8>> = Vec::new();
    while pieces.concat().len() < 14 {
        let mut buffer = [0; 64];
        let count = stream.read(&mut buffer).await.unwrap();
        pieces.push(buffer[..count].to_vec());
    }
    assert_eq!(pieces.concat(), b"+PONG\r\n+PONG\r\n");
    // On a busy machine the reader may find two pieces at once, but never all seven every time.
    assert!(pieces.len() > 1, "{pieces:?}");
}

#[tokio::test]
async fn repointed_proxy_leads_new_connections_elsewhere() {
    let (redis, proxy) = both().await;
    let other = RedisServer::start().await;
    redis.command(&["SET", "name", "first"]).await;
    other.command(&["SET", "name", "second"]).await;
    let mut old = connected(&proxy).await;

    proxy.repoint(other.address());
    let mut new = connected(&proxy).await;

    assert_eq!(old.command(&["GET", "name"]).await.unwrap().text(), "first");
    assert_eq!(new.command(&["GET", "name"]).await.unwrap().text(), "second");
}

#[tokio::test]
async fn dead_server_is_a_closed_connection_and_comes_back() {
    let (mut redis, proxy) = both().await;
    let mut client = connected(&proxy).await;

    redis.kill();
    assert!(matches!(client.receive().await, Err(ReplyError::Connection(_))));
    redis.restart().await;

    connected(&proxy).await;
}

#[tokio::test]
async fn dropped_proxy_takes_its_connections_along() {
    let (_redis, proxy) = both().await;
    let mut client = connected(&proxy).await;
    let address = proxy.address();

    drop(proxy);

    assert!(matches!(client.receive().await, Err(ReplyError::Connection(_))));
    assert!(RedisClient::connect(address).await.is_err());
}
