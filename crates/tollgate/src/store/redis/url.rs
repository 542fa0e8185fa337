//! Where Redis is, as a URL says it.

use std::fmt;
use std::path::PathBuf;

/// Sentinels, or nodes of a cluster, that a URL may name.
const SEEDS_MAX: usize = 64;

/// Where Redis is: `redis://`, `rediss://`, `unix://`, `redis-sentinel://` or `redis-cluster://`.
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
    /// Whichever server Sentinels call the primary.
    Sentinel(SentinelSeeds),
    /// A cluster, found by some of its nodes.
    Cluster {
        /// Nodes to ask for the others.
        seeds: Vec<Seed>,
        /// Whether all of them speak TLS.
        is_tls: bool,
    },
}

/// Sentinels, and how they know the primary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentinelSeeds {
    /// Where they are.
    pub seeds: Vec<Seed>,
    /// What they call the primary.
    pub service: String,
    /// The user that Sentinels ask for, which is not the servers'.
    pub username: Option<String>,
    /// And its password.
    pub password: Option<Secret>,
    /// Whether Sentinels and servers speak TLS.
    pub is_tls: bool,
}

/// One of several servers to begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seed {
    /// Resolved anew on every dial.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl Seed {
    /// How to reach it.
    pub(super) fn endpoint(&self, is_tls: bool) -> Endpoint {
        let Seed { host, port } = self.clone();
        if is_tls { Endpoint::Tls { host, port } } else { Endpoint::Tcp { host, port } }
    }
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
        "unknown scheme \"{scheme}\": use redis://[user:password@]host[:port][/database], redis-sentinel://host:port,host:port/service[/database], redis-cluster://host:port,host:port, rediss… for TLS, or unix:///path[?db=N]"
    )]
    Scheme {
        /// What stands before `://`, clipped.
        scheme: String,
    },
    /// No service is named, so Sentinels cannot be asked about it.
    #[error("names no service: write redis-sentinel://host:port,host:port/service, as in `sentinel monitor`")]
    NoService,
    /// A cluster has no numbered databases.
    #[error("a cluster has database 0 alone, not \"{database}\"")]
    ClusterDatabase {
        /// What was written.
        database: String,
    },
    /// Several hosts where there can be one.
    #[error("names several hosts: that is for redis-sentinel:// and redis-cluster://")]
    OneHost,
    /// More hosts than anybody has.
    #[error("names {count} hosts: name at most 64")]
    TooManyHosts {
        /// How many.
        count: usize,
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
    /// A setting that is not one of ours.
    #[error("unknown setting \"{name}\" after the ?: use {allowed}")]
    Query {
        /// Its name, without its value.
        name: String,
        /// Those there are.
        allowed: &'static str,
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
        let (kind, is_tls) = match scheme {
            "redis" | "valkey" => (Kind::One, false),
            "rediss" | "valkeys" => (Kind::One, true),
            "redis-sentinel" | "valkey-sentinel" => (Kind::Sentinel, false),
            "rediss-sentinel" | "valkeys-sentinel" => (Kind::Sentinel, true),
            "redis-cluster" | "valkey-cluster" => (Kind::Cluster, false),
            "rediss-cluster" | "valkeys-cluster" => (Kind::Cluster, true),
            "unix" | "redis+unix" => return unix(rest),
            _ => return Err(UrlError::Scheme { scheme: clip(scheme) }),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if path.contains('@') {
            return Err(UrlError::BareSlash);
        }
        let (credentials, places) = match authority.rsplit_once('@') {
            Some((credentials, places)) => (Some(credentials), places),
            None => (None, authority),
        };
        let (username, password) = credentials.map_or(Ok((None, None)), parse_credentials)?;
        let (endpoint, database) = match kind {
            Kind::One => one(places, path, is_tls)?,
            Kind::Sentinel => sentinel(places, path, is_tls)?,
            Kind::Cluster => cluster(places, path, is_tls)?,
        };
        Ok(RedisUrl { endpoint, username, password, database })
    }

    /// Whether anything is said over TLS.
    pub(super) fn is_tls(&self) -> bool {
        match &self.endpoint {
            Endpoint::Tcp { .. } | Endpoint::Unix { .. } => false,
            Endpoint::Tls { .. } => true,
            Endpoint::Sentinel(SentinelSeeds { is_tls, .. }) | Endpoint::Cluster { is_tls, .. } => *is_tls,
        }
    }

    /// The same user and database on another server.
    pub(super) fn at(&self, endpoint: Endpoint) -> RedisUrl {
        RedisUrl { endpoint, ..self.clone() }
    }
}

/// What a scheme stands for.
#[derive(Clone, Copy)]
enum Kind {
    One,
    Sentinel,
    Cluster,
}

fn one(places: &str, path: &str, is_tls: bool) -> Result<(Endpoint, u32), UrlError> {
    if places.contains(',') {
        return Err(UrlError::OneHost);
    }
    let (host, port) = parse_place(places, 6379)?;
    Ok((Seed { host, port }.endpoint(is_tls), parse_database(path)?))
}

fn sentinel(places: &str, path: &str, is_tls: bool) -> Result<(Endpoint, u32), UrlError> {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let (service, database) = path.split_once('/').unwrap_or((path, ""));
    let service = unescape(service)?;
    if service.is_empty() {
        return Err(UrlError::NoService);
    }
    let (mut username, mut password) = (None, None);
    for (name, value) in settings(query) {
        match name {
            "sentinel_user" => username = Some(unescape(value)?),
            "sentinel_pass" => password = Some(Secret::new(unescape(value)?)),
            _ => {
                let allowed = "sentinel_user and sentinel_pass";
                return Err(UrlError::Query { name: clip(name), allowed });
            }
        }
    }
    let seeds = seeds(places, 26_379)?;
    let sentinels = SentinelSeeds { seeds, service, username, password, is_tls };
    Ok((Endpoint::Sentinel(sentinels), parse_database(database)?))
}

fn cluster(places: &str, path: &str, is_tls: bool) -> Result<(Endpoint, u32), UrlError> {
    if !matches!(path, "" | "0") {
        return Err(UrlError::ClusterDatabase { database: clip(path) });
    }
    Ok((Endpoint::Cluster { seeds: seeds(places, 6379)?, is_tls }, 0))
}

fn seeds(places: &str, port: u16) -> Result<Vec<Seed>, UrlError> {
    let count = places.split(',').count();
    if count > SEEDS_MAX {
        return Err(UrlError::TooManyHosts { count });
    }
    places.split(',').map(|place| parse_place(place, port).map(|(host, port)| Seed { host, port })).collect()
}

fn parse_database(text: &str) -> Result<u32, UrlError> {
    match text {
        "" => Ok(0),
        number => number.parse().map_err(|_| UrlError::Database { database: clip(number) }),
    }
}

/// `a=1&b=2`, in pairs.
fn settings(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query
        .split('&')
        .filter(|setting| !setting.is_empty())
        .map(|setting| setting.split_once('=').unwrap_or((setting, "")))
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
    for setting in settings(query) {
        match setting {
            ("db", number) => database = parse_database(number)?,
            ("user", user) => username = Some(unescape(user)?),
            ("pass", pass) => password = Some(Secret::new(unescape(pass)?)),
            (name, _) => {
                return Err(UrlError::Query { name: clip(name), allowed: "db, user and pass" });
            }
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

fn parse_place(place: &str, usual_port: u16) -> Result<(String, u16), UrlError> {
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
        None => usual_port,
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
            Endpoint::Sentinel(SentinelSeeds { seeds, service, is_tls, .. }) => {
                let scheme = if *is_tls { "rediss-sentinel" } else { "redis-sentinel" };
                write!(f, "{scheme}://{}/{service}/{}", Listed(seeds), self.database)
            }
            Endpoint::Cluster { seeds, is_tls } => {
                write!(f, "{}://{}", if *is_tls { "rediss-cluster" } else { "redis-cluster" }, Listed(seeds))
            }
        }
    }
}

/// Seeds as a URL has them.
struct Listed<'a>(&'a [Seed]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Seed { host, port }) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{host}:{port}")?;
        }
        Ok(())
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
    use crate::store::redis::RedisConfig;

    fn seed(host: &str, port: u16) -> Seed {
        Seed { host: host.to_owned(), port }
    }

    #[test]
    fn urls_of_several_servers_name_them_all() {
        let url =
            RedisUrl::parse("redis-sentinel://ann:p%2Css@a:1,[::1]:2,c/main/3?sentinel_pass=s%26s").unwrap();
        let Endpoint::Sentinel(sentinels) = &url.endpoint else { panic!("{url}") };
        assert_eq!(sentinels.seeds, [seed("a", 1), seed("::1", 2), seed("c", 26_379)]);
        assert_eq!((sentinels.service.as_str(), url.database, sentinels.is_tls), ("main", 3, false));
        assert_eq!((url.username.as_deref(), sentinels.username.as_deref()), (Some("ann"), None));
        assert_eq!(url.password.as_ref().unwrap().reveal(), "p,ss");
        assert_eq!(sentinels.password.as_ref().unwrap().reveal(), "s&s");
        assert_eq!(url.to_string(), "redis-sentinel://a:1,::1:2,c:26379/main/3");

        let url = RedisUrl::parse("rediss-cluster://:secret@a,b:2/").unwrap();
        assert_eq!(
            url.endpoint,
            Endpoint::Cluster { seeds: vec![seed("a", 6379), seed("b", 2)], is_tls: true }
        );
        assert_eq!(url.to_string(), "rediss-cluster://a:6379,b:2");
        assert!(url.is_tls());
    }

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
            "redis-sentinel://ann:hunter2@h/",
            "redis-sentinel://h/main?sentinel_password=hunter2",
            "redis-cluster://ann:hunter2@h/1",
            "redis-cluster://ann:hunter2@h,:1",
        ] {
            let error = RedisUrl::parse(text).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{text}: {error}");
        }
    }

    #[test]
    fn a_url_never_shows_its_password() {
        for text in [
            "redis://ann:hunter2@localhost",
            "redis-sentinel://ann:hunter2@localhost/main?sentinel_pass=hunter2",
            "redis-cluster://ann:hunter2@localhost",
        ] {
            let url = RedisUrl::parse(text).unwrap();
            let shown = format!("{url} {url:?} {:?} {:?}", url.endpoint, RedisConfig::new(url.clone()));
            assert!(!shown.contains("hunter2"), "{shown}");
        }
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
            ("redis://a,b", "several hosts"),
            ("redis-sentinel://h", "no service"),
            ("redis-sentinel://h/", "no service"),
            ("redis-sentinel://h/main/x", "database"),
            ("redis-sentinel://a,,b/main", "no host"),
            ("redis-sentinel://h/main?user=x", "unknown setting \"user\""),
            ("redis-cluster://h/1", "database 0 alone"),
            ("redis-cluster://a,b:0", "port"),
            (&format!("redis-cluster://{}", ["h"; 65].join(",")), "65 hosts"),
        ] {
            let error = RedisUrl::parse(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
