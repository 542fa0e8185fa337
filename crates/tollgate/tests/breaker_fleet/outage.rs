//! Redis is away: no call fails for want of it, an Open that was seen stays, and what is newer is found on return.

use std::time::Duration;

use testkit::{ChaosProxy, RedisServer};
use tollgate::clock;

use crate::destination::Conduct;
use crate::scene::{Scene, until};

const INSTANCES: u32 = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_redis_is_away_not_one_call_fails_for_want_of_it() {
    away_for(Duration::from_secs(2)).await;
}

/// Redis killed, and then stopped, for so long each.
pub(crate) async fn away_for(span: Duration) {
    let mut scene = Scene::new("usual", Duration::from_millis(5)).await;
    scene.destination.conduct(Conduct::Well);
    scene.start_all(INSTANCES);
    scene.until_all_are("closed").await;
    for how in ["killed", "stopped"] {
        let before = scene.destination.stats();
        if how == "killed" {
            scene.server.kill();
        } else {
            scene.server.pause();
        }
        let began = clock::instant();
        until("all have noticed", async || none_is_in_touch(&scene)).await;
        let noticed = began.elapsed();
        // Nothing to wait for but the time itself: what is claimed is that it passes and nothing happens.
        tokio::time::sleep(span.saturating_sub(noticed)).await;
        let away = began.elapsed();
        if how == "killed" {
            scene.server.restart().await;
        } else {
            scene.server.resume();
        }
        scene.until_all_are("closed").await;
        let back = began.elapsed().saturating_sub(away);
        let after = scene.destination.stats();
        let made: u64 = after.values().map(|stats| stats.made).sum::<u64>()
            - before.values().map(|stats| stats.made).sum::<u64>();
        let refused: u64 = after.values().map(|stats| stats.refused).sum();
        let longest = after.values().map(|stats| stats.longest_us).max().unwrap_or_default();
        println!(
            "away: Redis {how} for {away:.1?}, noticed by all within {noticed:.0?}, found again by all within {back:.0?}; \
             {INSTANCES} processes made {made} calls, {refused} refused; longest wait for leave {longest} us"
        );
        assert_eq!(refused, 0, "not one is refused");
        let least = u64::try_from(away.as_millis()).expect("it ended") * u64::from(INSTANCES) / 50;
        assert!(made > least, "and they went on: {made} of at least {least}");
    }
}

fn none_is_in_touch(scene: &Scene) -> bool {
    (0..INSTANCES).all(|who| scene.destination.latest(who).is_some_and(|notice| !notice.is_shared))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_that_was_seen_stays_to_its_end_without_redis() {
    let mut scene = Scene::new("hint", Duration::from_millis(5)).await;
    scene.destination.conduct(Conduct::Well);
    scene.start_all(INSTANCES);
    scene.until_all_are("closed").await;
    scene.destination.say_until_once(Duration::from_secs(1));
    scene.until_all_are("open").await;
    let until_us = scene.number("until").await;
    scene.server.kill();
    scene.destination.conduct(Conduct::Well);
    let made_before = scene.destination.calls().len();
    until("somebody calls again", async || scene.destination.calls().len() > made_before).await;
    let first = scene.destination.calls()[made_before];
    assert!(first.began >= until_us, "nobody calls before the end: {first:?}, {until_us}");
    assert!(first.lease_ends.is_some(), "and then it probes, by itself: {first:?}");
    until("all are closed", async || {
        (0..INSTANCES).all(|who| scene.destination.latest(who).is_some_and(|one| one.state == "closed"))
    })
    .await;
    // A Redis that has lost everything is taken for what it is: one that nobody has used.
    scene.server.restart().await;
    scene.until_all_are("closed").await;
    assert_eq!(scene.record().await["state"], "closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_back_overwrites_nothing_newer() {
    let server = RedisServer::builder().aof().start().await;
    let mut scene = Scene::on(server, "usual", Duration::from_millis(5)).await;
    let proxy = ChaosProxy::start(scene.server.address()).await;
    let mut orders = scene.orders();
    orders.url = proxy.url();
    scene.destination.conduct(Conduct::Well);
    scene.start(0, &orders);
    let orders = scene.orders();
    (1..4).for_each(|who| scene.start(who, &orders));
    scene.until_all_are("closed").await;

    // One is cut off, and goes on failing, while the others trip, probe and close again.
    proxy.blackhole();
    until("it has noticed", async || scene.destination.latest(0).is_some_and(|one| !one.is_shared)).await;
    scene.destination.conduct_to(0, Conduct::Fails);
    scene.destination.conduct(Conduct::Fails);
    scene.until_fleet_is("open").await;
    scene.destination.conduct(Conduct::Well);
    until("the others have closed", async || {
        (1..4).all(|who| scene.destination.latest(who).is_some_and(|one| one.state == "closed"))
    })
    .await;
    scene.until_fleet_is("closed").await;
    let epoch = scene.number("epoch").await;

    proxy.pass();
    until("it is in touch", async || scene.destination.latest(0).is_some_and(|one| one.is_shared)).await;
    scene.destination.conduct_to(0, Conduct::Well);
    scene.until_all_are("closed").await;
    assert_eq!(scene.number("epoch").await, epoch, "what it knew and did alone has changed nothing");

    // The same for all of them, and a Redis that comes back as it was: its record counts, not what they did alone.
    scene.server.kill();
    until("nobody is in touch", async || {
        (1..4).all(|who| scene.destination.latest(who).is_some_and(|one| !one.is_shared))
    })
    .await;
    scene.destination.conduct(Conduct::Fails);
    until("they open by themselves", async || {
        (1..4).all(|who| scene.destination.latest(who).is_some_and(|one| one.state == "open"))
    })
    .await;
    scene.server.restart().await;
    scene.destination.conduct(Conduct::Well);
    scene.until_all_are("closed").await;
    assert!(scene.number("epoch").await >= epoch, "an epoch never goes back");
}
