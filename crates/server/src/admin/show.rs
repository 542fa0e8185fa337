//! Health and policy as JSON documents.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tollgate::core::policy::{Lease, List, Mode, Rule, RuleLimit};
use tollgate::store::AnyStore;
use tollgate::{Micros, OnOutage, Policy};

use super::Admin;
use super::reload::problems;
use crate::config::policy::print;
use crate::facing::Facing;
use crate::limit::rate_in_words;
use crate::reload::{Failure, InForce};
use crate::rls::{Limit, LimitSpec, Unit};
use crate::shutdown::Phase;

/// How the server is doing. Degraded is not down: rules still answer, by their `on_outage`.
pub(super) fn health(admin: &Admin) -> Value {
    let (health, phase) = (admin.engine.health(), admin.life.phase());
    let reloads = admin.reloader.status();
    let mut reasons = Vec::new();
    if let Some(outage) = &health.outage {
        let seconds = outage.since.elapsed().as_secs();
        reasons.push(format!(
            "the store has not answered for {seconds} s ({}); rules answer by on_outage: {}",
            outage.error,
            on_outage_in_words(&admin.engine.policy(), admin.about.on_outage),
        ));
    }
    if phase != Phase::Serving {
        reasons.push(if phase == Phase::Starting { "starting" } else { "draining" }.to_owned());
    }
    if let Some(Failure { at, why }) = &reloads.failure {
        let version = reloads.in_force.version;
        reasons
            .push(format!("the file was refused at {}; version {version} stays in force: {why}", when(*at)));
    }
    if is_client_time(admin) && !admin.about.client_time {
        let reason = "scripts may not read the clock of Redis: time is reckoned by each instance";
        reasons.push(reason.to_owned());
    }
    let overrides = admin.overrides.snapshot();
    if let Some((since, error)) = overrides.is_out_of_reach() {
        let seconds = since.elapsed().as_secs();
        reasons.push(format!(
            "the board of overrides has been out of reach for {seconds} s ({error}); those that are known hold on"
        ));
    }
    let refused = reloads.failure.as_ref().map(
        |Failure { at, why }| json!({ "file": admin.about.file, "at": when(*at), "problems": problems(why) }),
    );
    json!({
        "status": if reasons.is_empty() { "ok" } else { "degraded" },
        "reasons": reasons,
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_s": admin.about.started.elapsed().as_secs(),
        "store": admin.about.store,
        "client_time": is_client_time(admin),
        "instances": health.instances,
        "policy_version": health.policy_version,
        "policy_sha256": reloads.in_force.digest.to_string(),
        "forgets": reloads.in_force.forgets,
        "overrides": overrides.known.len(),
        "refused_file": refused,
    })
}

fn is_client_time(admin: &Admin) -> bool {
    matches!(admin.engine.store(), AnyStore::Redis(store) if store.stats().client_time)
}

/// What the rules answer during an outage: `2 allow, 1 deny`.
fn on_outage_in_words(policy: &Policy, otherwise: OnOutage) -> String {
    let answers = |choice: OnOutage| {
        policy.rules().iter().filter(|rule| rule.on_outage().unwrap_or(otherwise) == choice).count()
    };
    let counted = [OnOutage::Allow, OnOutage::Deny, OnOutage::Local].map(|choice| (answers(choice), choice));
    let counted = counted.iter().filter(|(count, _)| *count > 0);
    counted.map(|(count, choice)| format!("{count} {choice}")).collect::<Vec<_>>().join(", ")
}

/// The rules in force, with what they inherit filled in.
pub(super) fn policy(admin: &Admin) -> Value {
    let policy = admin.engine.policy();
    let reloads = admin.reloader.status();
    let InForce { version: _, digest, loaded, restart_needed, forgets: _ } = &reloads.in_force;
    let rules: Vec<Value> =
        policy.rules().iter().map(|one| rule(one, admin.about.on_outage).into()).collect();
    json!({
        "version": policy.version(),
        "file": admin.about.file,
        "sha256": digest.to_string(),
        "loaded": when(*loaded),
        "restart_needed": restart_needed,
        "allow": entries(policy.allow()),
        "deny": entries(policy.deny()),
        "rules": rules,
        // The whole of it, as a file that says the same.
        "yaml": print(&policy, admin.about.on_outage),
    })
}

