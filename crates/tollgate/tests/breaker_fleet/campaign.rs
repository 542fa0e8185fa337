//! All of it for longer, and the figures that `docs/breaker.md` states.

use std::time::Duration;

use tollgate::core::breaker::Health;

use crate::cost::{fleet, reporting};
use crate::leases::{killing, probing};
use crate::outage::away_for;
use crate::trips::{Push, spreading};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "campaign: some minutes"]
async fn campaign_of_a_fleet() {
    for health in [Health::Well, Health::Troubled] {
        reporting(health).await;
    }
    fleet().await;
    probing(1000).await;
    killing(10).await;
    away_for(Duration::from_secs(30)).await;
    for push in [Push::Heard, Push::Lost] {
        let p99 = spreading(push, 100).await;
        assert!(p99 <= 250_000, "push {push:?}: p99 {p99} us");
    }
}
