//! Which node serves which slot, as a node of the cluster tells it.

use std::sync::Arc;

use super::slots::SLOTS;
use crate::store::redis::node::Node;
use crate::store::redis::url::Seed;
use crate::store::redis::wire::Reply;

/// Stands for a slot that nobody serves.
const NOBODY: u16 = u16::MAX;

/// Which node serves which slot. Never changed, only replaced.
#[derive(Debug)]
pub(in crate::store::redis) struct Map {
    /// By slot, the place of its node among the nodes.
    owners: Box<[u16]>,
    /// The primaries that serve a slot, each with the first of its slots.
    pub(super) nodes: Vec<(Arc<Node>, u16)>,
    /// The cluster's epoch when it was told.
    pub(super) epoch: u64,
}

/// What a node says of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct View {
    /// Primaries, each with ranges of slots, both ends included.
    pub shards: Vec<(Seed, Vec<(u16, u16)>)>,
    /// The newest epoch it knows of.
    pub epoch: u64,
    /// Whether it takes the cluster for well.
    pub is_well: bool,
}

impl Map {
    pub(super) fn new(view: &View, mut node: impl FnMut(&Seed) -> Option<Arc<Node>>) -> Map {
        let mut owners = vec![NOBODY; usize::from(SLOTS)].into_boxed_slice();
        let mut nodes = Vec::with_capacity(view.shards.len());
        for (seed, ranges) in &view.shards {
            let (Some(node), Some(first)) = (node(seed), ranges.iter().map(|(first, _)| *first).min()) else {
                continue;
            };
            let number = u16::try_from(nodes.len()).unwrap_or(NOBODY);
            for &(first, last) in ranges {
                owners[usize::from(first)..=usize::from(last)].fill(number);
            }
            nodes.push((node, first));
        }
        Map { owners, nodes, epoch: view.epoch }
    }

    /// The node that serves a slot.
    pub(in crate::store::redis) fn node(&self, slot: u16) -> Option<&Arc<Node>> {
        let number = *self.owners.get(usize::from(slot))?;
        self.nodes.get(usize::from(number)).map(|(node, _)| node)
    }

    /// Whether every slot is served.
    pub(super) fn is_whole(&self) -> bool {
        !self.owners.contains(&NOBODY)
    }
}

impl View {
    /// What `CLUSTER SLOTS` and `CLUSTER INFO` say, asked of `asked`.
    pub(super) fn read(slots: &Reply, info: &Reply, asked: &Seed) -> Result<View, String> {
        let ranges = match slots {
            Reply::Array(ranges) => ranges,
            Reply::Error(message) => return Err(message.clone()),
            _ => return Err("slots that are no list".to_owned()),
        };
        let mut shards: Vec<(Seed, Vec<(u16, u16)>)> = Vec::new();
        for range in ranges {
            let Reply::Array(range) = range else { return Err("a range that is none".to_owned()) };
            let [Reply::Integer(first), Reply::Integer(last), Reply::Array(primary), ..] = range.as_slice()
            else {
                return Err("a range that is none".to_owned());
            };
            let slot = |number: &i64| u16::try_from(*number).ok().filter(|slot| *slot < SLOTS);
            let (Some(first), Some(last)) = (slot(first), slot(last)) else {
                return Err("a slot that is none".to_owned());
            };
            let seed = seed_of(primary, asked).ok_or("a node that is none")?;
            match shards.iter_mut().find(|(known, _)| *known == seed) {
                Some((_, ranges)) => ranges.push((first, last)),
                None => shards.push((seed, vec![(first, last)])),
            }
        }
        // A user that may not ask for it is no reason to know nothing.
        let info = match info {
            Reply::Bulk(info) => String::from_utf8_lossy(info).into_owned(),
            _ => String::new(),
        };
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
        Ok(View {
            shards,
            epoch: field("cluster_current_epoch:").and_then(|epoch| epoch.trim().parse().ok()).unwrap_or(0),
            is_well: field("cluster_state:").is_none_or(|state| state.trim() == "ok"),
        })
    }
}

