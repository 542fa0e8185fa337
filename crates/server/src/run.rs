//! The composition root: the only file that knows every part. It builds them from a checked
//! configuration, runs them, and ends them in order.

use std::future::Future;
use std::io;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tollgate::clock;
use tollgate::core::policy::PolicyError;
use tollgate::deny_cache::{self, DenyCache};
use tollgate::engine::together;
use tollgate::observe::Observer;
use tollgate::store::AnyStore;
use tollgate::store::memory::MemoryStore;
use tollgate::store::redis::{RedisSetupError, RedisStore};

use crate::admin::{About, Admin};
use crate::breakers::{BreakerError, Service as Breakers};
use crate::config::{Config, Digest, Overrides as Flags};
use crate::doors::grpc::{Beside, GrpcDoor};
use crate::doors::http::HttpDoor;
use crate::doors::resp::{self, Pace, Patience, RespDoor};
use crate::engine::Engine;
use crate::net::bind::{self, BindError, Bound, Endpoint, Listener, Unserved};
use crate::net::gate::Gate;
use crate::net::open::{Opening, Proxies};
use crate::net::serve::{Bounds, Handler, serve};
use crate::net::tls::{self, Tls, TlsError, TlsFiles};
use crate::overrides::{self, Overrides};
use crate::reload::{self, Reloader};
use crate::rls::Service;
use crate::shutdown::{Life, LifeView, Phase, Signals};
use crate::telemetry::Telemetry;
use crate::telemetry::metrics::EngineMetrics;
use crate::welcome::{Places, Welcome};
use crate::worker::Worker;

/// The admin door serves people and probes; it needs few connections.
const ADMIN_CONNECTIONS_MAX: usize = 256;

/// How long leases are given back after the drain. Those that are not are over within a second.
const LEASES_BACK_WITHIN: Duration = Duration::from_secs(1);

