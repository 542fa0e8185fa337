//! Health and reflection: tonic's own services, driven by our listener.
//!
//! Neither is asked often, both stream, and clients have opinions about their details; so they are the
//! very services that most servers of this language have.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::{Request, Response};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tower_service::Service;

use super::answer::GrpcBody;
use super::proto::DESCRIPTORS;
use crate::engine::Engine;
use crate::rls;
use crate::shutdown::{LifeView, Phase};

/// The services whose health can be asked for: all of us, as the original calls itself, and each by name.
const SERVICES: [&str; 5] = [
    "",
    "ratelimit",
    "envoy.service.ratelimit.v3.RateLimitService",
    "tollgate.v1.Tollgate",
    "tollgate.v1.Breakers",
];

/// How often the store's health is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The longest question to either.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;

type Answering = Pin<Box<dyn Future<Output = Response<GrpcBody>> + Send>>;
type Asked = Arc<dyn Fn(Request<Incoming>) -> Answering + Send + Sync>;

/// Both services; cheap to clone.
#[derive(Clone)]
pub(crate) struct Beside {
    health: Asked,
    reflection: Asked,
    reflection_alpha: Asked,
}

impl std::fmt::Debug for Beside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Beside")
    }
}

/// One of tonic's services as a function.
fn asked<S>(service: S) -> Asked
where
    S: Service<Request<Incoming>, Response = Response<tonic::body::Body>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
{
    Arc::new(move |request| {
        let mut service = service.clone();
        Box::pin(async move {
            let answer = service.call(request).await.unwrap_or_else(|never| match never {});
            answer.map(GrpcBody::Streamed)
        })
    })
}

impl Beside {
    /// The services, and who tells them how we are: see [`Reporter::run`].
    pub(crate) fn new() -> Result<(Beside, Reporter), tonic_reflection::server::Error> {
        let (reporter, health) = tonic_health::server::health_reporter();
        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let beside = Beside {
            health: asked(health.max_decoding_message_size(MESSAGE_BYTES_MAX)),
            reflection: asked(reflection().build_v1()?.max_decoding_message_size(MESSAGE_BYTES_MAX)),
            reflection_alpha: asked(
                reflection().build_v1alpha()?.max_decoding_message_size(MESSAGE_BYTES_MAX),
            ),
        };
        Ok((beside, Reporter { reporter }))
    }

    /// The answer of whichever service the path is of; `None` if it is of none.
    pub(super) fn answer(&self, request: Request<Incoming>) -> Option<Answering> {
        let path = request.uri().path();
        let service = path.get(1..).and_then(|path| path.rsplit_once('/')).map(|(service, _)| service);
        let asked = match service {
            Some("grpc.health.v1.Health") => &self.health,
            Some("grpc.reflection.v1.ServerReflection") => &self.reflection,
            Some("grpc.reflection.v1alpha.ServerReflection") => &self.reflection_alpha,
            _ => return None,
        };
        Some(asked(request))
    }
}

/// Tells how we are.
#[derive(Debug)]
pub(crate) struct Reporter {
    reporter: HealthReporter,
}

impl Reporter {
    /// Runs until the server closes.
    pub(crate) async fn run(mut self, engine: Engine, mut life: LifeView) {
        let mut told = None;
        loop {
            let phase = life.phase();
            let is_serving = phase == Phase::Serving && rls::is_healthy(&engine);
            let status = if is_serving { ServingStatus::Serving } else { ServingStatus::NotServing };
            if told.replace(status) != Some(status) {
                for service in SERVICES {
                    self.reporter.set_service_status(service, status).await;
                }
            }
            if phase >= Phase::Closing {
                break;
            }
            tokio::select! {
                () = life.moved(phase) => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
        // Whoever watches would keep the drain waiting.
        for service in SERVICES {
            self.reporter.clear_service_status(service).await;
        }
    }
}
