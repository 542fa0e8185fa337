//! Configuration: as written, then checked, then trusted.
//!
//! `tree` is the file as it stands, `section` reads it field by field, `breakers`, `check`, `envoy`, `identity`, `listen`, `policy` and
//! `redis` turn it into types the rest of the program can trust, and `problems` collects all that is wrong. `source`
//! is the text before any of that. Flags and `TOLLGATE_*` variables arrive as [`Overrides`] and win over the file. Nothing here opens a socket;
//! certificates are read, to say what is wrong with them, and forgotten.

pub(crate) mod breakers;
mod check;
mod envoy;
mod identity;
mod listen;
pub(crate) mod policy;
mod problems;
mod redis;
pub(crate) mod schema;
mod section;
mod source;
mod tree;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tollgate::OnOutage;
use tollgate::core::policy::PolicyError;
use tollgate::store::redis::{RedisConfig, Secret};

use crate::breakers::BreakerPolicy;
use crate::facing::Facing;
use crate::net::bind::Endpoint;
use crate::net::open::Proxies;
use crate::net::tls::TlsFiles;
pub(crate) use envoy::environment;
use policy::PolicyConfig;
pub(crate) use problems::Problems;
pub(crate) use section::parse_span;
pub(crate) use source::{Digest, Source, files_of};

/// The configuration that is in force when no file is given, and the documentation of all others.
pub(crate) const DEFAULT: &str = include_str!("default.yaml");

/// Everything the server needs to know, checked.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// The file, or `None` for the one that is built in.
    pub(crate) file: Option<PathBuf>,
    pub(crate) listen: Listen,
    pub(crate) tls: TlsConfig,
    pub(crate) policy: PolicyConfig,
    pub(crate) breakers: Arc<BreakerPolicy>,
    /// How callers are seen and answered over HTTP.
    pub(crate) facing: Facing,
    /// Where state lives: `None` is this process' memory.
    pub(crate) redis: Option<RedisConfig>,
    pub(crate) outage: OutageConfig,
    pub(crate) memory: MemoryConfig,
    pub(crate) deny_cache: DenyCacheConfig,
    pub(crate) limits: Limits,
    pub(crate) log: LogConfig,
    pub(crate) drain: DrainConfig,
    /// One thread each, which serves its share of every door that takes checks.
    pub(crate) workers: NonZeroUsize,
    pub(crate) tokens: Tokens,
    /// What is no mistake and should be known all the same.
    pub(crate) warnings: Vec<String>,
}

/// Where the doors are; `None` is a closed one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listen {
    pub(crate) http: Option<Endpoint>,
    pub(crate) grpc: Option<Endpoint>,
    pub(crate) resp: Option<Endpoint>,
    pub(crate) admin: Option<Endpoint>,
    /// Whose PROXY header the HTTP and gRPC doors believe.
    pub(crate) proxies: Proxies,
}

/// Which doors speak TLS, and with which files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TlsConfig {
    pub(crate) http: Option<TlsFiles>,
    pub(crate) grpc: Option<TlsFiles>,
    pub(crate) resp: Option<TlsFiles>,
    pub(crate) admin: Option<TlsFiles>,
}

/// What happens when Redis does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutageConfig {
    pub(crate) on_outage: OnOutage,
    /// How long a check waits.
    pub(crate) deadline: Duration,
    /// The fewest instances a local share is computed for.
    pub(crate) instances: u32,
}

/// The bound on what this process remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryConfig {
    /// The most keys kept; `None` leaves it to the store.
    pub(crate) max_keys: Option<u64>,
}

/// What this process remembers of Redis' refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DenyCacheConfig {
    pub(crate) is_enabled: bool,
    /// The most refusals kept; `None` leaves it to the cache.
    pub(crate) max_entries: Option<usize>,
}

/// Bounds on what callers may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The longest `sliding_log`.
    pub(crate) sliding_log_max: u32,
    /// Connections per worker.
    pub(crate) connections_max: usize,
    /// How long a connection may go without a finished request.
    pub(crate) idle_timeout: Duration,
    /// How long a RESP connection may go between two commands.
    pub(crate) resp_idle_timeout: Duration,
    /// How long a PROXY header and a TLS handshake may take together.
    pub(crate) handshake_timeout: Duration,
}

/// What is logged, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogConfig {
    pub(crate) level: String,
    pub(crate) format: LogFormat,
}

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

