//! The Redis store on a cluster: every key where it belongs, wherever that moves; and what one shard
//! suffers, no other feels.

#[path = "cluster/following.rs"]
mod following;
#[path = "cluster/moving.rs"]
mod moving;
#[path = "topology/promotion.rs"]
mod promotion;
#[path = "cluster/reach.rs"]
mod reach;
#[path = "cluster/spanning.rs"]
mod spanning;
#[path = "topology/stand.rs"]
mod stand;
