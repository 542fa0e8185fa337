//! Where Redis is, and how patient we are with it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

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

/// Where one Redis is: `redis://`, `rediss://` or `unix://`.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    /// How to reach it.
    pub endpoint: Endpoint,
    /// The ACL user; without one, the password is the default user's.
    pub username: Option<String>,
    /// The password.
    pub password: Option<Secret>,
    /// Which numbered database.
    pub database: u32,
}

/// How to reach a Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// Plain TCP.
    Tcp {
        /// Resolved anew on every dial.
        host: String,
        /// Its port.
        port: u16,
    },
    /// TLS over TCP.
    Tls {
        /// Resolved anew on every dial, and checked against the certificate.
        host: String,
        /// Its port.
        port: u16,
    },
    /// A unix socket.
    Unix {
        /// Its path.
        path: PathBuf,
    },
}

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text itself, to be sent and never shown.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// What is wrong with a Redis URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// The scheme is not one of ours.
    #[error(
        "unknown scheme \"{scheme}\": use redis://[user:password@]host[:port][/database], rediss:// for TLS, or unix:///path[?db=N]"
    )]
    Scheme {
        /// What stands before `://`, clipped.
        scheme: String,
    },
    /// A scheme that comes with a later release.
    #[error("{scheme}:// is not supported yet: use redis://, rediss:// or unix://")]
    NotYet {
        /// The scheme.
        scheme: String,
    },
    /// No host, or no path.
    #[error("names no host")]
    NoHost,
    /// The port is not a number from 1 to 65535.
    #[error("port \"{port}\" is not a number from 1 to 65535")]
    Port {
        /// What was written.
        port: String,
    },
    /// The database is not a number.
    #[error("database \"{database}\" is not a number")]
    Database {
        /// What was written.
        database: String,
    },
    /// An escape in user or password is broken.
    #[error("the user or password has a broken %-escape")]
    Escape,
    /// A slash before the `@`: what follows it would be taken for a path, and shown.
    #[error("the user or password holds a bare \"/\": write it as %2F")]
    BareSlash,
    /// A unix URL with a setting that is not one of ours.
    #[error("unknown setting \"{name}\" after the path: use db, user and pass")]
    Query {
        /// Its name, without its value.
        name: String,
    },
}

impl RedisUrl {
    /// Reads a URL. The password may hold anything, percent-encoded.
    pub fn parse(text: &str) -> Result<RedisUrl, UrlError> {
        // Without a scheme nobody knows where the password stands, so nothing past a colon is shown.
        let (scheme, rest) = text.split_once("://").ok_or_else(|| {
            let shown = text.split([':', '@']).next().unwrap_or_default();
            UrlError::Scheme { scheme: if text.contains('@') { clip(shown) } else { clip(text) } }
        })?;
        let is_tls = match scheme {
            "redis" | "valkey" => false,
            "rediss" | "valkeys" => true,
            "unix" | "redis+unix" => return unix(rest),
            "redis-sentinel" | "redis-cluster" => return Err(UrlError::NotYet { scheme: scheme.to_owned() }),
            _ => return Err(UrlError::Scheme { scheme: clip(scheme) }),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if path.contains('@') {
            return Err(UrlError::BareSlash);
        }
        let (credentials, place) = match authority.rsplit_once('@') {
            Some((credentials, place)) => (Some(credentials), place),
            None => (None, authority),
        };
        let (username, password) = credentials.map_or(Ok((None, None)), parse_credentials)?;
        let (host, port) = parse_place(place)?;
        let database = match path {
            "" => 0,
            number => number.parse().map_err(|_| UrlError::Database { database: clip(number) })?,
        };
        let endpoint = if is_tls { Endpoint::Tls { host, port } } else { Endpoint::Tcp { host, port } };
        Ok(RedisUrl { endpoint, username, password, database })
    }
}

fn unix(rest: &str) -> Result<RedisUrl, UrlError> {
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (credentials, path) = match rest.split_once('@') {
        Some((credentials, path)) if !credentials.contains('/') => (Some(credentials), path),
        _ => (None, rest),
    };
    let (mut username, mut password) = credentials.map_or(Ok((None, None)), parse_credentials)?;
    if path.is_empty() {
        return Err(UrlError::NoHost);
    }
    let mut database = 0;
    for setting in query.split('&').filter(|setting| !setting.is_empty()) {
        match setting.split_once('=').unwrap_or((setting, "")) {
            ("db", number) => {
                database = number.parse().map_err(|_| UrlError::Database { database: clip(number) })?;
            }
            ("user", user) => username = Some(unescape(user)?),
            ("pass", pass) => password = Some(Secret::new(unescape(pass)?)),
            (name, _) => return Err(UrlError::Query { name: clip(name) }),
        }
    }
    Ok(RedisUrl { endpoint: Endpoint::Unix { path: path.into() }, username, password, database })
}

type Credentials = (Option<String>, Option<Secret>);

fn parse_credentials(text: &str) -> Result<Credentials, UrlError> {
    let (user, password) = text.split_once(':').unwrap_or(("", text));
    let user = unescape(user)?;
    Ok(((!user.is_empty()).then_some(user), Some(Secret::new(unescape(password)?))))
}

fn parse_place(place: &str) -> Result<(String, u16), UrlError> {
    let (host, port) = if let Some(bracketed) = place.strip_prefix('[') {
        let (host, rest) = bracketed.split_once(']').ok_or(UrlError::NoHost)?;
        (host, rest.strip_prefix(':'))
    } else {
        match place.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        }
    };
    if host.is_empty() {
        return Err(UrlError::NoHost);
    }
    let port = match port {
        None => 6379,
        Some(port) => {
            port.parse().ok().filter(|&port| port != 0).ok_or_else(|| UrlError::Port { port: clip(port) })?
        }
    };
    Ok((host.to_owned(), port))
}

