//! The Redis store behind Sentinels: it follows the primary, whatever becomes of the old one, and never
//! stays with a demoted one.

#[path = "sentinel/following.rs"]
mod following;
#[path = "topology/promotion.rs"]
mod promotion;
#[path = "sentinel/reach.rs"]
mod reach;
#[path = "topology/stand.rs"]
mod stand;
