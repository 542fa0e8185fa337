//! Every status and code, each way of saying when to come again, and what is set otherwise.

use http::HeaderValue;

use super::*;

fn judged(by: &ByStatus, status: u16, headers: &[(&'static str, &'static str)]) -> Ending {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.insert(*name, HeaderValue::from_static(value));
    }
    by.judge(StatusCode::from_u16(status).unwrap(), &map)
}

fn until(seconds: u64) -> Ending {
    Ending::Failure { retry_after: Some(Duration::from_secs(seconds)) }
}

#[test]
fn over_http_5xx_and_429_fail_and_nothing_else_does() {
    let by = ByStatus::default();
    for status in 100..=599 {
        let expected = if status >= 500 || status == 429 { Ending::FAILURE } else { Ending::Success };
        assert_eq!(judged(&by, status, &[]), expected, "{status}");
    }
}

#[test]
fn statuses_and_codes_count_as_they_are_set() {
    let by = ByStatus::default()
        .status(StatusCode::NOT_IMPLEMENTED, Counted::Failure)
        .status(StatusCode::NOT_IMPLEMENTED, Counted::Success)
        .status(StatusCode::NOT_FOUND, Counted::Failure)
        .status(StatusCode::BAD_GATEWAY, Counted::Ignored)
        .code(12, Counted::Failure)
        .code(14, Counted::Ignored)
        .code(17, Counted::Failure);
    for (status, expected) in [
        (501, Ending::Success),
        (404, Ending::FAILURE),
        (502, Ending::Ignored),
        (500, Ending::FAILURE),
        (200, Ending::Success),
    ] {
        assert_eq!(judged(&by, status, &[]), expected, "{status}");
    }
    let grpc = |code| judged(&by, 200, &[("content-type", "application/grpc"), ("grpc-status", code)]);
    assert_eq!([grpc("12"), grpc("14"), grpc("0")], [Ending::FAILURE, Ending::Ignored, Ending::Success]);
}

#[test]
fn grpc_fails_by_its_code_wherever_that_stands() {
    let by = ByStatus::default();
    for code in 0..=20_u32 {
        let expected = match code {
            1 => Ending::Ignored,
            2 | 4 | 8 | 13..=15 | 17.. => Ending::FAILURE,
            _ => Ending::Success,
        };
        let mut headers = HeaderMap::new();
        headers.insert("grpc-status", HeaderValue::from(code));
        assert_eq!(Classify::<Response<()>, ()>::classify_trailers(&by, &headers), expected, "{code}");
        headers.insert("content-type", HeaderValue::from_static("application/grpc+proto"));
        assert_eq!(by.judge(StatusCode::OK, &headers), expected, "{code}");
    }
    let none = Classify::<Response<()>, ()>::classify_trailers(&by, &HeaderMap::new());
    assert_eq!(none, Ending::FAILURE, "broken off");
    for (kind, headers, expected) in [
        ("application/grpc", &[][..], Ending::Pending),
        ("application/grpc-web+proto", &[], Ending::Success),
        ("application/grpc", &[("grpc-status", "abc")], Ending::FAILURE),
        ("application/grpc-web", &[("grpc-status", "14")], Ending::FAILURE),
        // Not gRPC's answer: what stands before it has answered.
        ("text/html", &[("grpc-status", "14")], Ending::Success),
    ] {
        let headers = [&[("content-type", kind)], headers].concat();
        assert_eq!(judged(&by, 200, &headers), expected, "{headers:?}");
    }
    assert_eq!(judged(&by, 503, &[("content-type", "application/grpc")]), Ending::FAILURE);
}

#[test]
fn a_date_is_as_long_after_the_answers_own() {
    let by = ByStatus::default();
    let (date, later) = (("date", "Sun, 06 Nov 1994 08:49:37 GMT"), "Sun, 06 Nov 1994 08:51:00 GMT");
    for (status, headers, expected) in [
        (503, &[("retry-after", "120")][..], until(120)),
        (429, &[("retry-after", " 0 ")], until(0)),
        (503, &[("retry-after", later), date], until(83)),
        (503, &[("retry-after", date.1), ("date", later)], Ending::FAILURE),
        (503, &[("retry-after", later)], Ending::FAILURE),
        (503, &[("retry-after", "soon"), date], Ending::FAILURE),
        (503, &[("retry-after", "-1")], Ending::FAILURE),
        (503, &[("retry-after", "99999999999999999999")], Ending::FAILURE),
        (503, &[("retry-after", "18446744073709551615")], until(u64::MAX)),
        // Only these two say so of themselves.
        (500, &[("retry-after", "120")], Ending::FAILURE),
        (301, &[("retry-after", "120")], Ending::Success),
    ] {
        assert_eq!(judged(&by, status, headers), expected, "{status} {headers:?}");
    }
    let grpc = |rest: &[_]| {
        let head = [("content-type", "application/grpc"), ("grpc-status", "14")];
        judged(&by, 200, &[&head, rest].concat())
    };
    let half = Ending::Failure { retry_after: Some(Duration::from_millis(500)) };
    assert_eq!(grpc(&[("grpc-retry-pushback-ms", "500"), ("retry-after", "9")]), half);
    assert_eq!(grpc(&[("grpc-retry-pushback-ms", "-1")]), Ending::FAILURE);
    assert_eq!(grpc(&[("retry-after", "9")]), until(9));
}
