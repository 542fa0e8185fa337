//! Our own service: what the HTTP door's check, peek and refund do, in protocol buffers.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;
use tollgate::core::ask::{AskProblem, WANTS_MAX};
use tollgate::core::decision::{Outcome, Refunded, Returned, Take};
use tollgate::core::few::Few;
use tollgate::core::policy::Role;
use tollgate::core::verdict::{Judged, RefundAnswer};
use tollgate::engine::together;
use tollgate::identity::Identity;
use tollgate::{Answer, Ask, By, Cost, InlineLimit, Policy, Source, Verdict, Want};

use super::answer::{Code, Failed};
use super::encode::written;
use super::proto::tollgate::v1;
use crate::engine::Engine;
use crate::facing::Facing;
use crate::limit::Written;
use crate::told::Told;
use crate::{inline, takes};

/// The most asks of one call.
const ASKS_MAX: usize = 64;

/// What a call wants done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Check,
    Peek,
    Refund,
}

/// One call, read: each of its asks is all or nothing.
#[derive(Debug)]
pub(super) struct Call {
    asks: Vec<Vec<Wanted>>,
    purpose: Purpose,
    policy: Arc<Policy>,
}

/// One thing an ask wants.
#[derive(Debug)]
struct Wanted {
    by: WantedBy,
    key: String,
    cost: Cost,
    takes: Vec<Take>,
}

#[derive(Debug)]
enum WantedBy {
    Rule(String),
    RuleFor(String, Box<Told>),
    Attributes(Box<Told>),
    Inline(Arc<InlineLimit>),
}

impl Wanted {
    fn want(&self) -> Want<'_> {
        let by = match &self.by {
            WantedBy::Rule(name) => By::Rule(name),
            WantedBy::RuleFor(name, told) => By::RuleFor(name, &**told),
            WantedBy::Attributes(told) => By::Attributes(&**told),
            WantedBy::Inline(limit) => By::Inline(limit),
        };
        Want { by, key: self.key.as_bytes(), cost: self.cost, takes: &self.takes }
    }
}

/// Reads a call. Whatever is wrong with any of it is said before any of it is spent.
pub(super) fn read(engine: &Engine, log_max: u32, purpose: Purpose, message: &[u8]) -> Result<Call, Failed> {
    let not_readable = |error: prost::DecodeError| Failed::new(Code::InvalidArgument, error.to_string());
    let asks = match purpose {
        Purpose::Check | Purpose::Peek => v1::CheckRequest::decode(message).map_err(not_readable)?.asks,
        Purpose::Refund => v1::RefundRequest::decode(message).map_err(not_readable)?.asks,
    };
    if asks.is_empty() || asks.len() > ASKS_MAX {
        return Err(bad("asks", &format!("are {}: give 1 to {ASKS_MAX}", asks.len())));
    }
    // One snapshot to read with and to decide under: a reload in between cannot mix the two.
    let policy = engine.policy();
    let facing = Facing::of(&policy)
        .ok_or_else(|| Failed::new(Code::Internal, "the policy came without its settings"))?;
    let mut read = Vec::with_capacity(asks.len());
    for (at, ask) in asks.into_iter().enumerate() {
        let place = format!("asks[{at}]");
        if ask.checks.len() > WANTS_MAX {
            return Err(bad(
                &format!("{place}.checks"),
                &format!("are {}: at most {WANTS_MAX}", ask.checks.len()),
            ));
        }
        let wanted: Vec<Wanted> = ask
            .checks
            .into_iter()
            .enumerate()
            .map(|(check, raw)| {
                wanted(raw, purpose, log_max, &facing.identity)
                    .map_err(|(field, what)| bad(&format!("{place}.checks[{check}].{field}"), &what))
            })
            .collect::<Result<_, _>>()?;
        let wants: Few<Want<'_>> = wanted.iter().map(Wanted::want).collect();
        policy.matched(&Ask { wants: &wants }).map_err(|problem| invalid(&problem, at))?;
        drop(wants);
        read.push(wanted);
    }
    Ok(Call { asks: read, purpose, policy })
}

