//! Where the original was asked the same and said something else than we did, once.

use tollgate::core::few::Few;

use super::*;
use crate::rls::{Carried, Unit};

/// Two refuse: the original tells the client the last of them.
#[tokio::test]
async fn a_client_is_told_the_last_limit_that_refuses_it() {
    let file = "domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: hour, requests_per_unit: 1}\n- key: l\n  rate_limit: {unit: day, requests_per_unit: 2}\n- key: m\n  rate_limit: {unit: day, requests_per_unit: 9}\n";
    let (service, _) = service(&[("d.yaml", file)], "envoy: {response_headers: true}", &[]).unwrap();
    let told = async |ask| {
        let answer = service.answer(&request(ask)).await.unwrap();
        answer.headers.iter().take(2).map(|(_, value)| value.clone()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(told("d: m=a | k=a | l=a").await, "1 0", "the least that is left");
    assert_eq!(told("d: k=a | l=a | m=a +2").await, "2 0");
    assert_eq!(told("d: l=a | m=a | k=a").await, "1 0");
}

/// A request that one descriptor refuses charges the others nothing.
#[tokio::test]
async fn stop_cache_key_increment_spares_the_other_descriptors() {
    let file = "domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: day, requests_per_unit: 1}\n- key: l\n  rate_limit: {unit: day, requests_per_unit: 9}\n";
    let asks = ["d: k=a | l=a", "d: k=a | l=a", "d: l=a"];
    let of = async |value| {
        let vars = [("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", value)];
        outcome(&[("d.yaml", file)], "", &vars, &asks).await
    };
    let (stopped, counted) = (of("true").await, of("false").await);
    assert!(stopped.contains("over [over 1/DAY - 0] [ok 9/DAY - 8] [] None; ok [ok 9/DAY - 7]"), "{stopped}");
    assert!(counted.contains("over [over 1/DAY - 0] [ok 9/DAY - 7] [] None; ok [ok 9/DAY - 6]"), "{counted}");
}

/// What a proxy is told about a request: the request itself, and which quotas it is over.
#[tokio::test]
async fn dynamic_metadata_repeats_the_request_and_names_the_quotas_it_is_over() {
    let file = "domain: d\ndescriptors:\n- key: k\n  quota_mode: true\n  rate_limit: {unit: day, requests_per_unit: 1}\n  metadata: {domain: mine, team: core}\n- key: l\n  quota_mode: true\n  rate_limit: {unit: day, requests_per_unit: 9}\n";
    let (service, _) = service(&[("d.yaml", file)], "envoy: {dynamic_metadata: true}", &[]).unwrap();
    let told =
        async |ask: &Request<'_>| format!("{:?}", service.answer(ask).await.unwrap().metadata.unwrap());
    // The request's own names are nobody else's.
    assert_eq!(
        told(&request("d: k=a | l=a +2")).await,
        r#"[("domain", Text("d")), ("descriptors", List([Map([("entries", List([Text("k=a")]))]), Map([("entries", List([Text("l=a")]))])])), ("hitsAddend", Number(2)), ("quotaModeViolations", List([Number(0)])), ("quotaModeEnabled", Bool(true))]"#
    );
    let mut carrying = request("d: k=b,x=");
    let Few::One(one) = &mut carrying.descriptors else { panic!("one") };
    one.hits_addend = Some(3);
    one.carried = Some(Carried { requests_per_unit: 5, unit: Some(Unit::Minute) });
    assert_eq!(
        told(&carrying).await,
        r#"[("domain", Text("d")), ("descriptors", List([Map([("entries", List([Text("k=b"), Text("x=")])), ("limit", Text("requests_per_unit:5 unit:MINUTE")), ("hitsAddend", Number(3))])])), ("quotaModeEnabled", Bool(false))]"#
    );
}

/// Limits whose paths read alike are none the less different ones.
#[test]
fn a_dot_in_a_key_makes_no_duplicate() {
    let limit = "rate_limit: {unit: day, requests_per_unit: 1}";
    let dotted = format!(
        "domain: d\ndescriptors:\n- key: a.b\n  descriptors:\n  - {{key: c, {limit}}}\n- key: a\n  descriptors:\n  - key: b\n    descriptors:\n    - {{key: c, {limit}}}\n"
    );
    let other = format!("domain: d.a\ndescriptors:\n- {{key: b, {limit}}}\n");
    checked(&[("a.yaml", &dotted), ("b.yaml", &other)], "", &[]).unwrap();
}

#[tokio::test]
async fn counts_are_the_originals() {
    let file = "domain: d\ndescriptors:\n- key: w\n  shadow_mode: true\n  rate_limit: {unit: day, requests_per_unit: 4}\n- key: free\n  rate_limit: {unlimited: true}\n- key: ip\n  value: 10.0.0.1:80|x\n  rate_limit: {unit: day, requests_per_unit: 4}\n";
    let (service, stats) = service(&[("d.yaml", file)], "envoy: {metrics: true}", &[]).unwrap();
    for ask in ["d: w=a +3", "d: w=a +3", "d: free=a", "d: ip=10.0.0.1:80|x"] {
        service.answer(&request(ask)).await.unwrap();
    }
    // A limit that the caller brings along is counted under what it is about.
    let mut carrying = request("d: k=b,x= +2");
    let Few::One(one) = &mut carrying.descriptors else { panic!("one") };
    one.carried = Some(Carried { requests_per_unit: 5, unit: Some(Unit::Minute) });
    service.answer(&carrying).await.unwrap();
    let counted = stats.text(1, 0);
    for line in [
        // Of six hits two were above the limit of four.
        r#"ratelimit_service_rate_limit_shadow_mode{domain="d",key1="w"} 2"#,
        r#"ratelimit_service_rate_limit_over_limit{domain="d",key1="w"} 2"#,
        r#"ratelimit_service_rate_limit_total_hits{domain="d",key1="ip_10_0_0_1_80_x"} 1"#,
        r#"ratelimit_service_rate_limit_within_limit{domain="d",key1="k_b",key2="x"} 2"#,
    ] {
        assert!(counted.lines().any(|counted| counted == line), "{line}:\n{counted}");
    }
    assert!(!counted.contains("free"), "what is unlimited is not counted:\n{counted}");
}
