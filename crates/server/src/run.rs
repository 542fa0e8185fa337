//! The composition root: the only file that knows every part. It builds them from a checked
//! configuration, runs them, and ends them in order.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tollgate::clock;
use tollgate::core::policy::PolicyError;
use tollgate::observe::Observer;
use tollgate::store::AnyStore;
use tollgate::store::memory::MemoryStore;
use tollgate::store::redis::{RedisSetupError, RedisStore};

use crate::admin::{About, Admin};
use crate::config::{Config, Digest, Overrides as Flags};
use crate::doors::http::HttpDoor;
use crate::doors::resp::{self, Pace, Patience, RespDoor};
use crate::engine::Engine;
use crate::net::bind::{self, BindError, Bound, Unserved};
use crate::net::gate::Gate;
use crate::net::open::{Opening, Proxies};
use crate::net::serve::{Bounds, serve};
use crate::net::tls::{self, Tls, TlsError, TlsFiles};
use crate::overrides::{self, Overrides};
use crate::reload::{self, Reloader};
use crate::shutdown::{Life, LifeView, Phase, Signals};
use crate::telemetry::Telemetry;
use crate::telemetry::metrics::EngineMetrics;
use crate::welcome::Welcome;
use crate::worker::Worker;

/// The admin door serves people and probes; it needs few connections.
const ADMIN_CONNECTIONS_MAX: usize = 256;

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
    let http = at.http.as_ref().map(|at| bind::listeners("http", at, config.workers)).transpose()?;
    let resp = at.resp.as_ref().map(|at| bind::listeners("resp", at, config.workers)).transpose()?;
    let admin = at.admin.as_ref().map(|at| bind::listeners("admin", at, NonZeroUsize::MIN)).transpose()?;

    // Heartbeats, admin and signals live here; checks do not.
    let background = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system("cannot start the background runtime"))?;
    let ended = background.block_on(serve_all(config, flags, digest, Doors { http, resp, admin }));
    // A thread that waits for a disk may wait for ever: it ends with the process.
    background.shutdown_background();
    ended
}

/// The doors, bound.
struct Doors {
    http: Option<Bound>,
    resp: Option<Bound>,
    admin: Option<Bound>,
}

async fn serve_all(
    config: &Config,
    flags: Flags,
    digest: Digest,
    Doors { http, resp, admin }: Doors,
) -> Result<(), RunError> {
    // From here on SIGHUP reloads; before, it would have ended the process.
    let hangup = signal(SignalKind::hangup()).map_err(system("cannot listen for SIGHUP"))?;
    let mut signals = Signals::listen().map_err(system("cannot listen for signals"))?;
    let (life, view) = Life::start();
    let mut telemetry = Telemetry::new();
    let engine = engine(config, &telemetry)?;
    telemetry.watch(engine.clone());
    let endpoint = |bound: &Option<Bound>| bound.as_ref().map(|bound| bound.endpoint.clone());
    let welcome = Welcome::new(config, &engine.policy(), endpoint(&http), endpoint(&resp), endpoint(&admin));
    let http_tls = secure("http", config.tls.http.as_ref())?;
    let resp_tls = secure("resp", config.tls.resp.as_ref())?;
    let admin_tls = secure("admin", config.tls.admin.as_ref())?;

    let control = Arc::clone(&telemetry.control);
    let log_max = config.limits.sliding_log_max;
    let overrides = Arc::new(Overrides::new(engine.clone(), log_max, Arc::clone(&control)));
    // Before any door opens: who is blocked elsewhere is blocked here from the first ask on.
    overrides.first_look().await;
    let kept = Arc::clone(&overrides);
    let reloader = Reloader::new(engine.clone(), config.clone(), flags, digest, kept, control);
    let reloader = Arc::new(reloader);
    let mut beside = JoinSet::new();
    beside.spawn(overrides::watch(Arc::clone(&overrides)));
    beside.spawn(reload::watch(Arc::clone(&reloader), hangup));
    let watched: Vec<Arc<Tls>> = [&http_tls, &resp_tls, &admin_tls].into_iter().flatten().cloned().collect();
    if !watched.is_empty() {
        let watch = tls::Watch::start(watched).map_err(system("cannot listen for SIGHUP"))?;
        beside.spawn(watch.run());
    }
    // The files of unix sockets go when this function ends, however it ends.
    let mut files = Vec::new();
    let mut opened = |bound: Option<Bound>, proxies, tls| {
        let mut bound = bound?;
        files.extend(bound.file.take());
        Some((bound, opening(config, proxies, tls)))
    };
    let http = opened(http, config.listen.proxies.clone(), http_tls);
    let resp = opened(resp, Proxies::default(), resp_tls);
    let mut workers = open_doors(config, http, resp, &engine, &telemetry, &view)?;
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
            // It outlives every drain, to say that there is one; a life of its own never closes it.
            let (forever, view) = Life::start();
            let bounds = Bounds { connections_max: ADMIN_CONNECTIONS_MAX, ..bounds(config) };
            let (admin, opening) = (Arc::clone(&admin), opening.clone());
            beside.spawn(async move {
                let _forever = forever;
                serve(listener, opening, admin, view, bounds).await;
            });
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
    match ended_early {
        None => Ok(()),
        Some(worker) => {
            let name = worker.name().to_owned();
            let error = worker.result().err().unwrap_or_else(|| io::Error::other("it returned"));
            Err(RunError::Worker { name, error })
        }
    }
}

