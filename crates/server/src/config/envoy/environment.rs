//! envoyproxy/ratelimit's environment, as far as it can mean something here.
//!
//! Each setting becomes the field of our own file that says the same, before the file is checked, so that it is
//! checked by the same code and blamed by its own name. Flags and `TOLLGATE_*` win over it.

use std::collections::BTreeMap;

use super::super::problems::{Place, Problems};
use super::super::section::clip;
use super::super::tree::{Node, Tree};

/// The settings that are understood.
pub(crate) const UNDERSTOOD: &[&str] = &[
    "HOST",
    "PORT",
    "GRPC_HOST",
    "GRPC_PORT",
    "GRPC_UDS",
    "DEBUG_HOST",
    "DEBUG_PORT",
    "GRPC_SERVER_USE_TLS",
    "GRPC_SERVER_TLS_CERT",
    "GRPC_SERVER_TLS_KEY",
    "GRPC_CLIENT_TLS_CACERT",
    "REDIS_SOCKET_TYPE",
    "REDIS_TYPE",
    "REDIS_URL",
    "REDIS_POOL_SIZE",
    "REDIS_AUTH",
    "REDIS_SENTINEL_AUTH",
    "REDIS_TLS",
    "REDIS_TLS_CACERT",
    "REDIS_TLS_CLIENT_CERT",
    "REDIS_TLS_CLIENT_KEY",
    "CACHE_KEY_PREFIX",
    "NEAR_LIMIT_RATIO",
    "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT",
    "SHADOW_MODE",
    "QUOTA_MODE",
    "RESPONSE_DYNAMIC_METADATA",
    "MERGE_DOMAIN_CONFIG",
    "LIMIT_RESPONSE_HEADERS_ENABLED",
    "LIMIT_LIMIT_HEADER",
    "LIMIT_REMAINING_HEADER",
    "LIMIT_RESET_HEADER",
    "USE_PROMETHEUS",
    "LOG_LEVEL",
    "LOG_FORMAT",
];

/// Settings that are known and mean nothing here, by their beginnings, with the reason.
const NOT_UNDERSTOOD: &[(&str, &str)] = &[
    ("GRPC_MAX_CONNECTION_AGE", "connections may grow old; limits.idle_timeout closes the silent ones"),
    ("CONFIG_TYPE", "configuration comes from files"),
    ("CONFIG_GRPC_XDS_", "configuration comes from files"),
    ("XDS_CLIENT_", "configuration comes from files"),
    ("RUNTIME_", "the directory is the one given with --envoy-config, and is watched through every link"),
    ("FORCE_START_WITHOUT_INITIAL_CONFIG", "a directory that cannot be read is refused"),
    ("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "there is no start without a configuration"),
    ("BACKEND_TYPE", "state lives in Redis or in memory"),
    ("MEMCACHE_", "state lives in Redis or in memory"),
    ("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "certificates are always verified"),
    ("REDIS_PIPELINE_", "what arrives together travels together"),
    ("REDIS_CLUSTER_PIPELINE_PARALLELISM", "what belongs to one node travels together"),
    ("REDIS_TIMEOUT", "a check waits for redis.deadline (--deadline)"),
    ("REDIS_POOL_ON_EMPTY_BEHAVIOR", "connections are shared, and never waited for"),
    ("REDIS_STARTUP_", "the server starts without Redis and finds it later"),
    ("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "health follows the guard; see envoy.on_outage"),
    ("REDIS_PERSECOND", "there is one Redis for all limits"),
    ("LOCAL_CACHE_SIZE_IN_BYTES", "there is no cache in front of the store"),
    ("EXPIRATION_JITTER_MAX_SECONDS", "keys expire with their windows"),
    ("USE_STATSD", "metrics are scraped at the admin door"),
    ("STATSD_", "metrics are scraped at the admin door"),
    ("PROMETHEUS_", "metrics are scraped at /metrics of the admin door"),
    ("USE_DOG_STATSD", "metrics are scraped at the admin door"),
    ("DOG_STATSD_", "metrics are scraped at the admin door"),
    ("DISABLE_STATS", "metrics are scraped at the admin door"),
    ("EXTRA_TAGS", "labels are added by whoever scrapes"),
    ("STATS_FLUSH_INTERVAL", "metrics are scraped at the admin door"),
    ("TRACING_", "there are no traces yet"),
];

/// The variables of the process.
pub(crate) fn of_process() -> BTreeMap<String, String> {
    let vars = std::env::vars_os();
    vars.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))).collect()
}

