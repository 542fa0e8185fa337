//! A fleet: eight processes, one Redis, and every decision of the merged history replayed.
//!
//! The script returns the instant it decided at, so the histories of all processes put together
//! have one order, and an exact model can be walked along it. P1: whatever the interval, no more
//! was admitted than capacity + rate * time. P2: what was left is what the model has left, to the
//! token, at every single decision; nothing was rounded away.
//!
//! The workers are this very test binary, started again with an environment variable set.
#![expect(clippy::disallowed_methods, reason = "the worker is told what to do by its environment")]
#![expect(clippy::print_stdout, reason = "workers report on it, and figures are printed for people")]

use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use testkit::{RedisServer, unique_prefix};
use tollgate::core::decision::Outcome;
use tollgate::store::redis::{RedisConfig, RedisStore, RedisUrl};
use tollgate::{Algorithm, Ask, By, Cost, Engine, InlineLimit, Kind, Rate, Source, Want};

const PROCESSES: usize = 8;
const TASKS: usize = 4;
const TOLD: &str = "TOLLGATE_FLEET_WORKER";

/// One decision, as a worker reports it.
#[derive(Debug, Clone, Copy)]
struct Line {
    key: u32,
    at: u64,
    is_allowed: bool,
    remaining: u32,
    retry_after: u64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_key_holds_its_limit_across_eight_processes() {
    fleet("500/s", 300, 1, Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_keys_hold_their_limits_across_eight_processes() {
    // Seven a second does not divide a second: a bucket that rounds would show here.
    fleet("7/s", 5, 1000, Duration::from_secs(10)).await;
}

async fn fleet(rate: &str, burst: u32, keys: u32, for_how_long: Duration) {
    let server = RedisServer::start().await;
    let prefix = unique_prefix();
    let this = std::env::current_exe().expect("a test binary has a path");
    let told = format!("{} {prefix} {rate} {burst} {keys} {}", server.url(), for_how_long.as_millis());
    let workers: Vec<_> = (0..PROCESSES)
        .map(|_| {
            Command::new(&this)
                .args(["--exact", "worker", "--nocapture"])
                .env(TOLD, &told)
                .stdout(Stdio::piped())
                .stderr(Stdio::inherit())
                .spawn()
                .expect("this very binary starts")
        })
        .collect();

    let mut history: HashMap<u32, Vec<Line>> = HashMap::new();
    for worker in workers {
        let output = tokio::task::spawn_blocking(|| worker.wait_with_output())
            .await
            .expect("joins")
            .expect("is waited for");
        assert!(output.status.success(), "a worker failed");
        for line in String::from_utf8_lossy(&output.stdout).lines().filter_map(Line::parse) {
            history.entry(line.key).or_default().push(line);
        }
    }
    assert_eq!(history.len(), keys as usize, "every key was asked for");
    let rate = Rate::parse(rate).expect("a rate");
    let mut figures = Figures::default();
    for lines in history.values_mut() {
        replay(rate, burst, lines, &mut figures);
    }
    println!(
        "{PROCESSES} processes, {keys} keys, {rate} burst {burst}: {} decisions, {} admitted; worst interval of any key: \
         {} admitted in {} us against a bound of {}.{:06}; every one of the decisions equals the model's",
        figures.decisions,
        figures.admitted,
        figures.worst_admitted,
        figures.worst_span,
        figures.worst_bound_millionths / 1_000_000,
        figures.worst_bound_millionths % 1_000_000,
    );
    assert!(
        figures.admitted > u64::from(burst) * u64::from(keys),
        "the fleet asked for more than its bursts"
    );
}

#[derive(Debug, Default)]
struct Figures {
    decisions: u64,
    admitted: u64,
    worst_admitted: u64,
    worst_span: u64,
    worst_bound_millionths: i128,
    worst_slack: Option<i128>,
}

/// Walks a bucket of exact fractions along one key's history. A token is `period` parts, and a
/// microsecond brings `count` of them: nothing is reduced, nothing rounded.
fn replay(rate: Rate, burst: u32, lines: &mut [Line], figures: &mut Figures) {
    let (count, period) = (i128::from(rate.count()), i128::from(rate.span().expect("a span").0));
    let full = i128::from(burst) * period;
    // Of one microsecond, those that found more came first.
    lines.sort_by_key(|line| (line.at, !line.is_allowed, std::cmp::Reverse(line.remaining)));

    let (mut parts, mut last) = (full, lines[0].at);
    // The interval check in one pass: the least of (admitted before i) - r * t_i so far.
    let (mut admitted, mut lowest_yet): (u64, Option<(i128, u64, u64)>) = (0, None);
    for line in lines {
        parts = full.min(parts + i128::from(line.at - last) * count);
        last = line.at;
        figures.decisions += 1;
        assert_eq!(line.is_allowed, parts >= period, "{line:?}: the model has {parts} parts of {period}");
        if line.is_allowed {
            parts -= period;
            let height = |n: u64| i128::from(n) * period - i128::from(line.at) * count;
            if lowest_yet.is_none_or(|(lowest, _, _)| height(admitted) < lowest) {
                lowest_yet = Some((height(admitted), admitted, line.at));
            }
            admitted += 1;
            let (lowest, before, since) = lowest_yet.expect("set above");
            // P1: admitted in [since, at] <= C + r * (at - since), in parts.
            let slack = full - (height(admitted) - lowest);
            assert!(slack >= 0, "P1 broken by {} parts at {line:?}", -slack);
            if figures.worst_slack.is_none_or(|worst| slack < worst) {
                figures.worst_slack = Some(slack);
                figures.worst_admitted = admitted - before;
                figures.worst_span = line.at - since;
                figures.worst_bound_millionths =
                    (full + i128::from(line.at - since) * count) * 1_000_000 / period;
            }
        } else {
            assert_eq!(i128::from(line.retry_after), (period - parts + count - 1) / count, "{line:?}");
        }
        assert_eq!(i128::from(line.remaining), parts / period, "{line:?}");
    }
    figures.admitted += admitted;
}

/// Not a test by itself: what a process of the fleet does.
#[test]
fn worker() {
    let Ok(told) = std::env::var(TOLD) else { return };
    let told: Vec<&str> = told.split(' ').collect();
    let [url, prefix, rate, burst, keys, millis] = told[..] else { panic!("told {told:?}") };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let number = |text: &str| text.parse::<u32>().expect("a number");
    let report = runtime.block_on(work(url, prefix, rate, number(burst), number(keys), number(millis)));
    println!("\n{report}");
}

async fn work(url: &str, prefix: &str, rate: &str, burst: u32, keys: u32, millis: u32) -> String {
    let mut config = RedisConfig::new(RedisUrl::parse(url).expect("a url"));
    config.key_prefix = prefix.to_owned();
    // Nothing here may time out: a charge nobody heard of is not in the history.
    config.read_timeout = Duration::from_secs(10);
    config.write_timeout = Duration::from_secs(10);
    config.dial_timeout = Duration::from_secs(10);
    let engine = Engine::builder(RedisStore::new(config).expect("a store"))
        .deadline(Duration::from_secs(10))
        .failures_to_open(u32::MAX)
        // Every decision of the store's is wanted here, and only the store's.
        .deny_cache(None)
        .build();
    let rate = Rate::parse(rate).expect("a rate");
    let algorithm = Algorithm::try_new(Kind::TokenBucket, rate, Some(burst), 0).expect("a limit");
    let limit = std::sync::Arc::new(InlineLimit::new(algorithm, rate.period()));
    let until = Instant::now() + Duration::from_millis(millis.into());

    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (engine, limit) = (engine.clone(), std::sync::Arc::clone(&limit));
            tokio::spawn(async move {
                let mut report = String::new();
                while Instant::now() < until {
                    let key = fastrand::u32(..keys);
                    let subject = format!("user-{key}");
                    let want =
                        Want { by: By::Inline(&limit), key: subject.as_bytes(), cost: Cost::ONE, takes: &[] };
                    let verdict = engine.decide(&Ask { wants: &[want] }).await;
                    assert_eq!(verdict.source, Source::Store, "nothing may fail in this test");
                    let decision = verdict.checks[0].decision;
                    let retry_after = match decision.outcome {
                        Outcome::Denied { retry_after } => retry_after.0,
                        _ => 0,
                    };
                    let _ = writeln!(
                        report,
                        "fleet {key} {} {} {} {retry_after}",
                        decision.take.at.0,
                        u8::from(verdict.is_allowed()),
                        decision.remaining
                    );
                }
                report
            })
        })
        .collect();
    let mut report = String::new();
    for task in tasks {
        report.push_str(&task.await.expect("a task"));
    }
    report
}

impl Line {
    fn parse(text: &str) -> Option<Line> {
        let numbers: Vec<u64> =
            text.strip_prefix("fleet ")?.split(' ').map(|word| word.parse().expect("a number")).collect();
        let [key, at, allowed, remaining, retry_after] = numbers[..] else { panic!("{text}") };
        Some(Line {
            key: u32::try_from(key).expect("a key"),
            at,
            is_allowed: allowed == 1,
            remaining: u32::try_from(remaining).expect("a count"),
            retry_after,
        })
    }
}
