//! Where state is kept, and what that has cost: memory, one Redis, or a cluster of three primaries.
//!
//! Whoever asks has the first core and whoever keeps state the second, so that neither waits for the other.

use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use testkit::{RedisClient, RedisCluster, RedisServer, Reply};

use crate::measure::median;

/// Which store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Memory,
    Single,
    Cluster,
}

impl Kind {
    /// All of them.
    pub(super) const ALL: [Kind; 3] = [Kind::Memory, Kind::Single, Kind::Cluster];

    /// The word for it in a filter.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Memory => "memory",
            Kind::Single => "single Redis",
            Kind::Cluster => "cluster of 3",
        }
    }
}

/// The servers of a store, and a way in for the administrator of each.
#[derive(Debug)]
pub(super) struct Place {
    servers: Vec<RedisServer>,
    cluster: Option<RedisCluster>,
    admins: Vec<RedisClient>,
}

impl Place {
    /// Starts what it takes, on the second core.
    pub(super) async fn start(kind: Kind) -> Place {
        pin(1);
        let mut place = Place { servers: Vec::new(), cluster: None, admins: Vec::new() };
        match kind {
            Kind::Memory => {}
            Kind::Single => place.servers.push(RedisServer::start().await),
            Kind::Cluster => {
                place.cluster = Some(RedisCluster::builder().without_replicas().start().await);
            }
        }
        pin(0);
        for server in servers(&place.servers, place.cluster.as_ref()) {
            place.admins.push(server.admin().await);
        }
        place
    }

    /// Counts what this Redis does.
    pub(super) async fn of(server: RedisServer) -> Place {
        let admins = vec![server.admin().await];
        Place { servers: vec![server], cluster: None, admins }
    }

    /// Where it is, if it is not memory.
    pub(super) fn url(&self) -> Option<String> {
        match (&self.cluster, self.servers.first()) {
            (Some(cluster), _) => Some(cluster.url()),
            (None, Some(server)) => Some(server.url()),
            (None, None) => None,
        }
    }

    /// The port of the first.
    pub(super) fn port(&self) -> u16 {
        self.servers.first().map_or(0, RedisServer::port)
    }

    /// Forgets every key.
    pub(super) async fn empty(&mut self) -> Result<()> {
        for admin in &mut self.admins {
            admin.command(&["FLUSHALL"]).await?;
        }
        Ok(())
    }

    /// Counts from here on.
    pub(super) async fn begin(&mut self) -> Result<Began> {
        for admin in &mut self.admins {
            admin.command(&["CONFIG", "RESETSTAT"]).await?;
        }
        Ok(Began(self.cpu_time()))
    }

    /// What was counted.
    pub(super) async fn end(&mut self, began: Began) -> Result<Usage> {
        let process = self.cpu_time().saturating_sub(began.0);
        let mut usage = Usage { process, ..Usage::default() };
        for admin in &mut self.admins {
            let info = admin.command(&["INFO", "everything"]).await?.text();
            let (calls, micros) = asked_for(&info)?;
            usage.calls += calls;
            usage.micros += micros;
            usage.bytes += number(&info, "total_net_input_bytes:")?;
            usage.bytes += number(&info, "total_net_output_bytes:")?;
        }
        Ok(usage)
    }

    /// Bytes in use, and keys.
    pub(super) async fn memory(&mut self) -> Result<(f64, f64)> {
        let (mut bytes, mut keys) = (0.0, 0.0);
        for admin in &mut self.admins {
            bytes += number(&admin.command(&["INFO", "memory"]).await?.text(), "used_memory:")?;
            let count = admin.command(&["DBSIZE"]).await?.integer();
            keys += f64::from(u32::try_from(count)?);
        }
        Ok((bytes, keys))
    }

    /// What Redis says a key takes, of some that are there.
    pub(super) async fn key_bytes(&mut self) -> Result<f64> {
        let admin = self.admins.first_mut().context("memory has no keys in Redis")?;
        let mut sizes = Vec::new();
        for _ in 0..50 {
            if let Reply::Bulk(key) = admin.command(&["RANDOMKEY"]).await?
                && let Reply::Integer(bytes) =
                    admin.command(&[&b"MEMORY"[..], b"USAGE", &key, b"SAMPLES", b"0"]).await?
            {
                sizes.push(f64::from(u32::try_from(bytes)?));
            }
        }
        ensure!(!sizes.is_empty(), "there is no key in Redis");
        Ok(median(sizes.into_iter()))
    }

