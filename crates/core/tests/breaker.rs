//! The breaker: every event in every phase, its arithmetic, and three instances explored to the end.

#[path = "breaker/arithmetic.rs"]
mod arithmetic;
#[path = "breaker/clock.rs"]
mod clock;
#[path = "breaker/model/mod.rs"]
mod model;
#[path = "breaker/quorum.rs"]
mod quorum;
#[path = "breaker/settings.rs"]
mod settings;
#[path = "breaker/stand.rs"]
mod stand;
#[path = "breaker/table.rs"]
mod table;
#[path = "breaker/window.rs"]
mod window;