impl Call {
    /// What of it can undo a limit.
    pub(super) fn undoes(&self) -> Option<&'static str> {
        let mut all = self.asks.iter().flatten();
        match self.purpose {
            Purpose::Refund => Some("a refund"),
            _ if all.any(|wanted| matches!(wanted.by, WantedBy::Inline(_))) => Some("an inline limit"),
            _ => None,
        }
    }

    /// Has it decided; the answer as it is sent.
    pub(super) async fn answer(&self, engine: &Engine) -> Result<Bytes, Failed> {
        let asks = self.asks.iter().enumerate();
        if self.purpose == Purpose::Refund {
            let refunds = together(asks.map(|(at, ask)| refund(engine, ask, at))).await;
            let refunds = refunds.into_iter().collect::<Result<_, _>>()?;
            return Ok(written(&v1::RefundResponse { refunds }));
        }
        let verdicts = together(asks.map(async |(at, ask)| {
            let wants: Few<Want<'_>> = ask.iter().map(Wanted::want).collect();
            let (ask, policy) = (Ask { wants: &wants }, Arc::clone(&self.policy));
            let verdict = match self.purpose {
                Purpose::Check => engine.decide_under(policy, &ask).await,
                Purpose::Peek | Purpose::Refund => engine.peek_under(policy, &ask).await,
            };
            encoded(&verdict, self.purpose, wants.len(), at)
        }))
        .await;
        let verdicts = verdicts.into_iter().collect::<Result<_, _>>()?;
        Ok(written(&v1::CheckResponse { verdicts }))
    }
}

type Wrong = (&'static str, Cow<'static, str>);

fn wanted(raw: v1::Check, purpose: Purpose, log_max: u32, identity: &Identity) -> Result<Wanted, Wrong> {
    let v1::Check { rule, key, cost, limit, burst, algorithm, time_zone, attributes, take } = raw;
    let told = if attributes.is_empty() {
        None
    } else {
        let mut told = Told::new(identity);
        // In one order, whatever order the map came in: of two problems it is always the same that is told.
        let mut attributes: Vec<_> = attributes.into_iter().collect();
        attributes.sort();
        for (name, text) in attributes {
            let shown: String = name.chars().take(64).collect();
            told.add(&name, text.into()).map_err(|what| ("attributes", format!("{shown}: {what}").into()))?;
        }
        Some(Box::new(told))
    };
    let own =
        [("burst", burst != 0), ("algorithm", !algorithm.is_empty()), ("time_zone", !time_zone.is_empty())];
    if let Some((field, _)) = own.iter().find(|(_, is_there)| *is_there && limit.is_empty()) {
        return Err((field, "belongs to a limit; a rule has its own".into()));
    }
    let by = match (rule.is_empty(), limit.is_empty(), told) {
        (false, false, _) => {
            return Err((
                "limit",
                "stands beside a rule, which has a limit of its own: give one of them".into(),
            ));
        }
        (true, true, None) => {
            return Err((
                "rule",
                "is missing: name a rule, or bring a limit such as 100/s, or attributes".into(),
            ));
        }
        (true, true, Some(_)) if !key.is_empty() => {
            return Err((
                "key",
                "belongs to a rule or a limit: the rules that apply know their own keys".into(),
            ));
        }
        (true, true, Some(told)) => WantedBy::Attributes(told),
        (false, true, Some(told)) => WantedBy::RuleFor(rule, told),
        (false, true, None) => WantedBy::Rule(rule),
        (true, false, Some(_)) => {
            return Err((
                "attributes",
                "say nothing to an inline limit: leave them out, or name a rule".into(),
            ));
        }
        (true, false, None) => {
            let some = |text: &str| (!text.is_empty()).then_some(()).map(|()| text.to_owned());
            let (algorithm, time_zone) = (some(&algorithm), some(&time_zone));
            let written = Written {
                limit: &limit,
                burst: Some(burst).filter(|burst| *burst > 0),
                algorithm: algorithm.as_deref(),
                time_zone: time_zone.as_deref(),
            };
            let built = inline::limit(&written, log_max);
            WantedBy::Inline(built.map_err(|problem| (problem.field, problem.why.into()))?)
        }
    };
    let takes = match (purpose, take.is_empty()) {
        (Purpose::Refund, true) => {
            return Err(("take", "is missing: give it as the check answered it".into()));
        }
        (Purpose::Refund, false) => {
            takes::parse(&take).ok_or(("take", "is not a take: give it as the check answered it".into()))?
        }
        (_, true) => Vec::new(),
        (_, false) => return Err(("take", "belongs to Refund".into())),
    };
    Ok(Wanted { by, key, cost: Cost::new(cost).unwrap_or(Cost::ONE), takes })
}

