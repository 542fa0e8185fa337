//! A hyper client that makes no calls to hosts that are not well, by what all its instances find out together.
//!
//! ```text
//! cargo run -p tollgate --features tower --example breaker_hyper -- http://127.0.0.1:3000/
//! ```
//!
//! Needs a Redis on this host; without one, each instance finds out alone.

use std::error::Error;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tollgate::breaker::{Breakers, Refused};
use tollgate::core::breaker::{Breaker, Fleet, Settings};
use tollgate::middleware::{BoxError, BreakerLayer};
use tollgate::store::redis::{RedisConfig, RedisStore, RedisUrl};
use tower::{Layer as _, Service, ServiceExt as _};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let store = RedisStore::new(RedisConfig::new(RedisUrl::parse("redis://127.0.0.1")?))?;
    let behaviour = Breaker::try_new(Settings::default()).map_err(|problems| problems[0].clone())?;
    let mut client = client(&Arc::new(Breakers::start(Arc::new(store), behaviour)));
    let url = std::env::args().nth(1).ok_or("a URL is wanted")?;
    let mut out = std::io::stdout();
    for _ in 0..100 {
        let request = Request::get(&url).body(Empty::new())?;
        match client.ready().await?.call(request).await {
            Ok(response) => writeln!(out, "{}", response.status())?,
            Err(error) => match error.downcast_ref::<Refused>() {
                Some(Refused { retry_after }) => writeln!(out, "not asked; again in {retry_after:?}")?,
                None => writeln!(out, "{error}")?,
            },
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// A client with a breaker for each host.
pub(crate) fn client<F: Fleet>(
    breakers: &Arc<Breakers<F>>,
) -> impl Service<Request<Empty<Bytes>>, Response = Response<impl Body + use<F>>, Error = BoxError> + use<F> {
    let client = Client::builder(TokioExecutor::new()).build_http();
    BreakerLayer::by_host(breakers).layer(client)
}
