//! The tower layers as their users meet them: around axum and tonic on real sockets, by the code of the
//! examples, and around services that mind how they are called.

#[expect(dead_code, reason = "its `main` is not called here")]
#[path = "../examples/axum.rs"]
mod example_axum;
#[expect(dead_code, reason = "its `main` is not called here")]
#[path = "../examples/breaker_hyper.rs"]
mod example_breaker_hyper;
#[expect(dead_code, reason = "its `main` is not called here")]
#[path = "../examples/breaker_reqwest.rs"]
mod example_breaker_reqwest;
#[expect(dead_code, reason = "its `main` is not called here")]
#[path = "../examples/breaker_tonic.rs"]
mod example_breaker_tonic;
#[expect(dead_code, reason = "its `main` is not called here")]
#[path = "../examples/guard_axum.rs"]
mod example_guard_axum;
#[expect(dead_code, reason = "its `main` is not called here")]
#[path = "../examples/pacing.rs"]
mod example_pacing;
#[expect(dead_code, reason = "its `main` is not called here")]
#[path = "../examples/tonic.rs"]
mod example_tonic;

#[path = "middleware/breaking.rs"]
mod breaking;
#[path = "middleware/breaking_bodies.rs"]
mod breaking_bodies;
#[path = "middleware/breaking_probes.rs"]
mod breaking_probes;
#[path = "middleware/breaking_which.rs"]
mod breaking_which;
#[path = "middleware/broken.rs"]
mod broken;
#[path = "middleware/guarding.rs"]
mod guarding;
#[path = "middleware/layers.rs"]
mod layers;
#[path = "middleware/over_axum.rs"]
mod over_axum;
#[path = "middleware/over_clients.rs"]
mod over_clients;
#[path = "middleware/over_tonic.rs"]
mod over_tonic;
#[path = "middleware/pacing.rs"]
mod pacing;
#[path = "middleware/stand.rs"]
mod stand;