/// The engine, with its heartbeat on the runtime we are on.
fn engine(config: &Config, telemetry: &Telemetry) -> Result<Engine, RunError> {
    let policy = reload::policy(config, reload::FIRST_VERSION)?;
    let store = match &config.redis {
        Some(redis) => AnyStore::Redis(RedisStore::new(redis.clone())?),
        None => AnyStore::Memory(memory(config)),
    };
    let observer: Arc<dyn Observer> = Arc::<EngineMetrics>::clone(&telemetry.engine);
    Ok(Engine::builder(store)
        .policy(policy)
        .deadline(config.outage.deadline)
        .on_outage(config.outage.on_outage)
        .instances(config.outage.instances)
        .local(memory(config))
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

/// What one worker is given to serve of a door.
struct Share<D> {
    listener: Unserved,
    opening: Opening,
    door: D,
}

/// One worker per core: each serves its own listener of every door, and has its own connection to Redis.
fn open_doors(
    config: &Config,
    http: Option<(Bound, Opening)>,
    resp: Option<(Bound, Opening)>,
    engine: &Engine,
    telemetry: &Telemetry,
    view: &LifeView,
) -> Result<Vec<Worker>, RunError> {
    let limits = &config.limits;
    let http = shares(http, |gate| {
        let metrics = Arc::clone(&telemetry.http);
        HttpDoor::new(engine.clone(), gate(config), limits.sliding_log_max, limits.idle_timeout, metrics)
    });
    let resp = shares(resp, |gate| {
        let pace = if config.redis.is_some() { Pace::Later } else { Pace::AtOnce };
        let patience = Patience { between: limits.resp_idle_timeout, within: limits.idle_timeout };
        RespDoor::new(engine.clone(), gate(config), pace, patience, Arc::clone(&telemetry.resp))
    });
    let count = http.len().max(resp.len());
    let (mut http, mut resp) = (http.into_iter(), resp.into_iter());
    let mut workers = Vec::with_capacity(count);
    for at in 0..count {
        let (http, resp) = (http.next(), resp.next());
        let (engine, view, bounds) = (engine.clone(), view.clone(), bounds(config));
        let work = async move || {
            if let AnyStore::Redis(store) = engine.store() {
                store.warm();
            }
            let serve_http = async {
                let Some(Share { listener, opening, door }) = http else { return Ok(()) };
                serve(listener.serve()?, opening, Arc::new(door), view.clone(), bounds).await;
                Ok(())
            };
            let serve_resp = async {
                let Some(Share { listener, opening, door }) = resp else { return Ok(()) };
                resp::serve(listener.serve()?, opening, door, view.clone(), bounds).await;
                Ok(())
            };
            let (http, resp): (io::Result<()>, io::Result<()>) = tokio::join!(serve_http, serve_resp);
            http.and(resp)
        };
        workers.push(Worker::start(format!("door-{at}"), work).map_err(system("cannot start a worker"))?);
    }
    Ok(workers)
}

/// A door for each of its listeners; none for a closed one.
fn shares<D>(bound: Option<(Bound, Opening)>, door: impl Fn(&dyn Fn(&Config) -> Gate) -> D) -> Vec<Share<D>> {
    let Some((Bound { endpoint, listeners, .. }, opening)) = bound else { return Vec::new() };
    let gate = |config: &Config| Gate::new(config.tokens.doors.clone(), &endpoint);
    let share = |listener| Share { listener, opening: opening.clone(), door: door(&gate) };
    listeners.into_iter().map(share).collect()
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
