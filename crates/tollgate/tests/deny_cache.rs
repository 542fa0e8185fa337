//! The deny cache never refuses what the store would allow, but for a second after somebody eased a key unheard; and a flood
//! on a drained key is no flood on Redis.

#[path = "deny_cache/histories.rs"]
mod histories;
#[path = "deny_cache/on_redis.rs"]
mod on_redis;
#[path = "deny_cache/refusals.rs"]
mod refusals;
#[path = "deny_cache/world.rs"]
mod world;
