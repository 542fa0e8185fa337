//! Envoy's messages by hand against Envoy's messages by prost.

use prost::Message as _;

use super::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use super::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry as RawEntry, RateLimitOverride,
};
use super::proto::envoy::service::ratelimit::v3::rate_limit_response::DescriptorStatus;
use super::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use super::{decode, encode, message};
use crate::rls::{self, Code, Response, Shown, Status, Unit, Value};
use tollgate::core::few::Few;

/// A little generator, so that a failure can be told by its number.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn text(&mut self) -> String {
        let length = [0, 1, 5, 40, 200][usize::try_from(self.below(5)).unwrap()];
        (0..length).map(|_| ['a', '_', '/', '\u{fc}', '*'][usize::try_from(self.below(5)).unwrap()]).collect()
    }

    fn list<T>(&mut self, most: u64, mut make: impl FnMut(&mut Draw) -> T) -> Vec<T> {
        (0..self.below(most + 1)).map(|_| make(self)).collect()
    }
}

fn request(draw: &mut Draw) -> RateLimitRequest {
    RateLimitRequest {
        domain: draw.text(),
        descriptors: draw.list(3, |draw| RateLimitDescriptor {
            entries: draw.list(3, |draw| RawEntry { key: draw.text(), value: draw.text() }),
            limit: (draw.below(3) == 0).then(|| RateLimitOverride {
                requests_per_unit: u32::try_from(draw.below(1 << 32)).unwrap(),
                unit: i32::try_from(draw.below(9)).unwrap(),
            }),
            hits_addend: (draw.below(2) == 0).then(|| draw.below(3) * draw.below(1 << 40)),
            is_negative_hits: draw.below(2) == 0,
        }),
        hits_addend: u32::try_from(draw.below(3)).unwrap(),
    }
}

#[test]
fn a_request_reads_by_hand_as_it_reads_by_prost() {
    for seed in 0..2_000 {
        let raw = request(&mut Draw(seed));
        let bytes = raw.encode_to_vec();
        let read = decode::request(&bytes).unwrap();
        assert_eq!((&*read.domain, read.hits_addend), (raw.domain.as_str(), raw.hits_addend), "seed {seed}");
        assert_eq!(read.descriptors.len(), raw.descriptors.len(), "seed {seed}");
        for (read, raw) in read.descriptors.iter().zip(&raw.descriptors) {
            let entries: Vec<_> = read.entries.iter().map(|entry| (&*entry.key, &*entry.value)).collect();
            let expected: Vec<_> = raw.entries.iter().map(|entry| (&*entry.key, &*entry.value)).collect();
            assert_eq!(entries, expected, "seed {seed}");
            let limit = read.carried.map(|limit| (limit.requests_per_unit, limit.unit));
            let unit = |number: i32| Unit::of_number(u64::try_from(number).unwrap());
            assert_eq!(
                limit,
                raw.limit.map(|limit| (limit.requests_per_unit, unit(limit.unit))),
                "seed {seed}"
            );
            assert_eq!(
                (read.hits_addend, read.is_negative),
                (raw.hits_addend, raw.is_negative_hits),
                "seed {seed}"
            );
        }
    }
}

/// Whatever prost takes for a request we take for one, and the other way round; and nothing panics. Bytes of
/// messages with one or two of them changed, so that most are nearly right.
#[test]
fn what_is_no_request_is_refused_by_both() {
    let (mut both, mut neither) = (0, 0);
    for seed in 0..20_000 {
        let mut draw = Draw(seed);
        let mut bytes = request(&mut draw).encode_to_vec();
        if bytes.is_empty() {
            continue;
        }
        for _ in 0..=draw.below(2) {
            let at = usize::try_from(draw.below(bytes.len() as u64)).unwrap();
            bytes[at] = u8::try_from(draw.below(256)).unwrap();
        }
        let (ours, prosts) = (decode::request(&bytes), RateLimitRequest::decode(&*bytes));
        // Groups were given up long ago; prost reads over them, and we do not.
        if ours == Err(super::wire::Malformed("a field is of no known kind")) {
            continue;
        }
        assert_eq!(ours.is_ok(), prosts.is_ok(), "seed {seed}: {ours:?} {prosts:?}");
        if ours.is_ok() { both += 1 } else { neither += 1 }
    }
    assert!(both > 1_000 && neither > 1_000, "{both} {neither}");
}

#[test]
fn a_response_written_by_hand_is_read_by_prost() {
    let metadata = vec![
        ("team".to_owned(), Value::Text("core".to_owned())),
        ("empty".to_owned(), Value::Text(String::new())),
        ("many".to_owned(), Value::List(vec![Value::Number(7), Value::Null, Value::Bool(false)])),
        ("inner".to_owned(), Value::Map(vec![("on".to_owned(), Value::Bool(true))])),
    ];
    let response = Response {
        code: Code::OverLimit,
        statuses: Few::Many(vec![
            Status { code: Code::Ok, limit: None, remaining: u32::MAX, reset_after_secs: None },
            Status {
                code: Code::OverLimit,
                limit: Some(Shown {
                    requests_per_unit: 300,
                    unit: Some(Unit::Week),
                    name: Some("x".repeat(150).into()),
                }),
                remaining: 0,
                reset_after_secs: Some(604_800),
            },
        ]),
        headers: vec![("RateLimit-Limit".into(), "300".to_owned())],
        metadata: Some(metadata),
    };
    let bytes = encode::response(&response);
    let read = RateLimitResponse::decode(message(&bytes).unwrap()).unwrap();
    assert_eq!(read.overall_code, 2);
    let [free, over] = read.statuses.as_slice() else { panic!("{read:?}") };
    assert_eq!((free.code, free.limit_remaining, &free.current_limit), (1, u32::MAX, &None));
    let DescriptorStatus { code, current_limit: Some(limit), limit_remaining, duration_until_reset, .. } =
        over
    else {
        panic!("{over:?}")
    };
    assert_eq!((*code, *limit_remaining), (2, 0));
    assert_eq!((limit.requests_per_unit, limit.unit, limit.name.len()), (300, 7, 150));
    assert_eq!(duration_until_reset.unwrap().seconds, 604_800);
    let headers: Vec<_> = read.response_headers_to_add.iter().map(|h| (&*h.key, &*h.value)).collect();
    assert_eq!(headers, [("RateLimit-Limit", "300")]);
    let fields = read.dynamic_metadata.unwrap().fields;
    let kind = |name: &str| format!("{:?}", fields[name].kind.as_ref().unwrap());
    assert_eq!(kind("team"), "StringValue(\"core\")");
    assert_eq!(kind("empty"), "StringValue(\"\")");
    assert!(
        kind("many").contains("NumberValue(7.0)") && kind("many").contains("NullValue"),
        "{}",
        kind("many")
    );
    assert!(kind("inner").contains("BoolValue(true)"), "{}", kind("inner"));
}

#[test]
fn units_have_the_numbers_that_envoy_gives_them() {
    use super::proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit;
    for unit in Unit::ALL {
        let theirs = rate_limit::Unit::try_from(unit as i32).unwrap();
        assert_eq!(theirs.as_str_name(), unit.name());
    }
    assert_eq!(rls::Unit::of_number(0), None);
}
