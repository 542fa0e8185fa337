//! One instance of ours, and a bare client of those that answer by a command: `bench redis-peer`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use testkit::RedisClient;
use tollgate::store::redis::{RedisConfig, RedisStore, RedisUrl};
use tollgate::{Algorithm, Ask, By, Cost, Engine, Kind, Policy, Rate, Rule, Want, clock};
use tollgate_core::policy::Lease;

use crate::scripts::RECORD;

/// Asks between two looks at the clock, where nothing is waited for.
const TURN: u64 = 32;

/// What to ask, and until when.
struct Asking {
    name: String,
    port: u16,
    keys: u64,
    limit: u32,
    period_secs: u32,
    from: Instant,
    until: Instant,
    asked: AtomicU64,
    admitted: AtomicU64,
}

/// Does as `peers.rs` says.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let [name, port, keys, limit, period, together, lead, span, signal] = words else {
        bail!("a peer has nine words: peers.rs names them");
    };
    let (lead, span) = (Duration::from_millis(lead.parse()?), Duration::from_millis(span.parse()?));
    let together: usize = together.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let now = clock::instant();
        let mut asking = Asking {
            name: (*name).to_owned(),
            port: port.parse()?,
            keys: keys.parse()?,
            limit: limit.parse()?,
            period_secs: period.parse()?,
            from: now,
            until: now,
            asked: AtomicU64::new(0),
            admitted: AtomicU64::new(0),
        };
        let engine = asking.engine()?;
        let mut clients = Vec::new();
        while !asking.is_ours() && clients.len() < together {
            let mut client = RedisClient::connect(([127, 0, 0, 1], asking.port).into()).await?;
            if asking.name == "record" {
                client.command(&["SCRIPT", "LOAD", RECORD]).await?;
            }
            clients.push(client);
        }
        println!("ready");
        while !Path::new(signal).exists() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        asking.from = clock::instant() + lead;
        asking.until = asking.from + span;
        let asking = Arc::new(asking);
        let mut tasks = Vec::new();
        for client in clients {
            tasks.push(tokio::spawn(Arc::clone(&asking).by_command(client)));
        }
        while tasks.len() < together {
            tasks.push(tokio::spawn(Arc::clone(&asking).through(engine.clone())));
        }
        for task in tasks {
            task.await??;
        }
        let counts = (asking.asked.load(Ordering::Relaxed), asking.admitted.load(Ordering::Relaxed));
        println!("done {} {}", counts.0, counts.1);
        Ok(())
    })
}

impl Asking {
    fn is_ours(&self) -> bool {
        matches!(self.name.as_str(), "shipped" | "leases")
    }

    /// As shipped, but for a patience that suits a busy machine.
    fn engine(&self) -> Result<Engine<RedisStore>> {
        let url = format!("redis://127.0.0.1:{}", self.port);
        let mut config = RedisConfig::new(RedisUrl::parse(&url)?);
        config.read_timeout = Duration::from_secs(5);
        let rate = Rate::parse(&format!("{}/{}s", self.limit, self.period_secs))?;
        let limit = Algorithm::try_new(Kind::TokenBucket, rate, None, 0)?;
        let rule = Rule::builder("api").limits(vec![limit]);
        let rule = if self.name == "leases" { rule.lease(Lease::Auto) } else { rule };
        let policy = Policy::try_new(1, vec![rule.build()?])?;
        let engine = Engine::builder(RedisStore::new(config)?).policy(policy);
        Ok(engine.deadline(Duration::from_secs(5)).build())
    }

    fn key(&self) -> String {
        format!("user:{}", fastrand::u64(..self.keys))
    }

    /// Counts; says whether to go on.
    fn count(&self, asked: u64, admitted: u64) -> bool {
        let now = clock::instant();
        if (self.from..self.until).contains(&now) {
            self.asked.fetch_add(asked, Ordering::Relaxed);
            self.admitted.fetch_add(admitted, Ordering::Relaxed);
        }
        now < self.until
    }

    async fn through(self: Arc<Asking>, engine: Engine<RedisStore>) -> Result<()> {
        loop {
            let mut admitted = 0;
            for _ in 0..TURN {
                let key = self.key();
                let want = Want { by: By::Rule("api"), key: key.as_bytes(), cost: Cost::ONE, takes: &[] };
                admitted += u64::from(engine.decide(&Ask { wants: &[want] }).await.is_allowed());
            }
            if !self.count(TURN, admitted) {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
    }

    async fn by_command(self: Arc<Asking>, mut client: RedisClient) -> Result<()> {
        let (limit, period) = (self.limit.to_string(), self.period_secs.to_string());
        let burst = (self.limit - 1).to_string();
        let sha = match self.name.as_str() {
            "record" => client.command(&["SCRIPT", "LOAD", RECORD]).await?.text(),
            _ => String::new(),
        };
        loop {
            let key = self.key();
            let is_allowed = match self.name.as_str() {
                "record" => {
                    let now = (clock::wall().0 / 1000).to_string();
                    let rate = self.limit.div_ceil(self.period_secs).to_string();
                    let words = ["EVALSHA", &sha, "1", &key, "1", &limit, &rate, &now];
                    client.command(&words).await?.array().first().context("no answer")?.integer() == 1
                }
                "cell" | "crab" => {
                    let verb = if self.name == "cell" { "CL.THROTTLE" } else { "THROTTLE" };
                    let burst = if self.name == "cell" { &burst } else { &limit };
                    let answer = client.command(&[verb, &key, burst, &limit, &period]).await?;
                    let first = answer.array().first().context("no answer")?.integer();
                    // redis-cell says whether it was refused, throttlecrab whether it was allowed.
                    (first == 1) == (self.name == "crab")
                }
                name => bail!("no peer is named {name}"),
            };
            if !self.count(1, u64::from(is_allowed)) {
                return Ok(());
            }
        }
    }
}
