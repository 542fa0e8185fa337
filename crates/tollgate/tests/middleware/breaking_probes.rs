//! Probes behind the breaker's layer: cancelled in time, and given back where they have found out nothing.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tollgate::Micros;
use tollgate::breaker::Refused;
use tollgate::core::breaker::{Settings, State};
use tollgate::middleware::{BoxError, BreakerLayer, ByStatus, Ignoring, LeaseEnded};
use tower::{Layer as _, Service, ServiceExt as _};

use crate::breaking::call;
use crate::broken::{Do, Stand, obedient, settings, short_leases, until_asked};

/// Calls under a breaker that probes.
async fn probe<S>(service: &S, what: Do) -> Result<S::Response, BoxError>
where
    S: Service<Do, Error = BoxError> + Clone,
{
    let is_late = |came: &Result<S::Response, BoxError>| {
        let refused = came.as_ref().err().and_then(|error| error.downcast_ref::<Refused>());
        refused.is_some_and(|refused| refused.retry_after <= Duration::from_millis(20))
    };
    until_asked(|| service.clone().oneshot(what.clone()), is_late).await
}

#[tokio::test]
async fn a_probe_is_cancelled_in_time_and_has_failed() {
    let stand = Stand::start(short_leases()).await;
    let layer = BreakerLayer::named(&stand.breakers, b"pay").expect("there is room");
    let service = layer.layer(obedient());
    stand
        .probe_until(State::Open, || async {
            let is_dropped = Arc::new(AtomicBool::new(false));
            let error =
                probe(&service, Do::Hang(Arc::clone(&is_dropped))).await.expect_err("it took too long");
            assert!(error.downcast_ref::<LeaseEnded>().is_some(), "{error}");
            assert!(is_dropped.load(Ordering::SeqCst), "it goes on no longer");
        })
        .await;
    assert_eq!(stand.leases().await, 0);
}

#[tokio::test]
async fn one_that_is_no_probe_takes_as_long_as_it_takes() {
    let stand = Stand::start(Settings { probe_for: Micros::from_millis(100), ..settings() }).await;
    let layer = BreakerLayer::named(&stand.breakers, b"pay").expect("there is room");
    let mut service = layer.layer(obedient());
    let hang = call(&mut service, Do::Hang(Arc::default()));
    let came = tokio::time::timeout(Duration::from_millis(300), hang).await;
    assert!(came.is_err(), "nobody has cancelled it: {came:?}");
}

#[tokio::test]
async fn a_probe_that_ends_well_counts_and_one_that_fails_opens() {
    let stand = Stand::start(Settings { successes_to_close: 1, ramp: vec![], ..settings() }).await;
    let layer = BreakerLayer::named(&stand.breakers, b"pay").expect("there is room");
    let service = layer.layer(obedient());
    for (status, state) in [(404, State::Closed), (500, State::Open)] {
        let probe = || async { drop(probe(&service, Do::Answer(status)).await.expect("it answers")) };
        stand.probe_until(state, probe).await;
    }
}

/// The leases last a minute: what is free before then was given back.
#[tokio::test]
async fn what_says_nothing_gives_its_lease_back_at_once() {
    let stand = Stand::start(settings()).await;
    let classify =
        Ignoring::new(ByStatus::default(), |error: &io::Error| error.kind() == io::ErrorKind::Interrupted);
    let layer = BreakerLayer::named(&stand.breakers, b"pay").expect("there is room").classify(classify);
    let service = layer.layer(obedient());
    stand.half_open().await;

    let is_dropped = Arc::new(AtomicBool::new(false));
    let other = service.clone();
    let what = Do::Hang(Arc::clone(&is_dropped));
    let hanging = tokio::spawn(async move { probe(&other, what).await });
    stand.until_leases(1).await;
    hanging.abort();
    assert!(hanging.await.expect_err("it was dropped").is_cancelled());
    stand.until_leases(0).await;

    let other = service.clone();
    let panics = tokio::spawn(async move { probe(&other, Do::Panic).await });
    assert!(panics.await.expect_err("as it was told").is_panic());
    stand.until_leases(0).await;

    probe(&service, Do::Fail(io::ErrorKind::Interrupted)).await.expect_err("as it was told");
    stand.until_leases(0).await;
    assert_eq!(stand.state().await, "half-open", "none of it has decided anything");
    // That the lease was there at all.
    let other = service.clone();
    let hanging = tokio::spawn(async move { probe(&other, Do::Hang(Arc::default())).await });
    stand.until_leases(1).await;
    hanging.abort();
}
