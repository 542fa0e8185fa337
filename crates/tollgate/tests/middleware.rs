//! The tower layers as their users meet them: around axum and tonic on real sockets, by the code of the
//! examples, and around services that mind how they are called.

#[expect(dead_code, reason = "its `main` is not called here")]
#[path = "../examples/axum.rs"]
mod example_axum;
#[expect(dead_code, reason = "its `main` is not called here")]
#[path = "../examples/pacing.rs"]
mod example_pacing;
#[expect(dead_code, reason = "its `main` is not called here")]
#[path = "../examples/tonic.rs"]
mod example_tonic;

#[path = "middleware/layers.rs"]
mod layers;
#[path = "middleware/over_axum.rs"]
mod over_axum;
#[path = "middleware/over_tonic.rs"]
mod over_tonic;
#[path = "middleware/pacing.rs"]
mod pacing;
#[path = "middleware/stand.rs"]
mod stand;
