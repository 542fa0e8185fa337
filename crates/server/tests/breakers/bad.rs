//! What is not understood names its field, and changes nothing.

use serde_json::{Value, json};
use testkit::Child;

use crate::common::{Client, PATIENCE, Server, config, refused, tollgate};
use crate::stand::{FILE, acquire, overriding, seen};

#[tokio::test]
async fn every_bad_field_is_named() {
    let server = Server::configured(FILE, &[]).await;
    let token = "c".to_owned() + &"0".repeat(64);
    for (path, body, field, what) in [
        ("acquire", json!({}), "id", "is missing"),
        ("acquire", json!({ "id": "" }), "id", "is empty"),
        ("acquire", json!({ "id": 7 }), "id", "must be text; found a number"),
        ("acquire", json!({ "id": ["a"] }), "id", "must be text; found a list"),
        ("acquire", json!({ "id": "a\u{7}" }), "id", "control characters"),
        ("acquire", json!({ "id": "x".repeat(1025) }), "id", "1 to 1024 bytes"),
        ("acquire", json!({ "id": "shop" }), "id", "no breaker of the policy has this name"),
        ("acquire", json!({ "id": "payments", "cost": 1 }), "cost", "unknown field: use id"),
        ("report", json!({ "id": "payments" }), "outcome", "is missing"),
        (
            "report",
            json!({ "id": "payments", "outcome": "bad" }),
            "outcome",
            "success, failure, slow or ignore",
        ),
        ("report", json!({ "outcome": "success" }), "id", "is missing"),
        ("report", json!({ "id": "payments", "outcome": "success", "token": "x" }), "token", "is no token"),
        (
            "report",
            json!({ "id": "payments", "outcome": "success", "elapsed_ms": -1 }),
            "elapsed_ms",
            "from 0 to 86400000",
        ),
        (
            "report",
            json!({ "id": "payments", "outcome": "failure", "retry_after_ms": "3s" }),
            "retry_after_ms",
            "from 0 to 86400000",
        ),
    ] {
        let answer = server.post(&format!("/v1/breakers/{path}"), body.to_string()).await;
        let problem = answer.json();
        assert_eq!(answer.status, 400, "{body} {problem}");
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        assert_eq!(problem["field"], field, "{body} {problem}");
        assert!(problem["detail"].as_str().is_some_and(|said| said.contains(what)), "{body} {problem}");
    }
    for (body, field) in [
        (json!({ "mode": "open", "ttl_ms": 1, "reason": "x" }), "mode"),
        (json!({ "mode": "forced_open", "reason": "x" }), "ttl_ms"),
        (json!({ "mode": "forced_open", "ttl_ms": 0, "reason": "x" }), "ttl_ms"),
        (json!({ "mode": "forced_open", "ttl_ms": 2_592_000_001_u64, "reason": "x" }), "ttl_ms"),
        (json!({ "mode": "forced_open", "ttl_ms": 1 }), "reason"),
        (json!({ "mode": "forced_open", "ttl_ms": 1, "reason": "x".repeat(257) }), "reason"),
        (json!({ "mode": "forced_open", "ttl_ms": 1, "reason": "x", "who": "x".repeat(129) }), "who"),
        (json!({ "mode": "forced_open", "ttl_ms": 1, "reason": "x", "why": "x" }), "why"),
    ] {
        let answer = overriding(&server, "PUT", "payments", "", &body).await;
        assert_eq!((answer.status, &answer.json()["field"]), (400, &json!(field)), "{}", answer.text());
    }
    for (method, path, status) in [
        ("GET", "/v1/breakers/acquire", 405),
        ("POST", "/v1/breakers", 405),
        ("POST", "/v1/breakers/payments", 405),
        ("GET", "/v1/breakers/payments/override", 405),
        ("GET", "/v1/breakers/payments/x", 404),
        ("GET", "/v1/breakers/", 400),
        ("GET", "/v1/breakers/%zz", 400),
        ("GET", "/v1/breakers/%ff", 400),
        ("GET", "/v1/breakers?limit=0", 400),
        ("GET", "/v1/breakers?limit=1001", 400),
        ("GET", "/v1/breakers?after=%f", 400),
        ("GET", "/v1/breakers?page=1", 400),
        ("GET", "/v1/breakersx", 404),
    ] {
        let answer = Client::connect(server.http).await.send(method, path, "", b"").await;
        assert_eq!(answer.status, status, "{method} {path} {}", answer.text());
    }
    let origin = "origin: http://evil.example\r\n";
    let answer = server.post_with("/v1/breakers/acquire", origin, r#"{"id":"payments"}"#).await;
    assert_eq!(answer.status, 403, "{}", answer.text());
    for body in ["", "{", "[]", "null", "{\"id\":\"payments\",\"id\":\"payments\"}"] {
        assert_eq!(server.post("/v1/breakers/acquire", body).await.status, 400, "{body}");
    }
    // A token that nobody gave decides nothing, whoever it says it is from.
    for token in [token.clone(), token.replace('c', "p"), token.replace('c', "o")] {
        for _ in 0..5 {
            let body = json!({ "id": "mail-a", "outcome": "success", "token": token });
            server.json("/v1/breakers/report", &body.to_string()).await;
        }
    }
    assert_eq!(seen(&server, "mail-a").await["state"], "closed");
}

#[tokio::test]
async fn ids_of_any_letters_are_listed_page_by_page() {
    let server = Server::configured("rules: []\nbreakers: [{ match: \"*\" }]\n", &[]).await;
    let mut ids = vec!["a/b".to_owned(), "ä ö".to_owned(), "acquire".to_owned(), "100%".to_owned()];
    ids.extend((0..20).map(|number| format!("host-{number}:443")));
    for id in &ids {
        assert_eq!(acquire(&server, id).await["allowed"], true);
    }
    ids.sort();
    assert_eq!(seen(&server, "a%2Fb").await["id"], "a/b");
    assert_eq!(seen(&server, "%C3%A4%20%C3%B6").await["id"], "ä ö");
    let (mut listed, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1/breakers?limit=7&after={after}");
        let page: Value = Client::connect(server.http).await.send("GET", &path, "", b"").await.json();
        let shown = page["breakers"].as_array().unwrap();
        listed.extend(shown.iter().map(|one| one["id"].as_str().unwrap().to_owned()));
        if page["more"] == false {
            break;
        }
        after = listed.last().unwrap().replace('%', "%25").replace(' ', "+").replace('ä', "%C3%A4");
    }
    assert_eq!(listed, ids);
}

#[tokio::test]
async fn a_bad_file_is_refused_whole_and_a_good_one_is_printed_to_be_read_again() {
    let bad = config(
        "rules: []\nbreakers:\n  - { name: a, failure_ratio: 2 }\n  - { match: \"b*\", probes: 0, x: 1 }\n",
    );
    let path = bad.path().to_str().unwrap();
    let (code, said) = refused(&["--config", path]).await;
    assert_ne!(code, 0);
    for line in [
        ":3:31: breakers[0].failure_ratio: \"2\" is not a share",
        ":4:28: breakers[1].probes: must be a whole number from 1 to 100",
        "breakers[1].x: unknown field: use name, match",
    ] {
        assert!(said.contains(line), "{line}\n{said}");
    }
    let check = async |path: &str, more: &[&str]| {
        let mut child = Child::spawn(tollgate(&["check", path]).args(more));
        let status = tokio::time::timeout(PATIENCE, child.wait()).await.expect("it checks and ends");
        assert!(status.success(), "{}", child.output());
        let said = child.output();
        let printed: Vec<&str> = said.lines().filter(|line| !line.ends_with("passed")).collect();
        printed.join("\n")
    };
    let file = config(FILE);
    let printed = check(file.path().to_str().unwrap(), &["--print"]).await;
    assert!(printed.contains("- name: mail\n    match: \"mail-*\"\n    failures: 1\n"), "{printed}");
    let again = config(&printed);
    assert_eq!(check(again.path().to_str().unwrap(), &["--print"]).await, printed);
}
