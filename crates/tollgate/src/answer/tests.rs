//! Verdicts of a real engine on a clock of ours, and the bytes they become.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::StatusCode;
use http::header::CONTENT_TYPE;
use tollgate_core::algorithm::{Algorithm, Kind};
use tollgate_core::ask::{Ask, By, InlineLimit, Want};
use tollgate_core::limit::Rate;
use tollgate_core::policy::{Policy, Rule};
use tollgate_core::units::Cost;

use super::*;
use crate::clock::Clock;
use crate::{Engine, MemoryStore};

fn algorithm(rate: &str) -> Algorithm {
    Algorithm::try_new(Kind::TokenBucket, Rate::parse(rate).unwrap(), None, 1000).unwrap()
}

fn stand() -> (Engine<MemoryStore>, Arc<AtomicU64>) {
    let (clock, hand) = Clock::manual(Micros::from_secs(1_800_000_000));
    let rules = vec![
        Rule::try_new("api", vec![algorithm("5/min")], None).unwrap(),
        Rule::try_new("both", vec![algorithm("10/s"), algorithm("20/h")], None).unwrap(),
    ];
    let store = MemoryStore::builder().clock(clock).build();
    (Engine::builder(store).policy(Policy::try_new(7, rules).unwrap()).build(), hand)
}

fn want<'a>(rule: &'a str, key: &'a str, cost: u32) -> Want<'a> {
    Want { by: By::Rule(rule), key: key.as_bytes(), cost: Cost::new(cost).unwrap(), takes: &[] }
}

async fn decide(engine: &Engine<MemoryStore>, wants: &[Want<'_>]) -> Verdict {
    engine.decide(&Ask { wants }).await
}

fn written_by(style: Style, verdict: &Verdict) -> HeaderMap {
    let mut headers = HeaderMap::new();
    style.write(verdict, &mut headers);
    headers
}

fn value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap())
}

#[tokio::test]
async fn a_call_that_passes_is_told_what_is_left() {
    let (engine, _) = stand();
    let headers = written_by(Style::default(), &decide(&engine, &[want("api", "ann", 2)]).await);
    assert_eq!(value(&headers, "ratelimit-policy"), Some("\"api\";q=5;w=60"));
    assert_eq!(value(&headers, "ratelimit"), Some("\"api\";r=3;t=24"));
    assert_eq!(headers.len(), 2, "{headers:?}");
}

#[tokio::test]
async fn each_limit_has_a_name_of_its_own() {
    let (engine, _) = stand();
    let rate = Rate::parse("7/s").unwrap();
    let inline = InlineLimit::new(algorithm("7/s"), rate.period());
    let wants = [
        want("both", "ann", 1),
        Want { by: By::Inline(&inline), key: b"ann", cost: Cost::ONE, takes: &[] },
        want("both", "bob", 2),
        want("api", "ann", 1),
    ];
    let headers = written_by(Style::default(), &decide(&engine, &wants).await);
    let policy = "\"both\";q=10;w=1, \"both:2\";q=20;w=3600, \"(inline)\";q=7;w=1, \"both:3\";q=10;w=1, \
                  \"both:4\";q=20;w=3600, \"api\";q=5;w=60";
    assert_eq!(value(&headers, "ratelimit-policy"), Some(policy));
    let limits = "\"both\";r=9;t=1, \"both:2\";r=19;t=180, \"(inline)\";r=6;t=1, \"both:3\";r=8;t=1, \
                  \"both:4\";r=18;t=360, \"api\";r=4;t=12";
    assert_eq!(value(&headers, "ratelimit"), Some(limits));
}