/// How the server ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DrainConfig {
    /// Between failing readiness and refusing connections.
    pub(crate) delay: Duration,
    /// How long requests under way may take to finish.
    pub(crate) timeout: Duration,
}

/// What opens the doors that need opening.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tokens {
    /// For what can undo a limit, on every door that takes checks.
    pub(crate) doors: Option<Secret>,
    /// For the admin door.
    pub(crate) admin: Option<Secret>,
}

/// What flags and the environment say; it wins over the file, at start and whenever it is read again.
#[derive(Debug, Clone, Default)]
pub(crate) struct Overrides {
    pub(crate) file: Option<PathBuf>,
    /// The directory of envoyproxy/ratelimit's YAML.
    pub(crate) envoy_config: Option<PathBuf>,
    /// What envoyproxy/ratelimit's environment says; empty without that directory.
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) redis: Option<String>,
    pub(crate) http: Option<String>,
    pub(crate) grpc: Option<String>,
    pub(crate) resp: Option<String>,
    pub(crate) admin: Option<String>,
    pub(crate) log: Option<String>,
    pub(crate) log_format: Option<LogFormat>,
    pub(crate) deadline: Option<String>,
    pub(crate) workers: Option<NonZeroUsize>,
    pub(crate) drain_delay: Option<String>,
    pub(crate) drain_timeout: Option<String>,
    pub(crate) token: Option<String>,
    pub(crate) admin_token: Option<String>,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ConfigError {
    /// The file could not be read.
    #[error("cannot read {path}: {why}")]
    Unreadable { path: String, why: String },
    /// It was read, and this is wrong with it and with the flags.
    #[error("the configuration is refused, and nothing of it is in force:\n{0}")]
    Refused(Problems),
    /// Each rule is good, and together they make no policy.
    #[error("the rules make no policy: {0}")]
    NoPolicy(PolicyError),
}

impl Config {
    /// Reads and checks the file and what overrides it; the digest says which text it was.
    pub(crate) fn load(overrides: Overrides) -> Result<(Config, Digest), ConfigError> {
        let source = Source::read(overrides.file.as_deref(), overrides.envoy_config.as_deref())?;
        let config = Config::check(&source, overrides).map_err(ConfigError::Refused)?;
        Ok((config, source.digest()))
    }

    /// Checks what was read. No side effects: the same code serves start and reload.
    pub(crate) fn check(source: &Source, overrides: Overrides) -> Result<Config, Problems> {
        let mut problems = Problems::in_file(&source.name);
        let tree = tree::Tree::parse(&source.text, &mut problems);
        let config = tree.and_then(|mut tree| {
            let ignored = environment::apply(&overrides.environment, &mut tree, &mut problems);
            let mut config = check::config(tree, overrides, source.envoy.as_deref(), &mut problems)?;
            config.warnings.extend(ignored);
            Some(config)
        });
        problems.into_result(config)
    }

    /// Checks a text alone.
    #[cfg(test)]
    pub(crate) fn parse(name: &str, text: &str, overrides: Overrides) -> Result<Config, Problems> {
        let source = Source { name: name.to_owned(), text: text.to_owned(), envoy: None };
        Config::check(&source, overrides)
    }

    /// The sections in which two configurations differ and that hold from start to end: only the policy, breakers, and how
    /// callers are seen and answered, can be put in force while the server runs.
    pub(crate) fn differs_in(&self, other: &Config) -> Vec<&'static str> {
        // Flags do not change while we run, so what only they can set is not looked at.
        let Config {
            file: _,
            policy: _,
            breakers: _,
            facing: _,
            workers: _,
            tokens: _,
            warnings: _,
            listen,
            redis,
            outage,
            memory,
            deny_cache,
            limits,
            log,
            drain,
            tls,
        } = self;
        let sections = [
            ("redis", *redis != other.redis || *outage != other.outage),
            ("memory", *memory != other.memory),
            ("deny_cache", *deny_cache != other.deny_cache),
            ("limits", *limits != other.limits),
            ("listen", *listen != other.listen),
            ("tls", *tls != other.tls),
            ("log", *log != other.log),
            ("drain", *drain != other.drain),
        ];
        sections.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }
}

impl LogFormat {
    /// Its name.
    pub(crate) fn parse(name: &str) -> Option<LogFormat> {
        match name {
            "text" => Some(LogFormat::Text),
            "json" => Some(LogFormat::Json),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
