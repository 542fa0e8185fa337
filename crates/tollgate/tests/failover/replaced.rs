//! Every way a primary is replaced while all clients are on one side: seven of them.

use std::time::{Duration, Instant};

use testkit::{RedisCluster, SentinelGroup};
use tollgate::clock;

use crate::clients::Clients;
use crate::primaries::Primaries;
use crate::round::{Round, Stalls};

/// Clients of a round.
const CLIENTS: [Option<&str>; 3] = [None; 3];

/// How long a primary is silent before Sentinels take it for gone.
pub(crate) const DOWN_AFTER: Duration = Duration::from_secs(1);

/// How long a node is silent before the others take it for gone.
pub(crate) const NODE_TIMEOUT: Duration = Duration::from_secs(1);

/// A key of the first shard.
const KEY: &str = "user-2";

/// The longest that clients are waited for.
const SETTLE_MAX: Duration = Duration::from_secs(15);

/// How the primary is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Killed,
    Hung,
    ByHand,
    CutOff,
}

/// Where, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Replaced {
    /// As the table has it.
    pub name: &'static str,
    topology: Topology,
    fault: Fault,
}

#[derive(Debug, Clone, Copy)]
enum Topology {
    Sentinel,
    Cluster,
}

impl Replaced {
    pub(crate) const ALL: [Replaced; 7] = {
        use Topology::{Cluster, Sentinel};
        const fn row(name: &'static str, topology: Topology, fault: Fault) -> Replaced {
            Replaced { name, topology, fault }
        }
        [
            row("Sentinel: primary killed (kill -9)", Sentinel, Fault::Killed),
            row("Sentinel: primary hangs (SIGSTOP)", Sentinel, Fault::Hung),
            row("Sentinel: failover by hand", Sentinel, Fault::ByHand),
            row("Sentinel: primary cut off from its peers, not from clients", Sentinel, Fault::CutOff),
            row("Cluster: primary killed (kill -9)", Cluster, Fault::Killed),
            row("Cluster: primary hangs (SIGSTOP)", Cluster, Fault::Hung),
            row("Cluster: failover by hand", Cluster, Fault::ByHand),
        ]
    };

    /// One failover of servers started for it. `wait`: how long after the limit is drained.
    pub(crate) async fn run(self, wait: Duration) -> Round {
        match self.topology {
            Topology::Sentinel => sentinel(self.fault, wait).await,
            Topology::Cluster => cluster(self.fault, wait).await,
        }
    }
}

async fn sentinel(fault: Fault, wait: Duration) -> Round {
    let mut builder = SentinelGroup::builder().down_after(DOWN_AFTER);
    // Peers that may not come in as themselves must not come in as the default user either.
    for user in ["user default off", "user app on >PASSWORD ~* &* +@all"] {
        builder = builder.acl_line(user);
    }
    let mut group = builder.start().await;
    let primaries = Primaries::watch(&group.servers);
    let stalls = Stalls::watch();
    let clients = Clients::start(&group.url_as("app:PASSWORD@"), KEY, &CLIENTS).await;
    tokio::time::sleep(wait).await;
    let broke = clock::instant();
    match fault {
        Fault::Killed => group.servers[0].kill(),
        Fault::Hung => group.servers[0].pause(),
        Fault::ByHand => group.fail_over().await,
        Fault::CutOff => group.servers[0].cut_off().await,
    }
    let (new, promoted) = group.promoted(0).await;
    end(clients, primaries, stalls, [0, new], broke, promoted).await
}

async fn cluster(fault: Fault, wait: Duration) -> Round {
    let mut cluster = RedisCluster::builder().node_timeout(NODE_TIMEOUT).start().await;
    let replica = cluster.replica_of(0).await;
    let primaries = Primaries::watch(&cluster.nodes);
    let stalls = Stalls::watch();
    let clients = Clients::start(&cluster.url(), KEY, &CLIENTS).await;
    tokio::time::sleep(wait).await;
    let broke = clock::instant();
    match fault {
        Fault::Killed => cluster.nodes[0].kill(),
        Fault::Hung => cluster.nodes[0].pause(),
        Fault::ByHand => drop(cluster.fail_over(0).await),
        Fault::CutOff => unreachable!("nodes of a cluster do not come in as users"),
    }
    let promoted = cluster.promoted(replica).await;
    end(clients, primaries, stalls, [0, replica], broke, promoted).await
}

async fn end(
    clients: Clients,
    primaries: Primaries,
    stalls: Stalls,
    [old, new]: [usize; 2],
    broke: Instant,
    promoted: Instant,
) -> Round {
    // Clients of a primary that answers as before notice nothing; that they leave it has to be waited for.
    tokio::time::sleep(Duration::from_secs(2)).await;
    clients.settle(SETTLE_MAX).await;
    let asked = clients.stop();
    Round::new(&asked, broke, promoted, primaries.both(old, new), stalls.worst())
}

#[test]
fn the_key_is_of_the_first_shard() {
    assert!(testkit::slot_of(KEY) < 16_384 / 3);
}
