//! How patient we are with Redis, and what we write there.

use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use super::url::RedisUrl;

/// Checks in one call at most: for some 300 µs of them Redis answers nobody else.
pub const BATCH_MAX: usize = 128;

/// The settings of a Redis store, under the names the configuration has for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisConfig {
    /// Where Redis is.
    pub url: RedisUrl,
    /// Multiplexed connections at most; each thread that asks keeps to one of them.
    pub pool_size: usize,
    /// How many of them [`RedisStore::warm`](super::RedisStore::warm) dials, rather than first use.
    pub min_idle_conns: usize,
    /// How long a dial, with its greeting, may take.
    pub dial_timeout: Duration,
    /// How long the oldest unanswered request may wait before its connection is given up.
    pub read_timeout: Duration,
    /// How long a write may be stuck before its connection is given up.
    pub write_timeout: Duration,
    /// Dials in quick succession before backing off. A request is never sent twice.
    pub max_retries: u32,
    /// The first part of every key.
    pub key_prefix: String,
    /// The shortest time to live a key gets, for those who want keys to linger.
    pub default_ttl: Duration,
    /// How state is written.
    pub layout: Layout,
    /// Fold subjects into so many hash tags, so that asks for several of them meet in a slot of a cluster and
    /// travel together. Without, every subject is a tag of its own.
    pub partitions: Option<NonZeroU16>,
    /// Bring our own reckoning of Redis' time along instead of letting scripts read its clock.
    pub client_time: bool,
    /// Call functions of a library that Redis keeps, which is cheaper than running scripts. Where Redis
    /// does not let us, asks go out as scripts all the same.
    pub functions: bool,
    /// Let takes that arrive while others are in flight travel together. Without, each is sent by itself, at
    /// once.
    pub batch: bool,
    /// How many checks travel together at most, up to [`BATCH_MAX`].
    pub batch_max: usize,
    /// How long a take waits for those in flight, to travel with others. A Redis that takes longer to answer is
    /// slow, and waiting for it first would double what it costs.
    pub batch_wait: Duration,
    /// A PEM file with the certificate authorities to trust instead of the public ones.
    pub tls_ca: Option<PathBuf>,
    /// PEM files with a client certificate and its key, for mutual TLS.
    pub tls_client: Option<(PathBuf, PathBuf)>,
}

impl RedisConfig {
    /// The defaults, for a Redis at `url`.
    pub fn new(url: RedisUrl) -> RedisConfig {
        let pool_size = std::thread::available_parallelism().map_or(2, usize::from).max(2);
        RedisConfig {
            url,
            pool_size,
            min_idle_conns: pool_size,
            dial_timeout: Duration::from_secs(1),
            read_timeout: Duration::from_millis(250),
            write_timeout: Duration::from_millis(250),
            max_retries: 3,
            key_prefix: "tg".to_owned(),
            default_ttl: Duration::ZERO,
            layout: Layout::Packed,
            partitions: None,
            client_time: false,
            functions: true,
            batch: true,
            batch_max: BATCH_MAX,
            batch_wait: Duration::from_millis(2),
            tls_ca: None,
            tls_client: None,
        }
    }
}

/// How state is written in Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Layout {
    /// One string of fixed-width binary fields: the fastest.
    #[default]
    Packed,
    /// A hash with `tokens`, `last_refill` and `v`, as the decision records have it.
    Hash,
}

impl Layout {
    /// Its name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Layout::Packed => "packed",
            Layout::Hash => "hash",
        }
    }

    /// Reads the name.
    pub fn parse(name: &str) -> Option<Layout> {
        [Layout::Packed, Layout::Hash].into_iter().find(|layout| layout.name() == name)
    }
}