    fn cpu_time(&self) -> Duration {
        servers(&self.servers, self.cluster.as_ref()).map(RedisServer::cpu_time).sum()
    }
}

fn servers<'a>(
    single: &'a [RedisServer],
    cluster: Option<&'a RedisCluster>,
) -> impl Iterator<Item = &'a RedisServer> {
    single.iter().chain(cluster.into_iter().flat_map(|cluster| &cluster.nodes))
}

/// The processor time that was used before.
#[derive(Debug)]
pub(super) struct Began(Duration);

/// What Redis did.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usage {
    /// Commands that clients sent.
    pub calls: f64,
    /// Microseconds inside of them.
    pub micros: f64,
    /// Bytes to and from clients.
    pub bytes: f64,
    /// Processor time of the process, reading and writing sockets included.
    pub process: Duration,
}

impl Usage {
    /// Both together.
    pub(super) fn and(self, other: Usage) -> Usage {
        Usage {
            calls: self.calls + other.calls,
            micros: self.micros + other.micros,
            bytes: self.bytes + other.bytes,
            process: self.process + other.process,
        }
    }
}

/// Commands of which others run inside, and are counted a second time.
const OUTER: &[&str] = &["fcall", "fcall_ro", "evalsha", "eval", "cl.throttle"];

/// What the administrator does, and what clients greet with.
const BESIDE: &[&str] = &[
    "info",
    "config",
    "dbsize",
    "auth",
    "hello",
    "client",
    "ping",
    "command",
    "select",
    "cluster",
    "script",
    "function",
    "time",
    "publish",
    "subscribe",
    "randomkey",
    "memory",
    "flushall",
];

/// How many commands clients sent that have to do with checks, and the microseconds they took.
fn asked_for(info: &str) -> Result<(f64, f64)> {
    let lines: Vec<(&str, &str)> = info
        .lines()
        .filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(':'))
        .map(|(name, rest)| (name.split('|').next().unwrap_or(name), rest))
        .filter(|(name, _)| !BESIDE.contains(name))
        .collect();
    let has_outer = lines.iter().any(|(name, _)| OUTER.contains(name));
    let (mut calls, mut micros) = (0.0, 0.0);
    for (name, rest) in lines {
        if !has_outer || OUTER.contains(&name) {
            let field = |name: &str| rest.split(',').find_map(|part| part.strip_prefix(name));
            calls += field("calls=").context("no calls")?.parse::<f64>()?;
            micros += field("usec=").context("no usec")?.parse::<f64>()?;
        }
    }
    Ok((calls, micros))
}

fn number(info: &str, name: &str) -> Result<f64> {
    let line = info.lines().find_map(|line| line.strip_prefix(name));
    Ok(line.with_context(|| format!("INFO says nothing of {name}"))?.trim().parse()?)
}

/// Keeps this thread, and what it starts from here on, to one of the first two cores that it had at first;
/// where there is only one, nothing happens.
pub(super) fn pin(core: usize) {
    static CORES: OnceLock<Vec<usize>> = OnceLock::new();
    let cores = CORES.get_or_init(|| {
        let may = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        (0..CpuSet::MAX_CPU).filter(|core| may.is_set(*core)).collect()
    });
    if let [first, second, ..] = cores.as_slice() {
        let mut one = CpuSet::new();
        one.set(if core == 0 { *first } else { *second });
        let _ = sched_setaffinity(None, &one); // without it figures are rougher, no more
    }
}

#[cfg(test)]
mod tests {
    use super::asked_for;

    const GET: &str = "cmdstat_get:calls=7,usec=9,usec_per_call=1.3,rejected_calls=0,failed_calls=0\r\n";
    const CALL: &str = "cmdstat_fcall:calls=2,usec=20,usec_per_call=10,rejected_calls=0,failed_calls=0\r\n";
    const INFO: &str = "cmdstat_config|resetstat:calls=1,usec=50,usec_per_call=50\r\n";

    #[test]
    fn what_runs_inside_a_call_is_counted_once() {
        assert_eq!(asked_for(&format!("{GET}{CALL}{INFO}")).unwrap(), (2.0, 20.0));
        assert_eq!(asked_for(&format!("{GET}{INFO}")).unwrap(), (7.0, 9.0));
    }
}
