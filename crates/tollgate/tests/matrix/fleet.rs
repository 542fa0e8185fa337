//! Processes on one store, one of which is killed in the middle: what all of them admitted holds its bound, and the others
//! go on.
//!
//! An instant is the store's own where the store decided, and lies between two readings of the clock that Redis reads
//! on the same machine where tokens taken ahead did. The workers are this very test binary, started again with an
//! environment variable set.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use testkit::unique_prefix;
use tollgate::store::redis::RedisStore;
use tollgate::{Algorithm, Ask, By, Cost, Engine, Kind, Micros, Source, Want, clock};

use crate::bound::{Bound, Call};
use crate::cells::{Tier, limit};

const PROCESSES: usize = 4;
const TOLD: &str = "TOLLGATE_MATRIX_WORKER";
const RUN: Duration = Duration::from_millis(1500);
const KILL_AFTER: Duration = Duration::from_millis(500);
const SPAN: Micros = Micros::from_millis(500);

/// Of one key that all ask for, and of each of several that are asked for in pairs; in half a second.
const HOT: u64 = 100;
const MANY: u64 = 20;
const KEYS: u32 = 16;

/// How many ask at a time in one process, for each algorithm; and between two rounds they pause.
const TASKS: usize = 3;
const ASKS_PER_ROUND: usize = 6;
const PAUSE: Duration = Duration::from_millis(2);

fn hot(kind: Kind) -> Algorithm {
    limit(kind, &format!("{HOT}/500ms"))
}

fn many(kind: Kind) -> Algorithm {
    limit(kind, &format!("{MANY}/500ms"))
}

/// What one algorithm's part of a fleet did.
#[derive(Debug, Default)]
struct Seen {
    hot: Vec<Call>,
    many: HashMap<u32, Vec<Call>>,
    refused: u64,
    cached: u64,
    leased: u64,
}

/// Runs a fleet through a tier; for each algorithm, what was wrong.
pub(crate) async fn killed_in_the_middle(url: &str, tier: Tier) -> Vec<(Kind, Result<(), String>)> {
    let told = format!("{url}|{}|{tier}", unique_prefix());
    let outcome = tokio::task::spawn_blocking(move || see_through(&told)).await.expect("joins");
    match outcome {
        Ok(Fleet { killed_at, mut seen, batches }) => Kind::ALL
            .map(|kind| {
                let part = seen.remove(&kind).unwrap_or_default();
                let as_expected = (batches > 0) == (tier >= Tier::Batch);
                let result = if as_expected {
                    judge(tier, kind, killed_at, &part)
                } else {
                    Err(format!("{batches} batches"))
                };
                (kind, result)
            })
            .into(),
        Err(why) => Kind::ALL.map(|kind| (kind, Err(why.clone()))).into(),
    }
}

fn judge(tier: Tier, kind: Kind, killed_at: u64, seen: &Seen) -> Result<(), String> {
    let bound = |limit: &Algorithm, count| Bound { kind, count, span: SPAN, lease: tier.lease_time(limit) };
    bound(&hot(kind), HOT).check(&seen.hot)?;
    for (key, calls) in &seen.many {
        bound(&many(kind), MANY).check(calls).map_err(|why| format!("key {key}: {why}"))?;
    }
    let after = seen.hot.iter().filter(|call| call.first > killed_at).count() as u64;
    let figures = format!(
        "{} admitted, {after} of them after the kill; {} other keys; {} refused, {} from memory; {} on leases",
        seen.hot.len(),
        seen.many.len(),
        seen.refused,
        seen.cached,
        seen.leased
    );
    println!("  {kind}, {tier}: {figures}");
    // A second was left, in which at least one window began.
    let went_on = after >= HOT / 2;
    let is_drained = seen.refused > HOT && seen.many.len() == KEYS as usize;
    let has_cache = (seen.cached > 0) == (tier == Tier::DenyCache) || tier == Tier::Lease;
    let has_leases = (seen.leased > 0) == (tier == Tier::Lease);
    if went_on && is_drained && has_cache && has_leases { Ok(()) } else { Err(figures) }
}

