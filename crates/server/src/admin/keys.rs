//! One key under one rule: what is left of it, and making it whole.

use std::sync::Arc;

use hyper::StatusCode;
use serde_json::{Value, json};
use tollgate::core::decision::Outcome;
use tollgate::core::policy::Role;
use tollgate::engine::ForgetError;
use tollgate::{Answer as Answered, Ask, By, Cost, Policy, Source, Want};

use super::{Admin, overrides};
use crate::config::policy::subject;
use crate::limit::rate_in_words;
use crate::net::Answer;
use crate::net::problem::Problem;
use crate::overrides::Target;

/// What is left of each limit, and which override holds. Spends nothing.
pub(super) async fn look_up(admin: &Admin, target: &Target) -> Result<Answer, Problem> {
    let policy = known_key(admin, target)?;
    let wants = [want(target)];
    let ask = Ask { wants: &wants };
    let verdict = admin.engine.peek_under(policy.clone(), &ask).await;
    if let Answered::Invalid(problem) = &verdict.answer {
        return Err(Problem::unchanged(problem.place().1, problem.to_string()));
    }
    // As the limits were asked for, to say each in words.
    let words: Vec<String> = policy
        .matched(&ask)
        .map(|matched| {
            let entries = matched.enforced.iter().chain(&matched.advisory);
            entries.map(|entry| rate_in_words(entry.algorithm)).collect()
        })
        .unwrap_or_default();
    let limits: Vec<Value> = verdict
        .checks
        .iter()
        .zip(words)
        .map(|(judged, words)| {
            let decision = &judged.decision;
            let retry_after_ms = match decision.outcome {
                Outcome::Denied { retry_after } => Some(retry_after.as_millis_ceil()),
                Outcome::Allowed | Outcome::Never => None,
            };
            let mode = (judged.role != Role::Enforced).then(|| judged.role.name());
            json!({
                "limit": words,
                "at_once": decision.limit,
                "remaining": decision.remaining,
                "retry_after_ms": retry_after_ms,
                "reset_after_ms": decision.reset_after.as_millis_ceil(),
                "mode": mode.unwrap_or("enforced"),
            })
        })
        .collect();
    let on_outage = match verdict.source {
        Source::Fallback(choice) => Some(choice.name()),
        _ => None,
    };
    Ok(super::json(&json!({
        "rule": target.rule,
        "key": String::from_utf8_lossy(&target.key),
        "allowed": verdict.is_allowed(),
        "source": verdict.source.name(),
        "on_outage": on_outage,
        "policy_version": policy.version(),
        "override": overrides::of(admin, &policy, target),
        "limits": limits,
    })))
}

/// Makes every limit of a key whole, in the store: on all instances at once.
pub(super) async fn reset(admin: &Admin, target: &Target) -> Result<Answer, Problem> {
    known_key(admin, target)?;
    let wants = [want(target)];
    match admin.engine.forget(&Ask { wants: &wants }).await {
        Ok(()) => {
            tracing::info!(
                rule = target.rule,
                key_hash = super::hashed(&target.key),
                "admin: a key was reset"
            );
            let key = String::from_utf8_lossy(&target.key);
            Ok(super::json(&json!({ "rule": target.rule, "key": key, "reset": true })))
        }
        Err(ForgetError::Invalid(problem)) => Err(Problem::unchanged(problem.place().1, problem.to_string())),
        Err(error) => {
            let why = std::error::Error::source(&error).map_or_else(String::new, ToString::to_string);
            let title = "the store does not answer; the key may or may not be reset";
            let detail = format!("{why}; resetting it again does no harm");
            Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "store-away", title, detail))
        }
    }
}

/// The policy in force, if it has the rule and the key can be one of its keys.
pub(super) fn known_key(admin: &Admin, target: &Target) -> Result<Arc<Policy>, Problem> {
    let policy = admin.engine.policy();
    let Some(rule) = policy.rule(&target.rule) else {
        let why = format!("unknown rule \"{}\"", super::query::clip(&target.rule));
        return Err(Problem::unchanged("rule", why));
    };
    subject::check(rule.key(), policy.grouping(), &target.key)
        .map_err(|why| Problem::unchanged("key", why))?;
    Ok(policy)
}

fn want(target: &Target) -> Want<'_> {
    Want { by: By::Rule(&target.rule), key: &target.key, cost: Cost::ONE, takes: &[] }
}
