//! What the outside can see: metrics and logs.

pub(crate) mod breakers;
pub(crate) mod control;
pub(crate) mod grpc;
pub(crate) mod http;
pub(crate) mod log;
pub(crate) mod metrics;
pub(crate) mod names;
pub(crate) mod resp;
pub(crate) mod store;

use std::sync::Arc;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::breakers::Service;
use crate::engine::Engine;
use crate::rls::Stats;

use breakers::{BreakerFigures, BreakerMetrics};
use control::ControlMetrics;
use grpc::GrpcMetrics;
use http::HttpMetrics;
use metrics::EngineMetrics;
use resp::RespMetrics;

/// Every metric, in the order they are shown.
#[derive(Debug)]
pub(crate) struct Telemetry {
    registry: Registry,
    /// What the engine tells.
    pub(crate) engine: Arc<EngineMetrics>,
    /// What breakers tell.
    pub(crate) breakers: Arc<BreakerMetrics>,
    /// What reloads and overrides tell.
    pub(crate) control: Arc<ControlMetrics>,
    /// What the HTTP door tells.
    pub(crate) http: Arc<HttpMetrics>,
    /// What the RESP door tells.
    pub(crate) resp: Arc<RespMetrics>,
    /// What the gRPC door tells.
    pub(crate) grpc: Arc<GrpcMetrics>,
    /// The same under envoyproxy/ratelimit's names.
    pub(crate) rls: Arc<Stats>,
}

impl Telemetry {
    /// All metrics at zero.
    pub(crate) fn new() -> Telemetry {
        let mut registry = Registry::with_prefix(names::PREFIX);
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register(names::BUILD, "The build that runs", build);
        let engine = Arc::new(EngineMetrics::register(&mut registry));
        let breakers = Arc::new(BreakerMetrics::register(&mut registry));
        let control = Arc::new(ControlMetrics::register(&mut registry));
        let http = Arc::new(HttpMetrics::register(&mut registry));
        let grpc = Arc::new(GrpcMetrics::register(&mut registry));
        let resp = Arc::new(RespMetrics::register(&mut registry));
        Telemetry { registry, engine, breakers, control, http, grpc, resp, rls: Arc::default() }
    }

    /// Adds what is asked of the engine and its store at each scrape.
    pub(crate) fn watch(&mut self, engine: Engine) {
        self.registry.register_collector(Box::new(store::StoreFigures { engine }));
    }

    /// Adds what is asked of breakers at each scrape.
    pub(crate) fn watch_breakers(&mut self, breakers: Arc<Service>) {
        self.registry.register_collector(Box::new(BreakerFigures { breakers }));
    }

    /// Everything, as OpenMetrics text; with envoyproxy/ratelimit's names, or without.
    pub(crate) fn text(&self, has_envoys: bool) -> Result<String, std::fmt::Error> {
        let mut text = String::with_capacity(16 * 1024);
        prometheus_client::encoding::text::encode_registry(&mut text, &self.registry)?;
        if has_envoys {
            let (good, bad) = self.control.loads();
            text.push_str(&self.rls.text(good, bad));
        }
        prometheus_client::encoding::text::encode_eof(&mut text)?;
        Ok(text)
    }
}

/// Registers a family and hands it back.
fn family<S, M, C>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    family: Family<S, M, C>,
) -> Family<S, M, C>
where
    Family<S, M, C>: prometheus_client::registry::Metric + Clone,
{
    registry.register(name, help, family.clone());
    family
}
