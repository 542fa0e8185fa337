//! What this server says about itself: `HELLO`, `INFO` and `COMMAND`.

use std::fmt::Write as _;
use std::process;

use tollgate::clock;

use super::RespDoor;
use super::command::{Fault, named, shown};
use super::encode::Out;
use super::frame::Words;
use crate::telemetry::resp::Command;

/// The Redis whose words we speak: clients look at it to know what they may send.
const REDIS_VERSION: &str = "7.2.0";

/// The answer to `HELLO`.
pub(super) fn hello(id: u64, out: &mut Out) {
    out.map(8);
    for (name, value) in [
        ("server", "tollgate"),
        ("version", REDIS_VERSION),
        ("tollgate_version", env!("CARGO_PKG_VERSION")),
        ("mode", "standalone"),
        ("role", "master"),
    ] {
        out.bulk(name.as_bytes());
        out.bulk(value.as_bytes());
    }
    out.bulk(b"proto");
    out.integer(out.protocol.number());
    out.bulk(b"id");
    out.integer(i64::try_from(id).unwrap_or(i64::MAX));
    out.bulk(b"modules");
    out.array(0);
}

/// The answer to `INFO`, whatever section is asked for.
pub(super) fn info(door: &RespDoor, out: &mut Out) {
    let mut text = String::new();
    let uptime = clock::instant().saturating_duration_since(door.started).as_secs();
    let health = door.engine.health();
    let _ = write!(
        text,
        "# Server\r\nredis_version:{REDIS_VERSION}\r\ntollgate_version:{}\r\nredis_mode:standalone\r\n\
         process_id:{}\r\nuptime_in_seconds:{uptime}\r\n\r\n\
         # Clients\r\nconnected_clients:{}\r\n\r\n\
         # Persistence\r\nloading:0\r\n\r\n\
         # Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n\
         # Tollgate\r\npolicy_version:{}\r\nstore:{}\r\n",
        env!("CARGO_PKG_VERSION"),
        process::id(),
        door.metrics.connections(),
        health.policy_version,
        if health.outage.is_some() { "away" } else { "well" },
    ); // to a String: cannot fail
    out.bulk(text.as_bytes());
}

/// Name, fewest words (negative: or more), and where its key stands, if it has one.
const COMMANDS: [(Command, i64, i64); 25] = [
    (Command::Throttle, -5, 1),
    (Command::Gcra, -5, 1),
    (Command::Check, -3, 2),
    (Command::Peek, -3, 2),
    (Command::Ask, -3, 0),
    (Command::Refund, -4, 2),
    (Command::Forget, 3, 2),
    (Command::Inspect, 2, 1),
    (Command::Del, -2, 1),
    (Command::Acquire, 2, 1),
    (Command::Report, -3, 1),
    (Command::Breaker, 2, 1),
    (Command::Breakers, -1, 0),
    (Command::Override, -5, 1),
    (Command::Lift, 2, 1),
    (Command::Auth, -2, 0),
    (Command::Hello, -1, 0),
    (Command::Ping, -1, 0),
    (Command::Echo, 2, 0),
    (Command::Select, 2, 0),
    (Command::Client, -2, 0),
    (Command::Commands, -1, 0),
    (Command::Info, -1, 0),
    (Command::Reset, 1, 0),
    (Command::Quit, -1, 0),
];

/// The answer to `COMMAND` and what comes under it.
pub(super) fn commands(words: &Words<'_, '_>, out: &mut Out) -> Result<(), Fault> {
    let Some(subcommand) = words.get(1) else {
        out.array(COMMANDS.len());
        for row in &COMMANDS {
            command(row, out);
        }
        return Ok(());
    };
    let is = |name: &[u8]| subcommand.eq_ignore_ascii_case(name);
    if is(b"COUNT") {
        out.integer(i64::try_from(COMMANDS.len()).unwrap_or(0));
    } else if is(b"LIST") {
        out.array(COMMANDS.len());
        for (command, ..) in &COMMANDS {
            out.bulk(command.name().as_bytes());
        }
    } else if is(b"DOCS") {
        // Without documentation there is nothing to look up, and clients do without.
        out.map(0);
    } else if is(b"INFO") {
        out.array(words.len() - 2);
        for word in words.from(2) {
            let wanted = named(word);
            match COMMANDS.iter().find(|(command, ..)| *command == wanted) {
                Some(row) => command(row, out),
                None => out.null(),
            }
        }
    } else {
        return Err(Fault::Bad(
            format!("unknown subcommand '{}'. Try COMMAND INFO.", shown(subcommand)).into(),
        ));
    }
    Ok(())
}

/// One command as Redis 7 describes one: name, arity, flags, first key, last key, step, and four lists that
/// are empty here.
fn command(&(command, arity, key): &(Command, i64, i64), out: &mut Out) {
    out.array(10);
    out.bulk(command.name().as_bytes());
    out.integer(arity);
    out.array(1);
    out.simple("fast");
    for number in [key, if command == Command::Del { -1 } else { key }, i64::from(key > 0)] {
        out.integer(number);
    }
    for _ in 0..4 {
        out.array(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_told_of_once() {
        for command in Command::ALL {
            let rows = COMMANDS.iter().filter(|(told, ..)| *told == command).count();
            assert_eq!(rows, usize::from(command != Command::Other), "{command:?}");
        }
    }
}
