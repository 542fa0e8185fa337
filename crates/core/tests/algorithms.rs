//! Every algorithm against its textbook model, over random histories.
//!
//! Proves P2 (nothing is rounded away), P3 (a refusal writes nothing) and P4 (`retry_after` is true to
//! the microsecond); `promises` proves P1. In fair weather and foul: see `histories`.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests fail by panicking and report by printing"
)]

mod histories;
mod models;
mod promises;

use histories::pairs::{FixedWindows, Pair, SlidingLogs, SlidingWindows, TokenBuckets};
use histories::{Weather, walk_many};

const OPERATIONS: u64 = 60;

/// Compares an algorithm with its model over that many histories, most of them in foul weather.
fn compare<P: Pair>(histories: u64) {
    let weather = |random: &mut histories::random::Random| {
        if random.one_in(4) { Weather::Fair } else { Weather::Foul }
    };
    walk_many::<P>(histories, OPERATIONS, weather, |_, _| ());
}

#[test]
fn token_bucket_is_the_textbook_bucket() {
    compare::<TokenBuckets>(400);
}

#[test]
fn sliding_log_is_the_textbook_log() {
    compare::<SlidingLogs>(400);
}

#[test]
fn sliding_window_is_the_textbook_window() {
    compare::<SlidingWindows>(400);
}

#[test]
fn fixed_window_is_the_textbook_counter() {
    compare::<FixedWindows>(400);
}

#[test]
#[ignore = "campaign: 10^5 histories"]
fn token_bucket_campaign() {
    compare::<TokenBuckets>(100_000);
}

#[test]
#[ignore = "campaign: 10^5 histories"]
fn sliding_log_campaign() {
    compare::<SlidingLogs>(100_000);
}

#[test]
#[ignore = "campaign: 10^5 histories"]
fn sliding_window_campaign() {
    compare::<SlidingWindows>(100_000);
}

#[test]
#[ignore = "campaign: 10^5 histories"]
fn fixed_window_campaign() {
    compare::<FixedWindows>(100_000);
}
