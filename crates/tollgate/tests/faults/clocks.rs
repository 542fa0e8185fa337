//! Redis' clock steps back, jumps ahead and trembles, and nobody is locked out or let through.

use std::sync::Arc;
use std::time::Duration;

use testkit::{RedisServer, unique_prefix};
use tollgate::observe::Observer;
use tollgate::{Algorithm, Engine, InlineLimit, Kind, OnOutage, Rate, Source, clock};

use crate::stand::{CAPACITY, Heard, RATE, RULES, Stand, store};

/// How long admissions are counted after a step.
const COUNTED: Duration = Duration::from_secs(3);

/// What an undisturbed bucket admits in that time.
pub(crate) const IDEAL: u32 = RATE * 3;

/// What a busy machine may move across either end of the count.
const SLACK: u32 = 15;

/// What each rule admitted while `disturb` was done to the clock of a Redis with drained buckets.
/// Counted again if the machine got in the way, and not every ask was decided by Redis.
pub(crate) async fn admitted_after(disturb: impl AsyncFn(&RedisServer)) -> Vec<u32> {
    for _ in 0..3 {
        if let (admitted, Machine::Quiet) = count_after(&disturb).await {
            return admitted;
        }
    }
    count_after(&disturb).await.0
}

/// Whether the machine got in the way of a count.
enum Machine {
    Quiet,
    Busy,
}

async fn count_after(disturb: &impl AsyncFn(&RedisServer)) -> (Vec<u32>, Machine) {
    let server = RedisServer::builder().clock_shim().start().await;
    let stand = Stand::start(&server.url()).await;
    stand.lasts(Duration::from_millis(300)).await;
    let started = clock::instant();
    disturb(&server).await;
    stand.lasts(COUNTED.saturating_sub(started.elapsed())).await;
    // Counted over three seconds, however long the disturbance really took.
    let ended = started + COUNTED;
    server.clock().set_offset_us(0);
    let report = stand.finish("clock", 1).await;
    let counted = |rule: OnOutage| {
        let admitted = report.asked.iter().filter(|asked| {
            asked.rule == rule
                && asked.is_allowed
                && asked.source == Source::Store
                && (started..ended).contains(&asked.at)
        });
        u32::try_from(admitted.count()).unwrap()
    };
    let machine = if report.is_disturbed() { Machine::Busy } else { Machine::Quiet };
    (RULES.into_iter().map(counted).collect(), machine)
}

/// Trembles by half a second, ten times a second.
pub(crate) async fn tremble(server: &RedisServer) {
    for _ in 0..15 {
        server.clock().set_offset_us(500_000);
        tokio::time::sleep(Duration::from_millis(100)).await;
        server.clock().set_offset_us(-500_000);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_stepped_back_locks_nobody_out() {
    let admitted = admitted_after(async |server| server.clock().step_back(Duration::from_secs(10))).await;
    println!("back 10 s: {admitted:?} of {IDEAL}");
    // Where the clock is re-anchored, the burst of the step itself counts in L.
    let possible = IDEAL - SLACK..=IDEAL + SLACK;
    assert!(admitted.iter().all(|count| possible.contains(count)), "{admitted:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_stepped_ahead_costs_one_burst() {
    let admitted = admitted_after(async |server| server.clock().step(Duration::from_hours(1))).await;
    println!("ahead 1 h: {admitted:?} of {}", IDEAL + CAPACITY);
    let possible = IDEAL + CAPACITY - SLACK..=IDEAL + CAPACITY + SLACK;
    assert!(admitted.iter().all(|count| possible.contains(count)), "{admitted:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trembling_clock_leaks_no_tokens() {
    let admitted = admitted_after(tremble).await;
    println!("trembling: {admitted:?} of {IDEAL}");
    // The first leap ahead pours half a second's worth early, once.
    let possible = IDEAL - SLACK..=IDEAL + RATE / 2 + SLACK;
    assert!(admitted.iter().all(|count| possible.contains(count)), "{admitted:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sliding_log_recovers_within_a_second_of_a_step_back() {
    let server = RedisServer::builder().clock_shim().start().await;
    let heard = Arc::new(Heard::default());
    let engine = Engine::builder(store(&server.url(), &unique_prefix()))
        .observer(Arc::clone(&heard) as Arc<dyn Observer>)
        .build();
    let rate = Rate::parse("10/s").unwrap();
    let limit =
        InlineLimit::new(Algorithm::try_new(Kind::SlidingLog, rate, None, 10).unwrap(), rate.period());
    for (key, back_ms, back_max_ms) in [("far", 10_000, 1_000), ("near", 900, 2_000)] {
        // A window, and for a step that is waited out, the step: at most a second more.
        while engine.check(key, &limit).await.is_allowed() {}
        server.clock().step_back(Duration::from_millis(back_ms));
        let stepped = clock::instant();
        loop {
            let verdict = engine.check(key, &limit).await;
            if verdict.is_allowed() && verdict.source == Source::Store {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let took = stepped.elapsed();
        println!("stepped back {back_ms} ms: allowed again after {took:?}");
        let within = Duration::from_millis(back_max_ms + 200);
        assert!(took < within, "{took:?}, guard {:?}, errors {:?}", heard.changes(), heard.errors());
    }
}
