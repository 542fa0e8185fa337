//! Every lease there ever was, from what Redis itself says that it did.
//!
//! `MONITOR` tells each command of each script in order. A lease is a member of a sorted set with its end as its score, so
//! when one is added it is known to the microsecond which others had not ended.

use std::collections::HashMap;

use testkit::{RedisClient, RedisServer, Reply};
use tokio::task::JoinHandle;

/// What was seen.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leases {
    live: HashMap<String, u64>,
    /// The most that were live at a time.
    pub most: usize,
    pub granted: u64,
    /// Those that ended before they were given back.
    pub outlived: u64,
    /// How often HalfOpen began.
    pub half_opens: u64,
}

#[derive(Debug)]
pub(crate) struct Monitor {
    reading: JoinHandle<Leases>,
}

const LAST: &str = "the last word";

impl Monitor {
    /// Watches the leases of a breaker whose probes may take so long.
    pub(crate) async fn start(server: &RedisServer, key: String, probe_for_us: u64) -> Monitor {
        let mut client = server.admin().await;
        client.command(&["MONITOR"]).await.expect("an administrator may");
        Monitor { reading: tokio::spawn(read(client, key, probe_for_us)) }
    }

    /// What was seen until now.
    pub(crate) async fn finish(self, server: &RedisServer) -> Leases {
        server.command(&["ECHO", LAST]).await;
        self.reading.await.expect("every line is understood")
    }
}

async fn read(mut client: RedisClient, key: String, probe_for_us: u64) -> Leases {
    let mut leases = Leases::default();
    loop {
        let Reply::Simple(line) = client.receive().await.expect("Redis is there") else {
            panic!("MONITOR says lines")
        };
        // `1700000000.000001 [0 lua] "ZADD" "key" …`: what is between quotes. Nothing of ours contains one.
        let words: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
        match words[..] {
            ["ECHO", LAST] => return leases,
            ["ZADD", of, score, token] if of == key => leases.add(token, score, probe_for_us),
            ["ZREM", of, token] if of == key => drop(leases.live.remove(token)),
            ["DEL", ..] if words.contains(&&*key) => leases.live.clear(),
            ["XADD", ..] if words.windows(2).any(|pair| pair == ["to", "half-open"]) => {
                leases.half_opens += 1;
            }
            _ => {}
        }
    }
}

impl Leases {
    fn add(&mut self, token: &str, score: &str, probe_for_us: u64) {
        let ends: u64 = score.parse().expect("whole microseconds");
        let now = ends - probe_for_us;
        let before = self.live.len();
        self.live.retain(|_, ends| *ends > now);
        self.outlived += (before - self.live.len()) as u64;
        self.live.insert(token.to_owned(), ends);
        self.granted += 1;
        self.most = self.most.max(self.live.len());
    }
}
