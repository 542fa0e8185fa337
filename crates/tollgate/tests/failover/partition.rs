//! A network falls in two, with clients on both sides: the primary and one Sentinel here, the rest there.

use std::time::Duration;

use testkit::{SentinelGroup, TwoSides};
use tollgate::clock;

use crate::clients::Clients;
use crate::primaries::Primaries;
use crate::replaced::DOWN_AFTER;
use crate::round::{Round, Stalls, back, unavailable};

/// How long the network is cut.
pub(crate) const CUT_FOR: Duration = Duration::from_secs(12);

/// The client on the side of the old primary, and the one on the other.
const OLD_SIDE: usize = 0;
const NEW_SIDE: usize = 1;

/// Whether a primary without replicas goes on accepting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fence {
    /// It does.
    None,
    /// `min-replicas-to-write 1`, `min-replicas-max-lag 2`.
    MinReplicas,
}

/// What a partition did.
pub(crate) struct Parted {
    /// As for every failover; `back` is that of the side with the new primary.
    pub round: Round,
    /// How long the side of the old primary was not answered by Redis.
    pub old_side_unavailable: Duration,
    /// From the mending of the network until it was, for good.
    pub old_side_back: Duration,
}

/// One partition. Says what was refused where namespaces are not permitted.
pub(crate) async fn run(fence: Fence, wait: Duration) -> Result<Parted, String> {
    let network = TwoSides::new()?;
    let [here, there] = network.sides();
    let mut builder = SentinelGroup::builder().down_after(DOWN_AFTER).in_namespaces(here, there);
    // Without a user of its own nobody may come in from another address.
    builder = builder.arg("protected-mode", "no").sentinel_line("protected-mode no");
    if fence == Fence::MinReplicas {
        builder = builder.arg("min-replicas-to-write", "1").arg("min-replicas-max-lag", "2");
    }
    let group = builder.start().await;
    let primaries = Primaries::watch(&group.servers);
    let stalls = Stalls::watch();
    let clients = Clients::start(&group.url(), "user-2", &[Some(here.0), Some(there.0)]).await;
    tokio::time::sleep(wait).await;

    let broke = clock::instant();
    network.cut();
    let (new, promoted) = group.promoted(0).await;
    tokio::time::sleep(CUT_FOR.saturating_sub(broke.elapsed())).await;
    let mended = clock::instant();
    network.mend();
    // Both sides have to have found the same primary, not only one that answers.
    tokio::time::sleep(Duration::from_secs(5)).await;
    clients.settle(Duration::from_secs(20)).await;

    let asked = clients.stop();
    let mut round = Round::new(&asked, broke, promoted, primaries.both(0, new), stalls.worst());
    round.back = back(&asked, NEW_SIDE, promoted);
    round.unavailable = unavailable(&asked, NEW_SIDE, broke);
    Ok(Parted {
        old_side_unavailable: unavailable(&asked, OLD_SIDE, broke),
        old_side_back: back(&asked, OLD_SIDE, mended),
        round,
    })
}
