//! What every test here starts with: a Redis on a clock of ours, a store, and named limits.

use testkit::{RedisServer, Reply};
use tollgate::core::check::Check;
use tollgate::core::key::{Key, Scope};
use tollgate::store::redis::{Layout, RedisConfig, RedisStore, RedisUrl};
use tollgate::{Algorithm, Cost, Kind, Rate};

/// A way to keep state and to ask for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    pub layout: Layout,
    /// As calls of functions, or as scripts.
    pub functions: bool,
}

/// Both layouts, asked in both ways: what ships is one text in four forms.
pub(crate) const WAYS: [Way; 4] = [
    Way { layout: Layout::Packed, functions: true },
    Way { layout: Layout::Packed, functions: false },
    Way { layout: Layout::Hash, functions: true },
    Way { layout: Layout::Hash, functions: false },
];

impl Way {
    pub(crate) fn name(self) -> String {
        format!("{} by {}", self.layout.name(), if self.functions { "function" } else { "script" })
    }

    /// The command an ask goes out as, as `INFO commandstats` has it.
    pub(crate) fn command(self) -> &'static str {
        if self.functions { "fcall" } else { "evalsha" }
    }

    /// The command that brings lost text back.
    pub(crate) fn load(self) -> &'static str {
        if self.functions { "function|load" } else { "script|load" }
    }
}

/// A moment in 2027, in microseconds: 16 digits, and no multiple of anything.
pub(crate) const NOON: u64 = 1_800_000_007_654_321;

/// A Redis whose clock stands still until a test moves it, and which expires a key when it is
/// looked at and not before: an expiry in the background would come at a moment of its own choice.
pub(crate) async fn frozen_redis() -> RedisServer {
    let server = RedisServer::builder().clock_shim().debug_command().start().await;
    server.command(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]).await;
    freeze(&server, NOON);
    server
}

pub(crate) fn freeze(server: &RedisServer, now_us: u64) {
    server.clock().freeze_at_us(i64::try_from(now_us).expect("a time of this millennium"));
}

pub(crate) fn config(server: &RedisServer, way: Way) -> RedisConfig {
    let mut config = RedisConfig::new(RedisUrl::parse(&server.url()).expect("a URL of testkit's"));
    config.layout = way.layout;
    config.functions = way.functions;
    config.pool_size = 1;
    // A machine busy with other tests must not fail this one.
    config.read_timeout = std::time::Duration::from_secs(20);
    config.write_timeout = std::time::Duration::from_secs(20);
    config.dial_timeout = std::time::Duration::from_secs(20);
    config.key_prefix = testkit::unique_prefix();
    config
}

pub(crate) fn store(server: &RedisServer, way: Way) -> RedisStore {
    RedisStore::new(config(server, way)).expect("no TLS to go wrong")
}

/// A limit with a name, as a rule would have it.
#[derive(Debug)]
pub(crate) struct Named {
    pub scope: Scope,
    pub subject: Vec<u8>,
    pub algorithm: Algorithm,
}

impl Named {
    pub(crate) fn new(subject: &str, kind: Kind, rate: &str) -> Named {
        let rate = Rate::parse(rate).expect("a rate");
        let algorithm = Algorithm::try_new(kind, rate, None, 10_000).expect("a limit");
        Named { scope: Scope::of_rule("rule", 0, kind), subject: subject.into(), algorithm }
    }

    pub(crate) fn key(&self) -> Key<'_> {
        Key { scope: &self.scope, subject: &self.subject }
    }

    pub(crate) fn check(&self, cost: u32) -> Check<'_> {
        Check {
            key: self.key(),
            algorithm: &self.algorithm,
            cost: Cost::new(cost).expect("a cost of at least one"),
        }
    }
}

/// Every key in Redis, sorted.
pub(crate) async fn keys(server: &RedisServer) -> Vec<String> {
    let mut keys: Vec<String> =
        server.command(&["KEYS", "*"]).await.array().iter().map(Reply::text).collect();
    keys.sort();
    keys
}

/// The only key in Redis.
pub(crate) async fn only_key(server: &RedisServer) -> String {
    let keys = keys(server).await;
    assert_eq!(keys.len(), 1, "{keys:?}");
    keys.into_iter().next().expect("one key")
}

/// How often Redis has run a command since it started or its statistics were reset, in scripts too.
pub(crate) async fn calls(server: &RedisServer, command: &str) -> u64 {
    let info = server.command(&["INFO", "commandstats"]).await.text();
    let wanted = format!("cmdstat_{command}:calls=");
    info.lines().find_map(|line| line.strip_prefix(&wanted)?.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// Forgets every script and every function.
pub(crate) async fn flush_text(server: &RedisServer) {
    server.command(&["SCRIPT", "FLUSH"]).await;
    server.command(&["FUNCTION", "FLUSH"]).await;
}

pub(crate) async fn reset_calls(server: &RedisServer) {
    server.command(&["CONFIG", "RESETSTAT"]).await;
}
