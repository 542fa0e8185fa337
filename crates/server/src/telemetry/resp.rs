//! What the RESP door tells, as metrics.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::{family, names};

/// The commands there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    Throttle,
    Gcra,
    Check,
    Peek,
    Ask,
    Refund,
    Forget,
    Inspect,
    Del,
    Acquire,
    Report,
    Breaker,
    Breakers,
    Override,
    Lift,
    Auth,
    Hello,
    Ping,
    Echo,
    Select,
    Client,
    Commands,
    Info,
    Reset,
    Quit,
    /// Nothing we know: a name is a caller's word and no label.
    Other,
}

impl Command {
    /// Every command, in the order of their places.
    pub(crate) const ALL: [Command; 26] = [
        Command::Throttle,
        Command::Gcra,
        Command::Check,
        Command::Peek,
        Command::Ask,
        Command::Refund,
        Command::Forget,
        Command::Inspect,
        Command::Del,
        Command::Acquire,
        Command::Report,
        Command::Breaker,
        Command::Breakers,
        Command::Override,
        Command::Lift,
        Command::Auth,
        Command::Hello,
        Command::Ping,
        Command::Echo,
        Command::Select,
        Command::Client,
        Command::Commands,
        Command::Info,
        Command::Reset,
        Command::Quit,
        Command::Other,
    ];

    /// Its name, as clients write it in small letters.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Command::Throttle => "cl.throttle",
            Command::Gcra => "gcra",
            Command::Check => "tg.check",
            Command::Peek => "tg.peek",
            Command::Ask => "tg.ask",
            Command::Refund => "tg.refund",
            Command::Forget => "tg.forget",
            Command::Inspect => "tg.inspect",
            Command::Del => "del",
            Command::Acquire => "tg.acquire",
            Command::Report => "tg.report",
            Command::Breaker => "tg.breaker",
            Command::Breakers => "tg.breakers",
            Command::Override => "tg.override",
            Command::Lift => "tg.lift",
            Command::Auth => "auth",
            Command::Hello => "hello",
            Command::Ping => "ping",
            Command::Echo => "echo",
            Command::Select => "select",
            Command::Client => "client",
            Command::Commands => "command",
            Command::Info => "info",
            Command::Reset => "reset",
            Command::Quit => "quit",
            Command::Other => "other",
        }
    }
}

/// Why a connection ended that a client would have kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closed {
    /// It was silent for too long, or did not finish a command in time.
    Idle,
    /// It did not take its answers in time.
    SlowReader,
    /// It could not be understood any further.
    Protocol,
    /// It guessed too many passwords.
    Passwords,
}

const CLOSED: [&str; 4] = ["idle", "slow-reader", "protocol", "passwords"];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CommandLabels {
    command: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WhyLabel {
    why: &'static str,
}

/// What the RESP door tells.
#[derive(Debug)]
pub(crate) struct RespMetrics {
    answers: [[Counter; 2]; Command::ALL.len()],
    closed: [Counter; CLOSED.len()],
    connections: Gauge,
    turned_away: Counter,
}

impl RespMetrics {
    /// Registers all of them.
    pub(crate) fn register(registry: &mut Registry) -> RespMetrics {
        let help = "RESP commands answered, by whether the answer was an error";
        let answers: Family<CommandLabels, Counter> =
            family(registry, names::RESP_COMMANDS, help, Family::default());
        let help = "RESP connections that the server ended, by why";
        let closed: Family<WhyLabel, Counter> = family(registry, names::RESP_CLOSED, help, Family::default());
        let connections = Gauge::default();
        registry.register(names::RESP_CONNECTIONS, "RESP connections that are open", connections.clone());
        let turned_away = Counter::default();
        let help = "RESP connections turned away because there were too many";
        registry.register(names::RESP_TURNED_AWAY, help, turned_away.clone());
        RespMetrics {
            answers: Command::ALL.map(|command| {
                ["ok", "error"].map(|result| {
                    answers.get_or_create_owned(&CommandLabels { command: command.name(), result })
                })
            }),
            closed: CLOSED.map(|why| closed.get_or_create_owned(&WhyLabel { why })),
            connections,
            turned_away,
        }
    }

    /// Counts what a connection has counted since the last time.
    pub(crate) fn answered(&self, counts: &mut Counts) {
        for (command, error, count) in counts.seen.drain(..) {
            self.answers[command as usize][usize::from(error)].inc_by(u64::from(count));
        }
    }

    /// A connection is open.
    pub(crate) fn opened(&self) {
        self.connections.inc();
    }

    /// One that was open is not any more.
    pub(crate) fn ended(&self) {
        self.connections.dec();
    }

    /// How many are open.
    pub(crate) fn connections(&self) -> i64 {
        self.connections.get()
    }

    /// Counts one connection that we ended.
    pub(crate) fn closed(&self, why: Closed) {
        self.closed[why as usize].inc();
    }

    /// Counts one connection that was not served.
    pub(crate) fn turned_away(&self) {
        self.turned_away.inc();
    }
}

/// What one connection has answered since it last told: a pipeline of sixteen is one addition to what all
/// threads share, and not sixteen.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    seen: Vec<(Command, bool, u32)>,
}

impl Counts {
    /// Counts one answer.
    #[inline]
    pub(crate) fn count(&mut self, command: Command, is_error: bool) {
        match self.seen.last_mut() {
            Some((last, error, count)) if *last == command && *error == is_error => *count += 1,
            _ => self.seen.push((command, is_error, 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_stands_at_its_place() {
        for (at, command) in Command::ALL.into_iter().enumerate() {
            assert_eq!(command as usize, at, "{command:?}");
        }
    }
}
