//! What is answered in which words, what is refused, and who may.

use std::collections::BTreeSet;
use std::process::Command;

use prost::Message;

use crate::common::Server;
use crate::common::resp::Resp;
use crate::grpc::Caller;
use crate::proto::tollgate::v1;
use crate::stand::{FILE, alone, decided, told};

const TOKEN: &str = "0123456789abcdef-t0ken";

#[tokio::test]
async fn bad_calls_name_the_field_and_change_nothing() {
    let stand = alone().await;
    let long = "x".repeat(1_025);
    let refused = async |method: &str, message: Vec<u8>, says: &str| {
        let body = [&[0, 0, 0][..], &u16::try_from(message.len()).unwrap().to_be_bytes(), &message].concat();
        let path = format!("/tollgate.v1.Breakers/{method}");
        let called = stand.caller.send(&path, "application/grpc", body.into()).await;
        assert_eq!((called.code, called.has_trailers), (Some(3), false), "{says}: {called:?}");
        assert!(called.why.starts_with(says), "{says}: {called:?}");
    };
    let nobody =
        "id: no breaker of the policy has this name or a pattern that matches it; nothing was changed";
    for (id, says) in [("", "id: must have 1 to 1024 bytes"), (&*long, "id: must have 1"), ("nobody", nobody)]
    {
        refused("Acquire", v1::AcquireRequest { id: id.into() }.encode_to_vec(), says).await;
        refused("Report", told(id, "", "success").encode_to_vec(), says).await;
        refused("State", v1::StateRequest { id: id.into() }.encode_to_vec(), says).await;
        refused("Override", decided(id, "forced_open", 9).encode_to_vec(), says).await;
        refused("Lift", v1::LiftRequest { id: id.into() }.encode_to_vec(), says).await;
    }
    let day = 86_400_000;
    for (report, says) in [
        (told("payments", "c0ffee", "success"), "token: is no token"),
        (told("payments", "", "great"), "outcome: must be success, failure, slow or ignore"),
        (
            v1::ReportRequest { elapsed_ms: Some(u64::MAX), ..told("payments", "", "success") },
            "elapsed_ms: must be a whole number from 0 to ",
        ),
        (
            v1::ReportRequest { retry_after_ms: Some(u64::MAX), ..told("payments", "", "failure") },
            "retry_after_ms: must be a whole number from 0 to ",
        ),
    ] {
        refused("Report", report.encode_to_vec(), says).await;
    }
    for (decided, says) in [
        (decided("payments", "open", 9), "mode: must be forced_open, forced_closed or metrics_only"),
        (decided("payments", "forced_open", 0), "ttl_ms: must be a whole number from 1 to 2592000000"),
        (decided("payments", "forced_open", 31 * day), "ttl_ms: must be"),
        (
            v1::OverrideRequest { reason: String::new(), ..decided("payments", "forced_open", 9) },
            "reason: is missing",
        ),
        (
            v1::OverrideRequest { reason: "a\nb".into(), ..decided("payments", "forced_open", 9) },
            "reason: has control characters",
        ),
        (
            v1::OverrideRequest { who: "x".repeat(2_000), ..decided("payments", "forced_open", 9) },
            "who: at most",
        ),
    ] {
        refused("Override", decided.encode_to_vec(), says).await;
    }
    let list = v1::ListRequest { after: String::new(), limit: 1_001 };
    refused("List", list.encode_to_vec(), "limit: must be a whole number from 1 to 1000").await;
    refused("Acquire", vec![0x0a, 9], "failed to decode").await;
    let unknown = stand.caller.call("/tollgate.v1.Breakers/Other", &list).await;
    assert_eq!(unknown.code, Some(12), "{unknown:?}");
    assert_eq!(stand.state("payments").await.r#override, None);
    let series = r#"tollgate_grpc_requests_total{method="breaker-override",code="invalid-argument"}"#;
    assert_eq!(stand.server.metric(series).await, Some(9.0));
}

#[tokio::test]
async fn bad_commands_name_the_field_and_change_nothing() {
    let mut stand = alone().await;
    for (line, says) in [
        ("TG.ACQUIRE", "-ERR wrong number of arguments for 'tg.acquire' command"),
        ("TG.ACQUIRE a b", "-ERR wrong number of arguments for 'tg.acquire' command"),
        ("TG.ACQUIRE nobody", "-ERR id: no breaker of the policy has this name or a pattern that matches it"),
        ("TG.ACQUIRE \"\"", "-ERR id: must have 1 to 1024 bytes, and no control characters"),
        ("TG.ACQUIRE \"mail-\\x07\"", "-ERR id: must have 1 to 1024 bytes, and no control characters"),
        ("TG.ACQUIRE \"mail-\\xff\"", "-ERR id: is not UTF-8"),
        ("TG.REPORT payments", "-ERR wrong number of arguments for 'tg.report' command"),
        ("TG.REPORT payments great", "-ERR outcome: must be success, failure, slow or ignore"),
        ("TG.REPORT payments success TOKEN", "-ERR syntax error"),
        ("TG.REPORT payments success COIN x", "-ERR syntax error"),
        ("TG.REPORT payments success ELAPSED 1 elapsed 1", "-ERR syntax error"),
        (
            "TG.REPORT payments success ELAPSED -1",
            "-ERR elapsed_ms: must be a whole number from 0 to 86400000",
        ),
        (
            "TG.REPORT payments success RETRY_AFTER 1s",
            "-ERR retry_after_ms: must be a whole number from 0 to 86400000",
        ),
        (
            "TG.REPORT payments success TOKEN x",
            "-ERR token: is no token: give it back as it was given by acquire, or leave it out",
        ),
        ("TG.BREAKER", "-ERR wrong number of arguments for 'tg.breaker' command"),
        ("TG.BREAKERS LIMIT 0", "-ERR limit: must be a whole number from 1 to 1000"),
        ("TG.BREAKERS payments", "-ERR syntax error"),
        ("TG.OVERRIDE payments forced_open 9", "-ERR wrong number of arguments for 'tg.override' command"),
        ("TG.OVERRIDE payments open 9 x", "-ERR mode: must be forced_open, forced_closed or metrics_only"),
        ("TG.OVERRIDE payments forced_open 1h x", "-ERR ttl_ms: must be a whole number from 1 to 2592000000"),
        ("TG.OVERRIDE payments forced_open 0 x", "-ERR ttl_ms: must be a whole number from 1 to 2592000000"),
        ("TG.OVERRIDE payments forced_open 9 \"\"", "-ERR reason: is missing: say why, for whoever finds it"),
        ("TG.OVERRIDE payments forced_open 9 \"a\\nb\"", "-ERR reason: has control characters in it"),
        (
            "TG.OVERRIDE payments forced_open 9 x y z",
            "-ERR wrong number of arguments for 'tg.override' command",
        ),
        ("TG.LIFT", "-ERR wrong number of arguments for 'tg.lift' command"),
    ] {
        stand.resp.expect(line, &format!("{says}\r\n")).await;
    }
    assert_eq!(stand.state("payments").await.r#override, None);
    let series = r#"tollgate_resp_commands_total{command="tg.override",result="error"}"#;
    assert_eq!(stand.server.metric(series).await, Some(7.0));
}

#[tokio::test]
async fn answers_have_the_same_names_in_the_same_order_in_both_protocols() {
    let mut stand = alone().await;
    let closed = |map: &str, truths: [&str; 2], null: &str| {
        format!(
            "{map}\r\n$2\r\nid\r\n$8\r\npayments\r\n$7\r\nbreaker\r\n$8\r\npayments\r\n$5\r\nstate\r\n$6\r\nclosed\r\n\
             $7\r\nramping\r\n{}\r\n$14\r\nretry_after_ms\r\n{null}\r\n$8\r\noverride\r\n{null}\r\n\
             $16\r\noverride_left_ms\r\n{null}\r\n$6\r\nshared\r\n{}\r\n",
            truths[0], truths[1]
        )
    };
    let counted = "$7\r\ncounted\r\n";
    stand.resp.expect("TG.BREAKER payments", &closed("*16", [":0", ":1"], "$-1")).await;
    let listed = closed("*16", [":0", ":1"], "$-1");
    let all = format!("*4\r\n$8\r\nbreakers\r\n*1\r\n{listed}$4\r\nmore\r\n:0\r\n");
    stand.resp.expect("TG.BREAKERS", &all).await;
    let told = format!("*4\r\n{counted}:1\r\n$3\r\nwhy\r\n$-1\r\n");
    stand.resp.expect("tg.report payments success", &told).await;
    assert_eq!(stand.resp.ask(&["HELLO", "3"]).await.len(), 16);
    stand.resp.expect("TG.BREAKER payments", &closed("%8", ["#f", "#t"], "_")).await;
    let listed = closed("%8", ["#f", "#t"], "_");
    let all = format!("%2\r\n$8\r\nbreakers\r\n*1\r\n{listed}$4\r\nmore\r\n#f\r\n");
    stand.resp.expect("TG.BREAKERS LIMIT 5 AFTER a", &all).await;
    stand
        .resp
        .expect("TG.BREAKERS AFTER payments", "%2\r\n$8\r\nbreakers\r\n*0\r\n$4\r\nmore\r\n#f\r\n")
        .await;
    let told = format!("%2\r\n{counted}#t\r\n$3\r\nwhy\r\n_\r\n");
    stand.resp.expect("TG.REPORT payments success elapsed 3", &told).await;
    let names = "allowed state token probe report_within_ms retry_after_ms";
    for mode in ["forced_closed", "forced_open"] {
        stand.ask(&["TG.OVERRIDE", "payments", mode, "60000", "a test"]).await;
        let acquired = stand.resp.ask(&["TG.ACQUIRE", "payments"]).await;
        assert_eq!(acquired.iter().step_by(2).cloned().collect::<Vec<_>>().join(" "), names);
        assert_eq!(acquired[1], if mode == "forced_open" { "#f" } else { "#t" });
    }
}

#[tokio::test]
async fn a_list_comes_page_by_page_through_both_doors() {
    let mut stand = alone().await;
    let ids: BTreeSet<String> = (0..25).map(|number| format!("mail-{number}")).collect();
    for id in &ids {
        stand.acquire(id).await;
    }
    let (mut shown, mut after) = (Vec::new(), String::new());
    loop {
        let asked = v1::ListRequest { after, limit: 10 };
        let page: v1::ListResponse = stand.caller.answer("/tollgate.v1.Breakers/List", &asked).await;
        assert!(page.breakers.len() <= 10);
        shown.extend(page.breakers.into_iter().map(|seen| seen.id));
        if !page.more {
            break;
        }
        after = shown.last().unwrap().clone();
    }
    assert_eq!(shown, ids.iter().cloned().collect::<Vec<_>>());
    let whole: v1::ListResponse =
        stand.caller.answer("/tollgate.v1.Breakers/List", &v1::ListRequest::default()).await;
    assert_eq!((whole.breakers.len(), whole.more), (25, false));

    // As somebody types it, with a client that is not ours.
    let port = stand.server.resp.port().to_string();
    let typed = Command::new("redis-cli")
        .args(["-p", &port, "--json", "TG.BREAKERS", "after", "mail-9", "limit", "20"])
        .output()
        .unwrap();
    let page: serde_json::Value = serde_json::from_slice(&typed.stdout).unwrap();
    assert_eq!((&page["breakers"], &page["more"]), (&serde_json::json!([]), &false.into()));
    stand.ask(&["TG.OVERRIDE", "mail-3", "forced_open", "60000", "a test", "me"]).await;
    let typed = Command::new("redis-cli")
        .args(["-p", &port, "--json", "TG.BREAKERS", "after", "mail-24", "limit", "1"])
        .output()
        .unwrap();
    let page: serde_json::Value = serde_json::from_slice(&typed.stdout).unwrap();
    let one = &page["breakers"][0];
    assert_eq!(
        (&one["id"], &one["breaker"], &page["more"]),
        (&"mail-3".into(), &"mail".into(), &true.into())
    );
    assert_eq!((&one["state"], &one["override"]), (&"open".into(), &"forced_open".into()), "{page}");
}

#[tokio::test]
async fn overrides_need_a_token_where_refunds_do_and_nothing_else_does() {
    let (over, lift) =
        (decided("payments", "forced_open", 60_000), v1::LiftRequest { id: "payments".into() });
    let words = ["TG.OVERRIDE", "payments", "forced_open", "60000", "a test"];
    let acquire = v1::AcquireRequest { id: "payments".into() };
    let settings: [(&[&str], _, _); 2] = [
        (
            &["--grpc", "0.0.0.0:0", "--resp", "0.0.0.0:0"],
            7,
            "-NOPERM tg.override can undo a limit or a breaker",
        ),
        (&["--token", TOKEN], 16, "-NOAUTH"),
    ];
    for (arguments, code, says) in settings {
        let server = Server::configured(FILE, arguments).await;
        let caller = Caller::connect(([127, 0, 0, 1], server.grpc.port()).into()).await;
        let mut resp = Resp::connect(([127, 0, 0, 1], server.resp.port()).into()).await;
        for called in [
            caller.call("/tollgate.v1.Breakers/Override", &over).await,
            caller.call("/tollgate.v1.Breakers/Lift", &lift).await,
        ] {
            assert_eq!(called.code, Some(code), "{called:?}");
            assert!(called.why.starts_with("an override can undo a limit or a breaker"), "{called:?}");
        }
        let fault = resp.ask(&words).await.concat();
        assert!(fault.starts_with(says), "{fault}");
        assert!(resp.ask(&["TG.LIFT", "payments"]).await[0].starts_with("-NO"));
        // Whoever reaches the door may ask and report, and sees that nothing was decided.
        let acquired: v1::AcquireResponse = caller.answer("/tollgate.v1.Breakers/Acquire", &acquire).await;
        let told = resp.ask(&["TG.REPORT", "payments", "success", "TOKEN", &acquired.token]).await;
        assert_eq!(told[1], "1");
        assert_eq!(resp.ask(&["TG.BREAKER", "payments"]).await[11], "null");
        assert_eq!(resp.ask(&["TG.ACQUIRE", "payments"]).await[1], "1");

        if code == 16 {
            let right = caller.with("authorization", &format!("Bearer {TOKEN}"));
            let seen: v1::Breaker = right.answer("/tollgate.v1.Breakers/Override", &over).await;
            assert_eq!((seen.state.as_str(), seen.breaker.as_str()), ("open", "payments"));
            assert_eq!(resp.ask(&["AUTH", TOKEN]).await, ["+OK"]);
            assert_eq!(resp.ask(&["TG.LIFT", "payments"]).await[11], "null");
        }
    }
}
