//! Verdicts to bytes: JSON written by hand, because the shape is small and fixed.
//!
//! hot path: a verdict goes into a buffer of the thread's own and leaves as a slice of it; no
//! allocation while the buffer lasts. Names of rules need no escaping: the policy lets no such name in.

use std::cell::RefCell;

use bytes::{Bytes, BytesMut};
use tollgate::core::ask::AskProblem;
use tollgate::core::attributes::SubjectKind;
use tollgate::core::decision::{Outcome, Refunded, Returned};
use tollgate::core::policy::{Origin, Role};
use tollgate::core::store::{Spent, StoreError};
use tollgate::core::verdict::Judged;
use tollgate::{Answer, Policy, Source, Verdict, Want};

use super::decode::Shape;
use crate::net::problem::Problem;

/// The buffer a thread writes into before it takes a new one.
const BUFFER_BYTES: usize = 16 * 1024;

/// What is left of a buffer below which a new one is taken.
const ANSWER_BYTES: usize = 1024;

thread_local! {
    static BUFFER: RefCell<BytesMut> = RefCell::default();
}

/// Whether an answer names the spend, so that it can be undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spends {
    Named,
    None,
}

/// A verdict as JSON. `wants` are the ask's, in order.
pub(super) fn verdict(
    verdict: &Verdict,
    wants: &[Want<'_>],
    spends: Spends,
    shape: Shape,
) -> Result<Bytes, Problem> {
    let is_allowed = match &verdict.answer {
        Answer::Allowed => true,
        Answer::Refused => false,
        Answer::Invalid(problem) => return Err(invalid(problem, shape)),
    };
    // Only a spend in the store can be undone there: what the fallback let pass it never saw.
    let names_takes = spends == Spends::Named && is_allowed && verdict.source == Source::Store;
    Ok(written(|out| {
        out.text(if is_allowed { "{\"allowed\":true" } else { "{\"allowed\":false" });
        match verdict.binding() {
            Some(binding) => out.judged(&verdict.policy, binding),
            None => out.text(",\"rule\":null"),
        }
        out.text(",\"source\":\"");
        out.text(verdict.source.name());
        if let Source::Fallback(choice) = verdict.source {
            out.text("\",\"on_outage\":\"");
            out.text(choice.name());
        }
        out.text("\",\"policy_version\":");
        out.number(verdict.policy.version());
        if names_takes && wants.len() == 1 {
            out.takes(verdict.checks.iter().filter(|judged| judged.role == Role::Enforced));
        }
        out.text(",\"checks\":[");
        for (at, _) in wants.iter().enumerate() {
            out.checks_of(verdict, at, wants.len() > 1, names_takes);
        }
        out.text("]}\n");
    }))
}

/// Which of a want's limits speaks for it: as `Verdict::binding` has it for the whole ask.
fn weight(judged: &Judged) -> (u8, u64) {
    match judged.decision.outcome {
        Outcome::Never => (2, u64::MAX),
        Outcome::Denied { retry_after } => (1, retry_after.0),
        Outcome::Allowed => (0, u64::from(u32::MAX - judged.decision.remaining)),
    }
}

/// A refund that was carried out, as JSON.
pub(super) fn refunded(wants: &[Want<'_>], refunds: &[Refunded]) -> Bytes {
    written(|out| {
        out.text("{");
        out.refund(refunds);
        out.text(",\"checks\":[");
        let mut rest = refunds;
        for (at, want) in wants.iter().enumerate() {
            let Some((mine, others)) = rest.split_at_checked(want.takes.len()) else { break };
            rest = others;
            out.text(if at == 0 { "{" } else { ",{" });
            out.refund(mine);
            out.text("}");
        }
        out.text("]}\n");
    })
}

/// The answers to several asks, in their order; a problem stands in the place of its answer.
pub(super) fn batch(answers: &[Result<Bytes, Problem>]) -> Bytes {
    written(|out| {
        out.text("{\"answers\":[");
        for (at, answer) in answers.iter().enumerate() {
            if at > 0 {
                out.text(",");
            }
            match answer {
                Ok(answer) => out.out.extend_from_slice(answer.trim_ascii_end()),
                Err(problem) => {
                    out.text("{\"problem\":");
                    out.text(problem.document().trim_end());
                    out.text("}");
                }
            }
        }
        out.text("]}\n");
    })
}

/// A refund the store did not answer.
pub(super) fn not_refunded(error: &StoreError) -> Problem {
    let (title, spent) = match error.spent() {
        Spent::Nothing => ("the store did not answer; nothing was given back", "try again later"),
        Spent::Unknown => (
            "the store did not answer; whether it was given back is unknown",
            "do not send it again: it could be given back twice",
        ),
    };
    Problem::new(hyper::StatusCode::SERVICE_UNAVAILABLE, "store-away", title, format!("{error}; {spent}"))
}

/// An ask the engine could not understand.
pub(super) fn invalid(problem: &AskProblem, shape: Shape) -> Problem {
    let field = match problem.place() {
        (Some(at), field) => shape.path(at, field),
        (None, field) => shape.path_of_ask(field),
    };
    match problem {
        // Each part of it is right; together they contradict each other, or what was spent before.
        AskProblem::Repeated { .. } | AskProblem::WrongTakes { .. } => {
            Problem::conflict(field, problem.to_string())
        }
        _ => Problem::field(field, problem.to_string()),
    }
}

fn written(write: impl FnOnce(&mut Writer<'_>)) -> Bytes {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.capacity() < ANSWER_BYTES {
            *buffer = BytesMut::with_capacity(BUFFER_BYTES);
        }
        write(&mut Writer { out: buffer, digits: itoa::Buffer::new() });
        buffer.split().freeze()
    })
}

