//! What one instance does: it asks its breaker, calls the destination, and tells what it notices.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use testkit::{Child, ClockShim};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tollgate::Micros;
use tollgate::breaker::{Breakers, Handle, Permit, Whose};
use tollgate::clock;
use tollgate::core::breaker::{Breaker, Permille, Settings, Window};
use tollgate::store::redis::{RedisConfig, RedisStore, RedisUrl};

use crate::destination::number;

const TOLD: &str = "TOLLGATE_BREAKER_WORKER";

/// How often an instance looks whether its breaker has changed.
const WATCH_EVERY: Duration = Duration::from_millis(1);

/// How long a call may take that is no probe.
const CALL_MAX: Duration = Duration::from_mins(1);

/// How far the wall clock of an instance is off: a minute ahead, a minute behind, or not at all.
pub(crate) fn skew_us(who: u32) -> i64 {
    [0, 60_000_000, -60_000_000][who as usize % 3]
}

/// What an instance is told.
#[derive(Debug, Clone)]
pub(crate) struct Orders {
    pub url: String,
    pub prefix: String,
    /// Where it tells what it notices.
    pub told_at: SocketAddr,
    /// Where it calls.
    pub calls_at: SocketAddr,
    /// The name of its settings.
    pub settings: &'static str,
    /// Between two calls.
    pub pause: Duration,
    /// Calls that it makes in all.
    pub most_calls: u64,
}

/// The settings by their name.
pub(crate) fn settings(name: &str) -> Settings {
    let usual = Settings {
        jitter: Permille(0),
        ramp: Vec::new(),
        open_for: Micros::from_millis(700),
        open_max: Micros::from_millis(700),
        successes_to_close: 2,
        ..Settings::default()
    };
    match name {
        // Opens and half-opens for ever. Open is longer than a lease, so that whatever probes under one epoch has
        // been cancelled when the next begins.
        "leases" => Settings {
            quorum: Permille(0),
            open_for: Micros::from_millis(15),
            open_max: Micros::from_millis(15),
            probes: 3,
            probe_for: Micros::from_millis(12),
            successes_to_close: 1_000_000,
            ..usual
        },
        "one-probe" => Settings { quorum: Permille(0), probes: 1, probe_for: Micros::SECOND, ..usual },
        // The destination's own word opens it at once, and one probe closes it.
        "hint" => Settings {
            failures: None,
            failure_ratio: Some(Permille(1000)),
            hint_max: Micros::from_secs(60),
            successes_to_close: 1,
            ..usual
        },
        "minimum" => Settings {
            failures: None,
            minimum_calls: 100,
            open_for: Micros::from_secs(60),
            open_max: Micros::from_secs(60),
            ..usual
        },
        "long" => Settings {
            window: Window::Time(Micros::SECOND),
            open_for: Micros::from_secs(60),
            open_max: Micros::from_secs(60),
            ..usual
        },
        "usual" => Settings { window: Window::Time(Micros::from_secs(2)), ..usual },
        _ => panic!("no settings are called {name}"),
    }
}

impl Orders {
    /// Starts an instance, with its wall clock as far off as it should be.
    pub(crate) fn start(&self, who: u32, clock: &ClockShim) -> Child {
        clock.set_offset_us(skew_us(who));
        let told = format!(
            "{who}|{}|{}|{}|{}|{}|{}|{}",
            self.url,
            self.prefix,
            self.told_at,
            self.calls_at,
            self.settings,
            self.pause.as_micros(),
            self.most_calls
        );
        let this = std::env::current_exe().expect("a test binary has a path");
        let mut command = Command::new(this);
        command.args(["--exact", "worker::worker", "--nocapture"]).env(TOLD, told).envs(clock.environment());
        Child::spawn(&mut command)
    }
}

/// Not a test by itself: what a process of the fleet does.
#[test]
fn worker() {
    let Ok(told) = std::env::var(TOLD) else { return };
    let told: Vec<&str> = told.split('|').collect();
    let [who, url, prefix, told_at, calls_at, name, pause, most_calls] = told[..] else {
        panic!("told {told:?}")
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut config = RedisConfig::new(RedisUrl::parse(url).expect("a URL"));
        prefix.clone_into(&mut config.key_prefix);
        config.dial_timeout = Duration::from_secs(2);
        let store = Arc::new(RedisStore::new(config).expect("no TLS to go wrong"));
        let breaker = Breaker::try_new(settings(name)).expect("settings of a test's");
        let breakers = Breakers::start(store, breaker);
        let payments = breakers.handle(b"payments").expect("there is room");
        hear_of_the_fleet(&breakers, &payments).await;
        let counted = Arc::new(Counted::default());
        let control = TcpStream::connect(told_at).await.expect("somebody listens");
        tokio::spawn(watch(number(who), control, payments.clone(), Arc::clone(&counted)));
        let pause = Duration::from_micros(number(pause));
        let calls_at = number(calls_at);
        let mut caller = Caller { who: number(who), calls_at, payments, line: None };
        while counted.made.load(Ordering::Relaxed) < number(most_calls) {
            let began = clock::instant();
            let permit = caller.payments.permit().await;
            let waited = u64::try_from(began.elapsed().as_micros()).expect("it ends");
            counted.longest_us.fetch_max(waited, Ordering::Relaxed);
            match permit {
                Ok(permit) => {
                    counted.made.fetch_add(1, Ordering::Relaxed);
                    caller.call(permit).await;
                }
                Err(_) => drop(counted.refused.fetch_add(1, Ordering::Relaxed)),
            }
            tokio::time::sleep(pause).await;
        }
        std::future::pending::<()>().await;
    });
}

