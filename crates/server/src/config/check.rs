//! From a tree to a configuration that can be trusted; every problem is found in one pass.

use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::time::Duration;

use tollgate::store::redis::Secret;

use super::problems::{Place, Problems};
use super::section::{Section, clip, parse_span};
use super::tree::Tree;
use super::{
    Config, DenyCacheConfig, DrainConfig, Limits, LogConfig, LogFormat, MemoryConfig, Overrides, Tokens,
    breakers, envoy, identity, listen, policy, redis,
};
use crate::facing::Facing;
use crate::limit::SLIDING_LOG_MAX;

/// The words `on_outage` knows.
pub(super) const ON_OUTAGE: &str = "allow, deny or local";

/// How long things may be made to take.
const SPANS: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_hours(1);

/// How long a RESP client may keep a connection it does not use.
const RESP_IDLE_MAX: Duration = Duration::from_hours(24);

/// The shortest token that is worth the name.
const TOKEN_BYTES_MIN: usize = 16;

/// Checks a whole file and what overrides it.
pub(super) fn config(
    tree: Tree,
    overrides: Overrides,
    files: Option<&[(String, String)]>,
    problems: &mut Problems,
) -> Option<Config> {
    let mut root = Section::open("", tree, problems);

    let limits = limits(root.section("limits"));
    let (facing, grouping) = identity::check(&mut root);
    let (rls, warnings) = envoy::check(root.section("envoy"), files, limits.sliding_log_max);
    let facing = Facing { rls, ..facing };
    let policy = policy::check(&mut root, limits.sliding_log_max, grouping);
    let breakers = breakers::check(&mut root);
    let redis = redis::check(root.section("redis"), &overrides);
    let memory = memory(root.section("memory"));
    let deny_cache = deny_cache(root.section("deny_cache"));
    let listen = listen::doors(root.section("listen"), &overrides);
    let tls = listen::tls(root.section("tls"));
    let log = log(root.section("log"), &overrides);
    let drain = drain(root.section("drain"), &overrides);
    root.close();

    let tokens = tokens(&overrides, problems);
    let knows_clients = tls.admin.as_ref().is_some_and(|files| files.clients.is_some());
    if listen.admin.as_ref().is_some_and(|at| !at.is_local()) && tokens.admin.is_none() && !knows_clients {
        let what = "is not a loopback address, so the admin door needs --admin-token (or \
                    TOLLGATE_ADMIN_TOKEN) or tls.admin.client_ca";
        problems.add(Place::Flag("--admin"), "", what);
    }
    let cores = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let (redis, outage) = redis?;
    Some(Config {
        workers: overrides.workers.unwrap_or_else(cores),
        file: overrides.file,
        listen,
        tls,
        policy,
        breakers,
        facing,
        redis,
        outage,
        memory,
        deny_cache,
        limits,
        log,
        drain,
        tokens,
        warnings,
    })
}

fn limits(mut section: Section<'_>) -> Limits {
    let sliding_log_max = section.whole("sliding_log_max", 1..=1_000_000);
    let connections_max = section.whole("connections", 1..=1_000_000);
    let idle_timeout = section.span("idle_timeout", Duration::from_secs(1)..=*SPANS.end());
    let resp_idle_timeout = section.span("resp_idle_timeout", Duration::from_secs(1)..=RESP_IDLE_MAX);
    let handshake_timeout = section.span("handshake_timeout", Duration::from_millis(100)..=*SPANS.end());
    section.close();
    Limits {
        sliding_log_max: sliding_log_max
            .map_or(SLIDING_LOG_MAX, |at| u32::try_from(at.value).unwrap_or(u32::MAX)),
        connections_max: connections_max.map_or(10_000, |at| usize::try_from(at.value).unwrap_or(usize::MAX)),
        idle_timeout: idle_timeout.map_or(Duration::from_mins(1), |at| at.value),
        resp_idle_timeout: resp_idle_timeout.map_or(Duration::from_mins(10), |at| at.value),
        handshake_timeout: handshake_timeout.map_or(Duration::from_secs(10), |at| at.value),
    }
}

fn memory(mut section: Section<'_>) -> MemoryConfig {
    let max_keys = section.whole("max_keys", 1..=1 << 40);
    section.close();
    MemoryConfig { max_keys: max_keys.map(|at| at.value) }
}

fn deny_cache(mut section: Section<'_>) -> DenyCacheConfig {
    let is_enabled = section.truth("enabled");
    let max_entries = section.whole("max_entries", 64..=1 << 24);
    section.close();
    DenyCacheConfig {
        is_enabled: is_enabled.is_none_or(|at| at.value),
        max_entries: max_entries.and_then(|at| usize::try_from(at.value).ok()),
    }
}

fn log(mut section: Section<'_>, overrides: &Overrides) -> LogConfig {
    let level = section.text("level");
    let format = section.word("format", "text or json", LogFormat::parse);
    let (place, path, level) = match (&overrides.log, level) {
        (Some(level), _) => (Place::Flag("--log"), String::new(), level.clone()),
        (None, Some(at)) => (at.place, at.path, at.value),
        (None, None) => (Place::Flag("--log"), String::new(), "info".to_owned()),
    };
    if !is_level(&level) {
        let what = format!(
            "\"{}\" is not a level: use off, error, warn, info, debug or trace, or one per target (info,tollgate=debug)",
            clip(&level)
        );
        section.problems().add(place, &path, what);
    }
    section.close();
    LogConfig { level, format: overrides.log_format.or(format.map(|at| at.value)).unwrap_or_default() }
}

/// Whether this is a level, or several by target. `Targets` would take any word for a target.
fn is_level(text: &str) -> bool {
    text.split(',').all(|part| {
        let level = part.split_once('=').map_or(part, |(_, level)| level);
        level.trim().parse::<tracing_subscriber::filter::LevelFilter>().is_ok()
    })
}

fn drain(mut section: Section<'_>, overrides: &Overrides) -> DrainConfig {
    let delay = section.span("delay", SPANS);
    let timeout = section.span("timeout", SPANS);
    let mut flag = |name, text: Option<&String>| {
        let parsed = text.map(|text| parse_span(text, &SPANS))?;
        section.problems().keep(Place::Flag(name), "", parsed)
    };
    let delay_flag = flag("--drain-delay", overrides.drain_delay.as_ref());
    let timeout_flag = flag("--drain-timeout", overrides.drain_timeout.as_ref());
    section.close();
    DrainConfig {
        delay: delay_flag.or(delay.map(|at| at.value)).unwrap_or(Duration::ZERO),
        timeout: timeout_flag.or(timeout.map(|at| at.value)).unwrap_or(Duration::from_secs(10)),
    }
}

/// Tokens come by flag or environment only: a file with rules is shown around.
fn tokens(overrides: &Overrides, problems: &mut Problems) -> Tokens {
    let mut token = |flag, given: Option<&String>| {
        let text = given?;
        let is_good = text.len() >= TOKEN_BYTES_MIN && text.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_good {
            let what = format!("needs at least {TOKEN_BYTES_MIN} printable ASCII characters without spaces");
            problems.add(Place::Flag(flag), "", what);
        }
        Some(Secret::new(text.clone()))
    };
    Tokens {
        doors: token("--token", overrides.token.as_ref()),
        admin: token("--admin-token", overrides.admin_token.as_ref()),
    }
}
