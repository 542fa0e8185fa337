//! Every algorithm on every topology through every tier: the contract, and a process killed in the middle of its work.
//! `docs/testing.md` shows what ran, cell by cell.
#![expect(clippy::disallowed_methods, reason = "workers are told what to do by their environment")]
#![expect(clippy::print_stdout, reason = "workers report on it, and figures are printed for people")]

#[path = "matrix/bound.rs"]
mod bound;
#[path = "matrix/cells.rs"]
mod cells;
#[path = "matrix/contract.rs"]
mod contract;
#[path = "matrix/fleet.rs"]
mod fleet;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use testkit::{
    ClockShim, RedisCluster, RedisServer, SentinelGroup, TestTime, asks_contract, kind_contract,
    unique_prefix,
};
use tollgate::clock::Clock;
use tollgate::store::memory::MemoryStore;
use tollgate::store::redis::RedisStore;
use tollgate::{Kind, Micros, clock};

use cells::{Proof, Table, Tier, Topology};
use contract::{Hands, START, engine_contract};

const DOCUMENT: &str = include_str!("../../../docs/testing.md");

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_cell_holds_and_the_docs_show_it() {
    let mut table = Table::default();
    memory(&mut table).await;
    for topology in [Topology::Single, Topology::Sentinel, Topology::Cluster] {
        let started = clock::instant();
        let (servers, shim) = Servers::start(topology).await;
        let url = Arc::<str>::from(servers.url());
        println!("{topology}: started in {:?}", started.elapsed());
        for tier in Tier::ALL {
            for (kind, result) in fleet::killed_in_the_middle(&url, tier).await {
                table.note((kind, topology, tier, Proof::Kill), result);
            }
        }
        println!("{topology}: killed in the middle, after {:?}", started.elapsed());
        let time = Arc::new(Hands::freeze(shim));
        for tier in Tier::ALL {
            contract_cells(&mut table, topology, tier, &url, &time).await;
        }
        println!("{topology}: contracts kept, after {:?}", started.elapsed());
    }
    println!("\n{table}");
    assert_eq!(table.failures(), [""; 0]);
    assert!(DOCUMENT.contains(&table.to_string()), "docs/testing.md has another table than this:\n\n{table}");
}

/// One server, or several that appear as one store. All end with the value.
enum Servers {
    Single(RedisServer),
    Sentinel(SentinelGroup),
    Cluster(RedisCluster),
}

impl Servers {
    /// All on one clock, whose leaps nobody takes for silence.
    async fn start(topology: Topology) -> (Servers, Arc<ClockShim>) {
        let shim = Arc::new(ClockShim::new());
        let clock = Arc::clone(&shim);
        let servers = match topology {
            Topology::Memory => unreachable!("memory needs no server"),
            Topology::Single => Servers::Single(RedisServer::builder().on_clock(clock).start().await),
            Topology::Sentinel => {
                let group = SentinelGroup::builder().on_clock(clock).arg("repl-timeout", "1000000");
                Servers::Sentinel(group.down_after(Duration::from_hours(1)).start().await)
            }
            Topology::Cluster => {
                let cluster = RedisCluster::builder().without_replicas().on_clock(clock);
                Servers::Cluster(cluster.node_timeout(Duration::from_hours(200)).start().await)
            }
        };
        (servers, shim)
    }

    fn url(&self) -> String {
        match self {
            Servers::Single(server) => server.url(),
            Servers::Sentinel(group) => group.url(),
            Servers::Cluster(cluster) => cluster.url(),
        }
    }
}

/// The engine's promises through every tier, and the store's by the calls it really makes: with batches and without.
async fn contract_cells(
    table: &mut Table,
    topology: Topology,
    tier: Tier,
    url: &Arc<str>,
    time: &Arc<Hands>,
) {
    let store = || {
        let store = RedisStore::new(tier.config(url, &unique_prefix())).expect("no TLS to go wrong");
        Arc::new(store)
    };
    for kind in Kind::ALL {
        let cell = (kind, topology, tier, Proof::Contract);
        let (url, hands) = (Arc::clone(url), Arc::clone(time));
        let engine = async move { engine_contract(&url, tier, kind, &hands).await };
        table.note(cell, tried(engine).await);
        if tier <= Tier::Batch {
            let (store, hands) = (store(), Arc::clone(time));
            let result = tried(async move {
                kind_contract(&store, &*hands, kind).await;
                uses_batches(&store, tier);
            });
            table.note(cell, result.await);
        }
    }
    if tier <= Tier::Batch {
        let (store, hands) = (store(), Arc::clone(time));
        let result = tried(async move {
            asks_contract(&store, &*hands).await;
            uses_batches(&store, tier);
        });
        let result = result.await;
        for kind in Kind::ALL {
            table.note((kind, topology, tier, Proof::Contract), result.clone());
        }
    }
}

/// Where there are batches the contract went through some.
fn uses_batches(store: &RedisStore, tier: Tier) {
    let batches: u64 = store.stats().batches.calls[1..].iter().sum();
    assert_eq!(batches > 0, tier == Tier::Batch, "{batches} batches");
}

async fn memory(table: &mut Table) {
    let (clock, hand) = Clock::manual(START);
    let (store, hand) = (Arc::new(MemoryStore::builder().clock(clock).build()), Arc::new(Hand(hand)));
    for kind in Kind::ALL {
        let (ours, hand) = (Arc::clone(&store), Arc::clone(&hand));
        let result = tried(async move { kind_contract(&ours, &*hand, kind).await }).await;
        table.note((kind, Topology::Memory, Tier::None, Proof::Contract), result);
    }
    let result = tried(async move { asks_contract(&store, &*hand).await }).await;
    for kind in Kind::ALL {
        table.note((kind, Topology::Memory, Tier::None, Proof::Contract), result.clone());
    }
}

/// A cell that fails does not keep the others from being seen.
async fn tried(cell: impl Future<Output = ()> + Send + 'static) -> Result<(), String> {
    tokio::spawn(cell).await.map_err(|error| {
        let panic = error.into_panic();
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
    })
}

/// The hand of a clock that is moved by hand.
struct Hand(Arc<AtomicU64>);

impl TestTime for Hand {
    fn forward(&self, by: Duration) {
        self.0.fetch_add(Micros::from(by).0, Ordering::SeqCst);
    }

    fn back(&self, by: Duration) {
        self.0.fetch_sub(Micros::from(by).0, Ordering::SeqCst);
    }
}
