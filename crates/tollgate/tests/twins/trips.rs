//! One ask is one call; a lost function or script costs one more trip, and no more.

use tollgate::core::check::Check;
use tollgate::core::store::Store;
use tollgate::{Kind, calendar};

use crate::world::{self, Named, WAYS};

#[tokio::test]
async fn an_ask_is_one_call_whatever_its_length() {
    let server = world::frozen_redis().await;
    for way in WAYS {
        let store = world::store(&server, way);
        let limits: Vec<Named> =
            (0..64).map(|at| Named::new(&format!("s{at}"), Kind::ALL[at % 4], "3/h")).collect();
        for length in [1, 2, 5, 64] {
            let checks: Vec<Check<'_>> = limits[..length].iter().map(|limit| limit.check(1)).collect();
            store.take(&checks).await.unwrap(); // Loads what it needs.
            world::reset_calls(&server).await;
            assert_eq!(store.take(&checks).await.unwrap().len(), length);
            assert_eq!(world::calls(&server, way.command()).await, 1, "{length} checks");
            assert_eq!(world::calls(&server, way.load()).await, 0, "{length} checks");
            assert_eq!(world::calls(&server, "time").await, 1, "one instant for {length} checks");
            store.peek(&checks).await.unwrap();
            server.command(&["FLUSHALL"]).await;
        }
    }
}

#[tokio::test]
async fn what_is_lost_is_loaded_once_and_sent_again_once() {
    let server = world::frozen_redis().await;
    for way in WAYS {
        let store = world::store(&server, way);
        let limits = Kind::ALL.map(|kind| Named::new("me", kind, "100/h"));
        for limit in &limits {
            for _ in 0..3 {
                let before = store.peek(&[limit.check(1)]).await.unwrap()[0].remaining;
                world::flush_text(&server).await;
                world::reset_calls(&server).await;
                let taken = store.take(&[limit.check(1)]).await.unwrap();
                assert_eq!(taken[0].remaining, before - 1, "spent once");
                assert_eq!(world::calls(&server, way.load()).await, 1);
                // The one that found nothing, and the one that ran.
                assert_eq!(world::calls(&server, way.command()).await, 2);
            }
        }
        server.command(&["FLUSHALL"]).await;
    }
}

/// Redis' clock is years from ours, so the windows we send first are not those it is in.
#[tokio::test]
async fn stale_windows_are_asked_for_once_more() {
    let server = world::frozen_redis().await;
    let calendar = calendar::ZonedCalendar::try_new(calendar::CalendarUnit::Day, "Europe/Berlin").unwrap();
    let algorithm = tollgate::Algorithm::by_calendar(2, std::sync::Arc::new(calendar)).unwrap();
    let daily = Named { algorithm, ..Named::new("me", Kind::FixedWindow, "2/day") };
    let store = world::store(&server, WAYS[0]);
    store.take(&[daily.check(1)]).await.unwrap();

    // 2001-09-09T01:46:40Z, and a later moment of that day.
    for now in [1_000_000_000_000_000, 1_000_000_000_000_001] {
        world::freeze(&server, now);
        world::reset_calls(&server).await;
        let taken = store.take(&[daily.check(1)]).await.unwrap();
        assert_eq!(taken[0].take.at.0, now);
        // Midnight in Berlin was 20 hours, 13 minutes and 20 seconds away.
        assert_eq!(taken[0].reset_after.0, 72_800_000_000 - (now - 1_000_000_000_000_000));
        assert_eq!(world::calls(&server, "fcall").await, 2);
    }
    assert_eq!(store.peek(&[daily.check(1)]).await.unwrap()[0].remaining, 0, "both were counted, once");
}
