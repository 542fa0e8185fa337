//! The same counted under envoyproxy/ratelimit's names, by choice, so that dashboards survive.
//!
//! Its series are named after limits, and by `detailed_metric` and `value_to_metric` after what callers send.
//! Of the latter there are at most [`SERIES_MAX`]; what comes later is counted where its limit stands.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::iter::once;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;

use super::Entry;
use super::dialect::Limit;

/// The most series that callers can name.
const SERIES_MAX: usize = 10_000;

/// The upper bounds that the original's histogram has, in milliseconds.
const BUCKETS_MS: [u64; 11] = [5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000];

const NAMES: [&str; 6] =
    ["total_hits", "over_limit", "near_limit", "over_limit_with_local_cache", "within_limit", "shadow_mode"];

/// Everything that is counted.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    /// By the domain and each level of a limit's path.
    series: RwLock<HashMap<Vec<String>, Arc<Series>>>,
    requests: AtomicU64,
    errors: [AtomicU64; 2],
    domains_not_found: AtomicU64,
    buckets: [AtomicU64; BUCKETS_MS.len() + 1],
    micros: AtomicU64,
}

/// What is counted of one limit, in the order of [`NAMES`].
#[derive(Debug, Default)]
struct Series {
    counts: [AtomicU64; NAMES.len()],
}

/// What a descriptor came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hits {
    pub(super) cost: u32,
    /// What had been counted before.
    pub(super) before: u32,
    /// The most that may be.
    pub(super) limit: u32,
    pub(super) is_over: bool,
    pub(super) is_shadow: bool,
}

/// Why a request was not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorKind {
    Service = 0,
    Redis = 1,
}

impl Series {
    fn add(&self, counts: [u64; NAMES.len()]) {
        for (count, more) in self.counts.iter().zip(counts) {
            count.fetch_add(more, Ordering::Relaxed);
        }
    }
}

impl Hits {
    /// What is added to each count: as the original does it, by how much of the hits lies where.
    fn counts(self, near_permille: u32) -> [u64; NAMES.len()] {
        let Hits { cost, before, limit, is_over, is_shadow } = self;
        let (hits, before, limit) = (u64::from(cost), u64::from(before), u64::from(limit));
        let near = limit * u64::from(near_permille) / 1000;
        let after = before + hits;
        let (over, within) = if is_over { (after.saturating_sub(limit.max(before)), 0) } else { (0, hits) };
        // Of what does not fit, the part that would have is near the limit, too.
        let near_hits = after.min(limit).saturating_sub(near.max(before));
        [hits, over, near_hits, 0, within, if is_shadow { over } else { 0 }]
    }
}

