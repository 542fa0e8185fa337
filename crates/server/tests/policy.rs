//! The policy from outside: a file, the built binary, and asks by attributes.

#![allow(clippy::unwrap_used, reason = "what a test cannot arrange, it cannot go on without")]

mod common;

use common::{Server, config, tollgate};
use serde_json::{Value, json};

const FILE: &str = r#"
plans:
  free: { limit: 10/h }
  premium: { limit: 100/h }
allow: { address: 127.0.0.0/8 }
deny: { header.user-agent: "*BadBot*" }
rules:
  - name: by-who
    when: { path: /api/** }
    key: "{token|address}"
    limit: 5/h
  - name: user
    when: { path: "/api/users/{user}", method: [PUT, POST] }
    key: "{path.user}"
    limits: [{ limit: 3/h }, { limit: 1000/day, algorithm: fixed_window }]
    cost: { by: method, values: { POST: 2 }, default: 1 }
  - name: tiered
    when: { path: /tiered }
    key: "{header.x-user}"
    plan: { by: tier, default: free }
    overrides: [{ key: ann, limit: 7/h }, { key: eve, blocked: true }, { key: bob, unlimited: true }]
  - name: watching
    when: { path: /watched }
    key: everyone
    limit: 1/h
    mode: shadow
  - name: trying
    when: { path: /watched }
    key: everyone
    limit: 10/h
    candidate: { limit: 2/h }
  - name: open
    when: { path: /open }
    key: "{header.x-user}"
    limit: 1/h
    allow: { key: [root], header.x-internal: "yes" }
    deny: { address: [192.0.2.0/24] }
"#;

async fn server() -> (Server, tempfile::NamedTempFile) {
    let file = config(FILE);
    let server = Server::start_with(&["--config", file.path().to_str().unwrap()]).await;
    (server, file)
}

async fn ask(server: &Server, attributes: Value) -> Value {
    server.check(&json!({ "attributes": attributes }).to_string()).await
}

fn rules(answer: &Value) -> Vec<&str> {
    answer["checks"].as_array().unwrap().iter().map(|check| check["rule"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn by_token_if_there_is_one_else_by_address() {
    let (server, _file) = server().await;
    let from =
        |token: Option<&str>, address: &str| json!({ "path": "/api/x", "ip": address, "token": token });
    for left in [4, 3] {
        let answer = ask(&server, from(Some("s3cret"), "203.0.113.9")).await;
        assert_eq!((&answer["remaining"], &answer["subject"]), (&json!(left), &json!("token")), "{answer}");
    }
    // The same address without the token, and another one with it.
    let answer = ask(&server, from(None, "203.0.113.9")).await;
    assert_eq!((&answer["remaining"], &answer["subject"]), (&json!(4), &json!("address")));
    assert_eq!(ask(&server, from(Some("s3cret"), "203.0.113.10")).await["remaining"], 2);
    // One network is one client.
    assert_eq!(ask(&server, from(None, "2001:db8::1")).await["remaining"], 4);
    assert_eq!(ask(&server, from(None, "2001:db8::2")).await["remaining"], 3);
    assert_eq!(ask(&server, from(None, "::ffff:203.0.113.9")).await["remaining"], 3);
}

#[tokio::test]
async fn every_rule_that_applies_is_charged_or_none() {
    let (server, _file) = server().await;
    let post = json!({ "method": "POST", "path": "/api/users/7", "address": "203.0.113.9" });
    let answer = ask(&server, post.clone()).await;
    assert_eq!((answer["allowed"].clone(), rules(&answer)), (json!(true), vec!["by-who", "user"]));
    assert_eq!(answer["checks"][1]["remaining"], 1, "a POST costs two of three");
    let answer = ask(&server, post.clone()).await;
    assert_eq!((&answer["allowed"], &answer["rule"]), (&json!(false), &json!("user")), "{answer}");
    assert_eq!(answer["checks"][0]["remaining"], 4, "what refuses keeps the others from being charged");
    // By name and key it is the same bucket.
    assert_eq!(server.peek(r#"{"rule":"user","key":"7"}"#).await["remaining"], 1);
    assert_eq!(
        rules(&ask(&server, json!({ "path": "/nothing", "address": "203.0.113.9" })).await),
        Vec::<&str>::new()
    );
}

#[tokio::test]
async fn plans_overrides_and_lists_do_what_they_say() {
    let (server, _file) = server().await;
    let tiered = |user: &str, tier: &str| json!({ "path": "/tiered", "header.X-User": user, "tier": tier });
    assert_eq!(ask(&server, tiered("zoe", "free")).await["limit"], 10);
    let answer = ask(&server, tiered("zoe", "premium")).await;
    assert_eq!(
        (&answer["limit"], &answer["remaining"]),
        (&json!(100), &json!(89)),
        "an upgrade does not refill"
    );
    assert_eq!(ask(&server, tiered("ann", "premium")).await["limit"], 7);
    let answer = ask(&server, tiered("eve", "free")).await;
    assert_eq!(
        (&answer["allowed"], &answer["source"], &answer["never"]),
        (&json!(false), &json!("deny-list"), &json!(true))
    );
    assert_eq!(ask(&server, tiered("bob", "free")).await["source"], "unlimited");
    let by_name = r#"{"rule":"tiered","key":"kim","attributes":{"tier":"premium"}}"#;
    assert_eq!(server.check(by_name).await["limit"], 100);

    let open = |user: &str, address: &str, internal: &str| json!({ "path": "/open", "header.x-user": user, "address": address, "header.x-internal": internal });
    for (who, source) in [
        (open("zoe", "203.0.113.1", "no"), "store"),
        (open("root", "203.0.113.1", "no"), "unlimited"),
        (open("kim", "203.0.113.1", "yes"), "unlimited"),
        (open("root", "192.0.2.7", "yes"), "deny-list"),
        (open("zoe", "127.0.0.1", "no"), "unlimited"),
    ] {
        assert_eq!(ask(&server, who.clone()).await["source"], source, "{who}");
    }
    let bot = json!({ "path": "/open", "header.user-agent": "x BadBot/1", "address": "127.0.0.1" });
    let answer = ask(&server, bot).await;
    assert_eq!((&answer["source"], &answer["rule"]), (&json!("deny-list"), &Value::Null));
}

#[tokio::test]
async fn what_watches_reports_and_refuses_nobody() {
    let (server, _file) = server().await;
    let mut told = Vec::new();
    for _ in 0..4 {
        let answer = ask(&server, json!({ "path": "/watched" })).await;
        assert_eq!((&answer["allowed"], &answer["rule"]), (&json!(true), &json!("trying")), "{answer}");
        let checks = answer["checks"].as_array().unwrap().clone();
        let said = |mode: &str| checks.iter().find(|check| check["mode"] == mode).unwrap()["allowed"].clone();
        told.push((said("shadow"), said("candidate")));
    }
    let (yes, no) = (json!(true), json!(false));
    let expected = [(&yes, &yes), (&no, &yes), (&no, &no), (&no, &no)];
    assert_eq!(told.iter().map(|(a, b)| (a, b)).collect::<Vec<_>>(), expected);
    let metric = async |mode: &str, rule: &str, outcome: &str| {
        let series =
            format!("tollgate_advice_total{{rule=\"{rule}\",mode=\"{mode}\",outcome=\"{outcome}\"}}");
        server.metric(&series).await
    };
    assert_eq!(metric("shadow", "watching", "refused").await, Some(3.0));
    assert_eq!(metric("candidate", "trying", "refused").await, Some(2.0));
    assert_eq!(metric("candidate", "trying", "allowed").await, Some(2.0));
}

#[tokio::test]
async fn a_take_by_attributes_can_be_given_back() {
    let (server, _file) = server().await;
    let attributes = json!({ "method": "PUT", "path": "/api/users/7", "address": "203.0.113.9" });
    let answer = ask(&server, attributes.clone()).await;
    let refund = json!({ "attributes": attributes, "take": answer["take"] });
    let refunded = server.json("/v1/refund", &refund.to_string()).await;
    // A part of it may have come back by itself.
    assert_ne!(refunded["refunded"], "nothing", "{refunded}");
    assert_eq!(server.peek(r#"{"rule":"user","key":"7"}"#).await["remaining"], 3);
}

#[tokio::test]
async fn asks_of_a_batch_are_answered_each_by_itself() {
    let (server, _file) = server().await;
    let one = json!({ "rule": "open", "key": "a" });
    let body = json!({ "asks": [one, one, { "checks": [{ "rule": "open", "key": "b" }, { "rule": "user", "key": "b" }] },
        { "attributes": { "path": "/api" , "address": "203.0.113.9" } }] });
    let answers = server.check(&body.to_string()).await["answers"].as_array().unwrap().clone();
    let allowed: Vec<_> = answers.iter().map(|answer| answer["allowed"].as_bool()).collect();
    assert_eq!(allowed, [Some(true), Some(false), Some(true), Some(true)]);
}

#[tokio::test]
async fn what_cannot_be_read_is_named_and_nothing_is_spent() {
    let (server, _file) = server().await;
    for (body, field) in [
        (json!({ "attributes": 7 }), "attributes"),
        (json!({ "attributes": { "path": {} } }), "attributes.path"),
        (json!({ "attributes": { "headers.x": "y" } }), "attributes.headers.x"),
        (json!({ "attributes": { "address": "nowhere" } }), "attributes.address"),
        (json!({ "attributes": { "claim.sub": "root" } }), "attributes.claim.sub"),
        (json!({ "attributes": { "path.user": "7" } }), "attributes.path.user"),
        (json!({ "attributes": {}, "key": "x" }), "key"),
        (json!({ "attributes": {}, "limit": "1/s", "key": "x" }), "attributes"),
        (json!({ "attributes": {}, "burst": 3 }), "burst"),
        (
            json!({ "asks": [{ "rule": "open", "key": "a" }, { "rule": "nothing", "key": "a" }] }),
            "asks[1].rule",
        ),
        (json!({ "asks": [] }), "asks"),
        (json!({ "asks": "x" }), "asks"),
        (json!({ "asks": [{ "rule": "open" }] }), "asks[0].key"),
        (
            json!({ "asks": [{ "checks": [{ "rule": "open", "key": "a" }, { "rule": "open", "key": "" }] }] }),
            "asks[0].checks[1].key",
        ),
        (json!({ "asks": [{ "asks": [] }] }), "asks[0].asks"),
        (json!({ "asks": [{ "rule": "open", "key": "a" }], "rule": "open" }), "asks"),
        (json!({ "asks": vec![json!({ "rule": "open", "key": "a" }); 129] }), "asks"),
    ] {
        let answer = server.post("/v1/check", body.to_string()).await;
        assert_eq!(
            (answer.status, answer.json()["field"].as_str()),
            (400, Some(field)),
            "{body}: {}",
            answer.text()
        );
    }
    let many: serde_json::Map<String, Value> = (0..129).map(|at| (format!("a{at}"), json!("x"))).collect();
    let answer = server.post("/v1/check", json!({ "attributes": many }).to_string()).await;
    assert_eq!((answer.status, answer.json()["field"].as_str()), (400, Some("attributes")));
    assert_eq!(server.peek(r#"{"rule":"open","key":"a"}"#).await["remaining"], 1);
}

#[tokio::test]
async fn a_call_is_described_in_any_spelling() {
    let file = config(
        "rules: [{name: login, when: {path: /login, host: api.example.com}, key: everyone, limit: 9/h}]",
    );
    let server = Server::start_with(&["--config", file.path().to_str().unwrap()]).await;
    for (path, host) in [
        ("/login", "api.example.com"),
        ("/login?x=1", "API.example.com:443"),
        ("/login#x", "api.example.com."),
        ("http://h/login", " api.example.com"),
        ("/%6Cogin/", "api.example.com"),
        ("//a/..//login", "api.example.com"),
    ] {
        let answer = ask(&server, json!({ "path": path, "host": host })).await;
        assert_eq!(answer["source"], "store", "{path} {host}: {answer}");
    }
    for (attributes, field) in [
        (r#"{"path":"login"}"#, "attributes.path"),
        (r#"{"path":"/a","path":"/b"}"#, "attributes.path"),
        (r#"{"ip":"203.0.113.9","address":"203.0.113.10"}"#, "attributes.address"),
    ] {
        let answer = server.post("/v1/check", format!(r#"{{"attributes":{attributes}}}"#)).await;
        assert_eq!((answer.status, answer.json()["field"].as_str()), (400, Some(field)), "{}", answer.text());
    }
}

/// Runs `tollgate check`, and says how it ended and what it said.
fn checked(text: &str, flags: &[&str]) -> (i32, String, String) {
    let file = config(text);
    let output = tollgate(&["check", file.path().to_str().unwrap()]).args(flags).output().unwrap();
    let said =
        |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().replace(file.path().to_str().unwrap(), "FILE");
    (output.status.code().unwrap(), said(output.stdout), said(output.stderr))
}

#[test]
fn a_file_is_checked_without_starting_anything() {
    let (code, out, error) = checked(FILE, &[]);
    assert_eq!((code, out.as_str(), error.as_str()), (0, "FILE: 6 rules, 0 tests passed\n", ""));
    let (_, out, _) = checked(&format!("{FILE}\nbreakers:\n  - name: payments\n  - match: \"*\"\n"), &[]);
    assert_eq!(out, "FILE: 6 rules, 2 breakers, 0 tests passed\n");
    let (code, printed, _) = checked(FILE, &["--print"]);
    assert_eq!(code, 0);
    let (code, again, error) = checked(&printed, &["--print"]);
    assert_eq!((code, again), (0, printed), "what is printed says the same: {error}");
}

#[test]
fn every_problem_of_a_policy_is_named_with_its_place() {
    let bad = r#"
plans: { free: { limit: 10 } }
rules:
  - name: a
    when: { path: login, addres.x: 10.0.0.0/8, address: 10.0.0.0/99 }
    key: "{token"
    limit: 1/s
  - name: b
    when: { path: /a }
    limit: 1/s
  - name: c
    key: "{path.user}"
    limit: 1/s
  - name: d
    plan: { by: tier, default: gold }
  - name: e
    limit: 1/s
    plan: { by: tier, default: free }
  - name: f
    limit: 1/s
    limits: [{ limit: 1/s }]
  - name: g
    limit: 1/s
    cost: { from: header.x-units }
    overrides: [{ key: ann }, { key: bob, limit: 1/s, algorithm: fixed_window }]
    mode: shadowy
  - name: h
    limit: 1/s
    cost: 0
    candidate: { limt: 1/s }
allow: { key: x, "b d": y }
tests:
  - ask: { rule: a }
  - { name: nothing, verdict: maybe }
"#;
    let (code, _, error) = checked(bad, &[]);
    assert_eq!(code, 2, "{error}");
    assert!(!error.contains("tests[1].verdict: is missing"), "{error}");
    for expected in [
        "FILE:2:25: plans.free.limit: must be text: put it in quotes; found the number 10",
        "FILE:5:19: rules[0].when.path: a path begins with /",
        "FILE:5:26: rules[0].when.addres.x: \"addres.x\" is no attribute",
        "FILE:5:57: rules[0].when.address: \"10.0.0.0/99\" is no range of addresses",
        "FILE:6:10: rules[0].key: has a brace without its other half",
        "FILE:8:5: rules[1].key: rule \"b\" says when it applies but has no key",
        "FILE:12:10: rules[2].key: the key of rule \"c\" uses {path.user}",
        "FILE:15:32: rules[3].plan.default: \"gold\" is no plan: there are free",
        "FILE:18:11: rules[4].plan: stands beside `limit`",
        "FILE:21:13: rules[5].limits: stands beside `limit`",
        "rules[6].cost.max: is missing",
        "FILE:25:17: rules[6].overrides[0]: give one of `limit`",
        "FILE:26:11: rules[6].mode: \"shadowy\" is not known: use enforce or shadow",
        "FILE:29:11: rules[7].cost: must be a whole number from 1",
        "rules[7].candidate.limt: unknown field",
        "rules[7].candidate.limit: is missing",
        "allow.key: is no attribute",
        "allow.b d: \"b d\" has a bad name",
        "tests[0].ask.key: is missing",
        "tests[0].verdict: is missing",
        "tests[1].ask: is missing",
        "tests[1].verdict: \"maybe\" is not known",
    ] {
        assert!(error.contains(expected), "{expected}\n{error}");
    }
}

#[test]
fn what_could_never_do_what_it_says_is_refused() {
    let bad = r#"
rules:
  - name: a
    when:
      path: [/ok/*, /a/../login, /%6Cogin, "/x//{y}"]
      host: [API.example.com, api.example.com:443, "*.example.com."]
      method: "GET, POST"
      adress: 10.0.0.0/8
      not: { Path: /x, address: [10.0.0.0/8, 10.0.0.1/8, nowhere] }
    key: "{tokn|address}"
    limit: 1/s
  - name: b
    key: "{token|address}"
    limit: 10/s
    cost: { by: method, values: { post: 11 }, max: 5 }
    allow: { key: [address/203.0.113.9, 203.0.113.9] }
    deny: { key: [""] }
    overrides:
      - { key: "", blocked: true }
      - { key: 2001:db8::7, blocked: true, burst: 5 }
  - name: c
    limit: 10/s
    cost: { from: address, max: 5 }
  - name: d
    limit: 10/s
    cost: { from: header.x-units, values: { a: 1 }, max: 5, default: 6 }
  - name: e
    key: "{address}"
    plan: { by: path.user, default: free }
  - name: f
    limit: 10/s
    cost: { by: method, values: { post: 11 } }
  - name: g
    limit: 10/s
    overrides: [{ key: ann, limit: 20/s }, { key: bob, limit: 1/s, algorithm: fixed_window }, { key: eve, limits: [{ limit: 1/s }, { limit: 1/h }] }]
plans: { free: { limit: 1/s } }
deny: { address: [10.0.0.0/8, 192.0.2.1, 10.0.0.0/99], ip_address: 10.0.0.1 }
"#;
    let (code, _, error) = checked(bad, &[]);
    assert_eq!(code, 2, "{error}");
    let expected = [
        "FILE:5:21: rules[0].when.path[1]: paths come to the rules in one spelling: write it as /login",
        "FILE:5:34: rules[0].when.path[2]: paths come to the rules in one spelling: write it as /login",
        "rules[0].when.path[3]: paths come to the rules in one spelling: write it as /x/{y}",
        "rules[0].when.host[1]: hosts come to the rules without a port and without a dot at the end: write it as api.example.com",
        "rules[0].when.host[2]: hosts come to the rules without a port and without a dot at the end: write it as *.example.com",
        "rules[0].when.method: a method is one word: write it as [GET, POST]",
        "FILE:8:7: rules[0].when.adress: \"adress\" is no attribute: did you mean address?",
        "rules[0].when.not.Path: \"Path\" is no attribute: did you mean path?",
        "rules[0].when.not.address[1]: ",
        "rules[0].when.not.address[2]: \"nowhere\" is no range of addresses",
        "rules[0].key: \"tokn\" is no attribute: did you mean token?",
        "rules[1].cost.max: says nothing beside `by`",
        "rules[1].allow.key[1]: \"203.0.113.9\" is no key of this rule, which counts by \"{token|address}\": write address/203.0.113.9",
        "rules[1].deny.key[0]: is empty",
        "rules[1].overrides[0].key: is empty",
        "rules[1].overrides[1].key: \"2001:db8::7\" is no key of this rule, which counts by \"{token|address}\": write address/2001:db8::/64",
        "rules[1].overrides[1].burst: says nothing beside `blocked`",
        "rules[2].cost.from: `address` cannot be used here",
        "rules[3].cost.values: says nothing beside `from`",
        "rules[3].cost.default: is 6, above the max of 5",
        "rules[4].plan.by: `path.user` cannot be used here",
        "rules[5].cost: 11 is more than the 10 there are at once",
        "rules[6].overrides[1]: the override for \"bob\" has other algorithms",
        "rules[6].overrides[2]: the override for \"eve\" has other algorithms",
        "deny.address[2]: \"10.0.0.0/99\" is no range of addresses",
        "deny.ip_address: \"ip_address\" is no attribute: did you mean address?",
    ];
    for expected in expected {
        assert!(error.contains(expected), "{expected}\n{error}");
    }
    assert_eq!(error.matches("FILE:").count(), expected.len(), "nothing else is wrong: {error}");
}

#[test]
fn a_test_that_does_not_come_true_says_what_came() {
    let file = r#"
rules:
  - name: login
    when: { path: /login }
    key: "{address}"
    limit: 2/min
    candidate: { limit: 1/min }
tests:
  - name: the third is refused
    ask: { path: /login, address: 203.0.113.9 }
    times: 3
    rules: login
    verdict: refused
    retry_after: 30s
    subject: address
  - name: half a minute is one more
    ask: { path: /login, address: 203.0.113.9 }
    times: 4
    after: 30s
    verdict: allowed
    would_refuse: login
  - name: this is wrong in every way
    ask: { path: /login, address: 203.0.113.9 }
    rules: [other]
    verdict: refused
    remaining: 7
    retry_after: 5s
    subject: token
"#;
    let (code, out, error) = checked(file, &[]);
    assert_eq!((code, out.as_str()), (1, ""), "{error}");
    for expected in [
        "FILE:22:5: \"this is wrong in every way\": rules: expected other, found login",
        "verdict: expected refused, found allowed by login",
        "remaining: expected 7, found 1",
        "retry_after: expected 5s, found nothing to wait for",
        "subject: expected token, found address",
        "5 of what 3 tests say did not come true",
    ] {
        assert!(error.contains(expected), "{expected}\n{error}");
    }
    assert_eq!(error.matches("FILE:").count(), 5, "the others came true: {error}");
}
