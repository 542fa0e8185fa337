//! A primary is replaced in every way it can be, several times over, and every figure of `docs/failure.md` on it is measured:
//!
//! ```text
//! cargo xtask campaign failover --rounds 20
//! ```
//!
//! What a failover must not do is tested in `sentinel.rs` and `cluster.rs`; here stands how far it keeps from that.

#[path = "failover/campaign.rs"]
mod campaign;
#[path = "failover/clients.rs"]
mod clients;
#[path = "faults/excess.rs"]
mod excess;
#[path = "failover/partition.rs"]
mod partition;
#[path = "failover/primaries.rs"]
mod primaries;
#[path = "failover/replaced.rs"]
mod replaced;
#[path = "failover/round.rs"]
mod round;
