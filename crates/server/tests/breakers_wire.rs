//! Breakers over gRPC and RESP: the built binary, two of them on a real Redis, asked now through one door and now
//! through the other.
#![allow(clippy::unwrap_used, reason = "what a test cannot arrange, it cannot go on without")]

mod common;
#[path = "common/grpc.rs"]
#[allow(dead_code, reason = "Envoy's question is other tests' business")]
mod grpc;
#[path = "../src/doors/grpc/proto/mod.rs"]
mod proto;

#[path = "breakers_wire/bounds.rs"]
mod bounds;
#[path = "breakers_wire/fleet.rs"]
mod fleet;
#[path = "breakers_wire/stand.rs"]
mod stand;