struct Writer<'a> {
    out: &'a mut BytesMut,
    digits: itoa::Buffer,
}

impl Writer<'_> {
    fn text(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    fn number(&mut self, number: u64) {
        self.out.extend_from_slice(self.digits.format(number).as_bytes());
    }

    /// Limit, remaining, retry and reset. Times are rounded up: whoever waits that long has waited
    /// long enough.
    fn numbers(&mut self, judged: &Judged) {
        let decision = &judged.decision;
        self.text(",\"limit\":");
        self.number(u64::from(decision.limit));
        self.text(",\"remaining\":");
        self.number(u64::from(decision.remaining));
        match decision.outcome {
            Outcome::Allowed => self.text(",\"retry_after_ms\":null"),
            Outcome::Never => self.text(",\"retry_after_ms\":null,\"never\":true"),
            Outcome::Denied { retry_after } => {
                self.text(",\"retry_after_ms\":");
                self.number(retry_after.as_millis_ceil());
            }
        }
        self.text(",\"reset_after_ms\":");
        self.number(decision.reset_after.as_millis_ceil());
    }

    fn rule(&mut self, policy: &Policy, origin: Origin) {
        match policy.rule_of(origin) {
            Some(rule) => {
                self.text(",\"rule\":\"");
                self.text(rule.name());
                self.text("\"");
            }
            None => self.text(",\"rule\":null"),
        }
    }

    /// What a check says for itself, or for the whole ask.
    fn judged(&mut self, policy: &Policy, judged: &Judged) {
        self.numbers(judged);
        self.rule(policy, judged.origin);
        if judged.subject != SubjectKind::Key {
            self.text(",\"subject\":\"");
            self.text(judged.subject.name());
            self.text("\"");
        }
    }

    /// The checks of one want: a rule's limits speak as one, those it tries out as another.
    fn checks_of(&mut self, verdict: &Verdict, want: usize, is_one_of_several: bool, names_takes: bool) {
        let mut rest: &[Judged] = &verdict.checks;
        while let Some(first) = rest.first() {
            let is_alike = |judged: &Judged| {
                (judged.want, judged.origin, judged.role) == (first.want, first.origin, first.role)
            };
            let end = rest.iter().position(|judged| !is_alike(judged)).unwrap_or(rest.len());
            let (alike, others) = rest.split_at(end);
            rest = others;
            let Some(binding) = alike.iter().max_by_key(|judged| weight(judged)) else { continue };
            if first.want != want {
                continue;
            }
            self.text(if self.out.ends_with(b"[") { "{\"allowed\":" } else { ",{\"allowed\":" });
            self.text(if binding.decision.outcome == Outcome::Allowed { "true" } else { "false" });
            self.judged(&verdict.policy, binding);
            if is_one_of_several {
                self.text(",\"check\":");
                self.number(want as u64);
            }
            if first.role != Role::Enforced {
                self.text(",\"mode\":\"");
                self.text(first.role.name());
                self.text("\"");
            } else if names_takes {
                self.takes(alike.iter());
            }
            self.text("}");
        }
    }

    fn takes<'j>(&mut self, judged: impl Iterator<Item = &'j Judged>) {
        self.text(",\"take\":\"");
        for (at, judged) in judged.enumerate() {
            if at > 0 {
                self.text(",");
            }
            self.number(judged.decision.take.at.0);
            self.text(".");
            self.number(u64::from(judged.decision.take.entry));
        }
        self.text("\"");
    }

    /// Several refunds as one: how much came back of all, and the least that is left.
    fn refund(&mut self, refunds: &[Refunded]) {
        let returned = Returned::of_several(refunds).name();
        self.text("\"refunded\":\"");
        self.text(returned);
        self.text("\"");
        if let Some(least) = refunds.iter().min_by_key(|refund| refund.remaining) {
            self.text(",\"limit\":");
            self.number(u64::from(least.limit));
            self.text(",\"remaining\":");
            self.number(u64::from(least.remaining));
            self.text(",\"reset_after_ms\":");
            self.number(least.reset_after.as_millis_ceil());
        }
    }
}
