//! Words to a question. Everything a caller can get wrong ends here, in words that name it and with nothing
//! spent; what only the policy can know (an unknown rule) the engine says.
//!
//! hot path: a check borrows its key and rule from the connection's buffer and allocates nothing.

use std::borrow::Cow;
use std::fmt;
use std::str;
use std::sync::Arc;

use tollgate::core::ask::AskProblem;
use tollgate::core::attributes::Attribute;
use tollgate::core::decision::Take;
use tollgate::core::store::StoreError;
use tollgate::identity::Identity;
use tollgate::{By, Cost, InlineLimit, Want};

use super::breakers::{self, Breaking};
use super::frame::Words;
use super::remembered::Remembered;
use super::throttle::{Asked, Made, Quantity, Rounding, Unfit};
use crate::net::gate::Barred;
use crate::takes;
use crate::telemetry::resp::Command;
use crate::told::Told;

/// The longest name there is.
const NAME_BYTES_MAX: usize = 16;

/// One question to the engine.
#[derive(Debug)]
pub(super) enum Question<'b> {
    /// Spend under a limit the caller brings along; answered with five numbers.
    Throttle { key: &'b [u8], limit: Arc<InlineLimit>, cost: Cost, rounding: Rounding },
    /// Spend under the policy, or look; answered with a map.
    Check { by: Whose<'b>, cost: Cost, spends: bool },
    /// About a breaker; answered with a map.
    Breaker(Breaking<'b>),
    /// Anything else.
    Rare(Rare<'b>),
}

/// A question that is seldom asked.
#[derive(Debug)]
pub(super) enum Rare<'b> {
    /// Five numbers, and nothing spent.
    Look { key: &'b [u8], limit: Arc<InlineLimit>, rounding: Rounding },
    /// Give so many back, and five numbers.
    Return { key: &'b [u8], limit: Arc<InlineLimit>, cost: Cost, rounding: Rounding },
    /// Five numbers of a limit that lets nothing pass.
    Closed { asked: Asked, quantity: Quantity },
    /// Undo.
    Refund { by: Whose<'b>, cost: Cost, takes: Vec<Take> },
    /// Make whole.
    Forget { by: Whose<'b> },
    /// Make these keys of `CL.THROTTLE` whole.
    Delete { keys: Vec<&'b [u8]>, limit: Arc<InlineLimit> },
    /// Say in words what is remembered about a key.
    Inspect { key: &'b [u8] },
}

/// Whose limit, and which.
#[derive(Debug)]
pub(super) enum Whose<'b> {
    /// By a rule's name and a key.
    Named { rule: &'b str, key: &'b [u8] },
    /// By what is known of a call.
    Told(Box<Told>),
}

impl Whose<'_> {
    /// As the engine asks it.
    pub(super) fn want<'a>(&'a self, cost: Cost, takes: &'a [Take]) -> Want<'a> {
        match self {
            Whose::Named { rule, key } => Want { by: By::Rule(rule), key, cost, takes },
            Whose::Told(told) => Want { by: By::Attributes(&**told), key: b"", cost, takes },
        }
    }
}

/// What is wrong with a command, or why it was not carried out.
#[derive(Debug, Clone)]
pub(super) enum Fault {
    /// No such command.
    Unknown(String),
    /// Too few words, or too many.
    Arity(Command),
    /// Words where others belong.
    Syntax,
    /// `CL.THROTTLE` with too few words, or too many.
    CellUsage,
    /// Not a number, where `CL.THROTTLE` takes one.
    CellInteger(String),
    /// Numbers that make no bucket, in the words of the command's own family.
    Unfit(Unfit, Rounding),
    /// Something else that is wrong, in words.
    Bad(Cow<'static, str>),
    /// The engine could not understand it.
    Ask(AskProblem),
    /// The store did not answer.
    Store(StoreError),
    /// It takes a token, or a certificate.
    Barred(Barred, Command),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Unknown(name) => write!(f, "ERR unknown command '{name}'"),
            Fault::Arity(command) => {
                write!(f, "ERR wrong number of arguments for '{}' command", command.name())
            }
            Fault::Syntax => f.write_str("ERR syntax error"),
            Fault::CellUsage => f.write_str(
                "Cell error: Store error: Usage: cl.throttle <key> <max_burst> <count per period> <period> \
                 [<quantity>]",
            ),
            Fault::CellInteger(word) => {
                write!(f, "Cell error: Store error: Couldn't parse as integer: {word}")
            }
            Fault::Unfit(unfit, Rounding::Cell) => write!(f, "Cell error: Store error: {}", unfit.words()),
            Fault::Unfit(unfit, Rounding::Up) => write!(f, "ERR {}", unfit.words()),
            Fault::Bad(what) => write!(f, "ERR {what}"),
            Fault::Ask(problem) => match problem.place() {
                (_, "checks") => write!(f, "ERR this {problem}"),
                (_, "rule") => write!(f, "ERR {problem}"),
                (_, field) => write!(f, "ERR {field} {problem}"),
            },
            Fault::Store(error) => write!(f, "STOREAWAY the store did not answer: {error}"),
            Fault::Barred(Barred::NoToken, _) => f.write_str("NOAUTH Authentication required."),
            Fault::Barred(Barred::Shut, command) => write!(
                f,
                "NOPERM {} can undo a limit or a breaker: off this machine it takes a token (start with --token, then AUTH) or \
                 a client certificate",
                command.name()
            ),
        }
    }
}

/// Which command a word names.
#[inline]
pub(super) fn named(word: &[u8]) -> Command {
    if word.eq_ignore_ascii_case(b"CL.THROTTLE") {
        return Command::Throttle;
    }
    let mut small = [0; NAME_BYTES_MAX];
    let Some(small) = small.get_mut(..word.len()) else { return Command::Other };
    small.copy_from_slice(word);
    small.make_ascii_lowercase();
    match &*small {
        b"unlink" => Command::Del,
        b"other" => Command::Other,
        small => Command::ALL
            .into_iter()
            .find(|command| command.name().as_bytes() == small)
            .unwrap_or(Command::Other),
    }
}

/// What a command asks the engine; `None` if it asks it nothing.
#[inline]
pub(super) fn question<'b>(
    command: Command,
    words: &Words<'b, '_>,
    remembered: &mut Remembered,
    identity: Option<&Identity>,
) -> Result<Option<Question<'b>>, Fault> {
    Ok(Some(match command {
        Command::Throttle => throttle(words, remembered)?,
        Command::Gcra => gcra(words, remembered)?,
        Command::Check | Command::Peek => {
            let ([rule, key], cost) = with_cost(command, words)?;
            Question::Check { by: by_name(rule, key)?, cost, spends: command == Command::Check }
        }
        Command::Ask => ask(words, identity)?,
        Command::Refund => {
            let ([rule, key, take], cost) = with_cost(command, words)?;
            let takes = str::from_utf8(take).ok().and_then(takes::parse).ok_or(Fault::Bad(
                "take is not a take: give it as the check answered it, such as 1763194000123456.0".into(),
            ))?;
            Question::Rare(Rare::Refund { by: by_name(rule, key)?, cost, takes })
        }
        Command::Forget => {
            let (3, Some(rule), Some(key)) = (words.len(), words.get(1), words.get(2)) else {
                return Err(Fault::Arity(command));
            };
            Question::Rare(Rare::Forget { by: by_name(rule, key)? })
        }
        Command::Inspect => match (words.len(), words.get(1)) {
            (2, Some(key)) => Question::Rare(Rare::Inspect { key }),
            _ => return Err(Fault::Arity(command)),
        },
        Command::Del => {
            let keys: Vec<_> = words.from(1).collect();
            if keys.is_empty() {
                return Err(Fault::Arity(command));
            }
            Question::Rare(Rare::Delete { keys, limit: remembered.any() })
        }
        _ => return Ok(breakers::question(command, words)?.map(Question::Breaker)),
    }))
}

fn throttle<'b>(words: &Words<'b, '_>, remembered: &mut Remembered) -> Result<Question<'b>, Fault> {
    let (5 | 6, Some(key)) = (words.len(), words.get(1)) else { return Err(Fault::CellUsage) };
    let number = |at| match words.get(at) {
        Some(word) => integer(word).ok_or_else(|| Fault::CellInteger(shown(word))),
        None => Ok(1),
    };
    let (max_burst, count, period, quantity) = (number(2)?, number(3)?, number(4)?, number(5)?);
    let unfit = |unfit| Fault::Unfit(unfit, Rounding::Cell);
    if count == 0 || period == 0 {
        return Err(unfit(Unfit::ZeroRate));
    }
    let period = u64::try_from(period).map_err(|_| unfit(Unfit::NegativeRate))?;
    let asked = Asked { max_burst, count, period_us: u128::from(period) * 1_000_000 };
    of_limit(key, asked, quantity, Rounding::Cell, remembered)
}

fn gcra<'b>(words: &Words<'b, '_>, remembered: &mut Remembered) -> Result<Question<'b>, Fault> {
    let (5..=7, Some(key)) = (words.len(), words.get(1)) else { return Err(Fault::Arity(Command::Gcra)) };
    let number = |at| {
        let word = words.get(at).unwrap_or_default();
        integer(word).ok_or(Fault::Bad("value is not an integer or out of range".into()))
    };
    let positive = |number: i64| match number {
        1.. => Ok(number),
        _ => Err(Fault::Bad(format!("value is out of range, value must between 1 and {}", i64::MAX).into())),
    };
    let max_burst = number(2)?;
    if max_burst < 0 {
        return Err(Fault::Bad("value is out of range, must be positive".into()));
    }
    let count = positive(number(3)?)?;
    let period = words.get(4).and_then(|word| str::from_utf8(word).ok()?.parse::<f64>().ok());
    let period = period.filter(|period| !period.is_nan());
    let Some(period) = period else { return Err(Fault::Bad("value is not a valid float".into())) };
    if period <= 0.0 || period >= 1e12 {
        return Err(Fault::Bad("period must be > 0 and < 1e12".into()));
    }
    let quantity = match words.get(5) {
        None => 1,
        Some(word) if !word.eq_ignore_ascii_case(b"TOKENS") => return Err(Fault::Syntax),
        Some(_) if words.len() == 6 => return Err(Fault::Bad("Missing TOKENS value".into())),
        Some(_) => positive(number(6)?)?,
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within bounds, see above")]
    let period_us = (period * 1e6).round().max(1.0) as u128;
    of_limit(key, Asked { max_burst, count, period_us }, quantity, Rounding::Up, remembered)
}

fn of_limit<'b>(
    key: &'b [u8],
    asked: Asked,
    quantity: i64,
    rounding: Rounding,
    remembered: &mut Remembered,
) -> Result<Question<'b>, Fault> {
    let quantity = Quantity::of(quantity);
    let limit = match remembered.made(asked).map_err(|unfit| Fault::Unfit(unfit, rounding))? {
        Made::Limit(limit) => limit,
        Made::Closed => return Ok(Question::Rare(Rare::Closed { asked, quantity })),
    };
    Ok(match quantity {
        Quantity::Take(cost) => Question::Throttle { key, limit, cost, rounding },
        Quantity::Peek => Question::Rare(Rare::Look { key, limit, rounding }),
        Quantity::Return(cost) => Question::Rare(Rare::Return { key, limit, cost, rounding }),
    })
}

/// `N` words and, if there is more, `COST n`.
fn with_cost<'b, const N: usize>(
    command: Command,
    words: &Words<'b, '_>,
) -> Result<([&'b [u8]; N], Cost), Fault> {
    let mut first = [&b""[..]; N];
    for (at, word) in first.iter_mut().enumerate() {
        *word = words.get(at + 1).ok_or(Fault::Arity(command))?;
    }
    let cost = match (words.get(N + 1), words.get(N + 2)) {
        (None, _) => Cost::ONE,
        (Some(word), Some(number)) if word.eq_ignore_ascii_case(b"COST") && words.len() == N + 3 => {
            cost(number)?
        }
        _ => return Err(Fault::Syntax),
    };
    Ok((first, cost))
}

fn cost(word: &[u8]) -> Result<Cost, Fault> {
    let cost = integer(word).and_then(|n| u32::try_from(n).ok()).and_then(Cost::new);
    cost.ok_or_else(|| {
        Fault::Bad(format!("cost must be a whole number from 1 to {}: \"{}\"", u32::MAX, shown(word)).into())
    })
}

fn by_name<'b>(rule: &'b [u8], key: &'b [u8]) -> Result<Whose<'b>, Fault> {
    match str::from_utf8(rule) {
        Ok(rule) => Ok(Whose::Named { rule, key }),
        Err(_) => Err(Fault::Bad(format!("unknown rule \"{}\"", shown(rule)).into())),
    }
}

/// `TG.ASK [COST n] name value …`. In capitals, `COST` is no attribute.
fn ask<'b>(words: &Words<'b, '_>, identity: Option<&Identity>) -> Result<Question<'b>, Fault> {
    let identity = identity.ok_or(Fault::Bad("the policy is not ready".into()))?;
    let (cost, first) = match (words.get(1), words.get(2)) {
        (Some(b"COST"), Some(number)) => (cost(number)?, 3),
        _ => (Cost::ONE, 1),
    };
    let count = words.len().saturating_sub(first);
    if count == 0 || !count.is_multiple_of(2) {
        return Err(Fault::Arity(Command::Ask));
    }
    let mut told = Told::new(identity);
    let mut rest = words.from(first);
    while let (Some(name), Some(value)) = (rest.next(), rest.next()) {
        let bad =
            |what: &dyn fmt::Display| Fault::Bad(format!("attribute \"{}\" {what}", shown(name)).into());
        let attribute = str::from_utf8(name).ok().map(Attribute::parse);
        let attribute = attribute.ok_or_else(|| bad(&"is no text"))?.map_err(|error| bad(&error))?;
        let value = str::from_utf8(value).map_err(|_| bad(&"has a value that is no text"))?;
        if value.is_empty() {
            continue;
        }
        told = told.with(attribute, value.into()).map_err(|what| bad(&what))?;
    }
    Ok(Question::Check { by: Whose::Told(Box::new(told)), cost, spends: true })
}

/// A whole number as Rust, and so redis-cell, reads one.
#[inline]
pub(super) fn integer(word: &[u8]) -> Option<i64> {
    // hot path: digits alone, and too few of them to overflow.
    if let 1..=18 = word.len()
        && word.iter().all(u8::is_ascii_digit)
    {
        return Some(word.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0')));
    }
    str::from_utf8(word).ok()?.parse().ok()
}

/// What was written, short enough to print.
pub(super) fn shown(word: &[u8]) -> String {
    String::from_utf8_lossy(&word[..word.len().min(256)]).chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_as_redis_cell_reads_them() {
        for (word, number) in [
            ("0", Some(0)),
            ("+7", Some(7)),
            ("-7", Some(-7)),
            ("0007", Some(7)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("", None),
            ("1.5", None),
            (" 1", None),
            ("1e3", None),
        ] {
            assert_eq!(integer(word.as_bytes()), number, "{word:?}");
        }
    }

    #[test]
    fn a_question_about_a_breaker_makes_no_other_larger() {
        assert!(size_of::<Breaking<'_>>() <= size_of::<Rare<'_>>());
    }

    #[test]
    fn commands_are_known_in_any_case_and_by_no_other_name() {
        assert_eq!(named(b"cl.Throttle"), Command::Throttle);
        assert_eq!(named(b"TG.CHECK"), Command::Check);
        assert_eq!(named(b"UNLINK"), Command::Del);
        assert_eq!(named(b"TG.Breaker"), Command::Breaker);
        assert_eq!(named(b"TG.BREAKERS"), Command::Breakers);
        for unknown in [&b"other"[..], b"", b"SET", b"cl.throttle.and.more.of.it"] {
            assert_eq!(named(unknown), Command::Other);
        }
    }
}
