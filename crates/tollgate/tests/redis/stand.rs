//! Stores for a server, patient with a busy machine, and limits to ask them for.

use std::time::Duration;

use testkit::{RedisServer, Reply, ReplyError};
use tollgate::core::check::{Check, Refund};
use tollgate::core::decision::{Decision, Take};
use tollgate::core::key::{Key, Scope};
use tollgate::core::store::{Spent, Store, StoreError};
use tollgate::store::redis::{Layout, RedisConfig, RedisStore, RedisUrl};
use tollgate::{Algorithm, Cost, Kind, Rate};

pub(crate) const LAYOUTS: [Layout; 2] = [Layout::Packed, Layout::Hash];

/// For a machine busy with other tests.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn config(url: &str) -> RedisConfig {
    let mut config = RedisConfig::new(RedisUrl::parse(url).expect("a URL of a test's"));
    config.read_timeout = PATIENCE;
    config.write_timeout = PATIENCE;
    config.dial_timeout = PATIENCE;
    config.key_prefix = testkit::unique_prefix();
    config
}

pub(crate) fn store(url: &str) -> RedisStore {
    RedisStore::new(config(url)).expect("no TLS to go wrong")
}

/// One limit on one subject.
#[derive(Debug)]
pub(crate) struct Limit {
    scope: Scope,
    subject: String,
    algorithm: Algorithm,
}

impl Limit {
    pub(crate) fn new(kind: Kind, rate: &str) -> Limit {
        let rate = Rate::parse(rate).expect("a rate");
        Limit::of(Algorithm::try_new(kind, rate, None, 1000).expect("a limit"), "ann")
    }

    pub(crate) fn of(algorithm: Algorithm, subject: &str) -> Limit {
        Limit { scope: Scope::of_rule("login", 0, algorithm.kind()), subject: subject.to_owned(), algorithm }
    }

    pub(crate) fn key(&self) -> Key<'_> {
        Key { scope: &self.scope, subject: self.subject.as_bytes() }
    }

    pub(crate) fn check(&self) -> Check<'_> {
        Check { key: self.key(), algorithm: &self.algorithm, cost: Cost::ONE }
    }

    pub(crate) fn refund(&self, take: Take) -> Refund<'_> {
        Refund { check: self.check(), take }
    }
}

/// Ten a minute from a bucket, the limit for when any will do.
pub(crate) fn ten() -> Limit {
    Limit::new(Kind::TokenBucket, "10/h")
}

/// Takes once, and expects an answer.
pub(crate) async fn take(store: &RedisStore, limit: &Limit) -> Decision {
    match store.take(&[limit.check()]).await {
        Ok(decisions) => decisions[0],
        Err(error) => panic!("no answer: {error}"),
    }
}

/// Takes once, and expects none; nothing may have been spent.
pub(crate) async fn refusal(store: &RedisStore) -> StoreError {
    let error = store.take(&[ten().check()]).await.expect_err("it works");
    assert_eq!(error.spent(), Spent::Nothing, "{error}");
    error
}

/// Takes again and again until it is answered: a store finds its way back by itself.
pub(crate) async fn recovers(store: &RedisStore) -> Decision {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        match store.take(&[ten().check()]).await {
            Ok(decisions) => return decisions[0],
            Err(error) => assert!(tokio::time::Instant::now() < deadline, "still: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Makes Redis forget every function and every script.
pub(crate) async fn flush_text(server: &RedisServer) {
    server.command(&["FUNCTION", "FLUSH"]).await;
    server.command(&["SCRIPT", "FLUSH"]).await;
}

/// How often Redis was asked for a command since it started or its statistics were reset; refusals
/// for want of permission included.
pub(crate) async fn calls(server: &RedisServer, command: &str) -> u64 {
    let info = server.command(&["INFO", "commandstats"]).await.text();
    let start = format!("cmdstat_{command}:");
    let Some(line) = info.lines().find_map(|line| line.strip_prefix(&start)) else { return 0 };
    let field = |name| line.split(',').find_map(|part| part.strip_prefix(name)?.parse::<u64>().ok());
    field("calls=").unwrap_or(0) + field("rejected_calls=").unwrap_or(0)
}

/// Every key of a database.
pub(crate) async fn keys(server: &RedisServer, database: u32) -> Result<Vec<String>, ReplyError> {
    let mut admin = server.admin().await;
    admin.command(&["SELECT", &database.to_string()]).await?;
    Ok(admin.command(&["KEYS", "*"]).await?.array().iter().map(Reply::text).collect())
}
