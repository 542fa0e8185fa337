//! What is promised whenever another server is promoted, behind Sentinels and on a cluster alike.

use std::time::{Duration, Instant};

use crate::stand::{Asked, BACK_WITHIN, CAPACITY, DEADLINE, Load, RATE, back_after, burst, is_without_redis};

/// A machine busy with other tests stalls its tasks; the deadline itself is measured by the campaign.
const STALL: Duration = Duration::from_millis(150);

/// Waits until Redis answers again, stops, and holds the answers to what is promised. They are returned.
pub(crate) async fn is_followed(load: Load, keys: usize, promoted: Instant) -> Vec<Asked> {
    load.settles(BACK_WITHIN + Duration::from_secs(8)).await;
    let asked = load.stop().await;
    let back = back_after(&asked, promoted);
    assert!(back <= BACK_WITHIN, "back {back:?} after the promotion");
    let since = asked.iter().filter(|asked| asked.at > promoted + back && !is_without_redis(asked.source));
    assert!(since.count() > 50, "too few to tell");
    is_within_bounds(&asked, keys, 1);
    asked
}

/// `losses`: how often writes may have been lost.
pub(crate) fn is_within_bounds(asked: &[Asked], keys: usize, losses: u32) {
    let late = asked.iter().map(|asked| asked.took).max().unwrap_or_default();
    assert!(late <= DEADLINE + STALL, "a check took {late:?}");
    let (worst, bound) = (burst(asked, keys), f64::from(CAPACITY * (1 + losses)));
    // Answers are dated when they came, so a stall of ours moves them together.
    let stalled = f64::from(RATE) * (DEADLINE + STALL).as_secs_f64();
    assert!(worst <= bound + stalled, "{worst} above rate x time, where {bound} are allowed");
}
