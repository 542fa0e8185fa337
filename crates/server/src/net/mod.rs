//! What every listener of ours has in common: how it binds, how a connection begins, how long it is
//! patient with one, and how it says no. Protocols stand on this; it knows none of their words.

pub(crate) mod accept;
pub(crate) mod bind;
pub(crate) mod body;
pub(crate) mod gate;
pub(crate) mod open;
pub(crate) mod peer;
pub(crate) mod percent;
pub(crate) mod problem;
mod proxy;
pub(crate) mod serve;
pub(crate) mod stream;
pub(crate) mod tls;
mod unix;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Response;

/// What a door writes.
pub(crate) type Answer = Response<Full<Bytes>>;
