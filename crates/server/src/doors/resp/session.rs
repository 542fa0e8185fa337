//! What clients say to a Redis before and beside their questions: who they are, which protocol they speak,
//! and what this server is.
//!
//! As much of it as real clients send, answered as Redis answers; what says nothing here (a client's name,
//! its library) is taken note of where it can be asked for again, and otherwise just taken.

use super::command::{Fault, shown};
use super::encode::{Out, Protocol};
use super::frame::{Limits, Words};
use super::{RespDoor, about};
use crate::net::gate::Gate;
use crate::net::peer::Peer;
use crate::telemetry::resp::Command;

/// How many wrong passwords a connection may try.
const WRONG_PASSWORDS_MAX: u32 = 8;

/// The longest name a client may have.
const NAME_BYTES_MAX: usize = 256;

/// What is known of the client on a connection.
#[derive(Debug)]
pub(super) struct Session {
    id: u64,
    name: Vec<u8>,
    peer: Peer,
    /// Whether it may do what can undo a limit or a breaker.
    is_trusted: bool,
    wrong_passwords: u32,
}

/// What becomes of the connection after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    /// It goes on.
    Open,
    /// The client has taken its leave.
    Left,
    /// It has tried too many passwords.
    ThrownOut,
}

impl Session {
    /// A client that has said nothing yet.
    pub(super) fn new(id: u64, peer: Peer, gate: &Gate) -> Session {
        let is_trusted = gate.is_open_to(&peer);
        Session { id, name: Vec::new(), peer, is_trusted, wrong_passwords: 0 }
    }

