//! Tollgate behind the proxies people run, with the configurations they are told to copy: real nginx,
//! HAProxy, Traefik and Caddy, a real Redis, and an application that counts who gets through.
//!
//! One scenario for all four, because a user must be able to change the proxy and keep the limits; where
//! they differ (which headers a client can be shown, which status says that Tollgate is away) each one's
//! `Manners` say so, and docs/forward-auth.md says the same.
#![allow(clippy::unwrap_used, reason = "what a test cannot arrange, it cannot go on without")]

mod common;
#[path = "proxies/files.rs"]
mod files;
#[path = "proxies/scene.rs"]
mod scene;
#[path = "proxies/upstream.rs"]
mod upstream;

use common::Answer;
use files::Away;
use scene::{ANN, BOB, CARL, DORA, EVE, FRED, Scene};
use testkit::FrontProgram;

/// What a proxy can pass on, and what it says by itself.
#[derive(Debug)]
struct Manners {
    program: FrontProgram,
    /// Whether clients see `RateLimit` and `RateLimit-Policy` on answers that pass. If not, the application
    /// gets them.
    shows_rate_on_pass: bool,
    /// Whether clients see the whole problem document, with the rule's name.
    shows_document: bool,
    /// Its status while Tollgate is away: at first, and after it has noticed.
    away: &'static [u16],
}

#[tokio::test]
async fn nginx() {
    let manners = Manners {
        program: FrontProgram::Nginx,
        shows_rate_on_pass: true,
        // A subrequest's body is dropped; the page is nginx' own.
        shows_document: false,
        away: &[503],
    };
    play(&manners).await;
}

#[tokio::test]
async fn haproxy() {
    let manners = Manners {
        program: FrontProgram::HaProxy,
        shows_rate_on_pass: true,
        shows_document: true,
        away: &[503],
    };
    play(&manners).await;
}

#[tokio::test]
async fn traefik() {
    let manners = Manners {
        program: FrontProgram::Traefik,
        shows_rate_on_pass: false,
        shows_document: true,
        away: &[502],
    };
    play(&manners).await;
}

#[tokio::test]
async fn caddy() {
    let manners = Manners {
        program: FrontProgram::Caddy,
        shows_rate_on_pass: true,
        shows_document: true,
        away: &[502, 503],
    };
    play(&manners).await;
}

/// Everything docs/forward-auth.md promises of a proxy, in the order in which things break.
async fn play(manners: &Manners) {
    let mut scene = Scene::start(manners.program).await;
    passes_until_the_limit(&scene, manners).await;
    others_are_not_concerned(&scene).await;
    the_query_counts(&scene).await;
    invented_headers_change_nothing(&scene).await;
    a_deny_list_forbids(&scene).await;
    connections_to_tollgate_are_kept(&scene).await;
    the_open_one_limits_too(&scene).await;
    nobody_gets_through_by_asking_too_much(&scene).await;

    scene.redis.kill();
    each_rule_answers_for_itself(&scene, manners).await;

    scene.tollgate.child.pause();
    the_open_one_lets_pass(&scene, "hung").await;

    scene.tollgate.child.kill();
    the_open_one_lets_pass(&scene, "gone").await;
    the_closed_one_lets_nobody_pass(&scene, manners).await;
}

