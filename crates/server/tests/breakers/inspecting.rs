//! `tollgate inspect` of a breaker: how it stands, why, and since when.

use serde_json::{Value, json};
use testkit::{Child, RedisCluster, RedisServer};

use crate::common::{PATIENCE, tollgate};
use crate::stand::{acquire, overriding, serving, trip, until};

async fn inspect(arguments: &[&str]) -> (i32, String) {
    let mut child = Child::spawn(tollgate(&["inspect"]).args(arguments));
    let status = tokio::time::timeout(PATIENCE, child.wait()).await.expect("it looks and ends");
    (status.code().unwrap(), child.output())
}

#[tokio::test]
async fn a_breaker_is_told_in_words_and_in_json() {
    let redis = RedisServer::start().await;
    let url = redis.url();
    let (one, two) = (serving(&url, &[]).await, serving(&url, &[]).await);
    let (code, said) = inspect(&["mail-a", "--redis", &url]).await;
    assert!(code == 1 && said.contains("nothing is remembered about \"mail-a\""), "{said}");
    acquire(&two, "mail-a").await;
    trip(&one, &two, "mail-a").await;
    let (code, words) = inspect(&["mail-a", "--redis", &url]).await;
    assert_eq!(code, 0, "{words}");
    for said in [
        "tg:cb:{mail-a}\n",
        "breaker      mail-a",
        "state        open",
        "until        in 5",
        "failures     0 in the window",
        "successes    0 of probes",
        "trips        1",
        "epoch        1",
        "expires      in",
        "closed -> open, failures (",
    ] {
        assert!(words.contains(said), "{said:?} is not in\n{words}");
    }
    let body = json!({ "mode": "forced_open", "ttl_ms": 60_000, "reason": "they move\u{1b}", "who": "ann" });
    assert_eq!(overriding(&one, "PUT", "mail-a", "", &body).await.status, 400, "no control characters");
    let body = json!({ "mode": "forced_open", "ttl_ms": 60_000, "reason": "they move", "who": "ann" });
    assert_eq!(overriding(&one, "PUT", "mail-a", "", &body).await.status, 200);
    let (_, words) = inspect(&["tg:cb:{mail-a}:s", "--redis", &url]).await;
    assert!(words.contains("override     forced_open by ann: they move; ends in 5"), "{words}");

    acquire(&two, "payments").await;
    trip(&one, &two, "payments").await;
    until("it probes", || async { acquire(&one, "payments").await["probe"] == true }).await;
    let (code, line) = inspect(&["payments", "--redis", &url, "--json"]).await;
    let found: Value = serde_json::from_str(line.trim()).unwrap();
    assert_eq!((code, &found["state"], &found["breaker"]), (0, &json!("half-open"), &json!("payments")));
    assert_eq!(found["leases_us"].as_object().unwrap().len(), 1, "{found}");
    assert_eq!(found["changes"][0]["fields"]["cause"], "waited", "{found}");
}

#[tokio::test]
async fn a_breaker_on_a_cluster_is_found_where_it_is() {
    let cluster = RedisCluster::start().await;
    let server = serving(&cluster.url(), &[]).await;
    for id in ["mail-a", "mail-b", "mail-c"] {
        until("it is told", || async {
            acquire(&server, id).await;
            let (code, words) = inspect(&[id, "--redis", &cluster.url()]).await;
            code == 0 && words.contains("state        closed")
        })
        .await;
    }
}
