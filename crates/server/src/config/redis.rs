//! The `redis` section: where Redis is, how patient we are with it, and what answers without it.

use std::num::{NonZeroU16, NonZeroUsize};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use tollgate::OnOutage;
use tollgate::guard::DEADLINE;
use tollgate::store::redis::{BATCH_MAX, Endpoint, Layout, RedisConfig, RedisUrl};

use super::check::ON_OUTAGE;
use super::problems::Place;
use super::section::{At, Section, parse_span};
use super::{OutageConfig, Overrides};

const PATIENCE: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_mins(1);
const DEADLINES: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(10);
const WAITS: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(1);
const TTLS: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_hours(366 * 24);

/// Checks the section. `None` if there is no telling where Redis is supposed to be.
pub(super) fn check(
    mut section: Section<'_>,
    overrides: &Overrides,
) -> Option<(Option<RedisConfig>, OutageConfig)> {
    let url = url(&mut section, overrides);
    let settings = settings(&mut section);
    let outage = outage(&mut section, overrides);
    section.close();

    match url {
        Whereabouts::Unknown => None,
        Whereabouts::Nowhere => Some((None, outage)),
        Whereabouts::At(url) => {
            let mut config = RedisConfig::new(url);
            // Each worker keeps to a connection of its own, so there are as many of them by default.
            config.pool_size = config.pool_size.max(overrides.workers.map_or(1, NonZeroUsize::get));
            config.min_idle_conns = config.pool_size;
            settings.apply(&mut config);
            Some((Some(config), outage))
        }
    }
}

/// Where Redis is.
enum Whereabouts {
    At(RedisUrl),
    /// There is none: state lives in memory.
    Nowhere,
    /// The url is wrong, and has been reported.
    Unknown,
}

/// The URL of the flag or else of the file.
fn url(section: &mut Section<'_>, overrides: &Overrides) -> Whereabouts {
    let written = section.text("url");
    let database = section.whole("database", 0..=65_535);
    let (place, path, text) = match (&overrides.redis, written) {
        (Some(text), _) if text == "off" => return Whereabouts::Nowhere,
        (Some(text), _) => (Place::Flag("--redis"), String::new(), text.clone()),
        (None, Some(at)) => (at.place, at.path, at.value),
        (None, None) => return Whereabouts::Nowhere,
    };
    let Some(mut url) = section.problems().keep(place, &path, RedisUrl::parse(&text)) else {
        return Whereabouts::Unknown;
    };
    if let Some(At { value, path, place: at }) = database {
        let database = u32::try_from(value).unwrap_or(u32::MAX);
        if matches!(url.endpoint, Endpoint::Cluster { .. }) && database != 0 {
            let what = format!("is {database}, while a cluster has database 0 alone");
            section.problems().add(at, &path, what);
        } else if url.database == 0 {
            url.database = database;
        } else if url.database != database && overrides.redis.is_none() {
            let what = format!("is {database}, while the url names database {}: say it once", url.database);
            section.problems().add(at, &path, what);
        }
    }
    Whereabouts::At(url)
}

/// Everything about Redis but its place; what is absent keeps its default.
struct Settings {
    pool_size: Option<usize>,
    min_idle_conns: Option<usize>,
    dial_timeout: Option<Duration>,
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
    max_retries: Option<u32>,
    key_prefix: Option<String>,
    default_ttl: Option<Duration>,
    layout: Option<Layout>,
    partitions: Option<NonZeroU16>,
    client_time: Option<bool>,
    functions: Option<bool>,
    batch: Option<bool>,
    batch_max: Option<usize>,
    batch_wait: Option<Duration>,
    tls_ca: Option<PathBuf>,
    tls_client: Option<(PathBuf, PathBuf)>,
}

