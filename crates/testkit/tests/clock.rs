//! The clock of one Redis follows the test, and Redis goes on answering.

use std::time::Duration;

use testkit::{RedisClient, RedisServer, Reply};

/// 2033-05-18T03:33:20.123456Z.
const SOME_DAY_US: i64 = 2_000_000_000_123_456;

const HOUR: Duration = Duration::from_hours(1);

const TIME_TWICE: &str = "local a = redis.call('TIME'); for i = 1, 1e6 do end; \
                          local b = redis.call('TIME'); return {a[1], a[2], b[1], b[2]}";

#[tokio::test]
async fn frozen_time_is_exact_also_inside_a_script() {
    let redis = RedisServer::builder().clock_shim().start().await;
    let mut client = RedisClient::connect(redis.address()).await.unwrap();

    for frozen_us in [SOME_DAY_US, 1, SOME_DAY_US + 1, 999_999, 1_000_000] {
        redis.clock().freeze_at_us(frozen_us);

        for _ in 0..3 {
            assert_eq!(client.command(&["TIME"]).await.unwrap().time_us(), frozen_us);
        }
        let reply = client.command(&["EVAL", TIME_TWICE, "0"]).await.unwrap();
        let (first, second) = reply.array().split_at(2);
        assert_eq!(Reply::Array(first.to_vec()).time_us(), frozen_us);
        assert_eq!(Reply::Array(second.to_vec()).time_us(), frozen_us);
    }
}

#[tokio::test]
async fn frozen_clock_steps_by_exactly_what_is_asked() {
    let redis = RedisServer::builder().clock_shim().start().await;
    redis.clock().freeze_at_us(SOME_DAY_US);

    redis.clock().step(Duration::from_micros(1));
    assert_eq!(redis.command(&["TIME"]).await.time_us(), SOME_DAY_US + 1);
    redis.clock().step_back(Duration::from_secs(1));
    assert_eq!(redis.command(&["TIME"]).await.time_us(), SOME_DAY_US + 1 - 1_000_000);
}

#[tokio::test]
async fn expiry_follows_the_frozen_clock_to_the_millisecond() {
    let redis = RedisServer::builder().clock_shim().start().await;
    let mut client = RedisClient::connect(redis.address()).await.unwrap();
    redis.clock().freeze_at_us(SOME_DAY_US);

    client.command(&["SET", "key", "value", "PX", "1000"]).await.unwrap();
    assert_eq!(client.command(&["PTTL", "key"]).await.unwrap().integer(), 1000);
    redis.clock().step(Duration::from_millis(400));
    assert_eq!(client.command(&["PTTL", "key"]).await.unwrap().integer(), 600);
    redis.clock().step(Duration::from_millis(600));
    assert_eq!(client.command(&["PTTL", "key"]).await.unwrap().integer(), 0);
    assert_eq!(client.command(&["GET", "key"]).await.unwrap().text(), "value");
    redis.clock().step(Duration::from_millis(1));
    let script = "return redis.call('EXISTS', KEYS[1])";
    assert_eq!(client.command(&["EVAL", script, "1", "key"]).await.unwrap().integer(), 0);
    assert_eq!(client.command(&["PTTL", "key"]).await.unwrap().integer(), -2);
}

#[tokio::test]
async fn script_sets_expiry_by_the_frozen_clock() {
    let redis = RedisServer::builder().clock_shim().start().await;
    redis.clock().freeze_at_us(SOME_DAY_US);

    let script = "redis.call('SET', KEYS[1], 'v', 'PX', 1000); return redis.call('PEXPIRETIME', KEYS[1])";
    let expires_at_ms = redis.command(&["EVAL", script, "1", "key"]).await.integer();

    assert_eq!(expires_at_ms, SOME_DAY_US / 1000 + 1000);
}

