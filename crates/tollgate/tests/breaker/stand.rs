//! Instances on one Redis, each with its own connection, and calls that end as they are told to.

use std::sync::Arc;
use std::time::Duration;

use testkit::{RedisServer, unique_prefix};
use tollgate::Micros;
use tollgate::breaker::{Breakers, Handle, Permit, Refused, Whose};
use tollgate::core::breaker::{Breaker, Permille, Settings, State, Window};
use tollgate::store::redis::{RedisConfig, RedisStore, RedisUrl};

pub(crate) type Instance = Breakers<RedisStore>;
pub(crate) type Payments = Handle<RedisStore>;

/// Trips after five failures in a row; opens for long enough to be seen, and is judged from half a second on.
pub(crate) fn settings() -> Settings {
    Settings {
        window: Window::Time(Micros::SECOND),
        open_for: Micros::from_millis(300),
        open_max: Micros::from_secs(2),
        jitter: Permille(0),
        probes: 2,
        probe_for: Micros::from_millis(500),
        successes_to_close: 2,
        ramp: vec![Permille(500)],
        ramp_step: Micros::from_millis(100),
        ..Settings::default()
    }
}

pub(crate) fn on(url: &str, prefix: &str, settings: Settings) -> Instance {
    let mut config = RedisConfig::new(RedisUrl::parse(url).expect("a URL of testkit's"));
    prefix.clone_into(&mut config.key_prefix);
    config.dial_timeout = Duration::from_secs(2);
    let store = RedisStore::new(config).expect("no TLS to go wrong");
    Breakers::start(Arc::new(store), Breaker::try_new(settings).expect("settings of a test's"))
}

/// Reaches Redis by way of another breaker: on a busy machine the first connection may take longer than a call waits.
pub(crate) async fn reach(instance: &Instance) {
    let other = instance.handle(b"another").expect("there is room");
    until("Redis is reached", || async { call(&other, true).await && other.is_shared() }).await;
}

/// So many instances, with the same breaker each, that have heard of the fleet.
pub(crate) async fn fleet(
    server: &RedisServer,
    count: usize,
    settings: Settings,
) -> Vec<(Instance, Payments)> {
    let prefix = unique_prefix();
    let mut fleet = Vec::new();
    for _ in 0..count {
        let instance = on(&server.url(), &prefix, settings.clone());
        let payments = instance.handle(b"payments").expect("there is room");
        until("the fleet is heard of", || async {
            call(&payments, true).await;
            payments.is_shared()
        })
        .await;
        fleet.push((instance, payments));
    }
    fleet
}

/// One call that goes well or badly; whether it was made.
pub(crate) async fn call(payments: &Payments, goes_well: bool) -> bool {
    match payments.permit().await {
        Ok(permit) if goes_well => permit.success(),
        Ok(permit) => permit.failure(),
        Err(Refused { .. }) => return false,
    }
    true
}

/// Waits until it is so, for at most ten seconds.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, is_so: impl Fn() -> F) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while !is_so().await {
        assert!(tokio::time::Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub(crate) async fn until_state(payments: &Payments, state: State) {
    until(state.name(), || async { payments.state() == state }).await;
}

/// Fails until nothing passes.
pub(crate) async fn fail_until_refused(payments: &Payments) {
    until("it refuses", || async { !call(payments, false).await }).await;
}

/// Waits until the fleet's record says so.
pub(crate) async fn until_fleet_is(server: &RedisServer, state: State) {
    until(state.name(), || async {
        let keys = server.command(&["KEYS", "*:cb:*:s"]).await;
        let key = keys.array()[0].text();
        server.command(&["HGET", &key, "state"]).await.text() == state.name()
    })
    .await;
}

/// A permit of the fleet's to probe with, as soon as there is one.
pub(crate) async fn probe(payments: &Payments) -> Permit<RedisStore> {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    loop {
        if let Ok(permit) = payments.permit().await {
            match permit.whose() {
                Some(Whose::Fleet) => return permit,
                // It has tripped by itself, or lost touch in a stall of the machine: it gets over that first.
                Some(Whose::Own) => permit.success(),
                None => permit.ignore(),
            }
        }
        assert!(tokio::time::Instant::now() < deadline, "never a probe: {:?}", payments.stance());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
