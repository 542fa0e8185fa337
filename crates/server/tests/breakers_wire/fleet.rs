//! What one instance hears through one door, the other goes by at the other door.

use std::time::Duration;

use testkit::RedisServer;

use crate::proto::tollgate::v1;
use crate::stand::{Stand, alone, sharing, told, until};

/// Fails calls over gRPC here until RESP there is refused.
async fn trip(here: &Stand, there: &mut Stand, id: &str) {
    until("it trips", async || {
        let acquired = here.acquire(id).await;
        if acquired.allowed {
            here.report(id, &acquired.token, "failure").await;
        }
        (there.ask(&["TG.BREAKER", id]).await["state"] == "open").then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_trips_over_grpc_is_refused_over_resp_and_probed_through_both() {
    let redis = RedisServer::start().await;
    let (one, mut two) = (sharing(&redis.url()).await, sharing(&redis.url()).await);
    let id = "payments";
    let first = one.acquire(id).await;
    assert_eq!((first.allowed, first.state.as_str(), first.probe), (true, "closed", false));
    assert_eq!((first.report_within_ms, first.retry_after_ms), (Some(60_000), None));
    let first = two.ask(&["TG.ACQUIRE", id]).await;
    assert_eq!(
        ["allowed", "state", "probe", "report_within_ms", "retry_after_ms"].map(|name| first[name].as_str()),
        ["1", "closed", "0", "60000", "null"]
    );

    trip(&one, &mut two, id).await;
    let refused = two.ask(&["TG.ACQUIRE", id]).await;
    assert_eq!(
        ["allowed", "state", "token", "probe", "report_within_ms"].map(|name| refused[name].as_str()),
        ["0", "open", "null", "0", "null"]
    );
    assert!((1..=6_000).contains(&refused["retry_after_ms"].parse().unwrap()), "{refused:?}");
    let refused = one.acquire(id).await;
    assert_eq!((refused.allowed, refused.state.as_str(), refused.token.as_str()), (false, "open", ""));
    assert!(refused.retry_after_ms.is_some_and(|wait| (1..=6_000).contains(&wait)), "{refused:?}");

    // One probes, and the other waits; what was granted over RESP is reported over gRPC elsewhere, once.
    let probe = until("it probes", async || {
        let acquired = two.ask(&["TG.ACQUIRE", id]).await;
        (acquired["allowed"] == "1").then_some(acquired)
    })
    .await;
    assert_eq!((probe["state"].as_str(), probe["probe"].as_str()), ("half-open", "1"));
    assert!(probe["report_within_ms"].parse::<u64>().unwrap() <= 5_000, "{probe:?}");
    // By its own record it may be open for longer, which is a reason to wait, too.
    let waits = one.acquire(id).await;
    assert!(!waits.allowed && waits.state != "closed", "{waits:?}");
    assert!(waits.retry_after_ms.is_some_and(|wait| wait > 0), "{waits:?}");
    assert!(one.report(id, &probe["token"], "success").await.counted);
    let again = one.report(id, &probe["token"], "failure").await;
    assert_eq!((again.counted, again.why.as_str()), (false, "changed"));
    let again = two.ask(&["TG.REPORT", id, "failure", "TOKEN", &probe["token"]]).await;
    assert_eq!(again["counted"], "0", "{again:?}");

    // And the other way round. The second closes it, for both.
    let probe = until("it probes again", async || {
        let acquired = one.acquire(id).await;
        acquired.allowed.then_some(acquired)
    })
    .await;
    assert!(probe.probe, "{probe:?}");
    let told = two.ask(&["TG.REPORT", id, "success", "TOKEN", &probe.token, "ELAPSED", "12"]).await;
    assert_eq!((told["counted"].as_str(), told["why"].as_str()), ("1", "null"));
    until("both know", async || {
        let both = [one.state(id).await.state, two.state(id).await.state];
        (both == ["closed", "closed"]).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_person_decides_through_either_door_for_a_time() {
    let redis = RedisServer::start().await;
    let (mut one, mut two) = (sharing(&redis.url()).await, sharing(&redis.url()).await);
    let id = "payments";
    assert!(one.acquire(id).await.allowed);

    let words = ["TG.OVERRIDE", id, "forced_open", "3000", "they are moving", "ann"];
    let seen = two.ask(&words).await;
    assert_eq!((seen["state"].as_str(), seen["override"].as_str()), ("open", "forced_open"));
    assert!((1..=3_000).contains(&seen["override_left_ms"].parse().unwrap()), "{seen:?}");
    let refused = until("the other hears of it", async || {
        let acquired = one.acquire(id).await;
        (!acquired.allowed).then_some(acquired)
    })
    .await;
    assert!(refused.retry_after_ms.is_some_and(|wait| wait <= 3_000), "{refused:?}");
    let standing = one.state(id).await.r#override.unwrap();
    assert_eq!(standing.mode, "forced_open");
    // At its end it probes, by itself.
    let probe = until("its time is over", async || {
        let acquired = one.acquire(id).await;
        acquired.allowed.then_some(acquired)
    })
    .await;
    assert!(probe.probe, "{probe:?}");
    assert_eq!(one.state(id).await.r#override, None);

    let seen = one.overrule(id, "metrics_only", 60_000).await;
    assert_eq!(seen.code, Some(0), "{seen:?}");
    until("the other hears of that, too", async || {
        (two.ask(&["TG.BREAKER", id]).await["override"] == "metrics_only").then_some(())
    })
    .await;
    for _ in 0..9 {
        let acquired = two.ask(&["TG.ACQUIRE", id]).await;
        assert_eq!(acquired["allowed"], "1", "{acquired:?}");
        two.ask(&["TG.REPORT", id, "failure", "TOKEN", &acquired["token"]]).await;
    }
    assert_eq!(one.lift(id).await.r#override, None);
    until("it is lifted there", async || {
        (two.ask(&["TG.BREAKER", id]).await["override"] == "null").then_some(())
    })
    .await;
    let lifted = one.ask(&["TG.LIFT", id]).await;
    assert_eq!((lifted["override"].as_str(), lifted["override_left_ms"].as_str()), ("null", "null"));
}

#[tokio::test]
async fn a_token_counts_once_and_in_its_time_whichever_door_it_came_through() {
    let mut stand = alone().await;
    let id = "mail-eu";
    let acquired = stand.acquire(id).await;
    let told = stand.ask(&["TG.REPORT", id, "success", "TOKEN", &acquired.token]).await;
    assert_eq!(told["counted"], "1");
    for _ in 0..3 {
        let again = stand.report(id, &acquired.token, "failure").await;
        assert_eq!((again.counted, again.why.as_str()), (false, "unknown"));
    }
    assert!(stand.acquire(id).await.allowed, "a single failure would have tripped it");

    let acquired = stand.ask(&["TG.ACQUIRE", "brief"]).await;
    assert_eq!(acquired["report_within_ms"], "50");
    tokio::time::sleep(Duration::from_millis(51)).await; // as long as it says: no token can be watched
    let late = stand.report("brief", &acquired["token"], "failure").await;
    assert_eq!((late.counted, late.why.as_str()), (false, "expired"));
    assert!(stand.acquire("brief").await.allowed, "it counted for nothing");

    // Who keeps no tokens is heard as well; what is ignored says nothing.
    assert_eq!(stand.ask(&["TG.REPORT", id, "ignore"]).await["counted"], "1");
    assert!(stand.acquire(id).await.allowed);
    assert!(stand.report(id, "", "failure").await.counted);
    assert_eq!(stand.ask(&["TG.ACQUIRE", id]).await["state"], "open");
}

/// Behind a load balancer the first that an instance hears of a breaker may be how a call ended.
#[tokio::test]
async fn a_report_counts_where_the_breaker_was_never_met() {
    let redis = RedisServer::start().await;
    let (one, mut two) = (sharing(&redis.url()).await, sharing(&redis.url()).await);
    one.state("mail-1").await;
    let acquired = one.acquire("mail-1").await;
    let told = two.ask(&["TG.REPORT", "mail-1", "success", "TOKEN", &acquired.token]).await;
    assert_eq!((told["counted"].as_str(), told["why"].as_str()), ("1", "null"));
    assert_eq!(two.ask(&["TG.REPORT", "mail-2", "success"]).await["counted"], "1");
}

#[tokio::test]
async fn what_the_other_side_said_and_how_long_it_took_count_through_both_doors() {
    let mut stand = alone().await;
    let report = "/tollgate.v1.Breakers/Report";
    let hinted = v1::ReportRequest { retry_after_ms: Some(30_000), ..told("hint-1", "", "failure") };
    let slow = |elapsed| v1::ReportRequest { elapsed_ms: Some(elapsed), ..told("slow-1", "", "success") };
    for _ in 0..2 {
        assert!(stand.acquire("hint-1").await.allowed);
        let reported: v1::ReportResponse = stand.caller.answer(report, &told("hint-1", "", "failure")).await;
        assert!(reported.counted);
    }
    let _: v1::ReportResponse = stand.caller.answer(report, &hinted).await;
    stand.ask(&["TG.REPORT", "hint-2", "failure", "retry_after", "30000"]).await;
    for id in ["hint-1", "hint-2"] {
        let refused = stand.acquire(id).await;
        assert!(refused.retry_after_ms.is_some_and(|wait| (20_000..=30_000).contains(&wait)), "{refused:?}");
    }
    let _: v1::ReportResponse = stand.caller.answer(report, &slow(1_999)).await;
    stand.ask(&["TG.REPORT", "slow-2", "success", "ELAPSED", "1999"]).await;
    for id in ["slow-1", "slow-2"] {
        assert!(stand.acquire(id).await.allowed, "{id}");
    }
    until("they are slow", async || {
        let _: v1::ReportResponse = stand.caller.answer(report, &slow(2_000)).await;
        stand.ask(&["TG.REPORT", "slow-2", "success", "ELAPSED", "2000"]).await;
        let both = [stand.acquire("slow-1").await, stand.acquire("slow-2").await];
        both.iter().all(|acquired| acquired.state == "open").then_some(())
    })
    .await;
}

#[tokio::test]
async fn without_redis_calls_are_decided_and_decisions_of_persons_are_not_made() {
    let redis = RedisServer::start().await;
    let mut stand = sharing(&redis.url()).await;
    assert!(stand.acquire("payments").await.allowed);
    drop(redis);
    for _ in 0..20 {
        assert!(stand.acquire("payments").await.allowed);
        assert_eq!(stand.ask(&["TG.ACQUIRE", "mail-new"]).await["allowed"], "1");
    }
    assert!(stand.report("mail-other", "", "failure").await.counted, "heard of for the first time");
    assert_eq!(stand.acquire("mail-other").await.state, "open");
    let failed = stand.overrule("payments", "forced_open", 1_000).await;
    assert_eq!(failed.code, Some(14), "{failed:?}");
    assert!(failed.why.starts_with("the store does not answer"), "{failed:?}");
    let fault = stand.fault(&["TG.LIFT", "payments"]).await;
    assert!(fault.starts_with("-STOREAWAY "), "{fault}");
}
