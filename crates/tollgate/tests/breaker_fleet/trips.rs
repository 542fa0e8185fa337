//! Trips: who causes one, who hears of it and how soon, and who finds it later.

use std::fmt::Write as _;
use std::time::Duration;

use testkit::{ChaosProxy, RedisServer, Reply};
use tollgate::clock;

use crate::destination::Conduct;
use crate::scene::{Scene, quantiles, until};

const INSTANCES: u32 = 20;

/// How soon all know, in microseconds, but for one in a hundred.
const KNOWN_WITHIN_US: u64 = 250_000;

/// How a change is made known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Push {
    Heard,
    /// Nobody may publish or subscribe.
    Lost,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_know_of_a_trip_within_a_quarter_of_a_second() {
    // A machine that is busy with something else says nothing about breakers.
    for _ in 0..2 {
        if spreading(Push::Heard, 10).await <= KNOWN_WITHIN_US {
            return;
        }
    }
    let p99 = spreading(Push::Heard, 10).await;
    assert!(p99 <= KNOWN_WITHIN_US, "p99 {p99} us");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_hears_no_push_finds_out_by_itself() {
    for _ in 0..2 {
        if spreading(Push::Lost, 5).await <= KNOWN_WITHIN_US {
            return;
        }
    }
    let p99 = spreading(Push::Lost, 5).await;
    assert!(p99 <= KNOWN_WITHIN_US, "p99 {p99} us");
}

/// Trips so many times; the 99th percentile of how long others did not know, in microseconds.
pub(crate) async fn spreading(push: Push, rounds: u32) -> u64 {
    let server = match push {
        Push::Heard => RedisServer::start().await,
        Push::Lost => {
            let user = "user default on nopass ~* resetchannels +@all";
            RedisServer::builder().acl_line(user).start().await
        }
    };
    let mut scene = Scene::on(server, "hint", Duration::from_millis(10)).await;
    scene.destination.conduct(Conduct::Well);
    scene.start_all(INSTANCES);
    let (mut since_trip, mut since_call) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        scene.until_all_are("closed").await;
        let heard_before = scene.destination.notices().len();
        scene.destination.say_until_once(Duration::from_millis(400));
        until("somebody is told to wait", async || scene.destination.said_until().is_some()).await;
        let (first, said_at) = scene.destination.said_until().expect("it was said");
        scene.until_all_are("open").await;
        assert_eq!(scene.record().await["state"], "open", "all knew while it lasted");
        let opened_at = scene.number("opened_at").await;
        for notice in &scene.destination.notices()[heard_before..] {
            // Who was told to wait has opened for itself.
            if notice.who != first && notice.state == "open" && notice.is_shared {
                since_trip.push(notice.at.saturating_sub(opened_at));
                since_call.push(notice.at.saturating_sub(said_at));
            }
        }
    }
    assert!(since_trip.len() >= (rounds * (INSTANCES - 1)) as usize, "{} notices", since_trip.len());
    let (median, p99, max) = quantiles(&mut since_trip);
    let call = quantiles(&mut since_call);
    println!(
        "trips, push {push:?}: {rounds} trips, {INSTANCES} processes, {} notices; from the trip in Redis to knowing: p50 \
         {median} us, p99 {p99} us, max {max} us; from the answer of the failing call: p50 {} us, p99 {} us, max {} us",
        since_trip.len(),
        call.0,
        call.1,
        call.2
    );
    if push == Push::Heard {
        // The next flush would come after up to a tenth of a second.
        assert!(call.0 < 30_000, "a call that trips is told of at once: {} us", call.0);
        println!("{}", histogram(&since_trip));
    }
    p99
}