    /// How much it may send at once.
    pub(super) fn limits(&self) -> &'static Limits {
        if self.is_trusted { &Limits::TRUSTED } else { &Limits::STRANGER }
    }

    /// Whether it may do what can undo a limit or a breaker.
    #[inline]
    pub(super) fn check_trust(&self, command: Command, gate: &Gate) -> Result<(), Fault> {
        if self.is_trusted { Ok(()) } else { Err(Fault::Barred(gate.why_barred(), command)) }
    }

    /// Answers what is no question to the engine.
    pub(super) fn answer(
        &mut self,
        command: Command,
        words: &Words<'_, '_>,
        door: &RespDoor,
        out: &mut Out,
    ) -> Result<After, Fault> {
        let arity = Err(Fault::Arity(command));
        match (command, words.len()) {
            (Command::Ping, 1) => out.simple("PONG"),
            (Command::Ping | Command::Echo, 2) => out.bulk(words.get(1).unwrap_or_default()),
            (Command::Select, 2) => select(words.get(1).unwrap_or_default(), out)?,
            (Command::Auth, 2 | 3) => return self.auth(words, door, out),
            (Command::Hello, _) => return self.hello(words, door, out),
            (Command::Client, 2..) => self.client(words, out)?,
            (Command::Commands, _) => about::commands(words, out)?,
            (Command::Info, _) => about::info(door, out),
            (Command::Reset, 1) => {
                *self = Session {
                    wrong_passwords: self.wrong_passwords,
                    ..Session::new(self.id, self.peer, &door.gate)
                };
                out.protocol = Protocol::Resp2;
                out.simple("RESET");
            }
            (Command::Quit, _) => {
                out.simple("OK");
                return Ok(After::Left);
            }
            (Command::Other, _) => return Err(Fault::Unknown(shown(words.get(0).unwrap_or_default()))),
            _ => return arity,
        }
        Ok(After::Open)
    }

    fn auth(&mut self, words: &Words<'_, '_>, door: &RespDoor, out: &mut Out) -> Result<After, Fault> {
        let (user, password) = match words.len() {
            2 => (&b"default"[..], words.get(1)),
            _ => (words.get(1).unwrap_or_default(), words.get(2)),
        };
        let refused = self.log_in(user, password.unwrap_or_default(), door, out)?;
        if refused.is_none() {
            out.simple("OK");
        }
        Ok(refused.unwrap_or(After::Open))
    }

    /// Takes a password, or refuses it and says so. Whoever guesses on and on is thrown out.
    fn log_in(
        &mut self,
        user: &[u8],
        password: &[u8],
        door: &RespDoor,
        out: &mut Out,
    ) -> Result<Option<After>, Fault> {
        let Gate::Token(_) = &door.gate else {
            return Err(Fault::Bad(
                "AUTH <password> called without any password configured for the default user. Are you sure your \
                 configuration is correct? (It is set with --token.)"
                    .into(),
            ));
        };
        if user == b"default" && door.gate.accepts(password) {
            self.is_trusted = true;
            return Ok(None);
        }
        self.is_trusted = door.gate.is_open_to(&self.peer);
        self.wrong_passwords += 1;
        out.error("WRONGPASS invalid username-password pair or user is disabled.");
        Ok(Some(if self.wrong_passwords < WRONG_PASSWORDS_MAX { After::Open } else { After::ThrownOut }))
    }

    /// `HELLO [version [AUTH user password] [SETNAME name]]`. All of it, or none.
    fn hello(&mut self, words: &Words<'_, '_>, door: &RespDoor, out: &mut Out) -> Result<After, Fault> {
        let protocol = match words.get(1).map(|word| std::str::from_utf8(word).ok().map(str::parse::<i64>)) {
            None => out.protocol,
            Some(Some(Ok(2))) => Protocol::Resp2,
            Some(Some(Ok(3))) => Protocol::Resp3,
            Some(Some(Ok(_))) => {
                out.error("NOPROTO unsupported protocol version");
                return Ok(After::Open);
            }
            Some(_) => return Err(Fault::Bad("Protocol version is not an integer or out of range".into())),
        };
        let (mut login, mut name) = (None, None);
        let mut at = 2;
        while let Some(option) = words.get(at) {
            match (words.get(at + 1), words.get(at + 2)) {
                (Some(user), Some(password)) if option.eq_ignore_ascii_case(b"AUTH") => {
                    login = Some((user, password));
                    at += 3;
                }
                (Some(wanted), _) if option.eq_ignore_ascii_case(b"SETNAME") => {
                    name = Some(check_name(wanted)?);
                    at += 2;
                }
                _ => {
                    let what = format!("Syntax error in HELLO option '{}'", shown(option));
                    return Err(Fault::Bad(what.into()));
                }
            }
        }
        if let Some((user, password)) = login
            && let Some(after) = self.log_in(user, password, door, out)?
        {
            return Ok(after);
        }
        if let Some(name) = name {
            self.name = name.to_vec();
        }
        out.protocol = protocol;
        about::hello(self.id, out);
        Ok(After::Open)
    }

    fn client(&mut self, words: &Words<'_, '_>, out: &mut Out) -> Result<(), Fault> {
        let subcommand = words.get(1).unwrap_or_default();
        let is = |name: &[u8], count| subcommand.eq_ignore_ascii_case(name) && words.len() == count;
        if is(b"ID", 2) {
            out.integer(i64::try_from(self.id).unwrap_or(i64::MAX));
        } else if is(b"SETNAME", 3) {
            self.name = check_name(words.get(2).unwrap_or_default())?.to_vec();
            out.simple("OK");
        } else if is(b"GETNAME", 2) {
            if self.name.is_empty() { out.null() } else { out.bulk(&self.name) }
        } else if is(b"INFO", 2) || is(b"LIST", 2) {
            let address = self.peer.address.map_or_else(|| "unix".to_owned(), |address| address.to_string());
            let (id, name, protocol) = (self.id, String::from_utf8_lossy(&self.name), out.protocol.number());
            let line =
                format!("id={id} addr={address}:{} name={name} db=0 resp={protocol}\n", self.peer.port);
            out.bulk(line.as_bytes());
        } else if is(b"SETINFO", 4) || is(b"NO-EVICT", 3) || is(b"NO-TOUCH", 3) {
            // Nothing here is evicted or touched, and libraries are not told apart.
            out.simple("OK");
        } else {
            let what =
                format!("unknown subcommand '{}'. Try CLIENT ID, SETNAME or GETNAME.", shown(subcommand));
            return Err(Fault::Bad(what.into()));
        }
        Ok(())
    }
}

fn select(word: &[u8], out: &mut Out) -> Result<(), Fault> {
    match std::str::from_utf8(word).ok().and_then(|word| word.parse::<i64>().ok()) {
        Some(0) => {
            out.simple("OK");
            Ok(())
        }
        Some(_) => Err(Fault::Bad("DB index is out of range".into())),
        None => Err(Fault::Bad("value is not an integer or out of range".into())),
    }
}

fn check_name(name: &[u8]) -> Result<&[u8], Fault> {
    if name.len() > NAME_BYTES_MAX || !name.iter().all(u8::is_ascii_graphic) {
        let what = "Client names cannot contain spaces, newlines or special characters.";
        return Err(Fault::Bad(what.into()));
    }
    Ok(name)
}
