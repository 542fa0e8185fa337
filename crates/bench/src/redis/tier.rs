//! What stands between a check and its round trip, one by one and together.

use std::num::NonZeroU16;
use std::time::Duration;

use anyhow::Result;
use testkit::unique_prefix;
use tollgate::deny_cache::DenyCache;
use tollgate::store::AnyStore;
use tollgate::store::redis::{RedisConfig, RedisStore, RedisUrl};
use tollgate::{Engine, MemoryStore, Policy, Rule};
use tollgate_core::policy::Lease;

use super::place::Kind;
use super::work::Work;

/// The memory store has to hold every key of a row.
const MEMORY_KEYS: u64 = 8_000_000;

/// What is switched on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tier {
    /// Nothing: a call for every check.
    None,
    /// `batch` alone.
    Batch,
    /// The deny cache alone.
    DenyCache,
    /// `lease: auto` alone.
    Lease,
    /// Batches and the deny cache, as shipped.
    Shipped,
    /// As shipped, and `lease: auto`.
    All,
    /// As shipped, with subjects folded into a few hash tags, so that batches form on a cluster.
    Folded,
}

impl Tier {
    /// All of them.
    pub(super) const ALL: [Tier; 7] =
        [Tier::None, Tier::Batch, Tier::DenyCache, Tier::Lease, Tier::Shipped, Tier::All, Tier::Folded];

    /// The word for it in a filter.
    pub(super) fn name(self) -> &'static str {
        match self {
            Tier::None => "none",
            Tier::Batch => "batch",
            Tier::DenyCache => "deny cache",
            Tier::Lease => "lease",
            Tier::Shipped => "as shipped",
            Tier::All => "as shipped, lease: auto",
            Tier::Folded => "as shipped, partitions: 12",
        }
    }

    /// Whether it is something else there than the others.
    pub(super) fn is_on(self, kind: Kind) -> bool {
        match kind {
            Kind::Memory => self == Tier::None,
            Kind::Single => self != Tier::Folded,
            Kind::Cluster => true,
        }
    }

    fn has_batches(self) -> bool {
        matches!(self, Tier::Batch | Tier::Shipped | Tier::All | Tier::Folded)
    }

    fn has_deny_cache(self) -> bool {
        matches!(self, Tier::DenyCache | Tier::Shipped | Tier::All | Tier::Folded)
    }

    fn has_leases(self) -> bool {
        matches!(self, Tier::Lease | Tier::All)
    }

    /// An engine on the Redis at `url`, or on its own memory, with the traffic's limit as its rule `api`.
    pub(super) fn engine(self, url: Option<&str>, work: Work) -> Result<Engine<AnyStore>> {
        let store = match url {
            None => AnyStore::Memory(MemoryStore::builder().max_keys(MEMORY_KEYS).build()),
            Some(url) => {
                let mut config = RedisConfig::new(RedisUrl::parse(url)?);
                config.key_prefix = unique_prefix();
                config.batch = self.has_batches();
                config.partitions = if self == Tier::Folded { NonZeroU16::new(12) } else { None };
                config.read_timeout = Duration::from_secs(5); // a busy machine is no outage
                AnyStore::Redis(RedisStore::new(config)?)
            }
        };
        let rule = Rule::builder("api").limits(vec![work.limit()?]);
        let rule = if self.has_leases() { rule.lease(Lease::Auto) } else { rule };
        Ok(Engine::builder(store)
            .policy(Policy::try_new(1, vec![rule.build()?])?)
            .deadline(Duration::from_secs(5))
            .deny_cache(self.has_deny_cache().then(DenyCache::builder))
            .build())
    }
}
