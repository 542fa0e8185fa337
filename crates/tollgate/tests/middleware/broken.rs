//! Breakers on a real Redis for the layers' tests, what Redis has been told, and a service that does as it is told.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use testkit::{RedisServer, unique_prefix};
use tollgate::breaker::{Breakers, Decree};
use tollgate::clock::Clock;
use tollgate::core::breaker::{Breaker, Fleet as _, Mode, Permille, Settings, State, Window};
use tollgate::store::redis::{RedisConfig, RedisStore, RedisUrl};
use tollgate::{Engine, Micros, Policy};
use tower::Service;

/// Trips at nothing but a hint: what is counted stays to be read. Leases last until they are given back.
pub(crate) fn settings() -> Settings {
    Settings {
        failures: None,
        failure_ratio: Some(Permille(1000)),
        minimum_calls: 1_000_000,
        window: Window::Time(Micros::from_secs(600)),
        hint_max: Micros::from_secs(60),
        open_for: Micros::from_secs(60),
        open_max: Micros::from_secs(60),
        probe_for: Micros::from_secs(60),
        ..Settings::default()
    }
}

/// As [`settings`], but a probe has a second, the last eighth of which is for telling.
pub(crate) fn short_leases() -> Settings {
    Settings { probe_for: Micros::SECOND, ..settings() }
}

/// Breakers of one instance, and the Redis they are on.
pub(crate) struct Stand {
    pub(crate) server: RedisServer,
    pub(crate) prefix: String,
    pub(crate) breakers: Arc<Breakers<RedisStore>>,
    fleet: Arc<RedisStore>,
}

impl Stand {
    pub(crate) async fn start(settings: Settings) -> Stand {
        Stand::start_with(settings, Clock::system()).await
    }

    /// The same, by another clock than the machine's.
    pub(crate) async fn start_with(settings: Settings, clock: Clock) -> Stand {
        let (server, prefix) = (RedisServer::start().await, unique_prefix());
        let breaker = Breaker::try_new(settings).expect("settings of a test's");
        let fleet = Arc::new(store(&server, &prefix));
        let breakers = Arc::new(Breakers::start_with(Arc::clone(&fleet), breaker, clock));
        let stand = Stand { server, prefix, breakers, fleet };
        stand.is_heard("pay").await;
        stand
    }

    /// The first use of a name asks Redis, within a deadline that a busy machine may miss.
    pub(crate) async fn is_heard(&self, id: &str) {
        let handle = self.breakers.handle(id.as_bytes()).expect("there is room");
        crate::stand::until("the fleet is heard of", || async {
            handle.permit().await.expect("it is closed").ignore();
            self.breakers.flush().await;
            handle.is_shared()
        })
        .await;
    }

    /// An engine on the same Redis, for which a busy machine is no outage.
    pub(crate) fn engine(&self, policy: Policy) -> Engine<RedisStore> {
        let store = store(&self.server, &self.prefix);
        Engine::builder(store).policy(policy).deadline(Duration::from_secs(5)).build()
    }

    async fn ask(&self, command: &[&str], id: &str, part: &str) -> testkit::Reply {
        let key = format!("{}:cb:{}:{part}", self.prefix, self.fleet.name(id.as_bytes()));
        self.server.command(&[&command[..1], &[&key], &command[1..]].concat()).await
    }

    /// What Redis has been told of `pay`: calls that went well, failed, and were slow.
    pub(crate) async fn counted(&self) -> [u64; 3] {
        self.counted_of("pay").await
    }

    pub(crate) async fn counted_of(&self, id: &str) -> [u64; 3] {
        self.breakers.flush().await;
        let mut sum = [0; 3];
        for pair in self.ask(&["HGETALL"], id, "w").await.array().chunks(2) {
            let which = match pair[0].text().as_bytes().last() {
                Some(b'f') => 1,
                Some(b's') => 2,
                _ => 0,
            };
            sum[which] += pair[1].text().parse::<u64>().expect("a number");
        }
        sum
    }

    /// Probes under way.
    pub(crate) async fn leases(&self) -> i64 {
        self.ask(&["ZCARD"], "pay", "p").await.integer()
    }

    pub(crate) async fn state(&self) -> String {
        self.ask(&["HGET", "state"], "pay", "s").await.text()
    }

    pub(crate) async fn until_leases(&self, count: i64) {
        crate::stand::until(&format!("{count} leases are out"), || async { self.leases().await == count })
            .await;
    }

    pub(crate) async fn until_state(&self, state: State) {
        crate::stand::until(state.name(), || async { self.state().await == state.name() }).await;
    }

    /// Has `pay` probe until what the probe does has brought Redis there. On a busy machine an outcome may come too late, or
    /// the instance lose touch and probe by itself: one in five must do.
    pub(crate) async fn probe_until<F: Future<Output = ()>>(&self, state: State, probe: impl Fn() -> F) {
        for _ in 0..5 {
            self.half_open().await;
            probe().await;
            let is_there = self.until_state(state);
            if tokio::time::timeout(Duration::from_secs(1), is_there).await.is_ok() {
                return;
            }
        }
        panic!("no probe has brought it there: {}", self.state().await);
    }

    /// Opens a breaker for a minute.
    pub(crate) async fn open(&self, id: &str) {
        let decree = Decree {
            mode: Mode::ForcedOpen,
            keep_for: Duration::from_mins(1),
            reason: "a test".into(),
            who: "it".into(),
        };
        self.breakers.overrule(id.as_bytes(), decree).await.expect("Redis answers");
    }

    /// Has `pay` probe.
    pub(crate) async fn half_open(&self) {
        self.open("pay").await;
        self.breakers.lift(b"pay").await.expect("Redis answers");
        assert_eq!(self.state().await, "half-open");
    }
}

fn store(server: &RedisServer, prefix: &str) -> RedisStore {
    let mut config = RedisConfig::new(RedisUrl::parse(&server.url()).expect("a URL of testkit's"));
    prefix.clone_into(&mut config.key_prefix);
    RedisStore::new(config).expect("no TLS to go wrong")
}

/// Calls until it is answered by anybody but a breaker that could not be asked in time, as on a busy machine; for
/// half a minute at most.
pub(crate) async fn until_asked<T, F: Future<Output = T>>(
    call: impl Fn() -> F,
    is_late: impl Fn(&T) -> bool,
) -> T {
    let asking = async {
        loop {
            let answer = call().await;
            if !is_late(&answer) {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), asking).await.expect("it is asked some time")
}

/// What a service is to do with a call.
#[derive(Debug, Clone)]
pub(crate) enum Do {
    Answer(u16),
    /// With this `Retry-After`.
    AnswerLater(u16, &'static str),
    Fail(io::ErrorKind),
    Panic,
    /// Never answers; says when it is dropped.
    Hang(Arc<AtomicBool>),
}

/// A service that does it.
pub(crate) fn obedient()
-> impl Service<Do, Response = Response<Bytes>, Error = io::Error, Future: Send> + Clone + Send + 'static {
    tower::service_fn(|what: Do| async move {
        let answer = Response::builder();
        let answer = match what {
            Do::Answer(status) => answer.status(status),
            Do::AnswerLater(status, when) => answer.status(status).header("retry-after", when),
            Do::Fail(kind) => return Err(io::Error::from(kind)),
            Do::Panic => panic!("as it was told"),
            Do::Hang(is_dropped) => {
                let _dropped = Dropped(is_dropped);
                std::future::pending().await
            }
        };
        Ok(answer.body(Bytes::new()).expect("a response"))
    })
}

struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
