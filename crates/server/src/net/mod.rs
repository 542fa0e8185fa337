//! What every HTTP listener of ours has in common: how it binds, how long it is patient with a
//! connection, and how it says no. Protocols stand on this; it knows none of their words.

pub(crate) mod bind;
pub(crate) mod gate;
pub(crate) mod problem;
pub(crate) mod serve;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Response;

/// What a door writes.
pub(crate) type Answer = Response<Full<Bytes>>;
