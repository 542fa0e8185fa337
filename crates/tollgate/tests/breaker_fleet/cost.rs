//! What a call costs Redis: nothing, while Closed and while Open.

use std::sync::Arc;
use std::time::Duration;

use testkit::{RedisServer, unique_prefix};
use tollgate::breaker::{Breakers, Decree};
use tollgate::clock;
use tollgate::core::breaker::{Breaker, Mode, Settings};
use tollgate::store::redis::{RedisConfig, RedisStore, RedisUrl};

use crate::scene::until;

/// Leaves asked for in each state.
const PERMITS: u32 = 100_000;

fn instance(server: &RedisServer, prefix: &str) -> Breakers<RedisStore> {
    let mut config = RedisConfig::new(RedisUrl::parse(&server.url()).expect("a URL of testkit's"));
    prefix.clone_into(&mut config.key_prefix);
    let store = RedisStore::new(config).expect("no TLS to go wrong");
    Breakers::start(Arc::new(store), Breaker::try_new(Settings::default()).expect("the default"))
}

/// Calls of each command, and what they took, in microseconds.
async fn commands(server: &RedisServer) -> Vec<(String, u64, u64)> {
    let info = server.command(&["INFO", "commandstats"]).await.text();
    let of = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(':')?;
        let number = |field: &str| {
            let value = rest.split(',').find_map(|part| part.strip_prefix(field)?.strip_prefix('='))?;
            value.parse::<u64>().ok()
        };
        Some((name.to_owned(), number("calls")?, number("usec")?))
    };
    info.lines().filter_map(of).collect()
}

/// Calls of functions: all that a breaker ever asks.
async fn asked(server: &RedisServer) -> u64 {
    commands(server).await.iter().find(|(name, ..)| name == "fcall").map_or(0, |(_, calls, _)| *calls)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_calls_while_closed_and_while_open_ask_redis_nothing() {
    let (server, prefix) = (RedisServer::start().await, unique_prefix());
    let instance = instance(&server, &prefix);
    let payments = instance.handle(b"payments").expect("there is room");
    until("the fleet is heard of", async || payments.permit().await.is_ok() && payments.is_shared()).await;
    for (state, mode) in [("Closed", None), ("Open", Some(Mode::ForcedOpen))] {
        if let Some(mode) = mode {
            let keep_for = Duration::from_mins(10);
            let decree = Decree { mode, keep_for, reason: "a drill".into(), who: "ann".into() };
            instance.overrule(b"payments", decree).await.expect("it answers");
        }
        let (began, before) = (clock::instant(), asked(&server).await);
        let mut made = 0;
        // For a second at least, so that there are flushes to be seen.
        while made < PERMITS || began.elapsed() < Duration::from_secs(1) {
            for _ in 0..1000 {
                if let Ok(permit) = payments.permit().await {
                    permit.success();
                }
            }
            made += 1000;
            tokio::task::yield_now().await;
        }
        let (took, asked) = (began.elapsed(), asked(&server).await - before);
        println!("trips: {made} permits while {state} in {took:.2?}: {asked} calls of Redis");
        // A report each tenth of a second, or a look each second; and one that was under way.
        let most = 2 + took.as_millis() / 100;
        assert!(u128::from(asked) <= most, "{asked} calls of Redis in {took:?}");
    }
}