#[tokio::test]
async fn running_script_sees_a_step_in_time_but_not_in_expiry() {
    let redis = RedisServer::builder().clock_shim().start().await;
    let mut client = RedisClient::connect(redis.address()).await.unwrap();
    redis.clock().freeze_at_us(SOME_DAY_US);
    client.command(&["SET", "key", "value", "PX", "1000"]).await.unwrap();

    // The clock may move as soon as the script says that it has begun, so the time from which it
    // waits is told, not read.
    let script = "redis.log(redis.LOG_WARNING, 'script has begun'); \
                  repeat until redis.call('TIME')[1] ~= ARGV[1]; \
                  redis.call('SET', 'late', 'value', 'PX', 1000); \
                  return {redis.call('EXISTS', 'key'), redis.call('PEXPIRETIME', 'late')}";
    let frozen_second = (SOME_DAY_US / 1_000_000).to_string();
    client.send(&["EVAL", script, "0", &frozen_second]).await.unwrap();
    testkit::eventually("the script has begun", || redis.log().contains("script has begun")).await;
    redis.clock().step(HOUR);

    let reply = client.receive().await.unwrap();
    assert_eq!(reply.array()[0], Reply::Integer(1), "expiry is judged by the start of the script");
    let expires_at_ms = reply.array()[1].integer();
    assert_eq!(expires_at_ms, SOME_DAY_US / 1000 + 3_600_000 + 1000, "PX counts from the stepped time");
    assert_eq!(client.command(&["EXISTS", "key"]).await.unwrap().integer(), 0);
}

#[tokio::test]
async fn step_forward_expires_and_step_back_prolongs() {
    let redis = RedisServer::builder().clock_shim().start().await;
    redis.command(&["SET", "short", "value", "PX", "10000"]).await;

    redis.clock().step_back(2 * HOUR);
    let left_ms = redis.command(&["PTTL", "short"]).await.integer();
    assert!((7_200_000..=7_210_000).contains(&left_ms), "{left_ms}");

    redis.clock().step(3 * HOUR);
    assert_eq!(redis.command(&["GET", "short"]).await, Reply::Nil);
}

#[tokio::test]
async fn running_clock_keeps_its_distance_to_an_undisturbed_redis() {
    let shifted = RedisServer::builder().clock_shim().start().await;
    let plain = RedisServer::start().await;
    shifted.clock().set_offset_us(-5_000_000_000);

    // Freezing in between must not touch the offset.
    shifted.clock().freeze_at_us(SOME_DAY_US);
    shifted.clock().thaw();

    let before = plain.command(&["TIME"]).await.time_us();
    let between = shifted.command(&["TIME"]).await.time_us() + 5_000_000_000;
    let after = plain.command(&["TIME"]).await.time_us();
    assert!(before <= between && between <= after, "{before} {between} {after}");
}

#[tokio::test]
async fn frozen_redis_keeps_answering_and_expiring() {
    let redis = RedisServer::builder().clock_shim().arg("hz", "100").start().await;
    let mut client = RedisClient::connect(redis.address()).await.unwrap();
    redis.clock().freeze_at_us(SOME_DAY_US);
    for number in 0..2000 {
        client.command(&["SET", &format!("key{number}"), "v", "PX", "1000"]).await.unwrap();
    }
    redis.clock().step(HOUR);

    // Nobody reads the keys, so only the background cycle can remove them.
    while client.command(&["DBSIZE"]).await.unwrap().integer() > 0 {
        tokio::task::yield_now().await;
    }
    redis.clock().step_back(2 * HOUR);
    for _ in 0..2000 {
        assert_eq!(client.command(&["PING"]).await.unwrap().text(), "PONG");
    }
}

#[tokio::test]
async fn restarted_redis_is_still_on_the_clock() {
    let mut redis = RedisServer::builder().clock_shim().aof().start().await;
    redis.clock().freeze_at_us(SOME_DAY_US);
    redis.command(&["SET", "key", "value", "PX", "1000"]).await;

    redis.restart().await;

    assert_eq!(redis.command(&["TIME"]).await.time_us(), SOME_DAY_US);
    assert_eq!(redis.command(&["PTTL", "key"]).await.integer(), 1000);
}

#[tokio::test]
async fn two_servers_disagree_about_the_time() {
    let one = RedisServer::builder().clock_shim().start().await;
    let other = RedisServer::builder().clock_shim().start().await;
    one.clock().freeze_at_us(SOME_DAY_US);
    other.clock().freeze_at_us(SOME_DAY_US + 1);

    assert_eq!(one.command(&["TIME"]).await.time_us(), SOME_DAY_US);
    assert_eq!(other.command(&["TIME"]).await.time_us(), SOME_DAY_US + 1);
}
