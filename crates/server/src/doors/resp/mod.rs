//! The RESP door: redis-cell's `CL.THROTTLE`, and our own commands, for every client that speaks to a Redis.
//!
//! A codec of our own and no framework: a server reads two shapes and writes a handful, and what lies
//! between a socket and a check is the greater part of what a check costs. In reading order: `frame` finds
//! the words of a command, `command` makes a question of them (`throttle` is the arithmetic, `remembered`
//! spares it; `breakers` reads and answers its own), `answer` puts it to the engine, `alike` spares all of that for commands that differ only in
//! their key; `session` and `about` answer what is no question, `encode` writes, `connection` is the life
//! of one client.

mod about;
mod alike;
mod answer;
mod breakers;
mod command;
mod connection;
mod encode;
mod frame;
#[cfg(test)]
mod fuzz;
mod inspect;
mod remembered;
mod session;
mod throttle;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate::clock;

use crate::breakers::Service as Breakers;
use crate::engine::Engine;
use crate::net::accept::accept;
use crate::net::bind::Listener;
use crate::net::gate::Gate;
use crate::net::open::Opening;
use crate::net::serve::Bounds;
use crate::net::stream::Socket;
use crate::shutdown::LifeView;
use crate::telemetry::resp::RespMetrics;

const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";

/// The door, as one worker has it.
#[derive(Debug)]
pub(crate) struct RespDoor {
    engine: Engine,
    breakers: Arc<Breakers>,
    /// In front of what can undo a limit or a breaker: refunds, resets, limits the caller brings along, overrides.
    gate: Gate,
    metrics: Arc<RespMetrics>,
    pace: Pace,
    patience: Patience,
    started: Instant,
}

/// How the engine answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// At once, from memory: one command after the other, and nothing is kept waiting.
    AtOnce,
    /// After a round trip: the commands of a pipeline are under way together.
    Later,
}

/// How patient the door is with a client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// Between two commands. Long: clients keep connections for when they need them, and not all of them
    /// notice in time that one has gone.
    pub(crate) between: Duration,
    /// With a command that has begun, and with answers that nobody takes.
    pub(crate) within: Duration,
}

impl RespDoor {
    /// A door to this engine.
    pub(crate) fn new(
        engine: Engine,
        breakers: Arc<Breakers>,
        gate: Gate,
        pace: Pace,
        patience: Patience,
        metrics: Arc<RespMetrics>,
    ) -> RespDoor {
        RespDoor { engine, breakers, gate, metrics, pace, patience, started: clock::instant() }
    }
}

/// Serves until the life closes and connections have finished, or took too long to.
pub(crate) async fn serve(
    listener: Listener,
    opening: Opening,
    door: RespDoor,
    life: LifeView,
    bounds: Bounds,
) {
    let (door, opening) = (Arc::new(door), Arc::new(opening));
    let turn_away = |socket: Socket| {
        door.metrics.turned_away();
        // Whoever expects TLS would not understand it.
        if opening.tls.is_none() {
            socket.try_write(TOO_MANY);
        }
    };
    let each =
        |socket, peer, life| connection::serve(Arc::clone(&door), Arc::clone(&opening), socket, peer, life);
    accept(listener, life, bounds, turn_away, each).await;
}