async fn passes_until_the_limit(scene: &Scene, manners: &Manners) {
    for left in [1, 0] {
        // A query of the client's own must not be mistaken for the proxy's.
        let passed = scene.send(ANN, "POST", "/orders/7?refusal=503&page=2", "", b"an order").await;
        assert_eq!((passed.status, passed.text().as_str()), (200, "the application"), "{passed:?}");
        let seen = scene.upstream.seen("/orders/7").pop().unwrap();
        assert_eq!((seen.method.as_str(), seen.body.as_ref()), ("POST", b"an order".as_slice()));
        assert_eq!(seen.target, "/orders/7?refusal=503&page=2");
        let rate = format!("\"orders\";r={left};t=");
        if manners.shows_rate_on_pass {
            assert!(passed.header("ratelimit").unwrap().starts_with(&rate), "{passed:?}");
            assert_eq!(passed.header("ratelimit-policy"), Some("\"orders\";q=2;w=3600"));
        } else {
            assert_eq!(passed.header("ratelimit"), None, "docs/forward-auth.md says that it cannot");
            assert!(seen.headers["ratelimit"].to_str().unwrap().starts_with(&rate), "{seen:?}");
        }
        assert_eq!(passed.header("retry-after"), None);
    }
    let refused = scene.send(ANN, "POST", "/orders/8", "", b"an order").await;
    assert_refused(&refused, manners, "orders", 1700..=1800);
    assert_eq!(refused.header("ratelimit-policy"), Some("\"orders\";q=2;w=3600"));
    assert!(refused.header("ratelimit").unwrap().starts_with("\"orders\";r=0;t="), "{refused:?}");
    assert!(scene.upstream.seen("/orders/8").is_empty(), "who is refused does not reach the application");
}

async fn others_are_not_concerned(scene: &Scene) {
    assert_eq!(scene.send(BOB, "POST", "/orders/8", "", b"").await.status, 200, "another client");
    let other = scene.send(ANN, "GET", "/orders/8", "", b"").await;
    assert_eq!((other.status, other.header("ratelimit")), (200, None), "another method, and no rule");
    assert_eq!(other.header("ratelimit-policy"), None);
    // More than Tollgate would read: the body goes past it.
    let large = vec![b'x'; 256 * 1024];
    assert_eq!(scene.send(ANN, "POST", "/elsewhere", "", &large).await.status, 200, "another path");
    assert_eq!(scene.upstream.seen("/elsewhere").pop().unwrap().body, large);
}

async fn the_query_counts(scene: &Scene) {
    for (query, status) in [("report=full", 200), ("report=short", 200), ("report=full", 429)] {
        let answer = scene.send(BOB, "GET", &format!("/elsewhere?{query}"), "", b"").await;
        assert_eq!(answer.status, status, "{query}");
    }
}

/// A client that writes the proxy's own headers, or its path in another way, gets neither another limit nor
/// somebody else's.
async fn invented_headers_change_nothing(scene: &Scene) {
    let attempts = [("/orders/9", 200), ("/%6frders/9", 200), ("/orders/%39", 429), ("/%6Frders/9", 429)];
    for (at, (target, status)) in attempts.into_iter().enumerate() {
        let headers = format!(
            "x-forwarded-for: 203.0.113.{at}, {BOB}\r\nx-real-ip: {BOB}\r\n\
             forwarded: for=203.0.113.{at};host=elsewhere\r\nx-forwarded-uri: /elsewhere\r\n\
             x-original-uri: /elsewhere\r\nx-forwarded-method: GET\r\nx-forwarded-host: elsewhere\r\n\
             x-tollgate-ratelimit: mine\r\nratelimit: mine\r\n"
        );
        let answer = scene.send(CARL, "POST", target, &headers, b"").await;
        assert_eq!(answer.status, status, "attempt {at}: {answer:?}");
        assert_ne!(answer.header("ratelimit"), Some("mine"));
    }
    assert_eq!(scene.send(BOB, "POST", "/orders/9", "", b"").await.status, 200, "whose name was used");
}

async fn a_deny_list_forbids(scene: &Scene) {
    let denied = scene.send(DORA, "GET", "/forbidden", "user-agent: BadBot\r\n", b"").await;
    assert_eq!((denied.status, denied.header("retry-after")), (403, None), "{denied:?}");
    assert_eq!(denied.header("content-type"), Some("application/problem+json"));
    assert_eq!(denied.json()["type"], "urn:tollgate:problem:denied");
    assert!(scene.upstream.seen("/forbidden").is_empty());
}

async fn connections_to_tollgate_are_kept(scene: &Scene) {
    const REQUESTS: u64 = 40;

    let before = scene.line.accepted();
    for _ in 0..REQUESTS {
        assert_eq!(scene.send(DORA, "GET", "/elsewhere", "", b"").await.status, 200);
    }
    // A few: one per thread of the proxy, and its health checks.
    let opened = scene.line.accepted() - before;
    assert!(opened < REQUESTS / 2, "{opened} connections for {REQUESTS} requests");
}