/// What was heard of all processes.
#[derive(Debug, Default)]
struct Fleet {
    killed_at: u64,
    seen: HashMap<Kind, Seen>,
    batches: u64,
}

fn see_through(told: &str) -> Result<Fleet, String> {
    let mut workers: Vec<Worker> = (0..PROCESSES).map(|_| Worker::start(told)).collect();
    for worker in &mut workers {
        worker.is_ready()?;
    }
    for worker in &mut workers {
        worker.go();
    }
    let readers: Vec<_> = workers.iter_mut().map(Worker::read).collect();
    std::thread::sleep(KILL_AFTER);
    let killed_at = clock::wall().0;
    workers[0].child.kill().map_err(|error| format!("it had ended: {error}"))?;
    let mut fleet = Fleet { killed_at, ..Fleet::default() };
    for (at, (mut worker, lines)) in workers.into_iter().zip(readers).enumerate() {
        let status = worker.child.wait().map_err(|error| error.to_string())?;
        let as_expected = if at == 0 { status.signal() == Some(9) } else { status.success() };
        if !as_expected {
            return Err(format!("worker {at} ended with {status}"));
        }
        let lines = lines.join().map_err(|_| "a reader failed")?;
        if at == 0 && !lines.iter().any(|line| line.starts_with("cell ")) {
            return Err("the killed worker had admitted nothing".to_owned());
        }
        for line in &lines {
            fleet.take_down(line);
        }
    }
    Ok(fleet)
}

impl Fleet {
    fn part(&mut self, kind: &str) -> &mut Seen {
        self.seen.entry(Kind::parse(kind).expect("a kind")).or_default()
    }

    /// The last line of one that was killed may be cut off.
    fn take_down(&mut self, line: &str) {
        let Some(line) = line.strip_suffix(" .") else { return };
        let words: Vec<&str> = line.split(' ').collect();
        let number = |word: &str| word.parse::<u64>().expect("a number");
        match words[..] {
            ["cell", kind, key, first, last, is_leased] => {
                let call = Call { first: number(first), last: number(last) };
                self.part(kind).leased += number(is_leased);
                match key.parse() {
                    Ok(key) => self.part(kind).many.entry(key).or_default().push(call),
                    Err(_) => self.part(kind).hot.push(call),
                }
            }
            ["refused", kind, refused, cached] => {
                self.part(kind).refused += number(refused);
                self.part(kind).cached += number(cached);
            }
            ["batched", batches] => self.batches += number(batches),
            _ => {}
        }
    }
}

struct Worker {
    child: Child,
    output: Option<BufReader<ChildStdout>>,
}

impl Worker {
    fn start(told: &str) -> Worker {
        let mut child = Command::new(std::env::current_exe().expect("a test binary has a path"))
            .args(["--exact", "fleet::worker", "--nocapture"])
            .env(TOLD, told)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("this very binary starts");
        let output = child.stdout.take().map(BufReader::new);
        Worker { child, output }
    }

    fn is_ready(&mut self) -> Result<(), String> {
        let output = self.output.as_mut().expect("piped");
        for line in output.lines() {
            if line.map_err(|error| error.to_string())? == "ready" {
                return Ok(());
            }
        }
        Err("a worker did not begin".to_owned())
    }

    fn go(&mut self) {
        let mut input = self.child.stdin.take().expect("piped");
        input.write_all(b"go\n").expect("it listens");
    }

    fn read(&mut self) -> std::thread::JoinHandle<Vec<String>> {
        let output = self.output.take().expect("piped");
        // A line that is no text was cut off.
        std::thread::spawn(move || output.lines().map_while(Result::ok).collect())
    }
}

/// Not a test by itself: what a process of the fleet does.
#[test]
fn worker() {
    let Ok(told) = std::env::var(TOLD) else { return };
    let told: Vec<&str> = told.split('|').collect();
    let [url, prefix, tier] = told[..] else { panic!("told {told:?}") };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(work(url, prefix, Tier::parse(tier).expect("a tier")));
}

