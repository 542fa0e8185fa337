//! `tollgate serve`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::config::{Config, LogFormat, Overrides, environment};
use crate::{run, telemetry};

const AFTER_HELP: &str = "\
Every flag has an environment variable, TOLLGATE_ and its name in capitals (TOLLGATE_REDIS,
TOLLGATE_LOG_FORMAT). A flag wins over its variable, and both over the file. A door is at ADDRESS:PORT, at
unix:/path/to.sock, or closed with `off`. TLS and the PROXY protocol are set in the file.

Rules, identity and answer are read again when the file changes, on SIGHUP and on POST /v1/reload at the admin
door; key files on the latter two.

Off loopback the admin door needs --admin-token, and on the others refunds and inline limits (CL.THROTTLE is
one) need --token, because they can undo a limit; a client certificate does, too. Better give tokens by
environment: other users can see flags.";

const REDIS_HELP: &str = "Where state is shared: redis://[user:password@]host[:port][/database], rediss:// for TLS, \
    unix:///path for a socket, or `off` for this process' memory";

/// Answers checks until it is asked to stop.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Serve {
    /// Rules and settings (YAML). Without it: a few built-in rules, in memory.
    #[arg(long, value_name = "FILE", env = "TOLLGATE_CONFIG")]
    config: Option<PathBuf>,

    /// A directory of envoyproxy/ratelimit's YAML: its limits answer Envoy, in the place of the rules; its
    /// environment (REDIS_URL, GRPC_PORT and so on) is understood, too.
    #[arg(long, value_name = "DIR", env = "TOLLGATE_ENVOY_CONFIG")]
    envoy_config: Option<PathBuf>,

    // Not a doc comment: rustdoc would take the brackets for links.
    #[arg(long, value_name = "URL", env = "TOLLGATE_REDIS", hide_env_values = true, help = REDIS_HELP)]
    redis: Option<String>,

    /// The HTTP/JSON door [default: 127.0.0.1:8080].
    #[arg(long, value_name = "ADDR", env = "TOLLGATE_HTTP")]
    http: Option<String>,

    /// The gRPC door: Envoy's rate-limit service and our own [default: 127.0.0.1:8081].
    #[arg(long, value_name = "ADDR", env = "TOLLGATE_GRPC")]
    grpc: Option<String>,

    /// The RESP door: CL.THROTTLE, and our own commands [default: 127.0.0.1:6380].
    #[arg(long, value_name = "ADDR", env = "TOLLGATE_RESP")]
    resp: Option<String>,

    /// Health, metrics, policy, keys, overrides and reload [default: 127.0.0.1:9180].
    #[arg(long, value_name = "ADDR", env = "TOLLGATE_ADMIN")]
    admin: Option<String>,

    /// How long a check waits for Redis before its rule's on_outage answers [default: 25ms].
    #[arg(long, value_name = "TIME", env = "TOLLGATE_DEADLINE")]
    deadline: Option<String>,

    /// Threads that take checks, each with its own listener and Redis connection [default: cores].
    #[arg(long, value_name = "N", env = "TOLLGATE_WORKERS", value_parser = workers)]
    workers: Option<NonZeroUsize>,

    /// The token for refunds and inline limits: a bearer token over HTTP and gRPC, the password of AUTH over RESP.
    #[arg(long, value_name = "TOKEN", env = "TOLLGATE_TOKEN", hide_env_values = true)]
    token: Option<String>,

    /// The token for the admin door.
    #[arg(long, value_name = "TOKEN", env = "TOLLGATE_ADMIN_TOKEN", hide_env_values = true)]
    admin_token: Option<String>,

    /// What to log to stderr: off, error, warn, info, debug, trace [default: info].
    #[arg(long, value_name = "LEVEL", env = "TOLLGATE_LOG")]
    log: Option<String>,

    /// How log lines look [default: text].
    #[arg(long, env = "TOLLGATE_LOG_FORMAT")]
    log_format: Option<LogFormatArg>,

    /// How long to go on accepting after readiness fails, so that load balancers notice [default: 0s].
    #[arg(long, value_name = "TIME", env = "TOLLGATE_DRAIN_DELAY")]
    drain_delay: Option<String>,

    /// How long requests under way may take to finish at the end [default: 10s].
    #[arg(long, value_name = "TIME", env = "TOLLGATE_DRAIN_TIMEOUT")]
    drain_timeout: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogFormatArg {
    Text,
    Json,
}

impl Serve {
    /// Serves.
    pub(super) fn run(self) -> Result<(), anyhow::Error> {
        let flags = self.overrides();
        let (config, digest) = Config::load(flags.clone())?;
        telemetry::log::start(&config.log);
        Ok(run::run(&config, flags, digest)?)
    }

    fn overrides(self) -> Overrides {
        Overrides {
            file: self.config,
            // Names such as PORT and HOST may mean anything to anybody else.
            environment: self.envoy_config.as_ref().map(|_| environment::of_process()).unwrap_or_default(),
            envoy_config: self.envoy_config,
            redis: self.redis,
            http: self.http,
            grpc: self.grpc,
            resp: self.resp,
            admin: self.admin,
            log: self.log,
            log_format: self.log_format.map(|format| match format {
                LogFormatArg::Text => LogFormat::Text,
                LogFormatArg::Json => LogFormat::Json,
            }),
            deadline: self.deadline,
            workers: self.workers,
            drain_delay: self.drain_delay,
            drain_timeout: self.drain_timeout,
            token: self.token,
            admin_token: self.admin_token,
        }
    }
}

/// More threads than that are a typing mistake.
const WORKERS_MAX: usize = 1024;

fn workers(text: &str) -> Result<NonZeroUsize, String> {
    let number = text.parse().ok().filter(|workers: &NonZeroUsize| workers.get() <= WORKERS_MAX);
    number.ok_or_else(|| format!("use a whole number from 1 to {WORKERS_MAX}"))
}