fn settings(section: &mut Section<'_>) -> Settings {
    let pool_size = section.whole("pool_size", 1..=1024);
    let min_idle_conns = section.whole("min_idle_conns", 0..=1024);
    if let (Some(pool), Some(idle)) = (&pool_size, &min_idle_conns)
        && idle.value > pool.value
    {
        let what = format!("is {}, more than pool_size, which is {}", idle.value, pool.value);
        section.problems().add(idle.place, &idle.path, what);
    }
    let batch_max = section.whole("batch_max", 1..=BATCH_MAX as u64);
    Settings {
        pool_size: pool_size.and_then(|at| usize::try_from(at.value).ok()),
        min_idle_conns: min_idle_conns.and_then(|at| usize::try_from(at.value).ok()),
        dial_timeout: section.span("dial_timeout", PATIENCE).map(|at| at.value),
        read_timeout: section.span("read_timeout", PATIENCE).map(|at| at.value),
        write_timeout: section.span("write_timeout", PATIENCE).map(|at| at.value),
        max_retries: section.whole("max_retries", 0..=100).and_then(|at| u32::try_from(at.value).ok()),
        key_prefix: key_prefix(section),
        default_ttl: section.span("default_ttl", TTLS).map(|at| at.value),
        layout: section.word("layout", "packed or hash", Layout::parse).map(|at| at.value),
        partitions: section
            .whole("partitions", 1..=16_384)
            .and_then(|at| NonZeroU16::new(u16::try_from(at.value).ok()?)),
        client_time: section.truth("client_time").map(|at| at.value),
        functions: section.truth("functions").map(|at| at.value),
        batch: section.truth("batch").map(|at| at.value),
        batch_max: batch_max.and_then(|at| usize::try_from(at.value).ok()),
        batch_wait: section.span("batch_wait", WAITS).map(|at| at.value),
        tls_ca: section.text("tls_ca").map(|at| at.value.into()),
        tls_client: tls_client(section),
    }
}

impl Settings {
    fn apply(self, config: &mut RedisConfig) {
        fn set<T>(place: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *place = value;
            }
        }
        let Settings {
            pool_size,
            min_idle_conns,
            dial_timeout,
            read_timeout,
            write_timeout,
            max_retries,
            key_prefix,
            default_ttl,
            layout,
            partitions,
            client_time,
            functions,
            batch,
            batch_max,
            batch_wait,
            tls_ca,
            tls_client,
        } = self;
        set(&mut config.pool_size, pool_size);
        set(&mut config.min_idle_conns, min_idle_conns);
        set(&mut config.dial_timeout, dial_timeout);
        set(&mut config.read_timeout, read_timeout);
        set(&mut config.write_timeout, write_timeout);
        set(&mut config.max_retries, max_retries);
        set(&mut config.key_prefix, key_prefix);
        set(&mut config.default_ttl, default_ttl);
        set(&mut config.layout, layout);
        set(&mut config.client_time, client_time);
        set(&mut config.functions, functions);
        config.partitions = partitions;
        set(&mut config.batch, batch);
        set(&mut config.batch_max, batch_max);
        set(&mut config.batch_wait, batch_wait);
        config.tls_ca = tls_ca;
        config.tls_client = tls_client;
    }
}

fn key_prefix(section: &mut Section<'_>) -> Option<String> {
    let At { value, path, place } = section.text("key_prefix")?;
    // Braces would become the hash tag, and blanks and globs make keys a nuisance to handle.
    let is_good = (1..=64).contains(&value.len())
        && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte));
    if !is_good {
        let what = "use 1 to 64 letters, digits, '-', '_', '.' or ':'";
        section.problems().add(place, &path, what);
        return None;
    }
    Some(value)
}

fn tls_client(section: &mut Section<'_>) -> Option<(PathBuf, PathBuf)> {
    let certificate = section.text("tls_client_cert");
    let key = section.text("tls_client_key");
    match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate.value.into(), key.value.into())),
        (None, None) => None,
        (Some(alone), None) | (None, Some(alone)) => {
            let what = "needs the other half: give both tls_client_cert and tls_client_key";
            section.problems().add(alone.place, &alone.path, what);
            None
        }
    }
}

fn outage(section: &mut Section<'_>, overrides: &Overrides) -> OutageConfig {
    let on_outage = section.word("on_outage", ON_OUTAGE, OnOutage::parse);
    let fail_open = section.truth("fail_open");
    if let (Some(on_outage), Some(fail_open)) = (&on_outage, &fail_open)
        && fail_open.value != (on_outage.value == OnOutage::Allow)
    {
        let what = format!(
            "is {}, while on_outage is {}: fail_open true means allow; say it once",
            fail_open.value, on_outage.value
        );
        section.problems().add(fail_open.place, &fail_open.path, what);
    }
    // `fail_open: false` says what is not wanted; the default is not that either.
    let said = on_outage.map(|at| at.value).or(fail_open.filter(|at| at.value).map(|_| OnOutage::Allow));

    let deadline = section.span("deadline", DEADLINES).map(|at| at.value);
    let deadline_flag = overrides.deadline.as_ref().and_then(|text| {
        let parsed = parse_span(text, &DEADLINES);
        section.problems().keep(Place::Flag("--deadline"), "", parsed)
    });
    let instances = section.whole("instances", 1..=100_000);
    OutageConfig {
        on_outage: said.unwrap_or_default(),
        deadline: deadline_flag.or(deadline).unwrap_or(DEADLINE),
        instances: instances.and_then(|at| u32::try_from(at.value).ok()).unwrap_or(1),
    }
}
