//! Everything a caller can get wrong: a clear answer that names the field, and nothing spent.

mod common;

use common::{Client, Server};

/// What a bad body is answered: the status, and the field to blame (empty for the body itself).
struct Bad {
    name: &'static str,
    body: Vec<u8>,
    status: u16,
    field: &'static str,
}

fn bad(name: &'static str, body: impl Into<Vec<u8>>, status: u16, field: &'static str) -> Bad {
    Bad { name, body: body.into(), status, field }
}

/// One good check, followed by `check`.
fn after_a_good_one(check: &str) -> String {
    format!(r#"{{"checks":[{{"rule":"login","key":"victim"}},{check}]}}"#)
}

fn named(fields: &str) -> String {
    format!(r#"{{"rule":"login","key":"victim"{fields}}}"#)
}

fn inline(fields: &str) -> String {
    format!(r#"{{"key":"victim"{fields}}}"#)
}

fn numbers() -> Vec<Bad> {
    vec![
        bad("zero cost", named(r#","cost":0"#), 400, "cost"),
        bad("negative cost", named(r#","cost":-1"#), 400, "cost"),
        bad("fractional cost", named(r#","cost":1.5"#), 400, "cost"),
        bad("cost as a float", named(r#","cost":1.5"#), 400, "cost"),
        bad("cost above 32 bits", named(r#","cost":4294967296"#), 400, "cost"),
        bad("huge cost", named(r#","cost":99999999999999999999999"#), 400, "cost"),
        bad("cost beyond doubles", named(r#","cost":1e999"#), 400, ""),
        bad("NaN cost", named(r#","cost":NaN"#), 400, ""),
        bad("cost as text", named(r#","cost":"1""#), 400, "cost"),
        bad("cost as a list", named(r#","cost":[1]"#), 400, "cost"),
        bad("cost as an object", named(r#","cost":{"n":1}"#), 400, "cost"),
        bad("cost as a truth", named(r#","cost":true"#), 400, "cost"),
        bad("zero burst", inline(r#","limit":"1/s","burst":0"#), 400, "burst"),
        bad("negative burst", inline(r#","limit":"1/s","burst":-5"#), 400, "burst"),
        bad(
            "burst that cannot be kept exactly",
            inline(r#","limit":"7/d","burst":4294967295"#),
            409,
            "burst",
        ),
        bad(
            "burst where there is none",
            inline(r#","limit":"1/s","burst":2,"algorithm":"sliding_log""#),
            400,
            "burst",
        ),
    ]
}

fn limits() -> Vec<Bad> {
    let limit = |text: &str| inline(&format!(r#","limit":"{text}""#));
    vec![
        bad("limit without a period", limit("100"), 400, "limit"),
        bad("limit of zero", limit("0/s"), 400, "limit"),
        bad("negative limit", limit("-1/s"), 400, "limit"),
        bad("NaN limit", limit("NaN/s"), 400, "limit"),
        bad("infinite limit", limit("inf/s"), 400, "limit"),
        bad("huge limit", limit("99999999999/s"), 400, "limit"),
        bad("unknown period", limit("1/fortnight"), 400, "limit"),
        bad("empty limit", limit(""), 400, "limit"),
        bad("limit as a number", inline(r#","limit":100"#), 400, "limit"),
        bad("month without a calendar", limit("1/month"), 400, "limit"),
        bad("unknown algorithm", inline(r#","limit":"1/s","algorithm":"leaky""#), 400, "algorithm"),
        bad("empty algorithm", inline(r#","limit":"1/s","algorithm":"""#), 400, "algorithm"),
        bad("log too long", inline(r#","limit":"10001/s","algorithm":"sliding_log""#), 400, "limit"),
        bad(
            "unknown zone",
            inline(r#","limit":"1/day","algorithm":"fixed_window","time_zone":"Mars/Olympus""#),
            400,
            "time_zone",
        ),
        bad(
            "path for a zone",
            inline(r#","limit":"1/day","algorithm":"fixed_window","time_zone":"../../etc/passwd""#),
            400,
            "time_zone",
        ),
        bad("zone for a bucket", inline(r#","limit":"1/day","time_zone":"UTC""#), 400, "time_zone"),
        bad("neither rule nor limit", inline(""), 400, "rule"),
        bad("both rule and limit", named(r#","limit":"1/s""#), 400, "limit"),
        bad("burst beside a rule", named(r#","burst":2"#), 400, "burst"),
    ]
}

fn keys() -> Vec<Bad> {
    let key = |key: &str| format!(r#"{{"rule":"login","key":{key}}}"#);
    vec![
        bad("missing key", r#"{"rule":"login"}"#, 400, "key"),
        bad("null key", key("null"), 400, "key"),
        bad("empty key", key(r#""""#), 400, "key"),
        bad("key as a number", key("7"), 400, "key"),
        bad("key as a list", key(r#"["victim"]"#), 400, "key"),
        bad("key with NUL", key(r#""a\u0000b""#), 400, "key"),
        bad("key with a line end", key(r#""a\nb""#), 400, "key"),
        bad("key with DEL", key(r#""a\u007fb""#), 400, "key"),
        bad("key with a C1 control", key(r#""a\u0085b""#), 400, "key"),
        bad("raw control in a key", b"{\"rule\":\"login\",\"key\":\"a\x01b\"}".as_slice(), 400, ""),
        bad("invalid UTF-8 in a key", b"{\"rule\":\"login\",\"key\":\"a\xff\xfeb\"}".as_slice(), 400, ""),
        bad("lone surrogate in a key", key(r#""\ud800""#), 400, ""),
        bad("key of 1025 bytes", key(&format!("\"{}\"", "k".repeat(1025))), 400, "key"),
        bad("key of 1 MiB", key(&format!("\"{}\"", "k".repeat(1 << 20))), 413, ""),
        bad("rule as a number", r#"{"rule":7,"key":"victim"}"#, 400, "rule"),
        bad("unknown rule", r#"{"rule":"nope","key":"victim"}"#, 400, "rule"),
        bad("rule of the wrong case", r#"{"rule":"Login","key":"victim"}"#, 400, "rule"),
        bad("empty rule", r#"{"rule":"","key":"victim"}"#, 400, "rule"),
    ]
}

fn shapes() -> Vec<Bad> {
    vec![
        bad("empty body", "", 400, ""),
        bad("not JSON", "rule=login", 400, ""),
        bad("half a body", r#"{"rule":"login","#, 400, ""),
        bad("two bodies", named("") + &named(""), 400, ""),
        bad("a list", "[]", 400, ""),
        bad("a number", "7", 400, ""),
        bad("null", "null", 400, ""),
        bad("nothing asked", "{}", 400, "rule"),
        bad("unknown field", named(r#","cots":1"#), 400, "cots"),
        bad("unknown field with a list", r#"{"checks":[],"domain":"x"}"#, 400, "domain"),
        bad("a field twice", named(r#","key":"other""#), 400, "key"),
        bad("take where nothing is undone", named(r#","take":"1.0""#), 400, "take"),
        bad("nesting without end", "[".repeat(60_000), 400, ""),
        bad("empty list", r#"{"checks":[]}"#, 400, "checks"),
        bad("list that is none", r#"{"checks":{"rule":"login","key":"victim"}}"#, 400, "checks"),
        bad("null list", r#"{"checks":null}"#, 400, "checks"),
        bad(
            "list beside fields",
            r#"{"rule":"login","key":"victim","checks":[{"rule":"login","key":"victim"}]}"#,
            400,
            "checks",
        ),
        bad("list in a list", after_a_good_one(r#"{"checks":[]}"#), 400, "checks[1].checks"),
        bad("number in a list", after_a_good_one("7"), 400, "checks[1]"),
        bad(
            "bad limit in a list",
            after_a_good_one(r#"{"key":"victim","limit":"100"}"#),
            400,
            "checks[1].limit",
        ),
        bad(
            "bad cost in a list",
            after_a_good_one(r#"{"rule":"api","key":"victim","cost":0}"#),
            400,
            "checks[1].cost",
        ),
        bad(
            "unknown field in a list",
            after_a_good_one(r#"{"rul":"api","key":"victim"}"#),
            400,
            "checks[1].rul",
        ),
        bad(
            "unknown rule in a list",
            after_a_good_one(r#"{"rule":"nope","key":"victim"}"#),
            400,
            "checks[1].rule",
        ),
        bad("a check twice", after_a_good_one(r#"{"rule":"login","key":"victim"}"#), 409, "checks[1].key"),
        bad("65 checks", many(65), 400, "checks"),
        bad("10 000 checks", format!("{{\"checks\":[{}{{}}]}}", "{},".repeat(9_999)), 400, "checks"),
        bad("10 000 checks in full", many(10_000), 413, ""),
        bad(
            "a body of 64 KiB and one",
            format!("{}{}", named(""), " ".repeat(64 * 1024 + 1 - named("").len())),
            413,
            "",
        ),
    ]
}

fn many(count: usize) -> String {
    let checks: Vec<String> =
        (0..count).map(|at| format!(r#"{{"rule":"login","key":"victim{at}"}}"#)).collect();
    format!("{{\"checks\":[{}]}}", checks.join(","))
}

#[tokio::test]
async fn bad_input_names_its_field_and_spends_nothing() {
    let server = Server::start().await;
    for path in ["/v1/check", "/v1/peek"] {
        for Bad { name, body, status, field } in [numbers(), limits(), keys(), shapes()].into_iter().flatten()
        {
            let answer = server.post(path, &body).await;
            let text = answer.text();
            assert_eq!(answer.status, status, "{name}: {text}");
            assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{name}");
            let problem = answer.json();
            assert_eq!(problem["field"].as_str().unwrap_or(""), field, "{name}: {text}");
            assert_eq!(problem["status"], status, "{name}");
            assert!(problem["title"].as_str().unwrap().contains("nothing was spent"), "{name}: {text}");
            assert!(problem["detail"].as_str().is_some_and(|detail| detail.len() > 4), "{name}: {text}");
        }
    }
    // The keys that the good halves of bad asks named are untouched.
    for rule in ["login", "api"] {
        let answer = server.peek(&format!(r#"{{"rule":"{rule}","key":"victim"}}"#)).await;
        assert_eq!(answer["remaining"], answer["limit"], "{answer}");
    }
    assert_eq!(server.metric("tollgate_buckets_total{found=\"created\"}").await, Some(0.0));
}

#[tokio::test]
async fn a_bad_refund_gives_nothing_back() {
    let server = Server::start().await;
    server.check(r#"{"rule":"login","key":"spent","cost":5}"#).await;
    let refund = |take: &str| format!(r#"{{"rule":"login","key":"spent","cost":5{take}}}"#);
    for (name, take) in [
        ("missing", ""),
        ("null", r#","take":null"#),
        ("empty", r#","take":"""#),
        ("a number", r#","take":17"#),
        ("no entry", r#","take":"1763194000123456""#),
        ("negative", r#","take":"-1.0""#),
        ("signed", r#","take":"+1.0""#),
        ("words", r#","take":"yesterday.0""#),
        ("huge", r#","take":"99999999999999999999.0""#),
        ("huge entry", r#","take":"1.4294967296""#),
        ("more takes than limits", r#","take":"1.0,2.0""#),
        ("takes without end", r#","take":"1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,""#),
    ] {
        let answer = server.post("/v1/refund", refund(take)).await;
        // Well written takes that are not those of the rule contradict it.
        let status = if name == "more takes than limits" { 409 } else { 400 };
        assert_eq!(answer.status, status, "{name}: {}", answer.text());
        assert_eq!(answer.json()["field"], "take", "{name}");
    }
    // A take that never was is well written; it undoes nothing.
    let answer = server.json("/v1/refund", &refund(r#","take":"1763194000123456.0""#)).await;
    assert_eq!(answer["refunded"], "nothing");
    assert_eq!(server.peek(r#"{"rule":"login","key":"spent"}"#).await["remaining"], 0);
}

#[tokio::test]
async fn odd_but_honest_keys_are_keys() {
    let server = Server::start().await;
    let longest = "k".repeat(1024);
    for key in ["{}", "a:b", "{a}:login:0", "%", "Zoë 🚪", "a/b?c#d", " ", "\\u0041", longest.as_str()] {
        let answer = server.check(&format!(r#"{{"rule":"login","key":"{key}"}}"#)).await;
        assert_eq!(answer["remaining"], 4, "{key} is a key of its own");
    }
    // The same key, however it is escaped.
    assert_eq!(server.check(r#"{"rule":"login","key":"A"}"#).await["remaining"], 3);
}

#[tokio::test]
async fn what_is_no_question_is_answered_as_one_should_be() {
    let server = Server::start().await;
    let mut client = Client::connect(server.http).await;
    let answer = client.send("GET", "/v1/check", "", b"").await;
    assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")));
    let answer = client.send("POST", "/v1/chekc", "", b"{}").await;
    assert_eq!((answer.status, answer.header("content-type")), (404, Some("application/problem+json")));

    let body = r#"{"rule":"login","key":"typed"}"#;
    let answer = server.post_with("/v1/check", "content-type: text/plain\r\n", body).await;
    assert_eq!(answer.status, 415);
    let answer = server.post_with("/v1/check", "origin: https://example.net\r\n", body).await;
    assert_eq!(answer.status, 403);
    for kind in ["application/json; charset=utf-8", "Application/JSON", "application/vnd.x+json"] {
        let answer = server.post_with("/v1/peek", &format!("content-type: {kind}\r\n"), body).await;
        assert_eq!(answer.status, 200, "{kind}");
    }
    assert_eq!(server.peek(body).await["remaining"], 5);
}

#[tokio::test]
async fn what_is_not_http_is_turned_away_and_the_server_lives() {
    let server = Server::start().await;
    for noise in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"PING\r\n\r\n",
        &[0xff; 4096],
        b"*1\r\n$4\r\nPING\r\n",
    ] {
        let mut client = Client::connect(server.http).await;
        client.raw(noise).await;
        tokio::io::AsyncWriteExt::shutdown(&mut client.stream).await.unwrap();
        client.closed().await;
    }
    // Headers without end.
    let mut client = Client::connect(server.http).await;
    let endless = format!("POST /v1/check HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(100));
    client.raw(endless.as_bytes()).await;
    assert_eq!(client.answer().await.unwrap().status, 431);
    assert_eq!(server.check(r#"{"rule":"login","key":"alive"}"#).await["remaining"], 4);
}