#[tokio::test]
async fn the_older_headers_are_sent_by_choice() {
    let (engine, _) = stand();
    let verdict = decide(&engine, &[want("api", "ann", 1)]).await;
    let headers = written_by(Style::default().fields(Fields::None).older(Older::Seconds), &verdict);
    assert_eq!(value(&headers, "x-ratelimit-limit"), Some("5"));
    assert_eq!(value(&headers, "x-ratelimit-remaining"), Some("4"));
    assert_eq!(value(&headers, "x-ratelimit-reset"), Some("12"));
    assert_eq!(headers.len(), 3, "{headers:?}");

    let before = seconds(crate::clock::wall());
    let headers = written_by(Style::default().older(Older::UnixTime), &verdict);
    let after = seconds(crate::clock::wall());
    let reset: u64 = value(&headers, "x-ratelimit-reset").unwrap().parse().unwrap();
    assert!((before + 12..=after + 12).contains(&reset), "{reset}");
}

#[tokio::test]
async fn two_limiters_share_a_list() {
    let (engine, _) = stand();
    let style = Style::default().older(Older::Seconds);
    let mut headers = written_by(style, &decide(&engine, &[want("api", "ann", 1)]).await);
    style.write(&decide(&engine, &[want("both", "ann", 1)]).await, &mut headers);
    let limits: Vec<_> = headers.get_all("ratelimit").iter().collect();
    assert_eq!(limits, ["\"api\";r=4;t=12", "\"both\";r=9;t=1, \"both:2\";r=19;t=180"]);
    assert_eq!(value(&headers, "x-ratelimit-limit"), Some("5"));
}

#[tokio::test]
async fn a_refusal_says_when_to_come_again_and_never_too_early() {
    let (engine, hand) = stand();
    assert!(decide(&engine, &[want("api", "ann", 5)]).await.is_allowed());
    // One token every twelve seconds: 11.000001 s are left to wait.
    hand.fetch_add(999_999, Ordering::SeqCst);
    let verdict = decide(&engine, &[want("api", "ann", 1)]).await;
    let answer = Style::default().refuse(&verdict, &HeaderMap::new());
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(value(answer.headers(), "content-type"), Some("application/problem+json"));
    assert_eq!(value(answer.headers(), "retry-after"), Some("12"));
    assert_eq!(value(answer.headers(), "ratelimit"), Some("\"api\";r=0;t=12"));
    let body = "{\"type\":\"urn:tollgate:problem:rate-limited\",\"title\":\"too many calls\",\"status\":429,\
                \"detail\":\"rule api refuses this call: try again in 11001 ms\",\"rule\":\"api\",\"limit\":5,\
                \"remaining\":0,\"reset_after_ms\":59001,\"retry_after_ms\":11001,\"source\":\"store\"}\n";
    assert_eq!(answer.body(), body);
    // It keeps what it says: refused a second earlier, allowed then.
    hand.fetch_add(11_000_000, Ordering::SeqCst);
    assert!(!decide(&engine, &[want("api", "ann", 1)]).await.is_allowed());
    hand.fetch_add(1_000_000, Ordering::SeqCst);
    assert!(decide(&engine, &[want("api", "ann", 1)]).await.is_allowed());
}

#[tokio::test]
async fn jitter_spreads_and_never_hurries() {
    let (engine, _) = stand();
    assert!(decide(&engine, &[want("api", "ann", 5)]).await.is_allowed());
    let verdict = decide(&engine, &[want("api", "ann", 1)]).await;
    let style = Style::default().jitter(Duration::from_secs(10));
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..500 {
        let answer = style.refuse(&verdict, &HeaderMap::new());
        let after: u64 = value(answer.headers(), "retry-after").unwrap().parse().unwrap();
        assert!((12..=22).contains(&after), "{after}");
        // The same in every place of one answer.
        let body = String::from_utf8(answer.body().to_vec()).unwrap();
        let (_, in_body) = body.split_once("\"retry_after_ms\":").unwrap();
        let in_body: u64 = in_body.split_once(',').unwrap().0.parse().unwrap();
        assert_eq!(in_body.div_ceil(1000), after, "{body}");
        seen.insert(after);
    }
    assert!(seen.len() > 5, "{seen:?}");
}

