//! The cells: every algorithm on every topology through every tier, which of them are empty and why, and the table.

use std::collections::HashMap;
use std::fmt::{self, Write as _};

use tollgate::Kind;
use tollgate::core::policy::Lease;
use tollgate::store::redis::{RedisConfig, RedisUrl};
use tollgate::{Algorithm, Micros, Policy, Rate, Rule};

/// Where state lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Topology {
    Memory,
    Single,
    Sentinel,
    Cluster,
}

/// What spares round trips. Each stands on those before it, as a user has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Tier {
    None,
    Batch,
    DenyCache,
    Lease,
}

/// What is shown in a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Proof {
    Contract,
    Kill,
}

impl Topology {
    pub(crate) const ALL: [Topology; 4] =
        [Topology::Memory, Topology::Single, Topology::Sentinel, Topology::Cluster];
}

impl Tier {
    pub(crate) const ALL: [Tier; 4] = [Tier::None, Tier::Batch, Tier::DenyCache, Tier::Lease];

    pub(crate) fn parse(text: &str) -> Option<Tier> {
        Tier::ALL.into_iter().find(|tier| tier.to_string() == text)
    }

    /// The store's part of it, on servers that may be busy with other tests.
    pub(crate) fn config(self, url: &str, prefix: &str) -> RedisConfig {
        let mut config = RedisConfig::new(RedisUrl::parse(url).expect("a URL of testkit's"));
        prefix.clone_into(&mut config.key_prefix);
        config.batch = self >= Tier::Batch;
        config.read_timeout = std::time::Duration::from_secs(20);
        config.write_timeout = std::time::Duration::from_secs(20);
        config.dial_timeout = std::time::Duration::from_secs(20);
        config
    }

    /// Rules by name, of which each may lease.
    pub(crate) fn policy(self, limits: &[(String, Algorithm)]) -> Policy {
        let rules = limits.iter().map(|(name, limit)| {
            let rule = Rule::builder(name).limits(vec![limit.clone()]);
            let rule = if self == Tier::Lease { rule.lease(lease(limit)) } else { rule };
            rule.build().expect("a rule")
        });
        Policy::try_new(1, rules.collect()).expect("a policy")
    }

    /// For how long tokens of a limit may be out.
    pub(crate) fn lease_time(self, limit: &Algorithm) -> Micros {
        let terms = lease(limit).terms(limit).expect("it can be leased");
        if self == Tier::Lease { terms.time } else { Micros::ZERO }
    }
}

/// Twenty tokens for a tenth of a second, or for as long as a log may have them out.
fn lease(limit: &Algorithm) -> Lease {
    let time = Micros::from_millis(100);
    let longest = Lease::Auto.terms(limit).expect("it can be leased").time;
    Lease::Within { max: 20, time: time.min(longest) }
}

pub(crate) fn limit(kind: Kind, rate: &str) -> Algorithm {
    Algorithm::try_new(kind, Rate::parse(rate).expect("a rate"), None, 1000).expect("a limit")
}

/// Why there is nothing to be shown.
fn why_empty(topology: Topology, tier: Tier, proof: Proof) -> Option<usize> {
    match (topology, tier, proof) {
        (Topology::Memory, Tier::Batch, _) => Some(1),
        (Topology::Memory, Tier::DenyCache, _) => Some(2),
        (Topology::Memory, Tier::Lease, _) => Some(3),
        (Topology::Memory, Tier::None, Proof::Kill) => Some(4),
        _ => None,
    }
}

const WHY_EMPTY: [&str; 4] = [
    "memory is asked without a trip, so nothing waits that could travel together",
    "memory refuses as fast as a cache would: the engine remembers refusals of shared stores only",
    "tokens taken ahead spare a trip, and memory needs none; leases over memory are in `tests/engine/leasing.rs`",
    "memory is one process's own, and dies with it: nobody is left whom a kill could hurt",
];

/// What came of the cells so far.
#[derive(Debug, Default)]
pub(crate) struct Table(HashMap<(Kind, Topology, Tier, Proof), Result<(), String>>);

impl Table {
    pub(crate) fn note(
        &mut self,
        (kind, topology, tier, proof): (Kind, Topology, Tier, Proof),
        result: Result<(), String>,
    ) {
        let cell = (kind, topology, tier, proof);
        assert_eq!(why_empty(topology, tier, proof), None, "{cell:?} is said to be empty");
        // The first failure is the one to read.
        let kept = self.0.entry(cell).or_insert(Ok(()));
        if kept.is_ok() {
            *kept = result;
        }
    }

    /// The cells that failed, in words.
    pub(crate) fn failures(&self) -> Vec<String> {
        let failed = self.0.iter().filter_map(|(cell, result)| Some((cell, result.as_ref().err()?)));
        let mut failed: Vec<String> = failed.map(|(cell, why)| format!("{cell:?}: {why}")).collect();
        failed.sort_unstable();
        failed
    }
}

/// As `docs/testing.md` has it.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| algorithm | topology |")?;
        for tier in Tier::ALL {
            write!(f, " {tier} |")?;
        }
        writeln!(f, "\n|---|---|---|---|---|---|")?;
        for kind in Kind::ALL {
            for topology in Topology::ALL {
                write!(f, "| `{kind}` | {topology} |")?;
                for tier in Tier::ALL {
                    let shown = |proof| match self.0.get(&(kind, topology, tier, proof)) {
                        Some(Ok(())) => proof.to_string(),
                        Some(Err(_)) => "FAILED".to_owned(),
                        None => why_empty(topology, tier, proof)
                            .map_or("NOT RUN".to_owned(), |why| format!("– ({why})")),
                    };
                    let (contract, kill) = (shown(Proof::Contract), shown(Proof::Kill));
                    if contract == kill {
                        write!(f, " {contract} |")?;
                    } else {
                        write!(f, " {contract}, {kill} |")?;
                    }
                }
                writeln!(f)?;
            }
        }
        let mut notes = String::new();
        for (at, why) in (1..).zip(WHY_EMPTY) {
            let _ = write!(notes, "\n({at}) {why}.");
        }
        writeln!(f, "{notes}")
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Topology::Memory => "memory",
            Topology::Single => "single",
            Topology::Sentinel => "Sentinel",
            Topology::Cluster => "Cluster",
        })
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tier::None => "none",
            Tier::Batch => "batch",
            Tier::DenyCache => "deny cache",
            Tier::Lease => "lease",
        })
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Proof::Contract => "contract",
            Proof::Kill => "kill -9",
        })
    }
}
