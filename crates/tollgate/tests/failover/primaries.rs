//! Which servers decide as primaries, and until when, by asking them how many calls they have carried out.
//!
//! A replica carries out none: what it gets is the writes. A fenced primary refuses, which is counted apart.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use testkit::{AdminDoor, RedisServer};
use tokio::task::JoinHandle;
use tollgate::clock;

/// How often a server is asked.
const EVERY: Duration = Duration::from_millis(5);

/// Watches two servers: the primary, and the one that will be.
pub(crate) struct Primaries {
    seen: Vec<Arc<Mutex<Seen>>>,
    tasks: Vec<JoinHandle<()>>,
}

/// When a server decided.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// Not before this.
    first: Option<Instant>,
    /// Not after this.
    last: Option<Instant>,
}

impl Primaries {
    /// Watches them from now on.
    pub(crate) fn watch(servers: &[RedisServer]) -> Primaries {
        let (mut seen, mut tasks) = (Vec::new(), Vec::new());
        for server in servers {
            let its = Arc::<Mutex<Seen>>::default();
            tasks.push(tokio::spawn(follow(server.admin_door(), Arc::clone(&its))));
            seen.push(its);
        }
        Primaries { seen, tasks }
    }

    /// S: how long both decided, at most; the old one to its last call and the new one from its first.
    pub(crate) fn both(self, old: usize, new: usize) -> Duration {
        for task in &self.tasks {
            task.abort();
        }
        let (old, new) = (*self.seen[old].lock(), *self.seen[new].lock());
        let (Some(first), Some(last)) = (new.first, old.last) else {
            panic!("both were primaries, and one was never seen to decide: {old:?}, {new:?}")
        };
        last.saturating_duration_since(first)
    }
}

/// Asks for ever. One that hangs is waited for; one that hangs up, as a server does when a Sentinel makes it a
/// primary, is dialled again.
async fn follow(door: AdminDoor, seen: Arc<Mutex<Seen>>) {
    let (mut before, mut asked_before) = (None, clock::instant());
    loop {
        if let Ok(mut admin) = door.open().await {
            loop {
                let asked = clock::instant();
                let Ok(stats) = admin.command(&["INFO", "commandstats"]).await else { break };
                let done = carried_out(&stats.text());
                if before.is_some_and(|before| done > before) {
                    let mut seen = seen.lock();
                    seen.first.get_or_insert(asked_before);
                    seen.last = Some(clock::instant());
                }
                (before, asked_before) = (Some(done), asked);
                tokio::time::sleep(EVERY).await;
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// How many calls of functions and scripts of ours were carried out, whatever they decided.
fn carried_out(stats: &str) -> u64 {
    let ours = ["cmdstat_fcall:", "cmdstat_evalsha:"];
    let lines = stats.lines().filter_map(|line| ours.iter().find_map(|name| line.strip_prefix(name)));
    let count = |line: &str, name: &str| -> u64 {
        let fields = line.split(',').filter_map(|field| field.split_once('='));
        fields
            .into_iter()
            .find(|(field, _)| *field == name)
            .and_then(|(_, value)| value.parse().ok())
            .unwrap_or(0)
    };
    lines.map(|line| count(line, "calls") - count(line, "failed_calls")).sum()
}

#[test]
fn refused_calls_are_not_carried_out() {
    let stats = "cmdstat_fcall:calls=7,usec=10,usec_per_call=1.0,rejected_calls=2,failed_calls=3\r\n\
                 cmdstat_get:calls=9,usec=1,usec_per_call=1.0,rejected_calls=0,failed_calls=0\r\n";
    assert_eq!(carried_out(stats), 4);
}