async fn work(url: &str, prefix: &str, tier: Tier) {
    let limits: Vec<(String, Algorithm)> = Kind::ALL
        .into_iter()
        .flat_map(|kind| [(format!("{kind}"), hot(kind)), (format!("{kind}-many"), many(kind))])
        .collect();
    let mut builder = Engine::builder(RedisStore::new(tier.config(url, prefix)).expect("a store"))
        .policy(tier.policy(&limits))
        // Nothing here may time out: a machine busy with other tests is no outage.
        .deadline(Duration::from_secs(20))
        .failures_to_open(u32::MAX);
    if tier < Tier::DenyCache {
        builder = builder.deny_cache(None);
    }
    let engine = builder.build();
    // Every node is known before it begins.
    for key in 0..KEYS {
        let name = format!("{}-many", Kind::TokenBucket);
        let user = user(Kind::TokenBucket, key);
        let want = Want { by: By::Rule(&name), key: user.as_bytes(), cost: Cost::ONE, takes: &[] };
        assert_eq!(engine.peek(&Ask { wants: &[want] }).await.source, Source::Store, "Redis answers");
    }
    println!("\nready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("somebody says when");
    assert_eq!(line, "go\n");
    let tasks: Vec<_> = Kind::ALL
        .into_iter()
        .flat_map(|kind| std::iter::repeat_n(kind, TASKS))
        .map(|kind| tokio::spawn(ask_on(engine.clone(), kind)))
        .collect();
    for task in tasks {
        task.await.expect("no task fails");
    }
    let batches: u64 = engine.store().stats().batches.calls[1..].iter().sum();
    println!("batched {batches} .");
}

fn user(kind: Kind, key: u32) -> String {
    format!("{kind}-user-{key}")
}

/// Asks for the hot key again and again, and once a round for two of the others together.
async fn ask_on(engine: Engine<RedisStore>, kind: Kind) {
    let (hot, many) = (kind.to_string(), format!("{kind}-many"));
    let started = clock::instant();
    let (mut refused, mut cached) = (0_u64, 0_u64);
    while started.elapsed() < RUN {
        for _ in 0..ASKS_PER_ROUND {
            let want = Want { by: By::Rule(&hot), key: hot.as_bytes(), cost: Cost::ONE, takes: &[] };
            let source = asked(&engine, kind, &[(want, None)]).await;
            refused += u64::from(source.is_some());
            cached += u64::from(source == Some(Source::DenyCache));
        }
        let one = fastrand::u32(..KEYS);
        let other = (one + fastrand::u32(1..KEYS)) % KEYS;
        let users = [user(kind, one), user(kind, other)];
        let pair = [(one, &users[0]), (other, &users[1])].map(|(key, user)| {
            let want = Want { by: By::Rule(&many), key: user.as_bytes(), cost: Cost::ONE, takes: &[] };
            (want, Some(key))
        });
        asked(&engine, kind, &pair).await;
        tokio::time::sleep(PAUSE).await;
    }
    println!("refused {kind} {refused} {cached} .");
}

/// Says at once what was let pass, so that whoever is killed has said it; who refused, otherwise.
async fn asked(engine: &Engine<RedisStore>, kind: Kind, wants: &[(Want<'_>, Option<u32>)]) -> Option<Source> {
    let keys: Vec<Option<u32>> = wants.iter().map(|(_, key)| *key).collect();
    let wants: Vec<Want<'_>> = wants.iter().map(|(want, _)| *want).collect();
    let before = clock::wall().0;
    let verdict = engine.decide(&Ask { wants: &wants }).await;
    let after = clock::wall().0;
    assert!(!matches!(verdict.source, Source::Fallback(_)), "nothing may fail in this test");
    if !verdict.is_allowed() {
        return Some(verdict.source);
    }
    let is_leased = verdict.source == Source::Lease;
    let mut lines = String::new();
    for judged in &verdict.checks {
        let key = keys[judged.want].map_or("hot".to_owned(), |key| key.to_string());
        let at = judged.decision.take.at.0;
        let (first, last) = if is_leased { (before, after) } else { (at, at) };
        let _ = writeln!(lines, "cell {kind} {key} {first} {last} {} .", u8::from(is_leased));
    }
    let mut out = std::io::stdout().lock();
    out.write_all(lines.as_bytes()).and_then(|()| out.flush()).expect("somebody listens");
    None
}
