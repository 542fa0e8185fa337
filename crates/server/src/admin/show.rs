//! Health and policy as JSON documents.

use serde_json::{Value, json};
use tollgate::{OnOutage, Policy};

use super::About;
use crate::engine::Engine;
use crate::limit::rate_in_words;
use crate::shutdown::Phase;

/// How the server is doing. Degraded is not down: rules still answer, by their `on_outage`.
pub(super) fn health(engine: &Engine, about: &About, phase: Phase) -> Value {
    let health = engine.health();
    let mut reasons = Vec::new();
    if let Some(outage) = &health.outage {
        let seconds = outage.since.elapsed().as_secs();
        reasons.push(format!(
            "the store has not answered for {seconds} s ({}); rules answer by on_outage",
            outage.error
        ));
    }
    if phase != Phase::Serving {
        reasons.push(if phase == Phase::Starting { "starting" } else { "draining" }.to_owned());
    }
    json!({
        "status": if reasons.is_empty() { "ok" } else { "degraded" },
        "reasons": reasons,
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_s": about.started.elapsed().as_secs(),
        "store": about.store,
        "instances": health.instances,
        "policy_version": health.policy_version,
    })
}

/// The rules in force, with what they inherit filled in.
pub(super) fn policy(policy: &Policy, on_outage: OnOutage) -> Value {
    let rules: Vec<Value> = policy
        .rules()
        .iter()
        .map(|rule| {
            let limits: Vec<Value> = rule
                .limits()
                .iter()
                .map(|limit| {
                    let algorithm = limit.algorithm();
                    json!({
                        "limit": rate_in_words(algorithm),
                        "algorithm": algorithm.kind().name(),
                        "at_once": algorithm.limit(),
                        "whole_after_ms": algorithm.time_to_whole().as_millis_ceil(),
                    })
                })
                .collect();
            json!({
                "name": rule.name(),
                "limits": limits,
                "on_outage": rule.on_outage().unwrap_or(on_outage).name(),
            })
        })
        .collect();
    json!({ "version": policy.version(), "rules": rules })
}