impl Stats {
    /// Counts one descriptor under its limit.
    pub(super) fn count(
        &self,
        limit: &Limit,
        entries: &[Entry<'_>],
        domain: &str,
        near_permille: u32,
        hits: Hits,
    ) {
        let named = path(limit, entries, domain, limit.has_detailed_metric);
        if let Some(series) = self.series(named, || Some(configured(limit, domain))) {
            series.add(hits.counts(near_permille));
        }
    }

    /// Counts one descriptor under the limit it carries: by what it is about.
    pub(super) fn count_carried(&self, entries: &[Entry<'_>], domain: &str, near_permille: u32, hits: Hits) {
        let levels = entries.iter().map(|entry| match &*entry.value {
            "" => plain(&entry.key),
            value => plain(&format!("{}_{value}", entry.key)),
        });
        if let Some(series) = self.series(once(plain(domain)).chain(levels).collect(), || None) {
            series.add(hits.counts(near_permille));
        }
    }

    /// Counts one request and the time it took.
    pub(super) fn answered(&self, took: Duration) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let millis = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).div_ceil(1000);
        let at = BUCKETS_MS.iter().position(|bound| millis <= *bound).unwrap_or(BUCKETS_MS.len());
        self.buckets[at].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Counts one request that was not answered.
    pub(super) fn failed(&self, kind: ErrorKind) {
        self.errors[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one request of a domain that has no limits.
    pub(super) fn domain_not_found(&self) {
        self.domains_not_found.fetch_add(1, Ordering::Relaxed);
    }

    /// The series so named. There are only so many that callers can name; after that it is the one that the limit
    /// was written as, or none.
    fn series(&self, named: Vec<String>, written: impl Fn() -> Option<Vec<String>>) -> Option<Arc<Series>> {
        if let Some(series) = self.series.read().get(&named) {
            return Some(Arc::clone(series));
        }
        let mut all = self.series.write();
        let named = if all.len() >= SERIES_MAX && !all.contains_key(&named) { written()? } else { named };
        Some(Arc::clone(all.entry(named).or_default()))
    }

    /// All of it as OpenMetrics text, without its end.
    pub(crate) fn text(&self, loads: u64, failed_loads: u64) -> String {
        let mut out = String::new();
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let series = self.series.read();
        let mut series: Vec<_> = series.iter().collect();
        series.sort_by_key(|(path, _)| *path);
        // Writing to a String cannot fail, here and below.
        for (at, name) in NAMES.iter().enumerate() {
            let _ = writeln!(out, "# TYPE ratelimit_service_rate_limit_{name} unknown");
            for (path, series) in &series {
                let labels = labels(path);
                let _ = writeln!(
                    out,
                    "ratelimit_service_rate_limit_{name}{{{labels}}} {}",
                    get(&series.counts[at])
                );
            }
        }
        let mut plain = |name: &str, labels: &str, count: u64| {
            let _ = writeln!(
                out,
                "# TYPE ratelimit_service_{name} unknown\nratelimit_service_{name}{labels} {count}"
            );
        };
        plain("rate_limit_domain_not_found", "", get(&self.domains_not_found));
        plain("total_requests", "{grpc_method=\"ShouldRateLimit\"}", get(&self.requests));
        plain("config_load_success", "", loads);
        plain("config_load_error", "", failed_loads);
        let _ = writeln!(out, "# TYPE ratelimit_service_should_rate_limit_error unknown");
        for (kind, count) in ["service_error", "redis_error"].iter().zip(&self.errors) {
            let _ = writeln!(
                out,
                "ratelimit_service_should_rate_limit_error{{err_type=\"{kind}\"}} {}",
                get(count)
            );
        }
        self.histogram(&mut out);
        out
    }

    fn histogram(&self, out: &mut String) {
        let name = "ratelimit_service_response_time_seconds";
        let method = "grpc_method=\"ShouldRateLimit\"";
        let _ = writeln!(out, "# TYPE {name} histogram");
        let mut sum = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            sum += count.load(Ordering::Relaxed);
            let bound = BUCKETS_MS
                .get(at)
                .map_or("+Inf".to_owned(), |millis| format!("{}.{:03}", millis / 1000, millis % 1000));
            let _ = writeln!(out, "{name}_bucket{{{method},le=\"{bound}\"}} {sum}");
        }
        let micros = self.micros.load(Ordering::Relaxed);
        let _ = writeln!(out, "{name}_sum{{{method}}} {}.{:06}", micros / 1_000_000, micros % 1_000_000);
        let _ = writeln!(out, "{name}_count{{{method}}} {sum}");
    }
}

/// The path a limit is counted under: its own, with the values that it says are to be named.
fn path(limit: &Limit, entries: &[Entry<'_>], domain: &str, is_detailed: bool) -> Vec<String> {
    let levels = limit.levels.iter().zip(entries).map(|(level, entry)| {
        let is_shared = level.shared.is_some();
        if !is_shared && (is_detailed || level.has_value_in_metric) {
            plain(&format!("{}_{}", entry.key, entry.value))
        } else {
            plain(&level.composite)
        }
    });
    once(plain(domain)).chain(levels).collect()
}

fn configured(limit: &Limit, domain: &str) -> Vec<String> {
    let levels = limit.levels.iter().map(|level| plain(&level.composite));
    once(plain(domain)).chain(levels).collect()
}

/// As the original names its series: no `:`, no `|`, and no points in an IPv4 address.
fn plain(part: &str) -> String {
    let part = part.replace([':', '|'], "_");
    let mut out = String::with_capacity(part.len());
    let mut rest = part.as_str();
    while let Some(first) = rest.chars().next() {
        let length = address_length(rest);
        let (head, tail) = rest.split_at(length.unwrap_or(first.len_utf8()));
        out.push_str(&if length.is_some() { head.replace('.', "_") } else { head.to_owned() });
        rest = tail;
    }
    out
}

/// How long the address is that a text begins with: four numbers of up to three digits, and points between them.
fn address_length(text: &str) -> Option<usize> {
    let mut at = 0;
    for number in 0..4 {
        if number > 0 {
            at += text[at..].starts_with('.').then_some(1)?;
        }
        let digits = text[at..].bytes().take(3).take_while(u8::is_ascii_digit).count();
        at += (digits > 0).then_some(digits)?;
    }
    Some(at)
}

/// `domain="a",key1="b",key2="c"`.
fn labels(path: &[String]) -> String {
    let mut labels = String::new();
    for (at, part) in path.iter().enumerate() {
        let escaped = part.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = match at {
            0 => write!(labels, "domain=\"{escaped}\""),
            _ => write!(labels, ",key{at}=\"{escaped}\""),
        };
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The original's arithmetic, hit by hit.
    #[test]
    fn hits_are_counted_where_they_lie() {
        for limit in [1_u32, 4, 10] {
            for before in 0..=limit {
                for hits in 1..=12 {
                    let is_over = before + hits > limit;
                    let near = limit * 800 / 1000;
                    let of = |is_shadow| Hits { cost: hits, before, limit, is_over, is_shadow }.counts(800);
                    let counts = of(false);
                    let each: Vec<u32> = (before + 1..=before + hits).collect();
                    let over = each.iter().filter(|at| **at > limit).count() as u64;
                    let close = each.iter().filter(|at| **at > near && **at <= limit).count() as u64;
                    let within = if is_over { 0 } else { u64::from(hits) };
                    assert_eq!(
                        counts,
                        [u64::from(hits), over, close, 0, within, 0],
                        "{before} and {hits} of {limit}"
                    );
                    assert_eq!(of(true)[5], over, "{before} and {hits} of {limit}");
                }
            }
        }
    }

    #[test]
    fn addresses_are_plain() {
        for (part, expected) in [
            ("a.b", "a.b"),
            ("ip_10.0.0.1", "ip_10_0_0_1"),
            ("1.2.3.4.5.6", "1_2_3_4.5.6"),
            ("x1234.1.1.1y:|\u{fc}", "x1234_1_1_1y__\u{fc}"),
            ("1.2.3", "1.2.3"),
            ("", ""),
        ] {
            assert_eq!(plain(part), expected);
        }
    }

    #[test]
    fn callers_name_only_so_many_series() {
        let stats = Stats::default();
        let hits = Hits { cost: 1, before: 0, limit: 9, is_over: false, is_shadow: false };
        for at in 0..SERIES_MAX + 10 {
            let value = at.to_string();
            stats.count_carried(&[Entry { key: "k".into(), value: value.into() }], "d", 800, hits);
        }
        assert_eq!(stats.series.read().len(), SERIES_MAX);
        stats.count_carried(&[Entry { key: "k".into(), value: "7".into() }], "d", 800, hits);
        assert!(stats.text(0, 0).contains("total_hits{domain=\"d\",key1=\"k_7\"} 2\n"));
    }
}