/// Dozens of processes that start at once keep a machine busy, and what is called before the fleet was heard of is not of its
/// epoch. So Redis is reached first, by way of another breaker.
async fn hear_of_the_fleet(breakers: &Breakers<RedisStore>, payments: &Handle<RedisStore>) {
    let other = breakers.handle(b"another").expect("there is room");
    for _ in 0..1000 {
        if let Ok(permit) = other.permit().await {
            permit.success();
        }
        if other.is_shared() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for _ in 0..1000 {
        payments.learn().await;
        if payments.is_shared() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[derive(Debug, Default)]
struct Counted {
    made: AtomicU64,
    refused: AtomicU64,
    longest_us: AtomicU64,
}

/// Tells what is noticed, for as long as somebody listens.
async fn watch(who: u32, mut control: TcpStream, payments: Handle<RedisStore>, counted: Arc<Counted>) {
    control.set_nodelay(true).expect("a socket of TCP");
    let mut line = format!("hello {who} {}\n", clock::wall().0);
    let mut last = None;
    for turn in 0_u64.. {
        let now = Some((payments.state(), payments.is_shared()));
        if let (Some((state, is_shared)), true) = (now, now != last) {
            let _ = writeln!(line, "state {} {is_shared}", state.name());
            last = now;
        }
        if turn % 20 == 0 {
            let Counted { made, refused, longest_us } = &*counted;
            let [made, refused, longest] = [made, refused, longest_us].map(|one| one.load(Ordering::Relaxed));
            let _ = writeln!(line, "stats {made} {refused} {longest}");
        }
        if !line.is_empty() && control.write_all(line.as_bytes()).await.is_err() {
            return;
        }
        line.clear();
        tokio::time::sleep(WATCH_EVERY).await;
    }
}

struct Caller {
    who: u32,
    calls_at: SocketAddr,
    payments: Handle<RedisStore>,
    line: Option<BufReader<TcpStream>>,
}

impl Caller {
    /// Makes one call, a probe for no longer than its lease.
    async fn call(&mut self, permit: Permit<RedisStore>) {
        // Order: whoever sleeps between the two says that its lease ends earlier than it does, and not later.
        let (now, left) = (clock::wall(), permit.lease_left());
        let lease_ends = left.map_or("-".to_owned(), |left| (now + Micros::from(left)).0.to_string());
        let is_shared = permit.whose().map_or(self.payments.is_shared(), |whose| whose == Whose::Fleet);
        let words = format!("call {lease_ends} {is_shared}\n");
        let answer = tokio::time::timeout(left.unwrap_or(CALL_MAX), self.exchange(&words)).await;
        match answer.as_ref().map(|answer| answer.as_deref()) {
            Ok(Ok("well")) => permit.success(),
            Ok(Ok("fails") | Err(_)) => permit.failure(),
            Ok(Ok("given-up")) => permit.ignore(),
            Ok(Ok(until)) => {
                let millis = until.strip_prefix("until ").expect("an answer of the destination's");
                permit.failure_until(Duration::from_millis(number(millis)));
            }
            // It has taken too long. Half of them say so; of the others nothing is heard until their lease ends, as of a
            // process that hangs.
            Err(_) if fastrand::bool() => permit.failure(),
            Err(_) => std::mem::forget(permit),
        }
        if !matches!(answer, Ok(Ok(_))) {
            self.line = None;
        }
    }

    async fn exchange(&mut self, words: &str) -> std::io::Result<String> {
        if self.line.is_none() {
            let line = TcpStream::connect(self.calls_at).await?;
            line.set_nodelay(true)?;
            let mut line = BufReader::new(line);
            line.write_all(format!("hello {} {}\n", self.who, clock::wall().0).as_bytes()).await?;
            self.line = Some(line);
        }
        let line = self.line.as_mut().expect("made above");
        line.write_all(words.as_bytes()).await?;
        let mut answer = String::new();
        if line.read_line(&mut answer).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(answer.trim_end().to_owned())
    }
}
