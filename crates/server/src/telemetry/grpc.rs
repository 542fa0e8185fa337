//! What the gRPC door tells, as metrics.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::{family, names};
use crate::doors::grpc::Code;

/// What was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    ShouldRateLimit,
    Check,
    Peek,
    Refund,
    /// One of those that are about breakers.
    Breaker(Breaking),
    /// Health and reflection.
    Beside,
    /// Nothing we know: a path is a caller's word and no label.
    Other,
}

/// What is asked of a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Breaking {
    Acquire,
    Report,
    State,
    List,
    Override,
    Lift,
}

const ROUTES: [&str; 12] = [
    "should-rate-limit",
    "check",
    "peek",
    "refund",
    "health-or-reflection",
    "other",
    "breaker-acquire",
    "breaker-report",
    "breaker-state",
    "breaker-list",
    "breaker-override",
    "breaker-lift",
];
const CODES: [&str; 9] = [
    "ok",
    "invalid-argument",
    "deadline-exceeded",
    "permission-denied",
    "resource-exhausted",
    "unimplemented",
    "internal",
    "unavailable",
    "unauthenticated",
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabels {
    method: &'static str,
    code: &'static str,
}

/// What the gRPC door tells.
#[derive(Debug)]
pub(crate) struct GrpcMetrics {
    answers: [[Counter; CODES.len()]; ROUTES.len()],
    no_grpc: Counter,
    turned_away: Counter,
}

impl GrpcMetrics {
    /// Registers all of them.
    pub(crate) fn register(registry: &mut Registry) -> GrpcMetrics {
        let answers: Family<AnswerLabels, Counter> =
            family(registry, names::GRPC_ANSWERS, "gRPC calls answered, by status", Family::default());
        let counter = |registry: &mut Registry, name, help| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        let no_grpc = counter(registry, names::GRPC_STRANGERS, "Requests at the gRPC door that were no gRPC");
        let help = "gRPC connections turned away because there were too many";
        GrpcMetrics {
            answers: ROUTES
                .map(|method| CODES.map(|code| answers.get_or_create_owned(&AnswerLabels { method, code }))),
            no_grpc,
            turned_away: counter(registry, names::GRPC_TURNED_AWAY, help),
        }
    }

    /// Counts one answer.
    pub(crate) fn answered(&self, route: Route, code: Code) {
        let route = match route {
            Route::ShouldRateLimit => 0,
            Route::Check => 1,
            Route::Peek => 2,
            Route::Refund => 3,
            Route::Beside => 4,
            Route::Other => 5,
            Route::Breaker(breaking) => 6 + breaking as usize,
        };
        let code = match code {
            Code::Ok => 0,
            Code::InvalidArgument => 1,
            Code::DeadlineExceeded => 2,
            Code::PermissionDenied => 3,
            Code::ResourceExhausted => 4,
            Code::Unimplemented => 5,
            Code::Internal => 6,
            Code::Unavailable => 7,
            Code::Unauthenticated => 8,
        };
        self.answers[route][code].inc();
    }

    /// Counts one request that was no call.
    pub(crate) fn no_grpc(&self) {
        self.no_grpc.inc();
    }

    /// Counts one connection that was not served.
    pub(crate) fn turned_away(&self) {
        self.turned_away.inc();
    }
}