fn unescape(text: &str) -> Result<String, UrlError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit =
                || rest.next().and_then(|b| char::from(b).to_digit(16)).and_then(|d| u8::try_from(d).ok());
            let (high, low) = (digit().ok_or(UrlError::Escape)?, digit().ok_or(UrlError::Escape)?);
            bytes.push(high * 16 + low);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).map_err(|_| UrlError::Escape)
}

fn clip(text: &str) -> String {
    text.chars().take(32).collect()
}

impl fmt::Display for RedisUrl {
    /// Where it is, without the credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.endpoint {
            Endpoint::Tcp { host, port } => write!(f, "redis://{host}:{port}/{}", self.database),
            Endpoint::Tls { host, port } => write!(f, "rediss://{host}:{port}/{}", self.database),
            Endpoint::Unix { path } => write!(f, "unix://{}?db={}", path.display(), self.database),
        }
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_read_as_other_clients_read_them() {
        let url = RedisUrl::parse("rediss://ann:p%40ss@cache.example:6390/3").unwrap();
        assert_eq!(url.endpoint, Endpoint::Tls { host: "cache.example".into(), port: 6390 });
        assert_eq!((url.username.as_deref(), url.database), (Some("ann"), 3));
        assert_eq!(url.password.unwrap().reveal(), "p@ss");

        let url = RedisUrl::parse("redis://:secret@[::1]").unwrap();
        assert_eq!(url.endpoint, Endpoint::Tcp { host: "::1".into(), port: 6379 });
        assert_eq!(url.username, None);

        let url = RedisUrl::parse("unix:///run/redis.sock?db=2").unwrap();
        assert_eq!(url.endpoint, Endpoint::Unix { path: "/run/redis.sock".into() });
        assert_eq!(url.database, 2);

        let url = RedisUrl::parse("unix:///run/redis.sock?user=ann&pass=p%26ss&db=7").unwrap();
        assert_eq!((url.username.as_deref(), url.database), (Some("ann"), 7));
        assert_eq!(url.password.unwrap().reveal(), "p&ss");
    }

    #[test]
    fn what_is_wrong_with_a_url_never_shows_its_password() {
        for text in [
            "ann:hunter2@localhost",
            ":hunter2@localhost",
            "redis://ann:hunter2/hunter2@localhost",
            "redis://ann:/hunter2@localhost:6379/0",
            "rediss://ann:hunter2@localhost:x",
            "redis://ann:hunter2%zz@localhost",
            "redis://ann:hunter2@/0",
            "unix:///run/redis.sock?password=hunter2",
            "unix:///run/redis.sock?pass=hunter2&db=x",
        ] {
            let error = RedisUrl::parse(text).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{text}: {error}");
        }
    }

    #[test]
    fn a_url_never_shows_its_password() {
        let url = RedisUrl::parse("redis://ann:hunter2@localhost").unwrap();
        let shown = format!("{url} {url:?} {:?}", RedisConfig::new(url.clone()));
        assert!(!shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn bad_urls_say_what_is_wrong() {
        for (text, says) in [
            ("localhost:6379", "unknown scheme"),
            ("http://localhost", "unknown scheme"),
            ("redis://", "no host"),
            ("redis://h:0", "port"),
            ("redis://h:99999", "port"),
            ("redis://h/x", "database"),
            ("redis://:%zz@h", "escape"),
            ("redis://:a/b@h", "bare \"/\""),
            ("unix:///s?database=1", "unknown setting \"database\""),
            ("redis-cluster://h", "not supported yet"),
        ] {
            let error = RedisUrl::parse(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