/// How many lie below each power of two.
fn histogram(sorted: &[u64]) -> String {
    let mut lines = String::from("trips, histogram:");
    let mut below = 0;
    for bits in 8..32 {
        let upto = sorted.partition_point(|figure| *figure < 1 << bits);
        if upto > below {
            let _ = write!(lines, " <{} us: {};", 1_u64 << bits, upto - below);
        }
        below = upto;
    }
    lines
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_instances_with_two_calls_each_reach_a_minimum_of_a_hundred() {
    let server = RedisServer::builder().clock_shim().start().await;
    let mut scene = Scene::on(server, "minimum", Duration::from_millis(1)).await;
    let mut orders = scene.orders();
    orders.most_calls = 2;
    scene.destination.conduct(Conduct::Held);
    (0..50).for_each(|who| scene.start(who, &orders));
    until("all call", async || scene.destination.calls().len() == 50).await;
    assert!(scene.destination.calls().iter().all(|call| call.is_shared), "all have heard of the fleet");
    // A record is not judged in its first second.
    scene.server.clock().step(Duration::from_secs(2));

    (0..49).for_each(|who| scene.destination.conduct_to(who, Conduct::Fails));
    until("49 have been heard", async || failed(&scene).await == 98).await;
    assert_eq!(scene.record().await["state"], "closed", "98 calls are not enough");
    scene.destination.conduct_to(49, Conduct::Fails);
    scene.until_all_are("open").await;
    let stream = scene.server.command(&["XREVRANGE", &scene.key("ev"), "+", "-", "COUNT", "1"]).await;
    let told: Vec<String> = stream.array()[0].array()[1].array().iter().map(Reply::text).collect();
    let told = told.join(" ");
    assert!(told.starts_with("cause failure_ratio from closed to open"), "{told}");
    assert!(told.contains("ok 0 failed 100 slow 0 reporters 50 troubled 50"), "{told}");
    println!("minimum: {told}");
}

/// Failures in the fleet's window.
async fn failed(scene: &Scene) -> u64 {
    scene.number("failures").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_whose_network_is_broken_opens_for_itself_alone() {
    let mut scene = Scene::new("usual", Duration::from_millis(5)).await;
    scene.destination.conduct(Conduct::Well);
    let proxy = ChaosProxy::start(scene.destination.address).await;
    let mut orders = scene.orders();
    orders.calls_at = proxy.address();
    scene.start(0, &orders);
    let orders = scene.orders();
    (1..5).for_each(|who| scene.start(who, &orders));
    scene.until_all_are("closed").await;
    let epoch = scene.number("epoch").await;

    proxy.cut();
    let is = |state: &str| scene.destination.latest(0).is_some_and(|one| one.state == state);
    // For longer than the second in which the fleet is not judged, so that it was put to the vote and lost.
    for _ in 0..4 {
        until("it opens", async || is("open")).await;
        until("it probes", async || !is("open")).await;
    }
    assert_eq!(scene.number("epoch").await, epoch, "the fleet has not changed once");
    assert_eq!(scene.record().await["state"], "closed");
    let stats = scene.destination.stats();
    println!("one broken: {stats:?}");
    assert!(stats[&0].refused > 100, "the broken one keeps itself from calling: {stats:?}");
    for who in 1..5 {
        assert_eq!(stats[&who].refused, 0, "nobody else is refused: {stats:?}");
    }
    proxy.pass();
    until("it closes", async || is("closed")).await;
    assert_eq!(scene.number("epoch").await, epoch, "nor when the broken one was mended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_that_is_started_anew_finds_it_open() {
    let mut scene = Scene::new("long", Duration::from_millis(2)).await;
    scene.destination.conduct(Conduct::Fails);
    scene.start_all(8);
    scene.until_fleet_is("open").await;
    let (epoch, until_us) = (scene.number("epoch").await, scene.number("until").await);
    (0..8).for_each(|who| scene.kill(who));
    let made_before = scene.destination.calls().len();

    scene.destination.conduct(Conduct::Well);
    let orders = scene.orders();
    (8..16).for_each(|who| scene.start(who, &orders));
    scene.until_all_are("open").await;
    until("all have been refused often", async || {
        let stats = scene.destination.stats();
        (8..16).all(|who| stats.get(&who).is_some_and(|stats| stats.refused > 50))
    })
    .await;
    assert!(clock::wall().0 < until_us, "it is not over yet");
    assert_eq!(scene.destination.calls().len(), made_before, "not one call was made");
    assert_eq!((scene.number("epoch").await, scene.number("until").await), (epoch, until_us));
    println!("restart: 8 processes killed and 8 started while Open: {:?}", scene.destination.stats());
}
