//! envoyproxy/ratelimit itself beside Tollgate, on one Redis, under the same files: both are asked the same, and say
//! the same.
//!
//! Left out is what `docs/migrating.md` says is different: keys with an underscore, a look at a limit that is
//! spent, quotas (which later versions of the original treat otherwise), and the words of errors.
//!
//! The original is built from its Go module by `cargo xtask test install`.
#![allow(clippy::unwrap_used, reason = "what a test cannot arrange, it cannot go on without")]

mod common;
#[path = "common/grpc.rs"]
#[allow(dead_code, reason = "shared with the test of the gRPC door, which calls more")]
mod grpc;
#[path = "../src/doors/grpc/proto/mod.rs"]
mod proto;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::tollgate;
use grpc::Caller;
use proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{Entry, RateLimitOverride};
use proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tempfile::TempDir;
use testkit::{Child, RedisServer, eventually, free_port};

const DOMAINS: u64 = 5;
const ASKS: u64 = 400;
const SEEDS: std::ops::RangeInclusive<u64> = 1..=8;

/// A little generator, so that a failure can be told by its number.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }

    /// True so many times in ten.
    fn tenths(&mut self, tenths: u64) -> bool {
        self.below(10) < tenths
    }
}

/// Descriptors of one depth, and those below them, in the original's YAML.
fn descriptors(draw: &mut Draw, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    let mut seen = Vec::new();
    for _ in 0..3 + draw.below(5) {
        let key = draw.of(&["a", "b", "a.b", "d*"]);
        let value = draw.of(&["", "", "x", "é", "x*", "*", "xy*", "1"]);
        if seen.contains(&(key, value)) {
            continue;
        }
        seen.push((key, value));
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(out, "{indent}- key: '{key}'\n{indent}  value: '{value}'");
        if draw.tenths(7) {
            let _ = writeln!(out, "{indent}  rate_limit: {}", rate_limit(draw));
        }
        for (flag, is_allowed) in [
            ("shadow_mode", true),
            ("share_threshold", key.ends_with('*') && value.is_empty() || value.ends_with('*')),
            ("detailed_metric", true),
            ("value_to_metric", true),
        ] {
            if is_allowed && draw.tenths(3) {
                let _ = writeln!(out, "{indent}  {flag}: true");
            }
        }
        if depth < 3 && draw.tenths(5) {
            let _ = writeln!(out, "{indent}  descriptors:");
            descriptors(draw, depth + 1, out);
        }
    }
}

fn rate_limit(draw: &mut Draw) -> String {
    let names = ["one", "two"];
    let mut fields = Vec::new();
    if draw.tenths(1) {
        fields.push("unlimited: true".to_owned());
    } else {
        // Long ones, so that no window ends between two questions.
        let unit = draw.of(&["week", "month", "year", "WEEK"]);
        fields.push(format!("unit: {unit}, requests_per_unit: {}", draw.of(&[0, 1, 2, 3, 5])));
    }
    let name = draw.tenths(5).then(|| draw.of(&names));
    fields.extend(name.map(|name| format!("name: {name}")));
    let other = draw.of(&names);
    if draw.tenths(4) && name != Some(other) {
        fields.push(format!("replaces: [{{name: {other}}}]"));
    }
    format!("{{{}}}", fields.join(", "))
}

fn request(draw: &mut Draw) -> RateLimitRequest {
    let entry = |draw: &mut Draw| Entry {
        key: draw.of(&["a", "b", "a.b", "d1"]).into(),
        value: draw.of(&["", "x", "xy", "xyz", "1", "é", "x*"]).into(),
    };
    let descriptor = |draw: &mut Draw| RateLimitDescriptor {
        entries: (0..draw.of(&[0, 1, 1, 1, 1, 2, 2, 3])).map(|_| entry(draw)).collect(),
        // Two a day, which no file says: limits of one unit and one subject share a counter, and of what was
        // refused under a smaller one the original counts more.
        limit: draw.tenths(1).then_some(RateLimitOverride { requests_per_unit: 2, unit: 4 }),
        hits_addend: draw.tenths(2).then(|| draw.of(&[1, 2, 3, 1 << 40])),
        is_negative_hits: false,
    };
    RateLimitRequest {
        domain: format!("d{}", draw.below(DOMAINS + 1)),
        descriptors: (0..draw.of(&[1, 1, 2, 3])).map(|_| descriptor(draw)).collect(),
        hits_addend: draw.of(&[0, 0, 0, 1, 2]),
    }
}