/// Why the server did not start, or ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum RunError {
    /// A door could not be opened.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A certificate was good when the configuration was checked, and is not any more.
    #[error("tls: {0}")]
    Tls(TlsError),
    /// The Redis store could not be set up.
    #[error("the Redis store cannot be set up")]
    Redis(#[from] RedisSetupError),
    /// Breakers could not be started.
    #[error("breakers: {0}")]
    Breakers(#[from] BreakerError),
    /// The rules do not make a policy.
    #[error("the rules make no policy")]
    Policy(#[from] PolicyError),
    /// The system refused us something we cannot do without.
    #[error("{what}: {error}")]
    System {
        /// What we wanted.
        what: &'static str,
        /// What the system said.
        error: io::Error,
    },
    /// A worker ended on its own.
    #[error("worker {name} ended unexpectedly: {error}")]
    Worker {
        /// Its thread.
        name: String,
        /// What it said.
        error: io::Error,
    },
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> RunError {
    move |error| RunError::System { what, error }
}

/// Runs the server until a signal ends it.
pub(crate) fn run(config: &Config, flags: Flags, digest: Digest) -> Result<(), RunError> {
    // Doors first: a port that is taken should not have cost anybody a connection to Redis.
    let at = &config.listen;
    let bound = |door, at: &Option<Endpoint>, count| {
        at.as_ref().map(|at| bind::listeners(door, at, count)).transpose()
    };
    let doors = Doors {
        http: bound("http", &at.http, config.workers)?,
        grpc: bound("grpc", &at.grpc, config.workers)?,
        resp: bound("resp", &at.resp, config.workers)?,
        admin: bound("admin", &at.admin, NonZeroUsize::MIN)?,
    };

    // Heartbeats, admin and signals live here; checks do not.
    let background = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system("cannot start the background runtime"))?;
    let ended = background.block_on(serve_all(config, flags, digest, doors));
    // A thread that waits for a disk may wait for ever: it ends with the process.
    background.shutdown_background();
    ended
}

/// The doors that are bound, and not served yet.
struct Doors {
    http: Option<Bound>,
    grpc: Option<Bound>,
    resp: Option<Bound>,
    admin: Option<Bound>,
}

async fn serve_all(config: &Config, flags: Flags, digest: Digest, doors: Doors) -> Result<(), RunError> {
    let Doors { mut http, mut grpc, mut resp, admin } = doors;
    // From here on SIGHUP reloads; before, it would have ended the process.
    let hangup = signal(SignalKind::hangup()).map_err(system("cannot listen for SIGHUP"))?;
    let mut signals = Signals::listen().map_err(system("cannot listen for signals"))?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let (life, view) = Life::start();
    let mut telemetry = Telemetry::new();
    let engine = engine(config, &telemetry)?;
    telemetry.watch(engine.clone());
    let metrics = Arc::clone(&telemetry.breakers);
    let breakers = Breakers::start(engine.clone(), &config.breakers, metrics)?;
    telemetry.watch_breakers(Arc::clone(&breakers));
    let endpoint = |bound: &Option<Bound>| bound.as_ref().map(|bound| bound.endpoint.clone());
    let places = Places {
        http: endpoint(&http),
        grpc: endpoint(&grpc),
        resp: endpoint(&resp),
        admin: endpoint(&admin),
    };
    let welcome = Welcome::new(config, &engine.policy(), places);
    let http_tls = secure("http", config.tls.http.as_ref())?;
    let grpc_tls = secure("grpc", config.tls.grpc.as_ref())?;
    let resp_tls = secure("resp", config.tls.resp.as_ref())?;
    let admin_tls = secure("admin", config.tls.admin.as_ref())?;

    let control = Arc::clone(&telemetry.control);
    let log_max = config.limits.sliding_log_max;
    let overrides = Arc::new(Overrides::new(engine.clone(), log_max, Arc::clone(&control)));
    // Before any door opens: who is blocked elsewhere is blocked here from the first ask on.
    overrides.first_look().await;
    let kept = Arc::clone(&overrides);
    let breaking = Arc::clone(&breakers);
    let reloader = Reloader::new(engine.clone(), config.clone(), flags, digest, kept, breaking, control);
    let reloader = Arc::new(reloader);
    let mut beside = JoinSet::new();
    beside.spawn(overrides::watch(Arc::clone(&overrides)));
    beside.spawn(reload::watch(Arc::clone(&reloader), hangup));
    let all = [&http_tls, &grpc_tls, &resp_tls, &admin_tls];
    let watched: Vec<Arc<Tls>> = all.into_iter().flatten().cloned().collect();
    if !watched.is_empty() {
        let watch = tls::Watch::start(watched).map_err(system("cannot listen for SIGHUP"))?;
        beside.spawn(watch.run());
    }
    // The files of unix sockets go when this function ends, however it ends.
    let mut files = Vec::new();
    files.extend(
        [&mut http, &mut grpc, &mut resp].into_iter().flatten().filter_map(|bound| bound.file.take()),
    );
    let (also, reporter) = Beside::new().map_err(|error| RunError::System {
        what: "the protocols of the gRPC door",
        error: io::Error::other(error),
    })?;
    beside.spawn(reporter.run(engine.clone(), view.clone()));
    let served = Served { config, engine: &engine, breakers: &breakers, telemetry: &telemetry, view: &view };
    let http = served.http(http, &opening(config, config.listen.proxies.clone(), http_tls));
    let grpc = served.grpc(grpc, &opening(config, config.listen.proxies.clone(), grpc_tls), &also);
    let resp = served.resp(resp, &opening(config, Proxies::default(), resp_tls));
    let mut workers = served.workers([http, grpc, resp])?;
    let leasing = engine.clone();
    if let Some(Bound { endpoint, listeners, file }) = admin {
        files.extend(file);
        let about = About {
            store: welcome.store.clone(),
            started: clock::instant(),
            file: config.file.as_ref().map(|file| file.display().to_string()),
            on_outage: config.outage.on_outage,
            client_time: config.redis.as_ref().is_some_and(|redis| redis.client_time),
        };
        let gate = Gate::new(config.tokens.admin.clone(), &endpoint);
        let opening = opening(config, Proxies::default(), admin_tls);
        let admin =
            Arc::new(Admin { engine, telemetry, reloader, overrides, log_max, life: view, gate, about });
        for listener in listeners {
            let listener = listener.serve().map_err(system("admin door"))?;
            let bounds = Bounds { connections_max: ADMIN_CONNECTIONS_MAX, ..bounds(config) };
            beside.spawn(serve_for_ever(listener, opening.clone(), Arc::clone(&admin), bounds));
        }
    }

    life.enter(Phase::Serving);
    welcome.print(&mut io::stdout().lock()).map_err(system("cannot write to standard output"))?;

    let ended_early = tokio::select! {
        signal = signals.next() => {
            tracing::info!(signal, "draining: readiness fails from now on");
            None
        }
        at = first_to_end(&mut workers) => Some(workers.swap_remove(at)),
    };
    drain(config, &life, &mut signals, workers).await;
    breakers.close().await;
    // After the last ask: what was taken ahead and not spent belongs to the other instances.
    if tokio::time::timeout(LEASES_BACK_WITHIN, leasing.close()).await.is_err() {
        tracing::warn!("not all leases were given back in time");
    }
    match ended_early {
        None => Ok(()),
        Some(worker) => {
            let name = worker.name().to_owned();
            let error = worker.result().err().unwrap_or_else(|| io::Error::other("it returned"));
            Err(RunError::Worker { name, error })
        }
    }
}

/// Serves a door that outlives every drain, to say that there is one.
async fn serve_for_ever(listener: Listener, opening: Opening, admin: Arc<Admin>, bounds: Bounds) {
    // A life of its own never closes it.
    let (_forever, view) = Life::start();
    serve(listener, opening, admin, view, bounds).await;
}

/// The engine, with its heartbeat on the runtime we are on.
fn engine(config: &Config, telemetry: &Telemetry) -> Result<Engine, RunError> {
    let policy = reload::policy(config, reload::FIRST_VERSION)?;
    let store = match &config.redis {
        Some(redis) => AnyStore::Redis(RedisStore::new(redis.clone())?),
        None => AnyStore::Memory(memory(config)),
    };
    let observer: Arc<dyn Observer> = Arc::<EngineMetrics>::clone(&telemetry.engine);
    let builder = Engine::builder(store);
    let builder = if config.redis.is_some() { builder } else { builder.without_leases() };
    Ok(builder
        .policy(policy)
        .deadline(config.outage.deadline)
        .on_outage(config.outage.on_outage)
        .instances(config.outage.instances)
        .local(memory(config))
        .deny_cache(deny_cache(config))
        .observer(observer)
        .build())
}

/// A bounded memory: the store itself, or what `local` decides from while Redis is away.
fn memory(config: &Config) -> MemoryStore {
    let builder = MemoryStore::builder();
    match config.memory.max_keys {
        Some(keys) => builder.max_keys(keys),
        None => builder,
    }
    .build()
}

/// What remembers the refusals of Redis, if it is to.
fn deny_cache(config: &Config) -> Option<deny_cache::Builder> {
    let builder = DenyCache::builder();
    let bounded = match config.deny_cache.max_entries {
        Some(entries) => builder.max_entries(entries),
        None => builder,
    };
    config.deny_cache.is_enabled.then_some(bounded)
}

/// TLS for a door that has it.
fn secure(door: &'static str, files: Option<&TlsFiles>) -> Result<Option<Arc<Tls>>, RunError> {
    let Some(files) = files else { return Ok(None) };
    match Tls::try_new(door, files.clone()) {
        Ok(tls) => Ok(Some(Arc::new(tls))),
        Err(errors) => Err(errors.into_iter().next().map_or_else(
            || RunError::System { what: door, error: io::Error::other("TLS cannot be set up") },
            RunError::Tls,
        )),
    }
}

fn opening(config: &Config, proxies: Proxies, tls: Option<Arc<Tls>>) -> Opening {
    Opening { proxies: Arc::new(proxies), tls, timeout: config.limits.handshake_timeout }
}

/// What every worker is made of.
struct Served<'a> {
    config: &'a Config,
    engine: &'a Engine,
    breakers: &'a Arc<Breakers>,
    telemetry: &'a Telemetry,
    view: &'a LifeView,
}

/// One door of one worker, ready to be served on that worker's thread.
type Serving = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = io::Result<()>>>> + Send>;

impl Served<'_> {
    fn rls(&self) -> Service {
        Service::new(self.engine.clone(), Arc::clone(&self.telemetry.rls))
    }

    fn http(&self, bound: Option<Bound>, opening: &Opening) -> Vec<Serving> {
        let Some(Bound { endpoint, listeners, .. }) = bound else { return Vec::new() };
        let gate = Gate::new(self.config.tokens.doors.clone(), &endpoint);
        let (log_max, patience) = (self.config.limits.sliding_log_max, self.config.limits.idle_timeout);
        let door = || {
            let metrics = Arc::clone(&self.telemetry.http);
            HttpDoor {
                engine: self.engine.clone(),
                breakers: Arc::clone(self.breakers),
                service: self.rls(),
                gate: gate.clone(),
                log_max,
                patience,
                metrics,
                life: self.view.clone(),
            }
        };
        listeners.into_iter().map(|listener| self.serving(listener, opening, door())).collect()
    }

    fn grpc(&self, bound: Option<Bound>, opening: &Opening, beside: &Beside) -> Vec<Serving> {
        let Some(Bound { endpoint, listeners, .. }) = bound else { return Vec::new() };
        let gate = Gate::new(self.config.tokens.doors.clone(), &endpoint);
        let (log_max, patience) = (self.config.limits.sliding_log_max, self.config.limits.idle_timeout);
        let door = || {
            let metrics = Arc::clone(&self.telemetry.grpc);
            GrpcDoor {
                engine: self.engine.clone(),
                service: self.rls(),
                breakers: Arc::clone(self.breakers),
                beside: beside.clone(),
                gate: gate.clone(),
                log_max,
                patience,
                metrics,
            }
        };
        listeners.into_iter().map(|listener| self.serving(listener, opening, door())).collect()
    }

    fn resp(&self, bound: Option<Bound>, opening: &Opening) -> Vec<Serving> {
        let Some(Bound { endpoint, listeners, .. }) = bound else { return Vec::new() };
        let gate = Gate::new(self.config.tokens.doors.clone(), &endpoint);
        let limits = &self.config.limits;
        let pace = if self.config.redis.is_some() { Pace::Later } else { Pace::AtOnce };
        let patience = Patience { between: limits.resp_idle_timeout, within: limits.idle_timeout };
        let serving = |listener: Unserved| -> Serving {
            let metrics = Arc::clone(&self.telemetry.resp);
            let door = RespDoor::new(
                self.engine.clone(),
                Arc::clone(self.breakers),
                gate.clone(),
                pace,
                patience,
                metrics,
            );
            let (opening, view, bounds) = (opening.clone(), self.view.clone(), bounds(self.config));
            Box::new(move || {
                Box::pin(async move {
                    resp::serve(listener.serve()?, opening, door, view, bounds).await;
                    Ok(())
                })
            })
        };
        listeners.into_iter().map(serving).collect()
    }

    fn serving<H: Handler>(&self, listener: Unserved, opening: &Opening, door: H) -> Serving {
        let (opening, view, bounds) = (opening.clone(), self.view.clone(), bounds(self.config));
        Box::new(move || {
            Box::pin(async move {
                serve(listener.serve()?, opening, Arc::new(door), view, bounds).await;
                Ok(())
            })
        })
    }

    /// The workers: each serves one listener of every door that takes checks, so that a check never changes
    /// thread and no door waits behind another's idle threads.
    fn workers(&self, doors: [Vec<Serving>; 3]) -> Result<Vec<Worker>, RunError> {
        let count = doors.iter().map(Vec::len).max().unwrap_or(0);
        let mut doors = doors.map(Vec::into_iter);
        let mut workers = Vec::with_capacity(count);
        for at in 0..count {
            let engine = self.engine.clone();
            let doors: Vec<Serving> = doors.iter_mut().filter_map(Iterator::next).collect();
            let work = async move || {
                if let AnyStore::Redis(store) = engine.store() {
                    store.warm();
                }
                let all = together(doors.into_iter().map(|door| door())).await;
                // What was being fetched here would be lost with this runtime.
                let _ = tokio::time::timeout(LEASES_BACK_WITHIN, engine.close()).await;
                all.into_iter().collect()
            };
            let worker = Worker::start(format!("worker-{at}"), work);
            workers.push(worker.map_err(system("cannot start a worker"))?);
        }
        Ok(workers)
    }
}

