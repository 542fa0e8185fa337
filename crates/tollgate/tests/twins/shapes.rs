//! Values of a wrong type or shape under our keys: absent for that check alone, and mended by the
//! next spend.

use testkit::RedisServer;
use tollgate::Kind;
use tollgate::core::decision::{Found, Outcome, Returned, Take};
use tollgate::core::store::Store;
use tollgate::core::{check::Refund, units::Micros};
use tollgate::store::redis::Layout;

use crate::world::{self, NOON, Named, WAYS};

/// What somebody else may have put there: a name, and the command that does it.
fn strangers(layout: Layout, kind: Kind, key: &str) -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let words = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect::<Vec<_>>();
    let key = key.as_bytes();
    #[expect(clippy::cast_precision_loss, reason = "a time of today is exact")]
    let noon = NOON as f64;
    let mut all = vec![
        ("an empty string", words(&[b"SET", key, b""])),
        ("a text", words(&[b"SET", key, b"hello"])),
        ("a long text", words(&[b"SET", key, &[b'x'; 300]])),
        ("a list", words(&[b"RPUSH", key, b"a", b"b"])),
        ("a set", words(&[b"SADD", key, b"a"])),
        ("a stream", words(&[b"XADD", key, b"*", b"a", b"b"])),
        ("a hash of somebody's", words(&[b"HSET", key, b"name", b"Ann"])),
        ("a hash of another version", words(&[b"HSET", key, b"v", b"9", b"window", &[0; 8]])),
        ("a hash with a short field", words(&[b"HSET", key, b"v", b"1", b"tokens", b"7", b"window", b"7"])),
        ("a hash with a field missing", words(&[b"HSET", key, b"v", b"1", b"last_refill", &[0; 8]])),
        ("a sorted set of names", words(&[b"ZADD", key, b"1", b"Ann"])),
        ("a sorted set of twelve letters", words(&[b"ZADD", key, b"1800000007654321", b"Ann and Bert"])),
        ("a sorted set of fractions", words(&[b"ZADD", key, b"1800000007654321.5", &[1; 12]])),
        ("a sorted set without end", words(&[b"ZADD", key, b"+inf", &[1; 12]])),
    ];
    if layout == Layout::Packed && kind != Kind::SlidingLog {
        let size = packed_size(kind);
        let mut another_version = vec![0; size];
        another_version[0] = 9;
        let mut one_short = vec![0; size - 1];
        one_short[0] = 1;
        all.push(("version 9", words(&[b"SET", key, &another_version])));
        // Of this very limit, as the fast path would take it.
        let ours = narrow(&fields(0.0, noon, 3, 20_000_000, 1));
        if kind == Kind::TokenBucket {
            all.push(("version 9 of a bucket", words(&[b"SET", key, &[&[9], &ours[..]].concat()])));
            all.push(("a bucket and a byte", words(&[b"SET", key, &[&[1], &ours[..], &[0]].concat()])));
        }
        all.push(("a byte too few", words(&[b"SET", key, &one_short])));
        all.push(("a byte too many", words(&[b"SET", key, &vec![1; size + 1]])));
    }
    if kind == Kind::TokenBucket {
        // units, last_refill, capacity, unit, pour
        for (name, limit) in [
            ("more units than the bucket holds", fields(301.0, noon, 3, 100, 1)),
            ("more units than this bucket holds", fields(60_000_001.0, noon, 3, 20_000_000, 1)),
            ("fewer units than none", fields(-1.0, noon, 3, 20_000_000, 1)),
            ("units that are no number", fields(f64::NAN, noon, 3, 20_000_000, 1)),
            ("part of a unit", fields(0.5, noon, 3, 100, 1)),
            ("a capacity of none", fields(0.0, noon, 0, 100, 1)),
            ("a bucket that never refills", fields(0.0, noon, 3, 100, 0)),
            ("a token of no units", fields(0.0, noon, 3, 0, 1)),
            ("more units than are exact", fields(0.0, noon, u32::MAX, 1 << 40, 1)),
            ("a time beyond the exact", fields(0.0, 1e18, 3, 100, 1)),
            ("a time that is no number", fields(0.0, f64::NAN, 3, 20_000_000, 1)),
        ] {
            all.push((
                name,
                match layout {
                    Layout::Packed => words(&[b"SET", key, &[&[1], &narrow(&limit)[..]].concat()]),
                    Layout::Hash => words(&[
                        b"HSET",
                        key,
                        b"v",
                        b"1",
                        b"tokens",
                        &limit[..8],
                        b"last_refill",
                        &limit[8..16],
                        b"limit",
                        &limit[16..],
                    ]),
                },
            ));
        }
    }
    all
}