fn original() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let program = target.join("clients/ratelimit/ratelimit");
    assert!(program.is_file(), "{} is missing: run `cargo xtask test install`", program.display());
    program
}

/// The same settings for both; each has its own doors.
fn settings(command: &mut Command, redis: &RedisServer) -> u16 {
    let grpc = free_port();
    command.env("HOST", "127.0.0.1").env("PORT", free_port().to_string());
    command.env("GRPC_HOST", "127.0.0.1").env("GRPC_PORT", grpc.to_string());
    command.env("DEBUG_HOST", "127.0.0.1").env("DEBUG_PORT", free_port().to_string());
    command.env("REDIS_SOCKET_TYPE", "tcp").env("REDIS_URL", format!("127.0.0.1:{}", redis.port()));
    command.env("LIMIT_RESPONSE_HEADERS_ENABLED", "true").env("RESPONSE_DYNAMIC_METADATA", "true");
    grpc
}

async fn connected(port: u16) -> Caller {
    eventually("the door opens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()).await;
    Caller::connect(([127, 0, 0, 1], port).into()).await
}

/// An answer in words, without what depends on the second it was given in.
fn timeless(mut answer: RateLimitResponse) -> String {
    for status in &mut answer.statuses {
        if let Some(reset) = &mut status.duration_until_reset {
            assert!(reset.seconds > 0 && reset.nanos == 0, "{reset:?}");
            reset.seconds = 1;
        }
    }
    for header in answer.response_headers_to_add.iter_mut().filter(|header| header.key == "RateLimit-Reset") {
        header.value.clear();
    }
    // Go writes one space or two between the fields of a limit, on purpose, so that nobody relies on it.
    format!("{answer:?}").replace("  unit:", " unit:")
}

#[tokio::test]
async fn both_are_asked_the_same_and_say_the_same() {
    let mut refused = 0;
    for seed in SEEDS {
        let mut draw = Draw(seed);
        let place = TempDir::new().unwrap();
        let config = place.path().join("ratelimit/config");
        fs::create_dir_all(&config).unwrap();
        for domain in 0..DOMAINS {
            let mut text = format!("domain: d{domain}\ndescriptors:\n");
            descriptors(&mut draw, 0, &mut text);
            fs::write(config.join(format!("d{domain}.yaml")), text).unwrap();
        }
        let redis = RedisServer::start().await;
        let mut theirs = Command::new(original());
        let port_of_theirs = settings(&mut theirs, &redis);
        theirs.env("USE_STATSD", "false").env("RUNTIME_ROOT", place.path());
        theirs.env("RUNTIME_SUBDIRECTORY", "ratelimit").env("RUNTIME_WATCH_ROOT", "false");
        let mut ours = tollgate(&["serve", "--envoy-config", config.to_str().unwrap(), "--resp", "off"]);
        let port_of_ours = settings(&mut ours, &redis);
        let (theirs, ours) = (Child::spawn(&mut theirs), Child::spawn(&mut ours));
        let (original, tollgate) = (connected(port_of_theirs).await, connected(port_of_ours).await);
        for at in 0..ASKS {
            let asked = request(&mut draw);
            let expected = timeless(original.ask(&asked).await);
            let found = tollgate.ask(&asked).await;
            refused += u64::from(found.overall_code == 2);
            let file = fs::read_to_string(config.join(format!("{}.yaml", asked.domain))).unwrap_or_default();
            assert_eq!(timeless(found), expected, "seed {seed}, ask {at}: {asked:?}\n{file}");
        }
        drop((theirs, ours));
    }
    assert!((200..2000).contains(&refused), "{refused} were refused");
}
