//! Which breaker a call is made under.

use http::Request;
use tollgate::middleware::BreakerLayer;
use tower::Layer as _;

use crate::breaking::{call, refused};
use crate::broken::{Do, Stand, obedient, settings};
use crate::layers::Strict;

#[tokio::test]
async fn each_host_has_a_breaker_of_its_own() {
    let stand = Stand::start(settings()).await;
    let mut service = BreakerLayer::by_host(&stand.breakers).layer(Strict::default());
    let to = |uri: &str| Request::builder().uri(uri).body(()).expect("a request");
    for id in ["a.example", "b.example", "-"] {
        stand.is_heard(id).await;
    }
    for uri in ["http://a.example/", "http://A.example:80/x", "http://b.example/", "/x"] {
        call(&mut service, to(uri)).await.expect("it answers");
    }
    for (id, expected) in [("a.example", 2), ("b.example", 1), ("-", 1)] {
        assert_eq!(stand.counted_of(id).await, [expected, 0, 0], "{id}");
    }
    stand.open("a.example").await;
    refused(&call(&mut service, to("http://a.example/")).await.expect_err("it is open"));
    call(&mut service, to("http://b.example/")).await.expect("the other is not");
}

#[tokio::test]
async fn a_name_is_given_by_a_closure_and_what_has_none_is_called_all_the_same() {
    let stand = Stand::start(settings()).await;
    let layer = BreakerLayer::by(&stand.breakers, |what: &Do| match what {
        Do::Answer(200) => Some("pay".into()),
        Do::Answer(status) => Some(format!("{status}").into()),
        // No breaker has such a name.
        _ => Some("x".repeat(2000).into()),
    });
    let mut service = layer.layer(obedient());
    stand.is_heard("404").await;
    stand.open("pay").await;
    refused(&call(&mut service, Do::Answer(200)).await.expect_err("it is open"));
    call(&mut service, Do::Answer(404)).await.expect("another is not");
    assert_eq!(stand.counted_of("404").await, [1, 0, 0]);
    call(&mut service, Do::AnswerLater(200, "1")).await.expect("it is made without");
    let mut service = BreakerLayer::by(&stand.breakers, |_: &Do| None).layer(obedient());
    call(&mut service, Do::Answer(200)).await.expect("it is made without");
}
