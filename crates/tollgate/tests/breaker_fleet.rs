//! Breakers of a fleet of real processes: killed, cut off, started anew, and with their clocks a minute apart.
//!
//! The instances are this very test binary, started again with an environment variable set. Each calls a destination
//! over TCP, which decides how calls end and sees by itself which are under way; what Redis does is read from
//! `MONITOR`. So nothing is believed that a breaker says of itself. A third of all instances have their wall clock a minute
//! ahead, a third a minute behind, in every test.
#![expect(clippy::disallowed_methods, reason = "an instance is told what to do by its environment")]
#![expect(clippy::print_stdout, reason = "figures are printed for people")]

#[path = "breaker_fleet/campaign.rs"]
mod campaign;
#[path = "breaker_fleet/cost.rs"]
mod cost;
#[path = "breaker_fleet/destination.rs"]
mod destination;
#[path = "breaker_fleet/leases.rs"]
mod leases;
#[path = "breaker_fleet/monitor.rs"]
mod monitor;
#[path = "breaker_fleet/outage.rs"]
mod outage;
#[path = "breaker_fleet/scene.rs"]
mod scene;
#[path = "breaker_fleet/trips.rs"]
mod trips;
#[path = "breaker_fleet/worker.rs"]
mod worker;
