//! What is asked of the engine and its store at each scrape, rather than told by them.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tollgate::store::AnyStore;
use tollgate::store::memory::MemoryStore;
use tollgate::store::redis::{BatchSizes, RedisStats};

use crate::engine::Engine;

use super::names;

/// Asks the engine and its store.
#[derive(Debug)]
pub(crate) struct StoreFigures {
    pub(crate) engine: Engine,
}

impl Collector for StoreFigures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Figures { encoder: &mut encoder };
        let health = self.engine.health();
        let help = "Instances alive, as the last heartbeat saw them";
        out.gauge(names::INSTANCES, help, u64::from(health.instances))?;
        if let Some(cache) = self.engine.deny_cache() {
            let help = "Refusals of Redis remembered in this process";
            out.gauge(names::DENY_CACHE_ENTRIES, help, cache.entries() as u64)?;
            let help = "The most refusals of Redis remembered in this process";
            out.gauge(names::DENY_CACHE_MAX_ENTRIES, help, cache.max_entries() as u64)?;
        }
        let help = "Keys of which tokens are held here, taken ahead";
        out.gauge(names::LEASES, help, u64::try_from(self.engine.leases()).unwrap_or(u64::MAX))?;
        match self.engine.store() {
            AnyStore::Memory(store) => memory(&mut out, store),
            AnyStore::Redis(store) => {
                memory(&mut out, self.engine.local())?;
                redis(&mut out, &store.stats())
            }
        }
    }
}

/// The store itself, or what `local` decides from while Redis is away: there is one of them in use.
fn memory(out: &mut Figures<'_, '_>, store: &MemoryStore) -> fmt::Result {
    out.gauge(names::MEMORY_KEYS, "Keys remembered in this process", store.live_keys())?;
    out.gauge(names::MEMORY_MAX_KEYS, "The most keys remembered in this process", store.max_keys())?;
    let help = "Takes answered from an overflow bucket, or refused, for want of room";
    out.counter(names::MEMORY_OVERFLOWED, help, store.overflowed())
}

fn redis(out: &mut Figures<'_, '_>, stats: &RedisStats) -> fmt::Result {
    let idle = stats.connections_open.saturating_sub(stats.connections_busy);
    let by_state = [("busy", stats.connections_busy), ("idle", idle)];
    out.gauges(names::REDIS_CONNECTIONS, "Connections to Redis", "state", &by_state)?;
    out.counter(names::REDIS_DIALS, "Dials to Redis that succeeded", stats.dials)?;
    out.counter(names::REDIS_DIAL_ERRORS, "Dials to Redis that failed", stats.dial_errors)?;
    let help = "1 while time is reckoned here because scripts may not read the clock of Redis";
    out.gauge(names::REDIS_CLIENT_TIME, help, u64::from(stats.client_time))?;
    let help = "1 while asks are calls of functions, 0 while they are scripts";
    out.gauge(names::REDIS_FUNCTIONS, help, u64::from(stats.functions))?;
    out.sizes(names::REDIS_BATCH_SIZE, "Takes that went to Redis together, call by call", &stats.batches)?;
    let help = "1 while pushes of other instances are heard";
    out.gauge(names::REDIS_LISTENING, help, u64::from(stats.listening))?;
    out.counter(names::REDIS_PUSHES, "Pushes heard, of this instance and of others", stats.pushes)?;
    let help = "Pushes passed over because they were of another form";
    out.counter(names::REDIS_PUSHES_MALFORMED, help, stats.pushes_malformed)?;
    // What Redis did not tell is left out: a zero would be a lie.
    for (name, help, figure) in [
        (names::REDIS_USED_MEMORY, "Memory Redis uses", stats.used_memory),
        (names::REDIS_MAX_MEMORY, "Memory Redis may use", stats.max_memory),
        (names::REDIS_KEYS, "Keys in the database", stats.keys),
    ] {
        if let Some(figure) = figure {
            out.gauge(name, help, figure)?;
        }
    }
    Ok(())
}

struct Figures<'a, 'e> {
    encoder: &'a mut DescriptorEncoder<'e>,
}

impl Figures<'_, '_> {
    fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let gauge = ConstGauge::new(signed(value));
        gauge.encode(self.encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
    }

    fn gauges(&mut self, name: &str, help: &str, label: &str, values: &[(&str, u64)]) -> fmt::Result {
        let kind = ConstGauge::new(0_i64).metric_type();
        let mut metric = self.encoder.encode_descriptor(name, help, None, kind)?;
        for (state, value) in values {
            ConstGauge::new(signed(*value)).encode(metric.encode_family(&[(label, *state)])?)?;
        }
        Ok(())
    }

    fn sizes(&mut self, name: &str, help: &str, sizes: &BatchSizes) -> fmt::Result {
        let mut buckets: Vec<(f64, u64)> = BatchSizes::BOUNDS
            .iter()
            .zip(sizes.calls)
            .map(|(&bound, calls)| (f64::from(bound), calls))
            .collect();
        buckets.push((f64::MAX, 0));
        let (sum, calls) = (float(sizes.asks), sizes.calls.iter().sum());
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        metric.encode_histogram::<NoLabelSet>(sum, calls, &buckets, None)
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let counter = ConstCounter::new(value);
        counter.encode(self.encoder.encode_descriptor(name, help, None, counter.metric_type())?)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a sum of a metric may be off by one in 2^53")]
fn float(value: u64) -> f64 {
    value as f64
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
