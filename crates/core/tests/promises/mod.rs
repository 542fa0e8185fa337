//! The promises of one key, as sentences: the bound (P1), nothing lost (P2), and what clocks may do.

mod bound;
mod clock;
mod exact;
mod forgetting;
