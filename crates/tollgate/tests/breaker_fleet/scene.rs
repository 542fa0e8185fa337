//! A Redis, a destination, and instances as processes.

use std::collections::BTreeMap;
use std::time::Duration;

use testkit::{Child, ClockShim, RedisServer, Reply, unique_prefix};
use tokio::sync::{Mutex, MutexGuard};

use crate::destination::Destination;
use crate::worker::Orders;

/// One fleet at a time: dozens of processes are enough for a machine of two cores.
static ALONE: Mutex<()> = Mutex::const_new(());

pub(crate) struct Scene {
    // Order: fields drop as declared, and whoever calls must be gone before whom it calls.
    pub instances: BTreeMap<u32, Child>,
    pub destination: Destination,
    pub server: RedisServer,
    pub prefix: String,
    pub settings: &'static str,
    pub pause: Duration,
    /// One for each skew: they are read when a process looks at its clock.
    clocks: [ClockShim; 3],
    _alone: MutexGuard<'static, ()>,
}

impl Scene {
    pub(crate) async fn new(settings: &'static str, pause: Duration) -> Scene {
        Scene::on(RedisServer::start().await, settings, pause).await
    }

    pub(crate) async fn on(server: RedisServer, settings: &'static str, pause: Duration) -> Scene {
        Scene {
            _alone: ALONE.lock().await,
            instances: BTreeMap::new(),
            destination: Destination::start().await,
            server,
            prefix: unique_prefix(),
            settings,
            pause,
            clocks: std::array::from_fn(|_| ClockShim::new()),
        }
    }

    pub(crate) fn orders(&self) -> Orders {
        Orders {
            url: self.server.url(),
            prefix: self.prefix.clone(),
            told_at: self.destination.address,
            calls_at: self.destination.address,
            settings: self.settings,
            pause: self.pause,
            most_calls: u64::MAX,
        }
    }

    pub(crate) fn start(&mut self, who: u32, orders: &Orders) {
        let child = orders.start(who, &self.clocks[who as usize % 3]);
        self.instances.insert(who, child);
    }

    pub(crate) fn start_all(&mut self, count: u32) {
        let orders = self.orders();
        (0..count).for_each(|who| self.start(who, &orders));
    }

    /// Ends an instance with SIGKILL.
    pub(crate) fn kill(&mut self, who: u32) {
        self.instances.remove(&who).expect("it was started").kill();
        self.destination.forget(who);
    }

    pub(crate) fn key(&self, end: &str) -> String {
        format!("{}:cb:{{payments}}:{end}", self.prefix)
    }

    /// The fleet's record.
    pub(crate) async fn record(&self) -> BTreeMap<String, String> {
        let fields = self.server.command(&["HGETALL", &self.key("s")]).await;
        let words: Vec<String> = fields.array().iter().map(Reply::text).collect();
        words.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
    }

    /// A number of the fleet's record.
    pub(crate) async fn number(&self, field: &str) -> u64 {
        let record = self.record().await;
        record.get(field).and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{field}: {record:?}"))
    }

    /// Waits until the fleet's record says so.
    pub(crate) async fn until_fleet_is(&self, state: &str) {
        until(state, async || self.record().await.get("state").is_some_and(|is| is == state)).await;
    }

    /// Waits until so many instances are in that state, and in touch with the fleet.
    pub(crate) async fn until_all_are(&self, state: &str) {
        let all = self.instances.len();
        until(state, async || self.destination.in_state(state) == all).await;
    }
}

/// Waits until it is so, for at most a minute.
pub(crate) async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_mins(1);
    while !is_so().await {
        assert!(tokio::time::Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The given share of sorted figures, and the largest.
pub(crate) fn quantiles(figures: &mut [u64]) -> (u64, u64, u64) {
    figures.sort_unstable();
    let at = |share: usize| figures[(figures.len() * share / 100).min(figures.len() - 1)];
    (at(50), at(99), figures[figures.len() - 1])
}
