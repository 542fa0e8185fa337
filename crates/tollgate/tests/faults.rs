//! Redis fails in every way we can make it fail, under load, and every promise is measured.
//!
//! One test per fault, each with a Redis of its own; then what must hold across faults: replies
//! and their requests, local shares, clocks. `campaign` runs every fault several times with the
//! strict bounds and prints the table of `docs/failure.md`:
//!
//! ```text
//! cargo test --release -p tollgate --test faults -- --ignored --nocapture campaign
//! ```
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests: they fail, and tell")]

#[path = "faults/campaign.rs"]
mod campaign;
#[path = "faults/catalogue.rs"]
mod catalogue;
#[path = "faults/clocks.rs"]
mod clocks;
#[path = "faults/excess.rs"]
mod excess;
#[path = "faults/guarding.rs"]
mod guarding;
#[path = "faults/replies.rs"]
mod replies;
#[path = "faults/report.rs"]
mod report;
#[path = "faults/shares.rs"]
mod shares;
#[path = "faults/stand.rs"]
mod stand;

use std::time::Duration;

use catalogue::Fault;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_redis_is_set_aside_and_found_again() {
    let report = Fault::Stopped.run().await;
    report.keeps_promises().guard_opened_once().saw("timeout");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_redis_without_aof_costs_one_burst() {
    let report = Fault::Killed.run().await;
    report.keeps_promises().guard_opened_once().saw("unreachable");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_redis_with_aof_costs_nothing() {
    let report = Fault::KilledWithAof.run().await;
    report.keeps_promises().guard_opened_once().saw("unreachable");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_starts_without_redis_and_finds_it_when_it_appears() {
    let report = Fault::Absent.run().await;
    report.keeps_promises().guard_opened_once().saw("unreachable");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blackholed_network_is_survived() {
    let report = Fault::Blackholed.run().await;
    report.keeps_promises().guard_opened_once().saw("timeout");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_connections_are_left_though_nothing_says_that_they_are_dead() {
    let report = Fault::ConnectionsBlackholed.run().await;
    report.keeps_promises().guard_opened_once().saw("timeout");
    // Not only when the next heartbeat happens to be due.
    assert!(report.back() < Duration::from_millis(900), "back after {:?}", report.back());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reset_connections_are_dialled_again() {
    let report = Fault::Cut.run().await;
    report.keeps_promises().guard_opened_once().saw("unreachable");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_redis_is_left_for_the_one_its_address_names_now() {
    let report = Fault::MovedFromHung.run().await;
    report.keeps_promises().guard_opened_once().saw("timeout");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demoted_redis_is_left_for_the_one_its_address_names_now() {
    let report = Fault::MovedFromDemoted.run().await;
    report.keeps_promises().saw("readonly");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_past_the_deadline_are_an_outage() {
    let report = Fault::RepliesTooLate.run().await;
    report.keeps_promises().guard_opened_once().saw("timeout");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_redis_within_the_deadline_still_decides() {
    let report = Fault::Slow.run().await;
    report.keeps_promises().never_fell_back();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushed_scripts_are_loaded_again_unnoticed() {
    let report = Fault::ScriptsFlushed.run().await;
    report.keeps_promises().never_fell_back();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flushed_database_costs_one_burst() {
    let report = Fault::Flushed.run().await;
    report.keeps_promises().never_fell_back();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_redis_is_an_outage_for_takes_and_none_for_peeks() {
    let report = Fault::OutOfMemory.run().await;
    report.keeps_promises().guard_opened_once().saw("oom");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demoted_redis_is_an_outage_until_it_is_promoted() {
    let report = Fault::Demoted.run().await;
    report.keeps_promises().guard_opened_once().saw("readonly");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fenced_redis_is_an_outage_until_the_fence_falls() {
    let report = Fault::Fenced.run().await;
    report.keeps_promises().guard_opened_once().saw("noreplicas");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endless_script_is_an_outage_until_it_is_killed() {
    let report = Fault::Busy.run().await;
    report.keeps_promises().guard_opened_once();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revoked_permissions_are_an_outage_until_they_are_restored() {
    let report = Fault::AclRevoked.run().await;
    report.keeps_promises().guard_opened_once().saw("noperm");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_password_is_an_outage_until_it_is_changed_back() {
    let report = Fault::PasswordChanged.run().await;
    report.keeps_promises().guard_opened_once().saw("noauth");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loading_redis_is_an_outage_until_it_has_loaded() {
    let report = Fault::Loading.run().await;
    report.keeps_promises().guard_opened_once().saw("loading");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_connections_cost_only_what_was_under_way() {
    let report = Fault::ConnectionsKilled.run().await;
    report.keeps_promises();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_without_room_for_us_is_an_outage_until_there_is_room() {
    let report = Fault::TooManyClients.run().await;
    report.keeps_promises().guard_opened_once().saw("maxclients");
}

/// A heartbeat once took three trips, so that a Redis 10 ms away failed all of them: a guard that
/// had opened stayed open for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_that_holds_one_trip_is_enough_to_be_well() {
    let report = Fault::SlowFromTheStart.run().await;
    report.keeps_promises();
    let timeouts = report.errors.get("timeout").copied().unwrap_or_default();
    assert!(timeouts <= 20, "{:?}", report.errors);
}
