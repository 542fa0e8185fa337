//! Keys and values are the bytes that `docs/redis.md` says they are.

use testkit::{RedisServer, Reply};
use tollgate::core::units::Micros;
use tollgate::store::redis::{Layout, RedisStore};
use tollgate::{Algorithm, Kind, Rate};

use crate::stand::{Limit, config, take};

const DOCUMENT: &str = include_str!("../../../../docs/redis.md");

fn bytes(reply: &Reply) -> &[u8] {
    match reply {
        Reply::Bulk(bytes) => bytes,
        _ => panic!("expected bytes, got {reply:?}"),
    }
}

/// Two of 100 a minute are spent, by the name of the documented example.
async fn spend(server: &RedisServer, kind: Kind, layout: Layout) -> (String, Micros) {
    let mut config = config(&server.url());
    "tg".clone_into(&mut config.key_prefix);
    config.layout = layout;
    let store = RedisStore::new(config).expect("no TLS to go wrong");
    let rate = Rate::parse("100/min").expect("a rate");
    let limit = Limit::of(Algorithm::try_new(kind, rate, None, 1000).expect("a limit"), "user_123");
    take(&store, &limit).await;
    let at = take(&store, &limit).await.take.at;
    let generation = if layout == Layout::Packed { "1p" } else { "1h" };
    (format!("tg:{generation}:{{user_123}}:login:0:{}", kind.initials()), at)
}

fn long(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

/// A whole number as a double: what a bucket counts in.
fn double(number: u64) -> [u8; 8] {
    let (high, low) = (u32::try_from(number >> 32), u32::try_from(number & u64::from(u32::MAX)));
    (f64::from(high.expect("fits")) * 4_294_967_296.0 + f64::from(low.expect("fits"))).to_le_bytes()
}

fn short(number: u32) -> [u8; 4] {
    number.to_le_bytes()
}

/// What follows the version: the documented fields, one after the other.
fn fields(kind: Kind, at: Micros) -> Vec<(&'static str, Vec<u8>)> {
    let window = long(at.0 - at.0 % 60_000_000).to_vec();
    match kind {
        Kind::SlidingWindow => {
            vec![("window", window), ("count", short(2).to_vec()), ("previous", short(0).to_vec())]
        }
        Kind::FixedWindow => vec![("window", window), ("count", short(2).to_vec())],
        Kind::TokenBucket | Kind::SlidingLog => {
            // 100 a minute, in lowest terms: 600 000 units to the token, one a microsecond.
            let limit = [&short(100)[..], &long(600_000), &short(1)].concat();
            vec![("last_refill", double(at.0).to_vec()), ("limit", limit)]
        }
    }
}

#[tokio::test]
async fn a_packed_value_is_the_documented_bytes() {
    // A clock of its own, so that no window ends between two spends.
    let server = RedisServer::builder().clock_shim().start().await;
    server.clock().freeze_at_us(1_800_000_007_654_321);
    for kind in [Kind::TokenBucket, Kind::SlidingWindow, Kind::FixedWindow] {
        let (key, at) = spend(&server, kind, Layout::Packed).await;
        let value = server.command(&["GET", &key]).await;
        let mut expected = vec![1];
        if kind == Kind::TokenBucket {
            assert!(DOCUMENT.contains(&key), "{key} is the documented example");
            expected.extend(double(98 * 600_000));
        }
        expected.extend(fields(kind, at).into_iter().flat_map(|(_, bytes)| bytes));
        if kind == Kind::TokenBucket {
            // Without the upper half of the unit, which is zero.
            expected.drain(25..29);
            assert!(
                DOCUMENT.contains(&format!("({} bytes, or 33 ", expected.len())),
                "the length is documented"
            );
        }
        assert_eq!(bytes(&value), expected, "{kind}");
    }
}

/// A unit of more than four bytes is written whole, by every way to write a bucket; and so much is understood
/// where less would have done.
#[tokio::test]
async fn a_large_unit_is_the_documented_bytes_and_a_small_one_may_be_whole() {
    let server = RedisServer::builder().clock_shim().start().await;
    server.clock().freeze_at_us(1_800_000_007_654_321);
    let now = double(1_800_000_007_654_321);
    for (rate, unit) in [("5/day", 17_280_000_000), ("5/min", 12_000_000)] {
        for functions in [true, false] {
            let mut config = config(&server.url());
            config.functions = functions;
            let store = RedisStore::new(config).expect("no TLS to go wrong");
            let algorithm =
                Algorithm::try_new(Kind::TokenBucket, Rate::parse(rate).expect("a rate"), None, 0);
            let subject = format!("{rate}-{functions}");
            let limit = Limit::of(algorithm.expect("a limit"), &subject);
            take(&store, &limit).await;
            let keys = server.command(&["KEYS", &format!("*{subject}*")]).await;
            let key = keys.array()[0].text();
            let whole = |tokens: u64| {
                let limit = [&short(5)[..], &long(unit), &short(1)].concat();
                [&[1][..], &double(tokens * unit), &now, &limit].concat()
            };
            let written = |tokens: u64| {
                let mut value = whole(tokens);
                if unit < 1 << 32 {
                    value.drain(25..29);
                }
                value
            };
            assert_eq!(bytes(&server.command(&["GET", &key]).await), written(4), "{rate}");
            // As it stands, and with every byte of its unit.
            let found = written(3);
            for (value, left) in [(found.clone(), 2), (whole(3), 2)] {
                server.command(&[&b"SET"[..], key.as_bytes(), &value]).await;
                assert_eq!(take(&store, &limit).await.remaining, left, "{rate}");
                assert_eq!(bytes(&server.command(&["GET", &key]).await), written(2), "{rate}");
            }
        }
    }
}

#[tokio::test]
async fn a_hash_has_the_documented_fields() {
    let server = RedisServer::builder().clock_shim().start().await;
    server.clock().freeze_at_us(1_800_000_007_654_321);
    for kind in [Kind::TokenBucket, Kind::SlidingWindow, Kind::FixedWindow] {
        let (key, at) = spend(&server, kind, Layout::Hash).await;
        let mut expected = fields(kind, at);
        expected.push(("v", b"1".to_vec()));
        if kind == Kind::TokenBucket {
            expected.push(("tokens", double(98 * 600_000).to_vec()));
        }
        let found = server.command(&["HGETALL", &key]).await;
        assert_eq!(found.array().len(), 2 * expected.len(), "{kind}");
        for (name, value) in expected {
            assert_eq!(bytes(&server.command(&["HGET", &key, name]).await), value, "{kind} {name}");
            assert!(DOCUMENT.contains(&format!("`{name}`")), "{name} is documented");
        }
    }
}

#[tokio::test]
async fn a_log_has_the_documented_members_in_either_layout() {
    let server = RedisServer::builder().clock_shim().start().await;
    server.clock().freeze_at_us(1_800_000_007_654_321);
    for layout in [Layout::Packed, Layout::Hash] {
        let (key, at) = spend(&server, Kind::SlidingLog, layout).await;
        let found = server.command(&["ZRANGE", &key, "0", "-1", "WITHSCORES"]).await;
        let member = |number: u32| [&at.0.to_be_bytes()[..], &number.to_be_bytes()].concat();
        let score = at.0.to_string().into_bytes();
        let parts: Vec<&[u8]> = found.array().iter().map(bytes).collect();
        assert_eq!(parts, [&member(0)[..], &score, &member(1), &score]);
    }
}
