//! The same for reqwest, whose client is a tower service with requests and responses of its own: the breaker is told whom a
//! request is to, and how it ended.
//!
//! ```text
//! cargo run -p tollgate --features tower --example breaker_reqwest -- http://127.0.0.1:3000/
//! ```
//!
//! Needs a Redis on this host; without one, each instance finds out alone.

use std::borrow::Cow;
use std::error::Error;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tollgate::breaker::Breakers;
use tollgate::core::breaker::{Breaker, Fleet, Settings};
use tollgate::middleware::{BoxError, BreakerLayer, ByStatus, Ending};
use tollgate::store::redis::{RedisConfig, RedisStore, RedisUrl};
use tower::{Layer as _, Service, ServiceExt as _};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let store = RedisStore::new(RedisConfig::new(RedisUrl::parse("redis://127.0.0.1")?))?;
    let behaviour = Breaker::try_new(Settings::default()).map_err(|problems| problems[0].clone())?;
    let breakers = Arc::new(Breakers::start(Arc::new(store), behaviour));
    let client = reqwest::Client::builder().timeout(Duration::from_secs(5)).build()?;
    let url = std::env::args().nth(1).ok_or("a URL is wanted")?;
    let mut guarded = guarded(&breakers, client.clone());
    for _ in 0..100 {
        let came = guarded.ready().await?.call(client.get(&url).build()?).await;
        let said = came.map_or_else(|error| error.to_string(), |response| response.status().to_string());
        writeln!(std::io::stdout(), "{said}")?;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// The client with a breaker for each host.
pub(crate) fn guarded<F: Fleet>(
    breakers: &Arc<Breakers<F>>,
    client: reqwest::Client,
) -> impl Service<reqwest::Request, Response = reqwest::Response, Error = BoxError> + use<F> {
    let by_status = ByStatus::default();
    BreakerLayer::by(breakers, host)
        .classify(move |came: Result<&reqwest::Response, &reqwest::Error>| match came {
            Ok(response) => by_status.judge(response.status(), response.headers()),
            // Ours, not the other side's.
            Err(error) if error.is_builder() || error.is_redirect() => Ending::Ignored,
            Err(_) => Ending::FAILURE,
        })
        .layer(client)
}

fn host(request: &reqwest::Request) -> Option<Cow<'_, str>> {
    let host = request.url().host_str()?;
    Some(request.url().port().map_or(host.into(), |port| format!("{host}:{port}").into()))
}