/// Puts what the environment says over what the file says, and names what says nothing.
pub(in super::super) fn apply(
    vars: &BTreeMap<String, String>,
    tree: &mut Tree,
    problems: &mut Problems,
) -> Vec<String> {
    let mut over = Over { vars, tree, problems };
    over.doors();
    over.redis();
    over.limits();
    over.log();
    let ignored = NOT_UNDERSTOOD.iter().flat_map(|(start, why)| {
        let set = vars.keys().filter(|name| !UNDERSTOOD.contains(&name.as_str()));
        set.filter(move |name| name.starts_with(start))
            .map(move |name| format!("{name} is not understood: {why}"))
    });
    ignored.collect()
}

struct Over<'a> {
    vars: &'a BTreeMap<String, String>,
    tree: &'a mut Tree,
    problems: &'a mut Problems,
}

impl<'a> Over<'a> {
    /// What a variable says; an empty one says nothing.
    fn get(&self, name: &'static str) -> Option<&'a str> {
        self.vars.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    fn set(&mut self, name: &'static str, path: &[&str], node: Node) {
        self.tree.set(path, Place::Flag(name), node);
    }

    fn text(&mut self, name: &'static str, path: &[&str]) {
        if let Some(text) = self.get(name) {
            self.set(name, path, Node::Text(text.to_owned()));
        }
    }

    /// As Go reads it.
    fn truth(&mut self, name: &'static str) -> Option<bool> {
        let truth = match self.get(name)? {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
            "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
            other => {
                let what = format!("\"{}\" is neither true nor false", clip(other));
                self.problems.add(Place::Flag(name), "", what);
                return None;
            }
        };
        Some(truth)
    }

    fn truth_at(&mut self, name: &'static str, path: &[&str]) {
        if let Some(truth) = self.truth(name) {
            self.set(name, path, Node::Bool(truth));
        }
    }

    fn doors(&mut self) {
        // Where only the port is named the original listens everywhere. But for the admin door: what it can do
        // takes a token everywhere but here.
        for (host, port, usual_host, usual_port, door) in [
            ("HOST", "PORT", "0.0.0.0", "8080", "http"),
            ("GRPC_HOST", "GRPC_PORT", "0.0.0.0", "8081", "grpc"),
            ("DEBUG_HOST", "DEBUG_PORT", "127.0.0.1", "6070", "admin"),
        ] {
            let (given_host, given_port) = (self.get(host), self.get(port));
            if given_host.is_none() && given_port.is_none() {
                continue;
            }
            let at = match given_host.unwrap_or(usual_host) {
                v6 if v6.contains(':') && !v6.starts_with('[') => format!("[{v6}]"),
                host => host.to_owned(),
            };
            let at = format!("{at}:{}", given_port.unwrap_or(usual_port));
            let name = if given_port.is_some() { port } else { host };
            self.set(name, &["listen", door], Node::Text(at));
        }
        if let Some(path) = self.get("GRPC_UDS") {
            self.set("GRPC_UDS", &["listen", "grpc"], Node::Text(format!("unix:{path}")));
        }
        if self.truth("GRPC_SERVER_USE_TLS") == Some(true) {
            for (name, field) in [
                ("GRPC_SERVER_TLS_CERT", "cert"),
                ("GRPC_SERVER_TLS_KEY", "key"),
                ("GRPC_CLIENT_TLS_CACERT", "client_ca"),
            ] {
                self.text(name, &["tls", "grpc", field]);
            }
        }
        if self.get("GRPC_CLIENT_TLS_SAN").is_some() {
            // Left out, it would let in whom it was written to keep out.
            let what =
                "is not understood: every certificate of the authority passes; use an authority of its own";
            self.problems.add(Place::Flag("GRPC_CLIENT_TLS_SAN"), "", what);
        }
    }

    fn redis(&mut self) {
        let is_tls = self.truth("REDIS_TLS") == Some(true);
        if let Some(at) = self.get("REDIS_URL") {
            let url = match self.get("REDIS_TYPE").unwrap_or("SINGLE").to_ascii_uppercase().as_str() {
                "SINGLE" => self.single(at, is_tls),
                "SENTINEL" => self.sentinel(at, is_tls),
                "CLUSTER" => {
                    let scheme = if is_tls { "rediss-cluster" } else { "redis-cluster" };
                    format!("{scheme}://{}{at}", credentials(self.get("REDIS_AUTH")))
                }
                other => {
                    let what = format!("\"{}\" is none of SINGLE, SENTINEL and CLUSTER", clip(other));
                    self.problems.add(Place::Flag("REDIS_TYPE"), "", what);
                    return;
                }
            };
            self.set("REDIS_URL", &["redis", "url"], Node::Text(url));
        }
        if let Some(size) = self.get("REDIS_POOL_SIZE") {
            let node = size.parse().map_or_else(|_| Node::Text(size.to_owned()), Node::Whole);
            self.set("REDIS_POOL_SIZE", &["redis", "pool_size"], node);
        }
        for (name, field) in [
            ("REDIS_TLS_CACERT", "tls_ca"),
            ("REDIS_TLS_CLIENT_CERT", "tls_client_cert"),
            ("REDIS_TLS_CLIENT_KEY", "tls_client_key"),
            ("CACHE_KEY_PREFIX", "key_prefix"),
        ] {
            self.text(name, &["redis", field]);
        }
    }

    /// One server, by its address or its socket.
    fn single(&self, at: &str, is_tls: bool) -> String {
        let auth = self.get("REDIS_AUTH");
        match self.get("REDIS_SOCKET_TYPE").unwrap_or("unix") {
            _ if at.contains("://") => at.to_owned(),
            "tcp" | "tls" => {
                let scheme = if is_tls { "rediss" } else { "redis" };
                format!("{scheme}://{}{at}", credentials(auth))
            }
            _ => format!("unix://{at}?db=0{}", settings(auth, ["user", "pass"])),
        }
    }

    /// `service,host:port,host:port`: the name of the primary, and Sentinels that know it.
    fn sentinel(&self, at: &str, is_tls: bool) -> String {
        let scheme = if is_tls { "rediss-sentinel" } else { "redis-sentinel" };
        let (service, places) = at.split_once(',').unwrap_or((at, ""));
        let theirs = settings(self.get("REDIS_SENTINEL_AUTH"), ["sentinel_user", "sentinel_pass"]);
        let theirs = theirs.replacen('&', "?", 1);
        format!("{scheme}://{}{places}/{}{theirs}", credentials(self.get("REDIS_AUTH")), encoded(service))
    }

    fn limits(&mut self) {
        for (name, field) in [
            ("SHADOW_MODE", "shadow_mode"),
            ("QUOTA_MODE", "quota_mode"),
            ("RESPONSE_DYNAMIC_METADATA", "dynamic_metadata"),
            ("MERGE_DOMAIN_CONFIG", "merge_domains"),
            ("LIMIT_RESPONSE_HEADERS_ENABLED", "response_headers"),
            ("USE_PROMETHEUS", "metrics"),
        ] {
            self.truth_at(name, &["envoy", field]);
        }
        for (name, field) in [
            ("LIMIT_LIMIT_HEADER", "limit_header"),
            ("LIMIT_REMAINING_HEADER", "remaining_header"),
            ("LIMIT_RESET_HEADER", "reset_header"),
        ] {
            self.text(name, &["envoy", field]);
        }
        // With it, a request that one descriptor refuses is not counted by the others.
        let stop = "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT";
        if let Some(stops) = self.truth(stop) {
            let word = if stops { "together" } else { "each" };
            self.set(stop, &["envoy", "take"], Node::Text(word.to_owned()));
        }
        if let Some(ratio) = self.get("NEAR_LIMIT_RATIO") {
            match ratio.parse::<f64>() {
                Ok(ratio) if (0.0..=1.0).contains(&ratio) => {
                    #[expect(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        reason = "from 0 to 1000"
                    )]
                    let permille = (ratio * 1000.0).round() as u64;
                    self.set("NEAR_LIMIT_RATIO", &["envoy", "near_limit_permille"], Node::Whole(permille));
                }
                _ => {
                    let what = format!("\"{}\" is no number from 0 to 1", clip(ratio));
                    self.problems.add(Place::Flag("NEAR_LIMIT_RATIO"), "", what);
                }
            }
        }
    }

    fn log(&mut self) {
        if let Some(level) = self.get("LOG_LEVEL") {
            let level = match level.to_ascii_lowercase().as_str() {
                "warning" => "warn".to_owned(),
                "fatal" | "panic" => "error".to_owned(),
                other => other.to_owned(),
            };
            self.set("LOG_LEVEL", &["log", "level"], Node::Text(level));
        }
        self.text("LOG_FORMAT", &["log", "format"]);
    }
}

/// `password` or `user:password` as a URL writes it.
fn credentials(auth: Option<&str>) -> String {
    let Some(auth) = auth else { return String::new() };
    let (user, password) = auth.split_once(':').unwrap_or(("", auth));
    format!("{}:{}@", encoded(user), encoded(password))
}

/// The same as settings of a URL, each with `&` before it.
fn settings(auth: Option<&str>, names: [&str; 2]) -> String {
    let (user, password) = auth.map_or(("", ""), |auth| auth.split_once(':').unwrap_or(("", auth)));
    let given = names.into_iter().zip([user, password]).filter(|(_, text)| !text.is_empty());
    given.fold(String::new(), |all, (name, text)| all + "&" + name + "=" + &encoded(text))
}

fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let one = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(one).collect()
}
