//! The breaker: every event in every phase, and its arithmetic.

#[path = "breaker/arithmetic.rs"]
mod arithmetic;
#[path = "breaker/clock.rs"]
mod clock;
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