/// The bytes of a bucket's state.
fn fields(units: f64, last_refill: f64, capacity: u32, unit: u64, pour: u32) -> Vec<u8> {
    [
        &units.to_le_bytes()[..],
        &last_refill.to_le_bytes(),
        &capacity.to_le_bytes(),
        &unit.to_le_bytes(),
        &pour.to_le_bytes(),
    ]
    .concat()
}

/// The same as a packed value has them: without the upper half of a unit that has none.
fn narrow(fields: &[u8]) -> Vec<u8> {
    if fields[24..28] == [0; 4] { [&fields[..24], &fields[28..]].concat() } else { fields.to_vec() }
}

fn packed_size(kind: Kind) -> usize {
    match kind {
        Kind::TokenBucket => 29,
        Kind::SlidingWindow => 17,
        Kind::FixedWindow => 13,
        Kind::SlidingLog => panic!("a log is never packed"),
    }
}

/// The name a limit's key has in Redis, learned by spending.
async fn name_of(server: &RedisServer, store: &impl Store, limit: &Named) -> String {
    let before = world::keys(server).await;
    store.take(&[limit.check(1)]).await.expect("the store answers");
    let after = world::keys(server).await;
    let new: Vec<&String> = after.iter().filter(|key| !before.contains(key)).collect();
    assert_eq!(new.len(), 1, "{new:?}");
    new[0].clone()
}

#[tokio::test]
async fn strangers_count_as_absent_for_their_check_alone() {
    let server = world::frozen_redis().await;
    for way in WAYS {
        for kind in Kind::ALL {
            let store = world::store(&server, way);
            let (struck, other) = (Named::new("struck", kind, "3/min"), Named::new("other", kind, "3/min"));
            let name = name_of(&server, &store, &struck).await;
            store.take(&[other.check(1)]).await.unwrap();
            let mut malformed = 0;
            for (what, command) in strangers(way.layout, kind, &name) {
                let what = format!("{} {kind}: {what}", way.name());
                server.command(&["DEL", &name]).await;
                store.forget(&[other.key()]).await.unwrap();
                store.take(&[other.check(1)]).await.unwrap();
                server.command(&command).await;

                let peeked = store.peek(&[struck.check(3), other.check(1)]).await.expect(&what);
                assert_eq!(peeked[0].found, Found::Malformed, "{what}");
                assert_eq!((peeked[0].outcome, peeked[0].remaining), (Outcome::Allowed, 3), "{what}");
                assert_eq!((peeked[1].found, peeked[1].remaining), (Found::State, 2), "{what}");

                // A refusal repairs nothing: it writes nothing.
                let refused = store.take(&[other.check(3), struck.check(1)]).await.expect(&what);
                assert_eq!(refused[1].found, Found::Malformed, "{what}");

                let refund = Refund { check: struck.check(1), take: Take { at: Micros(NOON), entry: 0 } };
                let refunded = store.refund(&[refund]).await.expect(&what);
                assert_eq!((refunded[0].returned, refunded[0].remaining), (Returned::Nothing, 3), "{what}");

                let taken = store.take(&[other.check(1), struck.check(2)]).await.expect(&what);
                assert_eq!((taken[0].found, taken[0].remaining), (Found::State, 1), "{what}");
                assert_eq!((taken[1].found, taken[1].remaining), (Found::Malformed, 1), "{what}");

                let mended = store.take(&[struck.check(1)]).await.expect(&what);
                assert_eq!((mended[0].found, mended[0].remaining), (Found::State, 0), "{what}");
                assert!(server.command(&["PTTL", &name]).await.integer() > 0, "{what}");
                malformed += 3;
                assert_eq!(store.stats().malformed, malformed, "{what}");

                // And alone, without another check in the ask.
                server.command(&["DEL", &name]).await;
                server.command(&command).await;
                let alone = store.take(&[struck.check(1)]).await.expect(&what);
                assert_eq!((alone[0].found, alone[0].remaining), (Found::Malformed, 2), "{what}");
                malformed += 1;
            }
        }
    }
}
