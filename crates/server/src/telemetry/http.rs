//! What the HTTP door tells, as metrics.

use hyper::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::{family, names};

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    Check,
    Peek,
    Refund,
    ForwardAuth,
    OpenApi,
    Json,
    HealthCheck,
    BreakerAcquire,
    BreakerReport,
    /// How breakers stand, and overrides of them.
    Breakers,
    /// Nothing we know: a path is a caller's word and no label.
    Other,
}

const ROUTES: [&str; 11] = [
    "check",
    "peek",
    "refund",
    "forward-auth",
    "openapi",
    "json",
    "healthcheck",
    "breaker-acquire",
    "breaker-report",
    "breakers",
    "other",
];
const CLASSES: [&str; 3] = ["2xx", "4xx", "5xx"];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabels {
    route: &'static str,
    status: &'static str,
}

/// What the HTTP door tells.
#[derive(Debug)]
pub(crate) struct HttpMetrics {
    answers: [[Counter; CLASSES.len()]; ROUTES.len()],
    turned_away: Counter,
}

impl HttpMetrics {
    /// Registers all of them.
    pub(crate) fn register(registry: &mut Registry) -> HttpMetrics {
        let answers: Family<AnswerLabels, Counter> = family(
            registry,
            names::HTTP_ANSWERS,
            "HTTP requests answered, by class of status",
            Family::default(),
        );
        let turned_away = Counter::default();
        let help = "HTTP connections turned away because there were too many";
        registry.register(names::HTTP_TURNED_AWAY, help, turned_away.clone());
        HttpMetrics {
            answers: ROUTES.map(|route| {
                CLASSES.map(|status| answers.get_or_create_owned(&AnswerLabels { route, status }))
            }),
            turned_away,
        }
    }

    /// Counts one answer.
    pub(crate) fn answered(&self, route: Route, status: StatusCode) {
        let route = match route {
            Route::Check => 0,
            Route::Peek => 1,
            Route::Refund => 2,
            Route::ForwardAuth => 3,
            Route::OpenApi => 4,
            Route::Json => 5,
            Route::HealthCheck => 6,
            Route::BreakerAcquire => 7,
            Route::BreakerReport => 8,
            Route::Breakers => 9,
            Route::Other => 10,
        };
        let class = match status.as_u16() {
            ..400 => 0,
            400..500 => 1,
            500.. => 2,
        };
        self.answers[route][class].inc();
    }

    /// Counts one connection that was not served.
    pub(crate) fn turned_away(&self) {
        self.turned_away.inc();
    }
}