async fn the_open_one_limits_too(scene: &Scene) {
    // It may take a busy machine for an outage once or twice, and let that request pass.
    let asking = async { while scene.send_open(DORA, "POST", "/orders/10", "", b"").await.status != 429 {} };
    tokio::time::timeout(common::PATIENCE, asking).await.expect("the limit holds through the open one");
}

/// Requests that Tollgate will not read must not pass for an outage: else whoever sends too many headers
/// has no limits.
async fn nobody_gets_through_by_asking_too_much(scene: &Scene) {
    let many = "x-many: 1\r\n".repeat(90);
    let long = format!("x-long: {}\r\n", "x".repeat(300_000));
    for (kind, headers) in [("many", &many), ("long", &long)] {
        let path = format!("/orders/{kind}");
        for answer in [
            scene.send(FRED, "POST", &path, headers, b"").await,
            scene.send_open(FRED, "POST", &path, headers, b"").await,
        ] {
            assert!((400..500).contains(&answer.status), "{kind}: {answer:?}");
        }
        assert!(scene.upstream.seen(&path).is_empty(), "{kind}");
    }
}

async fn each_rule_answers_for_itself(scene: &Scene, manners: &Manners) {
    for _ in 0..3 {
        assert_eq!(scene.send(EVE, "GET", "/thumbnails", "", b"").await.status, 200, "on_outage: allow");
    }
    let refused = scene.send(EVE, "GET", "/login", "", b"").await;
    assert_refused(&refused, manners, "login", 1..=1);
    if manners.shows_document {
        let document = refused.json();
        assert_eq!((&document["source"], &document["on_outage"]), (&"fallback".into(), &"deny".into()));
    }
    assert!(scene.upstream.seen("/login").is_empty());

    let mut passed = 0;
    let refused = loop {
        let answer = scene.send(EVE, "GET", "/api", "", b"").await;
        if answer.status != 200 {
            break answer;
        }
        passed += 1;
        assert!(passed <= 3, "on_outage: local limits by itself");
    };
    assert_refused(&refused, manners, "api", 1..=3600);
    assert!(passed >= 1, "on_outage: local lets its share pass");
    assert_eq!(scene.upstream.seen("/api").len(), passed);
}

async fn the_open_one_lets_pass(scene: &Scene, state: &str) {
    let path = format!("/login/{state}");
    let passed = scene.send_open(FRED, "POST", &path, "", b"a secret").await;
    assert_eq!((passed.status, passed.text().as_str()), (200, "the application"), "{state}: {passed:?}");
    let seen = scene.upstream.seen(&path).pop().unwrap();
    assert_eq!((seen.method.as_str(), seen.body.as_ref()), ("POST", b"a secret".as_slice()));
}

async fn the_closed_one_lets_nobody_pass(scene: &Scene, manners: &Manners) {
    for _ in 0..2 {
        let answer = scene.send(FRED, "POST", "/away", "", b"an order").await;
        assert!(manners.away.contains(&answer.status), "{answer:?}");
    }
    assert!(scene.upstream.seen("/away").is_empty());
}

/// A refusal as clients see it.
fn assert_refused(answer: &Answer, manners: &Manners, rule: &str, wait: std::ops::RangeInclusive<u64>) {
    assert_eq!(answer.status, 429, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    let retry_after: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!(wait.contains(&retry_after), "{retry_after}");
    let document = answer.json();
    assert_eq!(document["type"], "urn:tollgate:problem:rate-limited");
    assert_eq!(document["status"], 429);
    if manners.shows_document {
        assert_eq!(document["rule"], rule);
    }
}

/// nginx alone has the question as a location of its server; nobody but nginx may go there.
#[tokio::test]
async fn the_question_of_nginx_is_not_for_clients() {
    let scene = Scene::start_one(FrontProgram::Nginx, Away::Closed).await;
    assert_eq!(scene.send(ANN, "GET", "/-/tollgate", "", b"").await.status, 404);
}
