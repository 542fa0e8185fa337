//! Breakers: what the HTTP door's `/v1/breakers` does, as commands. Their words, what is asked of the service, and
//! its answers.

use std::str;

use super::command::{Fault, integer};
use super::encode::Out;
use super::frame::Words;
use crate::breakers::{
    Acquired, BreakerError, Granted, LIST, Listed, Override, Report, Reported, Seen, Service, list_limit,
    report_within_ms, retry_after_ms,
};
use crate::telemetry::resp::Command;

/// What is asked of breakers. Small, so that it makes no other question larger.
#[derive(Debug)]
pub(super) enum Breaking<'b> {
    Acquire { id: &'b str },
    Report(Box<Report<'b>>),
    State { id: &'b str },
    List { after: Option<&'b str>, limit: usize },
    Override { id: &'b str, decided: Box<Override> },
    Lift { id: &'b str },
}

/// What a command asks; `None` if it is not about breakers. Not inlined, to keep what is read for a check short.
#[inline(never)]
pub(super) fn question<'b>(command: Command, words: &Words<'b, '_>) -> Result<Option<Breaking<'b>>, Fault> {
    let id = || text("id", words.get(1).ok_or(Fault::Arity(command))?);
    let alone = || if words.len() == 2 { id() } else { Err(Fault::Arity(command)) };
    Ok(Some(match command {
        Command::Acquire => Breaking::Acquire { id: alone()? },
        Command::Report => report(id()?, words)?,
        Command::Breaker => Breaking::State { id: alone()? },
        Command::Breakers => {
            let mut options = Options::read(words, 1, ["AFTER", "LIMIT"])?;
            let after = options.take(0).map(|word| text("after", word)).transpose()?;
            let limit = options.take(1).map(|word| list_limit(whole(word)).map_err(fault));
            Breaking::List { after, limit: limit.transpose()?.unwrap_or(LIST) }
        }
        Command::Override => {
            let (5 | 6, Some(mode), Some(ttl), Some(reason)) =
                (words.len(), words.get(2), words.get(3), words.get(4))
            else {
                return Err(Fault::Arity(command));
            };
            let (mode, reason) = (text("mode", mode)?, text("reason", reason)?);
            let who = text("who", words.get(5).unwrap_or_default())?;
            let decided = Override::read(mode, whole(ttl), reason, who).map_err(fault)?;
            Breaking::Override { id: id()?, decided: Box::new(decided) }
        }
        Command::Lift => Breaking::Lift { id: alone()? },
        _ => return Ok(None),
    }))
}

/// `TG.REPORT id outcome [TOKEN token] [ELAPSED ms] [RETRY_AFTER ms]`
fn report<'b>(id: &'b str, words: &Words<'b, '_>) -> Result<Breaking<'b>, Fault> {
    let outcome = text("outcome", words.get(2).ok_or(Fault::Arity(Command::Report))?)?;
    let mut options = Options::read(words, 3, ["TOKEN", "ELAPSED", "RETRY_AFTER"])?;
    let token = options.take(0).map(|word| text("token", word)).transpose()?;
    let elapsed = options.take(1).map(whole);
    let retry_after = options.take(2).map(whole);
    Ok(Breaking::Report(Box::new(Report::read(id, token, outcome, elapsed, retry_after).map_err(fault)?)))
}

/// Names and values in any order, each at most once.
struct Options<'b, const N: usize>([Option<&'b [u8]>; N]);

impl<'b, const N: usize> Options<'b, N> {
    fn read(words: &Words<'b, '_>, first: usize, names: [&str; N]) -> Result<Options<'b, N>, Fault> {
        let mut values = [None; N];
        let mut rest = words.from(first);
        while let Some(name) = rest.next() {
            let at = names.iter().position(|known| name.eq_ignore_ascii_case(known.as_bytes()));
            match (at.and_then(|at| values.get_mut(at)), rest.next()) {
                (Some(value @ None), Some(given)) => *value = Some(given),
                _ => return Err(Fault::Syntax),
            }
        }
        Ok(Options(values))
    }

    fn take(&mut self, at: usize) -> Option<&'b [u8]> {
        self.0.get_mut(at)?.take()
    }
}