async fn refund(engine: &Engine, wanted: &[Wanted], at: usize) -> Result<v1::Refunded, Failed> {
    let wants: Few<Want<'_>> = wanted.iter().map(Wanted::want).collect();
    match engine.refund(&Ask { wants: &wants }).await {
        RefundAnswer::Done(refunds) => Ok(refunded(&refunds)),
        RefundAnswer::NotDone { why } => {
            Err(Failed::new(Code::Unavailable, format!("the store did not answer the refund: {why}")))
        }
        RefundAnswer::Invalid(problem) => Err(invalid(&problem, at)),
    }
}

fn refunded(refunds: &[Refunded]) -> v1::Refunded {
    let returned = Returned::of_several(refunds).name();
    let least = refunds.iter().min_by_key(|refund| refund.remaining);
    v1::Refunded {
        returned: returned.to_owned(),
        limit: least.map_or(0, |refund| refund.limit),
        remaining: least.map_or(0, |refund| refund.remaining),
        reset_after_ms: least.map_or(0, |refund| refund.reset_after.as_millis_ceil()),
    }
}

fn encoded(verdict: &Verdict, purpose: Purpose, wants: usize, at: usize) -> Result<v1::Verdict, Failed> {
    let allowed = match &verdict.answer {
        Answer::Allowed => true,
        Answer::Refused => false,
        Answer::Invalid(problem) => return Err(invalid(problem, at)),
    };
    // Only a spend in the store can be undone there: what the fallback let pass it never saw.
    let is_named = purpose == Purpose::Check && allowed && verdict.source == Source::Store;
    let spent = |want| {
        let mine = verdict.checks.iter();
        mine.filter(move |judged: &&Judged| judged.want == want && judged.role == Role::Enforced)
    };
    let takes = (0..if is_named { wants } else { 0 })
        .map(|want| takes::text(spent(want).map(|judged| judged.decision.take)))
        .collect();
    Ok(v1::Verdict {
        allowed,
        binding: verdict.binding().map(|judged| part(verdict, judged)),
        source: verdict.source.name().to_owned(),
        on_outage: match verdict.source {
            Source::Fallback(choice) => choice.name().to_owned(),
            _ => String::new(),
        },
        policy_version: verdict.policy.version(),
        parts: verdict.checks.iter().map(|judged| part(verdict, judged)).collect(),
        takes,
    })
}

fn part(verdict: &Verdict, judged: &Judged) -> v1::Part {
    let decision = &judged.decision;
    v1::Part {
        allowed: decision.outcome == Outcome::Allowed,
        rule: verdict.policy.rule_of(judged.origin).map_or_else(String::new, |rule| rule.name().to_owned()),
        limit: decision.limit,
        remaining: decision.remaining,
        retry_after_ms: match decision.outcome {
            Outcome::Denied { retry_after } => Some(retry_after.as_millis_ceil()),
            Outcome::Allowed | Outcome::Never => None,
        },
        reset_after_ms: decision.reset_after.as_millis_ceil(),
        check: u32::try_from(judged.want).unwrap_or(u32::MAX),
        mode: judged.role.name().to_owned(),
        subject: judged.subject.name().to_owned(),
    }
}

fn bad(field: &str, what: &str) -> Failed {
    Failed::new(Code::InvalidArgument, format!("{field}: {what}; nothing was spent"))
}

fn invalid(problem: &AskProblem, ask: usize) -> Failed {
    let field = match problem.place() {
        (Some(at), field) => format!("asks[{ask}].checks[{at}].{field}"),
        (None, field) => format!("asks[{ask}].{field}"),
    };
    bad(&field, &problem.to_string())
}