/// One rule. What it does not have is left out.
fn rule(rule: &Rule, on_outage: OnOutage) -> Map<String, Value> {
    let mut shown = Map::new();
    shown.insert("name".to_owned(), rule.name().into());
    if let Some(key) = rule.key() {
        shown.insert("key".to_owned(), key.to_string().into());
    }
    shown.insert("limits".to_owned(), limits(rule.limits()));
    if let Some(attribute) = rule.picks_by() {
        let plans = rule.plans().iter().map(|plan| (plan.name().to_owned(), limits(plan.limits())));
        shown.insert("plan_by".to_owned(), attribute.to_string().into());
        shown.insert("plans".to_owned(), plans.collect::<Map<_, _>>().into());
    }
    shown.insert("on_outage".to_owned(), rule.on_outage().unwrap_or(on_outage).name().into());
    if rule.mode() != Mode::Enforce {
        shown.insert("mode".to_owned(), rule.mode().name().into());
    }
    match rule.lease() {
        None => {}
        Some(Lease::Auto) => _ = shown.insert("lease".to_owned(), "auto".into()),
        Some(Lease::Within { max, time }) => {
            let within = json!({ "max": max, "for": time.to_string() });
            shown.insert("lease".to_owned(), within);
        }
    }
    if !rule.candidate().is_empty() {
        shown.insert("candidate".to_owned(), limits(rule.candidate()));
    }
    for (name, list) in [("allow", rule.allow()), ("deny", rule.deny())] {
        if !list.is_empty() {
            shown.insert(name.to_owned(), entries(list).into());
        }
    }
    if !rule.overrides().is_empty() {
        shown.insert("overrides".to_owned(), rule.overrides().len().into());
    }
    shown
}

/// How many entries a list has: they may be many, and some are callers' addresses.
fn entries(list: &List) -> usize {
    list.conditions.len() + list.keys.len()
}

pub(super) fn limits(limits: &[RuleLimit]) -> Value {
    let limits = limits.iter().map(|limit| {
        let algorithm = limit.algorithm();
        json!({
            "limit": rate_in_words(algorithm),
            "algorithm": algorithm.kind().name(),
            "at_once": algorithm.limit(),
            "whole_after_ms": algorithm.time_to_whole().as_millis_ceil(),
        })
    });
    limits.collect()
}

/// An instant of this host's clock, for people: `2026-11-15T10:00:00Z`, to the second.
pub(super) fn when(at: Micros) -> String {
    let seconds = i64::try_from(at.0 / 1_000_000).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds).map_or_else(|_| "unknown".to_owned(), |at| at.to_string())
}

/// The limits of envoyproxy/ratelimit's YAML, a line each, as that program shows them.
pub(super) fn envoys_limits(admin: &Admin) -> String {
    let policy = admin.engine.policy();
    let Some(dialect) = Facing::of(&policy).and_then(|facing| facing.rls.dialect.as_ref()) else {
        return String::new();
    };
    let line = |limit: &Arc<Limit>| {
        let unit = |unit: Option<Unit>| unit.map_or("UNKNOWN", Unit::name);
        let (unit, count) = match &limit.spec {
            LimitSpec::Unlimited => ("UNKNOWN", 0),
            LimitSpec::Nothing { unit: of, .. } => (unit(*of), 0),
            LimitSpec::Rate { unit: of, requests_per_unit, .. } => (unit(*of), *requests_per_unit),
        };
        let (path, shadow, quota) = (&limit.path, limit.is_shadow, limit.is_quota);
        format!("{path}: unit={unit} requests_per_unit={count}, shadow_mode: {shadow}, quota_mode: {quota}\n")
    };
    dialect.limits().into_iter().map(line).collect()
}