fn bounds(config: &Config) -> Bounds {
    Bounds {
        connections_max: config.limits.connections_max,
        idle_timeout: config.limits.idle_timeout,
        drain_timeout: config.drain.timeout,
    }
}

/// Waits until a worker ends and says which; for ever, if there are none.
async fn first_to_end(workers: &mut [Worker]) -> usize {
    let mut ends: Vec<_> = workers.iter_mut().map(|worker| Box::pin(worker.ended())).collect();
    std::future::poll_fn(|context| {
        let ended = ends.iter_mut().position(|end| end.as_mut().poll(context).is_ready());
        ended.map_or(std::task::Poll::Pending, std::task::Poll::Ready)
    })
    .await
}

/// Fails readiness, waits for load balancers to notice, accepts no more, and lets requests finish. A
/// second signal cuts all of that short.
async fn drain(config: &Config, life: &Life, signals: &mut Signals, workers: Vec<Worker>) {
    life.enter(Phase::Draining);
    let in_order = async {
        tokio::time::sleep(config.drain.delay).await;
        life.enter(Phase::Closing);
        for mut worker in workers {
            worker.ended().await;
        }
    };
    // Workers keep to the drain's timeout themselves; the second on top is for their last words.
    let at_most = config.drain.delay + config.drain.timeout + Duration::from_secs(1);
    tokio::select! {
        ended = tokio::time::timeout(at_most, in_order) => {
            if ended.is_ok() {
                tracing::info!("drained");
            } else {
                tracing::warn!("not drained in time");
            }
        }
        signal = signals.next() => tracing::warn!(signal, "asked again: not waiting for the drain"),
    }
}
