//! Real servers on free ports, and every way we know to break them.
//!
//! Tests talk to a real `redis-server`: a mock would agree with our beliefs about Redis, and those
//! beliefs are what the tests are for. Each test owns its servers, so nothing is shared, no port is
//! fixed, and whatever a test starts dies with the value that started it.
//!
//! Everything here waits for events of real processes and sockets, so it needs real time: do not
//! combine it with `tokio::time::pause`. What a test cannot arrange, it cannot go on without, so
//! most functions panic, and say what was wrong, instead of returning an error.

#![expect(
    clippy::disallowed_methods,
    reason = "waits for other processes, which live on the machine's clock and know no other"
)]

pub mod certificates;
pub mod clock;
pub mod contract;
pub mod eventually;
pub mod front;
pub mod process;
pub mod proxy;
pub mod redis;
pub mod sides;
pub mod together;

use std::sync::atomic::{AtomicU64, Ordering};

pub use certificates::Certificates;
pub use clock::ClockShim;
pub use contract::{TestTime, asks_contract, kind_contract, store_contract};
pub use eventually::eventually;
pub use front::{Front, FrontPlaces, FrontProgram};
pub use process::{Child, free_port};
pub use proxy::ChaosProxy;
pub use redis::{
    AdminDoor, Program, RedisClient, RedisCluster, RedisServer, Reply, ReplyError, SentinelGroup, slot_of,
};
pub use sides::{TwoSides, enter_namespace};
pub use together::together;

/// A key prefix that no other call returns, in this process or another: `test-1f3a-0-9c41d2e07b65f813`.
///
/// Consists of letters, digits and `-`, so it is safe in a key, a glob pattern and an ACL rule.
pub fn unique_prefix() -> String {
    static CALLS: AtomicU64 = AtomicU64::new(0);

    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    format!("test-{:x}-{call}-{:016x}", std::process::id(), fastrand::u64(..))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::unique_prefix;

    #[test]
    fn prefixes_never_repeat_and_need_no_escaping() {
        let prefixes: HashSet<String> = (0..1000).map(|_| unique_prefix()).collect();

        assert_eq!(prefixes.len(), 1000);
        assert!(prefixes.iter().flat_map(|p| p.chars()).all(|c| c.is_ascii_alphanumeric() || c == '-'));
    }
}
