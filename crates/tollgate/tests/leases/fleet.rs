//! Eight processes, one Redis, one hot key, ten times the demand, and a `kill -9` in the middle.
//!
//! Every admitted call is reported with the time just before it was asked for and just after it was answered,
//! by the clock that Redis reads on the same machine. Whatever the true instants between those two, the bound
//! must hold; and what was admitted must come near to what the limit allows.
//!
//! The workers are this very test binary, started again with an environment variable set.
#![expect(clippy::disallowed_methods, reason = "the worker is told what to do by its environment")]
#![expect(clippy::print_stdout, reason = "workers report on it, and figures are printed for people")]

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use testkit::{RedisServer, unique_prefix};
use tollgate::core::policy::Lease;
use tollgate::store::redis::{RedisConfig, RedisStore, RedisUrl};
use tollgate::{Algorithm, Ask, By, Cost, Engine, Kind, Policy, Rate, Rule, Source, Want, clock};

const PROCESSES: usize = 8;
const KILLED: usize = 2;
const TOLD: &str = "TOLLGATE_LEASE_WORKER";

/// A thousand a second: an eighth of ten thousand is what a worker asks for.
const RATE: &str = "1000/s";
const CALLS_PER_SECOND: u64 = 1250;
const RUN: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_bucket_is_used_up_and_holds_its_bound() {
    fleet(Kind::TokenBucket, 98).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fixed_window_is_used_up_and_holds_its_limit() {
    fleet(Kind::FixedWindow, 98).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sliding_window_is_used_up_and_holds_its_bound() {
    fleet(Kind::SlidingWindow, 98).await;
}

/// It books a 50th of its window late, and what comes free in between is not taken at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sliding_log_holds_its_limit_in_any_window() {
    fleet(Kind::SlidingLog, 94).await;
}

async fn fleet(kind: Kind, least_percent: u64) {
    let server = RedisServer::start().await;
    let told = format!("{} {} {kind}", server.url(), unique_prefix());
    let workers: Vec<Worker> = (0..PROCESSES).map(|_| Worker::start(&told)).collect();
    let mut history = tokio::task::spawn_blocking(|| Worker::see_through(workers)).await.expect("joins");
    history.calls.sort_unstable();
    let first = history.calls[0].before;
    // What the killed would have asked for the others did: there was ten times enough.
    let last = history.calls.iter().map(|call| call.after).max().expect("something was admitted");
    let elapsed = last - first;
    let admitted = history.calls.len() as u64;

    holds(kind, &history.calls);
    let (from, to, full) = allowed(kind, first, last);
    let counted = history.calls.iter().filter(|call| (from..to).contains(&call.before)).count() as u64;
    println!(
        "{kind}: {admitted} admitted in {} ms; in {} ms of them {counted} of {full} ({}); {} on leases",
        elapsed / 1000,
        (to - from) / 1000,
        percent(counted, full),
        percent(history.leased, admitted),
    );
    assert!(counted * 100 >= full * least_percent, "{counted} of {full}");
    assert!(history.leased * 10 >= admitted * 9, "only {} of {admitted} on leases", history.leased);
}

/// To a tenth.
fn percent(part: u64, whole: u64) -> String {
    let tenths = part * 1000 / whole;
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// What the limit allows to those who never stop asking, and between which instants.
fn allowed(kind: Kind, first: u64, last: u64) -> (u64, u64, u64) {
    match kind {
        // A bucket was full at the start.
        Kind::TokenBucket => (first, last + 1, 1000 + (last - first) / 1000),
        // The whole windows.
        Kind::FixedWindow => {
            let (from, to) = (first.div_ceil(1_000_000), last / 1_000_000);
            (from * 1_000_000, to * 1_000_000, (to - from) * 1000)
        }
        // After the first window, whose limit came at once.
        Kind::SlidingWindow | Kind::SlidingLog => {
            let from = first + 1_000_000;
            (from, last + 1, (last - from) / 1000)
        }
    }
}

/// No more was admitted than the bound says: C + r * (T + lease time), by the times that allow the most.
fn holds(kind: Kind, calls: &[Call]) {
    let algorithm = limit(kind);
    let lease = Lease::Auto.terms(&algorithm).expect("terms").time.0;
    match kind {
        Kind::FixedWindow => {
            let mut per_window = BTreeMap::<u64, u64>::new();
            // Only what certainly was in one window.
            for call in calls.iter().filter(|call| call.before / 1_000_000 == call.after / 1_000_000) {
                *per_window.entry(call.before / 1_000_000).or_default() += 1;
            }
            assert!(per_window.values().all(|count| *count <= 1000), "{per_window:?}");
        }
        Kind::SlidingLog => {
            for (index, oldest) in calls.iter().enumerate() {
                let window = calls[index..].iter().filter(|call| call.after - oldest.before < 1_000_000);
                let count = window.count();
                assert!(count <= 1000, "{count} in the window from {}", oldest.before);
            }
        }
        Kind::TokenBucket | Kind::SlidingWindow => {
            let mut by_end: Vec<&Call> = calls.iter().collect();
            by_end.sort_unstable_by_key(|call| call.after);
            let more = u64::from(kind == Kind::SlidingWindow);
            // A thousand a second is one a millisecond: everything in thousandths of a token.
            let (mut admitted, mut lowest) = (0_i128, i128::MAX);
            for call in by_end {
                lowest = lowest.min(admitted - i128::from(call.before));
                admitted += 1000;
                let over =
                    admitted - i128::from(call.after) - lowest - i128::from((1000 + more) * 1000 + lease);
                assert!(over <= 0, "{over} thousandths of a token too many at {}", call.after);
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Call {
    before: u64,
    after: u64,
}

#[derive(Default)]
struct History {
    calls: Vec<Call>,
    leased: u64,
}

struct Worker {
    child: Child,
    output: std::thread::JoinHandle<String>,
}

impl Worker {
    fn start(told: &str) -> Worker {
        let mut child = Command::new(std::env::current_exe().expect("a test binary has a path"))
            .args(["--exact", "fleet::worker", "--nocapture"])
            .env(TOLD, told)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("this very binary starts");
        let mut stdout = child.stdout.take().expect("piped");
        let output = std::thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).expect("text");
            text
        });
        Worker { child, output }
    }

    /// Kills some half-way, and hears all of them out.
    fn see_through(mut workers: Vec<Worker>) -> History {
        std::thread::sleep(RUN / 2);
        for worker in workers.iter_mut().take(KILLED) {
            worker.child.kill().expect("it was running");
        }
        let mut history = History::default();
        for (at, mut worker) in workers.into_iter().enumerate() {
            let status = worker.child.wait().expect("is waited for");
            assert!(status.success() || at < KILLED, "a worker failed");
            let output = worker.output.join().expect("joins");
            // The last line of one that was killed may be cut off.
            let lines = output.lines().filter_map(|line| line.strip_prefix("lease ")?.strip_suffix(" ."));
            for line in lines {
                let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().expect("a number")).collect();
                let [before, after, is_leased] = numbers[..] else { panic!("{line}") };
                history.calls.push(Call { before, after });
                history.leased += is_leased;
            }
        }
        history
    }
}

fn limit(kind: Kind) -> Algorithm {
    Algorithm::try_new(kind, Rate::parse(RATE).expect("a rate"), None, 1000).expect("a limit")
}

/// Not a test by itself: what a process of the fleet does.
#[test]
fn worker() {
    let Ok(told) = std::env::var(TOLD) else { return };
    let told: Vec<&str> = told.split(' ').collect();
    let [url, prefix, kind] = told[..] else { panic!("told {told:?}") };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(work(url, prefix, Kind::parse(kind).expect("a kind")));
}

async fn work(url: &str, prefix: &str, kind: Kind) {
    let mut config = RedisConfig::new(RedisUrl::parse(url).expect("a url"));
    config.key_prefix = prefix.to_owned();
    // Nothing here may time out: a machine busy with other tests is no outage.
    config.read_timeout = Duration::from_secs(10);
    let rule = Rule::builder("api").limits(vec![limit(kind)]).lease(Lease::Auto).build().expect("a rule");
    let engine = Engine::builder(RedisStore::new(config).expect("a store"))
        .policy(Policy::try_new(1, vec![rule]).expect("a policy"))
        .deadline(Duration::from_secs(10))
        .failures_to_open(u32::MAX)
        .build();
    let mut out = std::io::stdout();
    let started = clock::instant();
    let mut made = 0;
    let mut tick = tokio::time::interval(Duration::from_millis(1));
    while started.elapsed() < RUN {
        tick.tick().await;
        let due = u64::try_from(started.elapsed().as_millis()).unwrap_or(0) * CALLS_PER_SECOND / 1000;
        for _ in made..due {
            let want = Want { by: By::Rule("api"), key: b"everybody", cost: Cost::ONE, takes: &[] };
            let before = clock::wall().0;
            let verdict = engine.decide(&Ask { wants: &[want] }).await;
            let after = clock::wall().0;
            assert!(!matches!(verdict.source, Source::Fallback(_)), "nothing may fail in this test");
            if verdict.is_allowed() {
                let is_leased = u8::from(verdict.source == Source::Lease);
                // At once: whoever is killed has said what it let pass.
                writeln!(out, "\nlease {before} {after} {is_leased} .").expect("somebody listens");
                out.flush().expect("somebody listens");
            }
        }
        made = due;
    }
}
