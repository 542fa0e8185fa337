//! HalfOpen: never more probes than there are leases, and a prober that dies is waited for no longer than its lease.

use std::time::Duration;

use tollgate::clock;

use crate::destination::{Conduct, Seen};
use crate::monitor::Monitor;
use crate::scene::{Scene, until};
use crate::worker::settings;

const INSTANCES: u32 = 20;

/// What a busy machine may add to the end of a lease.
const SLACK_US: u64 = 1_000_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_processes_never_probe_more_at_a_time_than_there_are_leases() {
    probing(250).await;
}

/// So many times HalfOpen, with twenty processes at it.
pub(crate) async fn probing(half_opens: u64) {
    let mut scene = Scene::new("leases", Duration::from_millis(2)).await;
    let settings = settings(scene.settings);
    let monitor = Monitor::start(&scene.server, scene.key("p"), settings.probe_for.0).await;
    scene.destination.conduct(Conduct::Fails);
    let began = clock::instant();
    scene.start_all(INSTANCES);
    scene.until_fleet_is("open").await;
    scene.destination.conduct(Conduct::Erratic);
    until("it was half-open often enough", async || {
        let stream = scene.server.command(&["XINFO", "STREAM", &scene.key("ev")]).await;
        let words = stream.array();
        let at = words.iter().position(|word| word.text() == "entries-added").expect("Redis 7 tells");
        // One of the two ends each time.
        words[at + 1].integer().unsigned_abs() / 2 > half_opens
    })
    .await;
    let leases = monitor.finish(&scene.server).await;
    let took = began.elapsed();

    let calls = scene.destination.calls();
    let probes: Vec<Seen> = calls.into_iter().filter(|call| call.lease_ends.is_some()).collect();
    let shared: Vec<Seen> = probes.iter().copied().filter(|probe| probe.is_shared).collect();
    let under_lease = most_at_a_time(&shared, |probe| probe.lease_ends.unwrap_or(0));
    let at_all = most_at_a_time(&probes, |_| u64::MAX);
    let who: std::collections::BTreeSet<u32> = shared.iter().map(|probe| probe.who).collect();
    println!(
        "leases: {} processes, {} half-open periods in {took:.1?}; {} leases granted, {} of them outlived; at most {} of \
         {} live at a time by what Redis did; the destination saw {} probes by {} instances, at most {under_lease} under \
         lease and {at_all} in all at a time",
        INSTANCES,
        leases.half_opens,
        leases.granted,
        leases.outlived,
        leases.most,
        settings.probes,
        probes.len(),
        who.len(),
    );
    let most = settings.probes as usize;
    assert!(leases.half_opens >= half_opens, "{leases:?}");
    assert_eq!(leases.most, most, "all leases were used, and never one more");
    assert!(under_lease <= most, "{under_lease} probes at a time");
    assert!(under_lease == most && who.len() > 10, "it was worth watching");
    assert!(leases.outlived > 0, "some were not given back in time");
    assert!(shared.len() * 10 > probes.len() * 9, "hardly anybody decided alone");
}

/// The most calls that were under way at a time; each until its end, but no longer than that.
fn most_at_a_time(calls: &[Seen], no_longer_than: impl Fn(&Seen) -> u64) -> usize {
    let mut ends: Vec<(u64, i32)> = Vec::new();
    for call in calls {
        let end = call.ended.unwrap_or(u64::MAX).min(no_longer_than(call));
        if end > call.began {
            ends.extend([(call.began, 1), (end, -1)]);
        }
    }
    // Of one microsecond, those that end come first.
    ends.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, step) in ends {
        now += step;
        most = most.max(now);
    }
    usize::try_from(most).expect("no call ends before it begins")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_prober_is_waited_for_no_longer_than_its_lease() {
    killing(1).await;
}

/// Kills a prober so many times.
pub(crate) async fn killing(times: u32) {
    let mut scene = Scene::new("one-probe", Duration::from_millis(2)).await;
    let (mut late, mut next) = (Vec::new(), 6);
    scene.destination.conduct(Conduct::Fails);
    scene.start_all(next);
    for _ in 0..times {
        scene.destination.conduct(Conduct::Fails);
        scene.until_fleet_is("open").await;
        scene.destination.conduct(Conduct::Held);
        // Whoever has lost sight of the fleet, as on a machine that stalls, probes by a lease of its own.
        let by_the_fleet = |call: &Seen| call.lease_ends.is_some() && call.is_shared;
        let probe = || scene.destination.calls().into_iter().rfind(by_the_fleet);
        until("one probes", async || probe().is_some_and(|probe| probe.ended.is_none())).await;
        let killed = probe().expect("it probes");
        let lease = scene.server.command(&["ZRANGE", &scene.key("p"), "0", "-1", "WITHSCORES"]).await;
        assert_eq!(lease.array().len(), 2, "one lease is out: {lease:?}");
        let ends: u64 = lease.array()[1].text().parse().expect("a time");
        let before = scene.destination.calls().len();
        scene.kill(killed.who);
        scene.destination.conduct(Conduct::Well);
        let another = || scene.destination.calls().into_iter().skip(before).find(|call| call.is_shared);
        until("another probes", async || another().is_some()).await;
        let other = another().expect("it probes");
        assert!(other.lease_ends.is_some(), "the next call is a probe: {other:?}");
        assert!(other.began >= ends, "not before the lease has ended: {other:?}, {ends}");
        assert!(other.began < ends + SLACK_US, "and soon after: {other:?}, {ends}");
        late.push(other.began - ends);
        let orders = scene.orders();
        scene.start(next, &orders);
        next += 1;
        scene.until_all_are("closed").await;
    }
    println!(
        "killed: {times} probers with kill -9; the next probe came so long after the lease's end, in us: {late:?}"
    );
}
