//! What a caller hears, over HTTP: one way to say a verdict for the server's door and for the tower layers.
//!
//! A call that passes is told what is left; one that is refused is also told when to come again. Times are
//! rounded up, so that whoever obeys them is let through: a caller sent back twice comes back angrier.
//!
//! Spec: draft-ietf-httpapi-ratelimit-headers-10 (`RateLimit-Policy`, `RateLimit`), RFC 9110 (`Retry-After`),
//! RFC 9457 (the body of a refusal).

mod broken;
mod refusal;
mod write;

use std::time::Duration;

use bytes::BufMut as _;
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, header};
use tollgate_core::decision::Outcome;
use tollgate_core::policy::{Role, Rule};
use tollgate_core::units::Micros;
use tollgate_core::verdict::{Judged, Source, Verdict};

pub use broken::Broken;
#[cfg(feature = "tower")]
pub(crate) use refusal::{GRPC_PUSHBACK, GRPC_STATUS, grpc_type};
pub use refusal::{PROBLEM_JSON, is_grpc};
use write::{number, written};

const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Whether the fields of the IETF's draft are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Fields {
    /// `RateLimit-Policy: "api";q=100;w=60` and `RateLimit: "api";r=50;t=30`
    #[default]
    Ietf,
    /// Neither.
    None,
}

/// Whether `X-RateLimit-Limit`, `-Remaining` and `-Reset` are sent, which many clients know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Older {
    /// They are not.
    #[default]
    None,
    /// They are, with the seconds until the limit is whole again.
    Seconds,
    /// They are, with the second since 1970 at which it is, by this host's clock: GitHub's way.
    UnixTime,
}

/// How verdicts are said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Style {
    fields: Fields,
    older: Older,
    jitter: Micros,
}

impl Style {
    /// Whether the fields of the IETF's draft are sent (they are).
    #[must_use]
    pub fn fields(mut self, fields: Fields) -> Self {
        self.fields = fields;
        self
    }

    /// Whether the older headers are sent too (they are not).
    #[must_use]
    pub fn older(mut self, older: Older) -> Self {
        self.older = older;
        self
    }

    /// Spreads those who were refused together over this much more time (none). Never earlier than what
    /// the limit says, and the same in every place of one answer.
    #[must_use]
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter = jitter.into();
        self
    }

    /// Adds what a verdict says about its limits: nothing where none applied.
    ///
    /// Behind another limiter, ours stand after theirs in the lists; of the older headers, which are no
    /// lists, those that are there already stay.
    ///
    /// hot path: one allocation per thread and some hundred answers, besides the map's own.
    pub fn write(&self, verdict: &Verdict, headers: &mut HeaderMap) {
        // A list has no limit to speak of.
        let Some(binding) = verdict.binding().filter(|_| verdict.source != Source::DenyList) else { return };
        if self.fields == Fields::Ietf {
            append(headers, RATELIMIT_POLICY, |out| {
                list(out, verdict, |out, member| {
                    out.put_slice(b";q=");
                    number(out, member.judged.decision.limit.into());
                    out.put_slice(b";w=");
                    number(out, seconds(member.judged.window));
                });
            });
            append(headers, RATELIMIT, |out| {
                list(out, verdict, |out, member| {
                    out.put_slice(b";r=");
                    number(out, member.judged.decision.remaining.into());
                    out.put_slice(b";t=");
                    number(out, seconds(member.effective_window()));
                });
            });
        }
        let reset = match self.older {
            Older::None => return,
            Older::Seconds => binding.decision.reset_after,
            Older::UnixTime => crate::clock::wall() + binding.decision.reset_after,
        };
        for (name, value) in [
            (X_RATELIMIT_LIMIT, binding.decision.limit.into()),
            (X_RATELIMIT_REMAINING, binding.decision.remaining.into()),
            (X_RATELIMIT_RESET, seconds(reset)),
        ] {
            headers.entry(name).or_insert_with(|| HeaderValue::from(value));
        }
    }

    /// When to come again. `None` if the call passed, or if no waiting helps. Another each time, if there
    /// is jitter: ask once per answer.
    fn wait(&self, verdict: &Verdict) -> Option<Micros> {
        let jitter = if self.jitter == Micros::ZERO { 0 } else { fastrand::u64(0..=self.jitter.0) };
        verdict.retry_after().map(|wait| wait + Micros(jitter))
    }

    fn write_retry_after(headers: &mut HeaderMap, wait: Option<Micros>) {
        if let Some(wait) = wait {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds(wait)));
        }
    }
}

/// One check as it stands in the lists.
struct Member<'a> {
    judged: &'a Judged,
    rule: Option<&'a Rule>,
    /// How many checks of the same origin came before it.
    nth: usize,
}

impl Member<'_> {
    /// How long what is left must last: until it is whole again, or until the refused call can pass.
    /// `Retry-After`, which is the longest of these, is then never before it, as the draft wants.
    fn effective_window(&self) -> Micros {
        match self.judged.decision.outcome {
            Outcome::Denied { retry_after } => retry_after,
            Outcome::Allowed | Outcome::Never => self.judged.decision.reset_after,
        }
    }
}

/// The enforced checks of a verdict, in the order asked.
fn members(verdict: &Verdict) -> impl Iterator<Item = Member<'_>> {
    let enforced = || verdict.checks.iter().filter(|judged| judged.role == Role::Enforced);
    enforced().enumerate().map(move |(at, judged)| {
        let nth = enforced().take(at).filter(|other| other.origin == judged.origin).count();
        Member { judged, rule: verdict.policy.rule_of(judged.origin), nth }
    })
}

/// A list of strings with parameters (RFC 9651), a member per check. No two are named alike, which the
/// draft forbids: a rule's second limit is `"api:2"`, and no rule has a colon or brackets in its name.
fn list(
    out: &mut bytes::BytesMut,
    verdict: &Verdict,
    parameters: impl Fn(&mut bytes::BytesMut, &Member<'_>),
) {
    for (at, member) in members(verdict).enumerate() {
        out.put_slice(if at == 0 { b"\"" } else { b", \"" });
        out.put_slice(member.rule.map_or("(inline)", Rule::name).as_bytes());
        if member.nth > 0 {
            out.put_u8(b':');
            number(out, member.nth as u64 + 1);
        }
        out.put_u8(b'"');
        parameters(out, &member);
    }
}

fn append(headers: &mut HeaderMap, name: HeaderName, write: impl FnOnce(&mut bytes::BytesMut)) {
    // Names of rules and digits: always a good value.
    if let Ok(value) = HeaderValue::from_maybe_shared(written(write)) {
        headers.append(name, value);
    }
}

/// Whole seconds, rounded up: whoever waits that long has waited long enough.
fn seconds(span: Micros) -> u64 {
    span.0.div_ceil(Micros::SECOND.0)
}

#[cfg(test)]
mod tests;