fn seed_of(node: &[Reply], asked: &Seed) -> Option<Seed> {
    let [host, Reply::Integer(port), ..] = node else { return None };
    let host = match host {
        Reply::Bulk(host) if !host.is_empty() => String::from_utf8(host.clone()).ok()?,
        // It does not know by what name we reach it: by the one we just did.
        _ => asked.host.clone(),
    };
    Some(Seed { host, port: u16::try_from(*port).ok()? })
}

/// What an answer says about where to ask instead. Whichever it is, nothing ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store::redis) enum Redirect {
    /// The slot is served there now.
    Moved(Seed),
    /// The slot is on its way there, and this key is not here any more or not yet.
    Moving(Seed),
    /// The keys of one call are on both sides for a moment.
    TryAgain,
}

impl Redirect {
    /// Reads an error reply that `asked` gave.
    pub(in crate::store::redis) fn read(message: &str, asked: &Seed) -> Option<Redirect> {
        let mut words = message.split(' ');
        let kind = words.next()?;
        if kind == "TRYAGAIN" {
            return Some(Redirect::TryAgain);
        }
        if !matches!(kind, "MOVED" | "ASK") {
            return None;
        }
        let (host, port) = words.nth(1)?.rsplit_once(':')?;
        let host = if host.is_empty() { &asked.host } else { host };
        let seed = Seed { host: host.to_owned(), port: port.parse().ok()? };
        Some(if kind == "MOVED" { Redirect::Moved(seed) } else { Redirect::Moving(seed) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed(host: &str, port: u16) -> Seed {
        Seed { host: host.to_owned(), port }
    }

    fn bulk(text: &str) -> Reply {
        Reply::Bulk(text.as_bytes().to_vec())
    }

    #[test]
    fn a_view_is_read_as_servers_write_it() {
        let node = |host: Reply, port| {
            Reply::Array(vec![host, Reply::Integer(port), bulk("id"), Reply::Array(vec![])])
        };
        let range = |first, last, nodes: Vec<Reply>| {
            Reply::Array([vec![Reply::Integer(first), Reply::Integer(last)], nodes].concat())
        };
        let slots = Reply::Array(vec![
            range(0, 99, vec![node(bulk("a"), 1), node(bulk("replica"), 9)]),
            range(200, 16_383, vec![node(bulk("a"), 1)]),
            range(100, 199, vec![node(Reply::Nil, 2)]),
        ]);
        let info = bulk("cluster_state:ok\r\ncluster_current_epoch:7\r\n");
        let view = View::read(&slots, &info, &seed("asked", 1)).expect("a view");
        let shards = vec![(seed("a", 1), vec![(0, 99), (200, 16_383)]), (seed("asked", 2), vec![(100, 199)])];
        assert_eq!(view, View { shards, epoch: 7, is_well: true });

        let hidden =
            View::read(&slots, &Reply::Error("NOPERM".to_owned()), &seed("asked", 1)).expect("a view");
        assert_eq!((hidden.epoch, hidden.is_well), (0, true));
        let down = View::read(&slots, &bulk("cluster_state:fail\r\n"), &seed("asked", 1)).expect("a view");
        assert!(!down.is_well);
        for bad in [
            Reply::Error("ERR This instance has cluster support disabled".to_owned()),
            Reply::Array(vec![range(0, 16_384, vec![node(bulk("a"), 1)])]),
            Reply::Array(vec![range(0, 1, vec![node(bulk("a"), 99_999)])]),
            Reply::Array(vec![Reply::Integer(1)]),
            Reply::Nil,
        ] {
            assert!(View::read(&bad, &info, &seed("asked", 1)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn redirects_are_read_as_servers_write_them() {
        let asked = seed("asked", 1);
        let read = |message: &str| Redirect::read(message, &asked);
        assert_eq!(read("MOVED 3999 127.0.0.1:6381"), Some(Redirect::Moved(seed("127.0.0.1", 6381))));
        assert_eq!(read("ASK 3999 ::1:6381"), Some(Redirect::Moving(seed("::1", 6381))));
        assert_eq!(read("MOVED 3999 :6381"), Some(Redirect::Moved(seed("asked", 6381))));
        assert_eq!(read("TRYAGAIN Multiple keys request during rehashing of slot"), Some(Redirect::TryAgain));
        for other in
            ["MOVED", "MOVED 1", "MOVED 1 host", "MOVED 1 host:x", "CLUSTERDOWN Hash slot not served", ""]
        {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
