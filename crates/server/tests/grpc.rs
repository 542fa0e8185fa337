//! The gRPC door: Envoy's rate-limit service over the policy's own rules, our own service, health and
//! reflection.
#![allow(clippy::similar_names, reason = "a caller is called")]
#![allow(clippy::unwrap_used, reason = "what a test cannot arrange, it cannot go on without")]

mod common;
#[path = "common/grpc.rs"]
mod grpc;
#[path = "../src/doors/grpc/proto/mod.rs"]
mod proto;

use std::io::Write as _;

use bytes::Bytes;
use common::{Client, PATIENCE, Server, curl};
use grpc::{Caller, SHOULD_RATE_LIMIT, descriptor, framed, request};
use proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use proto::envoy::service::ratelimit::v3::RateLimitRequest;
use proto::tollgate::v1;
use testkit::{Certificates, RedisServer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_reflection::pb::{v1 as reflection, v1alpha as reflection_alpha};

const OK: i32 = 1;
const OVER: i32 = 2;

const RULES: &str = "
rules:
  - {name: tenant, when: {domain: shop, descriptor.tenant: '*'}, key: '{descriptor.tenant}', limit: 3/min, algorithm: fixed_window}
  - {name: path, when: {descriptor.path: /slow}, key: everyone, limit: 2/h, algorithm: sliding_log}
  - {name: watched, when: {descriptor.path: /new}, key: everyone, limit: 1/h, mode: shadow}
";

#[tokio::test]
async fn statuses_are_in_order_with_limit_remaining_and_reset() {
    let server = Server::configured(RULES, &[]).await;
    let caller = Caller::connect(server.grpc).await;
    let asked = request("shop", &[&[("path", "/slow")], &[("nobody", "knows")], &[("tenant", "acme")]]);
    for (round, code) in [(1, OK), (2, OK), (3, OVER)] {
        let answer = caller.ask(&asked).await;
        assert_eq!(answer.overall_code, code, "{round}: {answer:?}");
        let [path, free, tenant] = answer.statuses.as_slice() else { panic!("{answer:?}") };
        let limit = path.current_limit.as_ref().unwrap();
        assert_eq!((limit.requests_per_unit, limit.unit, limit.name.as_str()), (2, 3, "path"));
        assert_eq!((path.code, path.limit_remaining), (code, 2_u32.saturating_sub(round)));
        assert_eq!((free.code, &free.current_limit, free.duration_until_reset), (OK, &None, None));
        // Each is charged alone: what another refuses is still spent here.
        assert_eq!((tenant.code, tenant.limit_remaining), (OK, 3 - round));
        let reset = tenant.duration_until_reset.unwrap();
        assert!((1..=60).contains(&reset.seconds) && reset.nanos == 0, "{reset:?}");
    }
    // Another domain, another tenant, and a rule that only watches.
    assert_eq!(caller.one("other", &[("tenant", "acme")]).await.1.current_limit, None);
    assert_eq!(caller.one("shop", &[("tenant", "umbrella")]).await.1.limit_remaining, 2);
    for _ in 0..3 {
        assert_eq!(caller.one("shop", &[("path", "/new")]).await.0, OK);
    }
    let series = r#"tollgate_grpc_requests_total{method="should-rate-limit",code="ok"}"#;
    assert_eq!(server.metric(series).await, Some(8.0));
}

#[tokio::test]
async fn all_or_nothing_by_choice() {
    let server = Server::configured(&format!("{RULES}\nenvoy: {{take: together}}"), &[]).await;
    let caller = Caller::connect(server.grpc).await;
    let asked = request("shop", &[&[("path", "/slow")], &[("tenant", "acme")]]);
    for (code, left) in [(OK, 2), (OK, 1), (OVER, 1), (OVER, 1)] {
        let answer = caller.ask(&asked).await;
        let tenant = &answer.statuses[1];
        assert_eq!(
            (answer.overall_code, tenant.code, tenant.limit_remaining),
            (code, OK, left),
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn hits_are_by_request_and_by_descriptor_zero_looks_and_negative_gives_back() {
    let server = Server::configured(RULES, &[]).await;
    let caller = Caller::connect(server.grpc).await;
    let ask = |tenant: &'static str, of_request: u32, of_descriptor: Option<u64>, is_negative_hits: bool| {
        let hits = RateLimitDescriptor {
            hits_addend: of_descriptor,
            is_negative_hits,
            ..descriptor(&[("tenant", tenant)])
        };
        let request =
            RateLimitRequest { domain: "shop".into(), descriptors: vec![hits], hits_addend: of_request };
        let caller = caller.clone();
        async move {
            let answer = caller.ask(&request).await;
            (answer.overall_code, answer.statuses[0].limit_remaining)
        }
    };
    assert_eq!(ask("a", 2, None, false).await, (OK, 1));
    assert_eq!(ask("a", 9, Some(0), false).await, (OK, 1), "zero looks");
    assert_eq!(ask("a", 9, Some(1), false).await, (OK, 0), "the descriptor's own word counts");
    assert_eq!(ask("a", 0, Some(0), false).await, (OVER, 0), "one more would be refused");
    assert_eq!(ask("a", 2, None, true).await, (OK, 2), "two came back");
    assert_eq!(ask("a", 0, Some(100), true).await, (OK, 3), "never more than was spent");
    assert_eq!(ask("a", 0, Some(u64::MAX), false).await, (OVER, 3), "no window has room for that");
    assert_eq!(ask("a", 0, None, false).await, (OK, 2));
}

#[tokio::test]
async fn a_limit_that_a_descriptor_carries_counts_instead() {
    let server = Server::configured(RULES, &[]).await;
    let caller = Caller::connect(server.grpc).await;
    let carrying = |requests_per_unit, unit| {
        let limit = Some(RateLimitOverride { requests_per_unit, unit });
        let one = RateLimitDescriptor { limit, ..descriptor(&[("tenant", "acme")]) };
        RateLimitRequest { domain: "shop".into(), descriptors: vec![one], hits_addend: 0 }
    };
    for (code, left) in [(OK, 1), (OK, 0), (OVER, 0)] {
        let answer = caller.ask(&carrying(2, 4)).await;
        let status = &answer.statuses[0];
        let limit = status.current_limit.as_ref().unwrap();
        assert_eq!((limit.requests_per_unit, limit.unit), (2, 4));
        assert_eq!((status.code, status.limit_remaining), (code, left));
        assert!(status.duration_until_reset.unwrap().seconds <= 86_400);
    }
    assert_eq!(caller.ask(&carrying(0, 1)).await.overall_code, OVER, "none per second admits nobody");
    assert_eq!(
        caller.one("shop", &[("tenant", "acme")]).await.1.limit_remaining,
        2,
        "the rule's own is untouched"
    );
    let unknown = caller.call(SHOULD_RATE_LIMIT, &carrying(2, 9)).await;
    assert_eq!(unknown.code, Some(3));
    assert!(unknown.why.starts_with("descriptors[0].limit.unit: is not known"), "{unknown:?}");
}

#[tokio::test]
async fn what_can_undo_a_limit_needs_a_token_off_this_machine() {
    let limit = Some(RateLimitOverride { requests_per_unit: 9, unit: 1 });
    let carrying = RateLimitDescriptor { limit, ..descriptor(&[("tenant", "acme")]) };
    let refunding = RateLimitDescriptor { is_negative_hits: true, ..descriptor(&[("tenant", "acme")]) };
    let asks = [carrying, refunding].map(|one| RateLimitRequest {
        domain: "shop".into(),
        descriptors: vec![descriptor(&[("x", "y")]), one],
        hits_addend: 0,
    });

    let shut = Server::configured(RULES, &["--grpc", "0.0.0.0:0"]).await;
    let caller = Caller::connect(([127, 0, 0, 1], shut.grpc.port()).into()).await;
    for ask in &asks {
        assert_eq!(caller.call(SHOULD_RATE_LIMIT, ask).await.code, Some(7));
    }
    assert_eq!(
        caller.one("shop", &[("tenant", "acme")]).await.1.limit_remaining,
        2,
        "what undoes nothing is open"
    );

    let token = "s3cret-s3cret-s3cret";
    let open = Server::configured(RULES, &["--grpc", "0.0.0.0:0", "--token", token]).await;
    let at = ([127, 0, 0, 1], open.grpc.port()).into();
    for ask in &asks {
        let wrong = Caller::connect(at).await.with("authorization", "Bearer s3cret-s3cret-s3creT");
        assert_eq!(wrong.call(SHOULD_RATE_LIMIT, ask).await.code, Some(16));
        let right = Caller::connect(at).await.with("authorization", &format!("Bearer {token}"));
        assert_eq!(right.call(SHOULD_RATE_LIMIT, ask).await.code, Some(0));
    }
    let inline =
        v1::CheckRequest { asks: vec![own(v1::Check { limit: "9/s".into(), key: "k".into(), ..check() })] };
    let caller = Caller::connect(at).await;
    assert_eq!(caller.call("/tollgate.v1.Tollgate/Check", &inline).await.code, Some(16));
}

#[tokio::test]
async fn bad_requests_name_the_field_and_spend_nothing() {
    let server = Server::configured(RULES, &[]).await;
    let caller = Caller::connect(server.grpc).await;
    let acme: &[(&str, &str)] = &[("tenant", "acme")];
    for (bad, says) in [
        (request("", &[acme]), "domain: rate limit domain must not be empty"),
        (request("shop", &[]), "descriptors: rate limit descriptor list must not be empty"),
        (request("shop", &[acme; 65]), "descriptors: are 65"),
        (request("shop", &[acme, &[("k", "v"); 65]]), "descriptors[1].entries: are 65"),
    ] {
        let outcome = caller.call(SHOULD_RATE_LIMIT, &bad).await;
        assert_eq!((outcome.http, outcome.code, outcome.has_trailers), (200, Some(3), false), "{outcome:?}");
        assert!(outcome.why.starts_with(says), "{outcome:?}");
    }
    for (kind, body, code, says) in [
        ("application/grpc", Bytes::new(), 3, "there is no message"),
        ("application/grpc", Bytes::from_static(&[0, 0, 0, 0, 9, 1]), 3, "there must be one message"),
        ("application/grpc", Bytes::from_static(&[1, 0, 0, 0, 0]), 12, "messages are not compressed"),
        ("application/grpc", Bytes::from_static(&[0, 0, 0, 0, 2, 0x0a, 9]), 3, "not a message"),
        ("application/grpc+proto", Bytes::from(vec![0; 70_000]), 8, "the body is too long"),
    ] {
        let outcome = caller.send(SHOULD_RATE_LIMIT, kind, body).await;
        assert_eq!(outcome.code, Some(code), "{outcome:?}");
        assert!(outcome.why.starts_with(says), "{outcome:?}");
    }
    let unknown = caller.call("/envoy.service.ratelimit.v3.RateLimitService/Other", &request("a", &[])).await;
    assert_eq!(unknown.code, Some(12));
    assert_eq!(caller.send(SHOULD_RATE_LIMIT, "application/json", framed(&check())).await.http, 415);
    let url = format!("http://{}{SHOULD_RATE_LIMIT}", server.grpc);
    assert_eq!(curl(&["-X", "POST", &url]).status, 505, "gRPC is HTTP/2");
    assert_eq!(curl(&["--http2-prior-knowledge", &url]).status, 405);
    assert_eq!(caller.one("shop", acme).await.1.limit_remaining, 2, "none of these spent anything");
}

fn check() -> v1::Check {
    v1::Check::default()
}

fn own(check: v1::Check) -> v1::Ask {
    v1::Ask { checks: vec![check] }
}

#[tokio::test]
async fn our_own_service_checks_peeks_and_refunds_several_at_once() {
    let server = Server::start().await;
    let caller = Caller::connect(server.grpc).await;
    let login = || v1::Check { rule: "login".into(), key: "ann".into(), ..check() };
    let inline = |cost| v1::Check {
        limit: "4/h".into(),
        algorithm: "fixed_window".into(),
        key: "bob".into(),
        cost,
        ..check()
    };
    let page = v1::Check {
        attributes: [
            ("method".into(), "post".into()),
            ("path".into(), "/login/".into()),
            ("ip".into(), "192.0.2.1".into()),
        ]
        .into(),
        ..check()
    };
    let both = v1::Ask { checks: vec![login(), inline(3)] };
    let asked = v1::CheckRequest { asks: vec![both.clone(), own(page)] };

    let peeked: v1::CheckResponse = caller.answer("/tollgate.v1.Tollgate/Peek", &asked).await;
    assert!(peeked.verdicts.iter().all(|verdict| verdict.allowed && verdict.takes.is_empty()), "{peeked:?}");
    let checked: v1::CheckResponse = caller.answer("/tollgate.v1.Tollgate/Check", &asked).await;
    let [first, second] = checked.verdicts.as_slice() else { panic!("{checked:?}") };
    assert_eq!((first.allowed, first.takes.len(), first.source.as_str()), (true, 2, "store"));
    assert_eq!(first.binding.as_ref().unwrap().remaining, 1);
    assert_eq!(second.parts.iter().map(|part| part.rule.as_str()).collect::<Vec<_>>(), ["login", "api"]);
    assert_eq!(second.parts[0].subject, "address");

    // All of an ask or nothing of it.
    let refused: v1::CheckResponse = caller.answer("/tollgate.v1.Tollgate/Check", &asked).await;
    let verdict = &refused.verdicts[0];
    assert_eq!((verdict.allowed, verdict.takes.len()), (false, 0), "{refused:?}");
    let binding = verdict.binding.as_ref().unwrap();
    assert!(binding.retry_after_ms.is_some_and(|wait| wait > 0) && !binding.allowed, "{binding:?}");
    assert!(refused.verdicts[1].allowed, "another ask is another question");

    let mut undo = both;
    for (check, take) in undo.checks.iter_mut().zip(&first.takes) {
        check.take.clone_from(take);
    }
    let undone: v1::RefundResponse =
        caller.answer("/tollgate.v1.Tollgate/Refund", &v1::RefundRequest { asks: vec![undo] }).await;
    assert_eq!((undone.refunds[0].returned.as_str(), undone.refunds[0].remaining), ("all", 4));

    for (path, wrong, says) in [
        (
            "Check",
            v1::Check { rule: "nobody".into(), key: "k".into(), ..check() },
            "asks[1].checks[0].rule: unknown",
        ),
        ("Check", v1::Check { rule: "login".into(), ..check() }, "asks[1].checks[0].key: is empty"),
        ("Check", v1::Check { limit: "4/x".into(), key: "k".into(), ..check() }, "asks[1].checks[0].limit: "),
        ("Check", v1::Check { burst: 2, ..login() }, "asks[1].checks[0].burst: belongs to a limit"),
        ("Check", v1::Check { take: "1.0".into(), ..login() }, "asks[1].checks[0].take: belongs to Refund"),
        ("Check", check(), "asks[1].checks[0].rule: is missing"),
        ("Refund", login(), "asks[0].checks[0].take: is missing"),
    ] {
        let call = v1::CheckRequest { asks: vec![own(inline(4)), own(wrong)] };
        let call = if path == "Refund" { v1::CheckRequest { asks: vec![own(login())] } } else { call };
        let outcome = caller.call(&format!("/tollgate.v1.Tollgate/{path}"), &call).await;
        assert_eq!(outcome.code, Some(3), "{outcome:?}");
        assert!(outcome.why.starts_with(says), "{says}: {outcome:?}");
    }
    let left: v1::CheckResponse =
        caller.answer("/tollgate.v1.Tollgate/Peek", &v1::CheckRequest { asks: vec![own(inline(4))] }).await;
    assert!(left.verdicts[0].allowed, "what stood beside a mistake was not spent: {left:?}");
}

async fn health(caller: &Caller, service: &str) -> Result<i32, u16> {
    let outcome =
        caller.call("/grpc.health.v1.Health/Check", &HealthCheckRequest { service: service.into() }).await;
    match outcome.code {
        Some(0) => Ok(outcome.message::<HealthCheckResponse>().status),
        code => Err(code.unwrap()),
    }
}

/// Asks until that is the answer.
async fn health_becomes(caller: &Caller, service: &str, status: i32) {
    let asking = async {
        let mut beat = tokio::time::interval(std::time::Duration::from_millis(20));
        while health(caller, service).await != Ok(status) {
            beat.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, asking).await.expect("its health becomes that");
}

#[tokio::test]
async fn health_says_serving_until_the_drain_begins() {
    let mut server = Server::start_with(&["--drain-delay", "2s"]).await;
    let caller = Caller::connect(server.grpc).await;
    let envoys = "envoy.service.ratelimit.v3.RateLimitService";
    for service in ["", "ratelimit", envoys, "tollgate.v1.Tollgate", "tollgate.v1.Breakers"] {
        health_becomes(&caller, service, 1).await;
    }
    assert_eq!(health(&caller, "nobody").await, Err(5));
    server.child.terminate();
    // Readiness fails first, and everything still answers.
    health_becomes(&caller, "ratelimit", 2).await;
    assert_eq!(caller.one("d", &[("k", "v")]).await.0, OK);
    assert!(server.child.wait().await.success());
}

#[tokio::test]
async fn reflection_lists_the_services_in_both_versions() {
    let server = Server::start().await;
    let caller = Caller::connect(server.grpc).await;
    let list = reflection::ServerReflectionRequest {
        message_request: Some(reflection::server_reflection_request::MessageRequest::ListServices(
            String::new(),
        )),
        ..reflection::ServerReflectionRequest::default()
    };
    let answer: reflection::ServerReflectionResponse =
        caller.answer("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", &list).await;
    let text = format!("{answer:?}");
    let envoys = "envoy.service.ratelimit.v3.RateLimitService";
    for name in [envoys, "tollgate.v1.Tollgate", "tollgate.v1.Breakers", "grpc.health.v1.Health"] {
        assert!(text.contains(name), "{name}: {text}");
    }
    let find = reflection_alpha::ServerReflectionRequest {
        message_request: Some(
            reflection_alpha::server_reflection_request::MessageRequest::FileContainingSymbol(
                "envoy.service.ratelimit.v3.RateLimitRequest".into(),
            ),
        ),
        ..reflection_alpha::ServerReflectionRequest::default()
    };
    let answer: reflection_alpha::ServerReflectionResponse =
        caller.answer("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &find).await;
    let text = format!("{answer:?}");
    assert!(text.contains("FileDescriptorResponse"), "{text}");
}

#[tokio::test]
async fn clients_are_told_their_limit_in_headers_by_choice() {
    let of = async |settings: &str| {
        let server = Server::configured(&format!("{RULES}\nenvoy: {{{settings}}}"), &[]).await;
        let caller = Caller::connect(server.grpc).await;
        let asked = request("shop", &[&[("tenant", "acme")], &[("path", "/slow")], &[("x", "y")]]);
        let answer = caller.ask(&asked).await;
        let headers = answer.response_headers_to_add.into_iter();
        headers.map(|header| format!("{}: {}", header.key, header.value)).collect::<Vec<_>>()
    };
    assert!(of("").await.is_empty());
    let told = of("response_headers: true, remaining_header: X-Left").await;
    assert_eq!(told[..2], ["RateLimit-Limit: 2", "X-Left: 1"], "the one with the least left");
    assert!(told[2].starts_with("RateLimit-Reset: "), "{told:?}");
}

#[tokio::test]
async fn with_redis_away_on_outage_answers_or_the_call_fails_by_choice() {
    for (settings, code, health_code) in [("", Some(0), 1), ("envoy: {on_outage: error}", Some(14), 2)] {
        let mut redis = RedisServer::start().await;
        let url = format!("redis://127.0.0.1:{}", redis.port());
        let server = Server::configured(&format!("{RULES}\n{settings}"), &["--redis", &url]).await;
        let caller = Caller::connect(server.grpc).await;
        let asked = request("shop", &[&[("tenant", "acme")]]);
        assert_eq!(caller.call(SHOULD_RATE_LIMIT, &asked).await.code, Some(0));
        redis.kill();
        let outcome = caller.call(SHOULD_RATE_LIMIT, &asked).await;
        assert_eq!(outcome.code, code, "{outcome:?}");
        for _ in 0..8 {
            caller.call(SHOULD_RATE_LIMIT, &asked).await;
        }
        health_becomes(&caller, "ratelimit", health_code).await;
    }
}

#[tokio::test]
async fn tls_and_client_certificates_are_as_on_the_other_doors() {
    let certificates = Certificates::new();
    let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let settings = format!(
        "{RULES}\ntls: {{grpc: {{cert: {}, key: {}, client_ca: {}, client_certs: optional}}}}",
        text(&certificates.server.certificate.path),
        text(&certificates.server.key.path),
        text(&certificates.authority.path)
    );
    let server = Server::configured(&settings, &["--grpc", "0.0.0.0:0"]).await;
    let url = format!("https://127.0.0.1:{}{SHOULD_RATE_LIMIT}", server.grpc.port());
    let limit = Some(RateLimitOverride { requests_per_unit: 9, unit: 1 });
    let carrying = RateLimitDescriptor { limit, ..descriptor(&[("tenant", "acme")]) };
    let plain = request("shop", &[&[("tenant", "acme")]]);
    let carrying = RateLimitRequest { descriptors: vec![carrying], ..plain.clone() };
    let (authority, cert, key) = (
        text(&certificates.authority.path),
        text(&certificates.client.certificate.path),
        text(&certificates.client.key.path),
    );
    let asked = |request: &RateLimitRequest, card: &[&str]| {
        let mut body = tempfile::NamedTempFile::new().unwrap();
        body.write_all(&framed(request)).unwrap();
        let data = format!("@{}", body.path().display());
        let kind = "content-type: application/grpc";
        let usual = [
            "-D",
            "-",
            "--http2",
            "--cacert",
            &authority,
            "-H",
            kind,
            "--data-binary",
            &data,
            "-o",
            "/dev/null",
            &url,
        ];
        curl(&[&usual[..], card].concat())
    };
    let card = ["--cert", cert.as_str(), "--key", key.as_str()];
    assert_eq!((asked(&plain, &[]).status, asked(&plain, &[]).version.as_str()), (200, "2"));
    assert!(asked(&carrying, &[]).body.contains("grpc-status: 7"), "{:?}", asked(&carrying, &[]));
    assert!(!asked(&carrying, &card).body.contains("grpc-status: 7"));
    assert_eq!(curl(&[&url.replace("https", "http")]).status, 0, "nothing is said to whoever speaks no TLS");
}

#[tokio::test]
async fn connections_streams_and_resets_are_bounded() {
    let limited = format!("{RULES}\nlimits: {{connections: 2, idle_timeout: 30s}}");
    let server = Server::configured(&limited, &["--workers", "1"]).await;
    let caller = Caller::connect(server.grpc).await;
    assert_eq!(caller.one("shop", &[("tenant", "acme")]).await.1.limit_remaining, 2);
    assert_eq!(caller.streams_max(), 256);

    // Rapid reset (CVE-2023-44487): calls that are taken back before they are looked at.
    let mut flood = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    // POST, http, the method, test: as HPACK writes them without compressing.
    let path = [&[4, u8::try_from(SHOULD_RATE_LIMIT.len()).unwrap()], SHOULD_RATE_LIMIT.as_bytes()].concat();
    let headers = [b"\x83\x86", &path[..], b"\x01\x04test"].concat();
    for stream in (1..200_u32).step_by(2) {
        flood.extend([0, 0, u8::try_from(headers.len()).unwrap(), 1, 4]);
        flood.extend(stream.to_be_bytes());
        flood.extend(&headers);
        flood.extend([0, 0, 4, 3, 0]);
        flood.extend(stream.to_be_bytes());
        flood.extend([0, 0, 0, 8]);
    }
    let mut attacker = Client::connect(server.grpc).await;
    attacker.raw(&flood).await;
    let mut said = Vec::new();
    // A reset is an end, too; the farewell comes before it.
    let _ = tokio::time::timeout(PATIENCE, attacker.stream.read_to_end(&mut said)).await.unwrap();
    let is_told = said.windows(15).any(|words| words == b"too_many_resets");
    assert!(is_told, "{}", String::from_utf8_lossy(&said));

    // One connection too many is closed without a word, and counted. Until the attacker's place is free
    // again, that may be the second.
    let mut refused = 0.0;
    let _second = loop {
        let mut second = Client::connect(server.grpc).await;
        // Who is closed at once may not even get to write.
        let _ = second.stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
        let mut settings = [0; 9];
        if second.stream.read_exact(&mut settings).await.is_ok() {
            break second;
        }
        refused += 1.0;
        assert!(refused < 100.0, "no place became free");
    };
    let mut third = Client::connect(server.grpc).await;
    said.clear();
    let _ = tokio::time::timeout(PATIENCE, third.stream.read_to_end(&mut said)).await.unwrap();
    assert!(said.is_empty(), "{said:?}");
    assert_eq!(server.metric("tollgate_grpc_connections_refused_total").await, Some(refused + 1.0));
    assert_eq!(caller.one("shop", &[("tenant", "acme")]).await.1.limit_remaining, 1, "others go on");
}