fn text<'b>(field: &'static str, word: &'b [u8]) -> Result<&'b str, Fault> {
    str::from_utf8(word).map_err(|_| Fault::Bad(format!("{field}: is not UTF-8").into()))
}

/// A whole number; what is none lies beyond every bound.
fn whole(word: &[u8]) -> u64 {
    integer(word).and_then(|number| u64::try_from(number).ok()).unwrap_or(u64::MAX)
}

fn fault(error: BreakerError) -> Fault {
    match error {
        BreakerError::Field { field, what } => Fault::Bad(format!("{field}: {what}").into()),
        BreakerError::TooMany(why) => {
            Fault::Bad(format!("there is no room for another breaker: {why}").into())
        }
        BreakerError::Store(error) => Fault::Store(error),
    }
}

/// Asks the service, and writes what it says.
///
/// hot path: acquire and report; no round trip while Closed or Open.
pub(super) async fn answer(breakers: &Service, breaking: Breaking<'_>, out: &mut Out) -> Result<(), Fault> {
    match breaking {
        Breaking::Acquire { id } => acquired(&breakers.acquire(id).await.map_err(fault)?, out),
        Breaking::Report(report) => reported(breakers.report(*report).await.map_err(fault)?, out),
        Breaking::State { id } => seen(&breakers.state(id).await.map_err(fault)?, out),
        Breaking::List { after, limit } => listed(&breakers.list(after, limit), out),
        Breaking::Override { id, decided } => {
            let mode = decided.mode;
            let overruled = breakers.overrule(id, *decided).await.map_err(fault)?;
            tracing::info!(breaker = overruled.name, mode = mode.name(), "resp: a breaker was overridden");
            seen(&overruled, out);
        }
        Breaking::Lift { id } => {
            let lifted = breakers.lift(id).await.map_err(fault)?;
            tracing::info!(breaker = lifted.name, "resp: an override of a breaker was lifted");
            seen(&lifted, out);
        }
    }
    Ok(())
}

/// The same names in the same order, here and below, whatever the answer.
fn acquired(acquired: &Acquired, out: &mut Out) {
    let (granted, state) = match acquired {
        Acquired::Granted(granted) => (Some(granted), granted.state),
        Acquired::Refused { state, .. } => (None, *state),
    };
    out.map(6);
    out.word("allowed");
    out.truth(granted.is_some());
    out.word("state");
    out.word(state.name());
    out.word("token");
    match granted {
        Some(Granted { token, .. }) => out.word(&token.to_string()),
        None => out.null(),
    }
    out.word("probe");
    out.truth(granted.is_some_and(|granted| granted.is_probe));
    out.word("report_within_ms");
    out.millis_or_null(granted.map(|granted| report_within_ms(granted.report_within)));
    out.word("retry_after_ms");
    out.millis_or_null(match acquired {
        Acquired::Granted(_) => None,
        Acquired::Refused { retry_after, .. } => Some(retry_after_ms(*retry_after)),
    });
}

fn reported(reported: Reported, out: &mut Out) {
    out.map(2);
    out.word("counted");
    out.truth(reported == Reported::Counted);
    out.word("why");
    match reported {
        Reported::Counted => out.null(),
        Reported::Late(why) => out.word(why.name()),
    }
}

fn seen(one: &Seen, out: &mut Out) {
    let Seen { id, name, status } = one;
    out.map(8);
    out.word("id");
    out.word(id);
    out.word("breaker");
    out.word(name);
    out.word("state");
    out.word(status.stance.state().name());
    out.word("ramping");
    out.truth(one.is_ramping());
    out.word("retry_after_ms");
    out.millis_or_null(one.retry_after_ms());
    out.word("override");
    match status.overridden {
        Some((mode, _)) => out.word(mode.name()),
        None => out.null(),
    }
    out.word("override_left_ms");
    out.millis_or_null(status.overridden.map(|(_, left)| left.as_millis_ceil()));
    out.word("shared");
    out.truth(status.is_shared);
}

fn listed(listed: &Listed, out: &mut Out) {
    out.map(2);
    out.word("breakers");
    out.array(listed.breakers.len());
    for one in &listed.breakers {
        seen(one, out);
    }
    out.word("more");
    out.truth(listed.has_more);
}