#[tokio::test]
async fn what_never_passes_is_not_told_to_wait() {
    let (engine, _) = stand();
    let verdict = decide(&engine, &[want("api", "ann", 6)]).await;
    let answer = Style::default().jitter(Duration::from_secs(10)).refuse(&verdict, &HeaderMap::new());
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(value(answer.headers(), "retry-after"), None);
    let body = String::from_utf8(answer.body().to_vec()).unwrap();
    assert!(
        body.contains("urn:tollgate:problem:never") && body.contains("\"retry_after_ms\":null"),
        "{body}"
    );
    let mut grpc = HeaderMap::new();
    grpc.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    let answer = Style::default().refuse(&verdict, &grpc);
    assert_eq!(value(answer.headers(), "grpc-retry-pushback-ms"), Some("-1"));
}

#[tokio::test]
async fn whoever_speaks_grpc_is_refused_in_grpc() {
    let (engine, _) = stand();
    assert!(decide(&engine, &[want("api", "ann", 5)]).await.is_allowed());
    let verdict = decide(&engine, &[want("api", "ann", 1)]).await;
    for (sent, answered) in [
        ("application/grpc", Some("application/grpc")),
        ("application/grpc+proto", Some("application/grpc")),
        ("Application/gRPC; charset=utf-8", Some("application/grpc")),
        ("application/grpc-web+proto", Some("application/grpc-web")),
        ("application/grpc-web-text", Some("application/grpc-web-text")),
        ("application/grpcx", None),
        ("application/json", None),
    ] {
        let mut request = HeaderMap::new();
        request.insert(CONTENT_TYPE, HeaderValue::from_static(sent));
        assert_eq!(is_grpc(&request), answered.is_some(), "{sent}");
        let answer = Style::default().refuse(&verdict, &request);
        let Some(kind) = answered else {
            assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS, "{sent}");
            continue;
        };
        assert_eq!(answer.status(), StatusCode::OK, "{sent}");
        assert!(answer.body().is_empty(), "{sent}");
        for (name, expected) in [
            ("content-type", kind),
            ("grpc-status", "8"),
            ("grpc-message", "rule api refuses this call: try again in 12000 ms"),
            ("grpc-retry-pushback-ms", "12000"),
            ("retry-after", "12"),
            ("ratelimit", "\"api\";r=0;t=12"),
        ] {
            assert_eq!(value(answer.headers(), name), Some(expected), "{sent} {name}");
        }
    }
}

#[tokio::test]
async fn an_ask_that_makes_no_sense_is_a_mistake_on_this_side() {
    let (engine, _) = stand();
    let verdict = decide(&engine, &[want("a\"b\\\n", "ann", 1)]).await;
    let answer = Style::default().refuse(&verdict, &HeaderMap::new());
    assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let body = String::from_utf8(answer.body().to_vec()).unwrap();
    assert!(body.contains(r#""detail":"unknown rule \"a\"b\\ \"","field":"rule""#), "{body}");
    assert_eq!(value(answer.headers(), "ratelimit"), None);
}

#[tokio::test]
async fn no_answer_names_a_key() {
    let (engine, _) = stand();
    let keys = ["k3y-of-ann", "203.0.113.9"];
    for key in keys {
        for cost in [1, 5, 6] {
            let verdict = decide(&engine, &[want("api", key, cost)]).await;
            let answer = Style::default().older(Older::Seconds).refuse(&verdict, &HeaderMap::new());
            let text = format!("{:?} {:?}", answer.headers(), answer.body());
            assert!(!keys.iter().any(|key| text.contains(key)), "{text}");
        }
    }
}

#[tokio::test]
async fn an_answer_without_limits_has_no_headers() {
    let (engine, _) = stand();
    let mut verdict = decide(&engine, &[want("api", "ann", 1)]).await;
    verdict.checks = std::iter::empty().collect();
    assert!(written_by(Style::default().older(Older::Seconds), &verdict).is_empty());
}
