//! Overrides over the admin door: read strictly, so that nobody blocks a key by a typing mistake.

use std::time::Duration;

use hyper::StatusCode;
use serde_json::{Map, Value, json};
use tollgate::core::board::Post;
use tollgate::core::policy::Override;
use tollgate::core::store::StoreError;
use tollgate::{Micros, Policy, clock};

use super::keys::known_key;
use super::query::{check_key, clip};
use super::show::when;
use super::{Admin, hashed};
use crate::config::parse_span;
use crate::limit::{LimitProblem, rate_in_words};
use crate::net::Answer;
use crate::net::problem::Problem;
use crate::overrides::{Change, Known, LimitText, Misfit, Target, What};

/// How long an override holds that does not say.
const TTL: Duration = Duration::from_hours(1);

/// The longest one can hold: what is to hold for ever belongs in the file.
const TTL_MAX: Duration = Duration::from_hours(30 * 24);

const REASON_CHARACTERS_MAX: usize = 256;
const BY_CHARACTERS_MAX: usize = 128;

/// More limits than a rule will have.
const LIMITS_MAX: usize = 16;

const FIELDS: [&str; 10] =
    ["rule", "key", "limit", "burst", "limits", "blocked", "unlimited", "ttl", "reason", "by"];

/// Makes an override.
pub(super) async fn put(admin: &Admin, body: &[u8]) -> Result<Answer, Problem> {
    let Wanted { target, change, keep_for, places } = read(body)?;
    let policy = known_key(admin, &target)?;
    if let Some(rule) = policy.rule(&target.rule) {
        change.build(rule, admin.log_max).map_err(|misfit| blame(&misfit, &places))?;
    }
    let posted = admin.overrides.put(&target, &change, keep_for).await;
    done(posted, "post")?;
    tracing::info!(
        rule = target.rule,
        key_hash = hashed(&target.key),
        what = in_words(&change.what),
        seconds = keep_for.as_secs(),
        reason = change.reason,
        by = change.by,
        "admin: an override was made"
    );
    let ends = clock::instant().checked_add(keep_for);
    let known = Known { change, ends: ends.unwrap_or_else(clock::instant), idle: None };
    Ok(super::json(&shown(&target, &known)))
}

/// Takes an override down.
pub(super) async fn remove(admin: &Admin, target: &Target) -> Result<Answer, Problem> {
    let was_there = admin.overrides.snapshot().known.contains_key(target);
    done(admin.overrides.remove(target).await, "take down")?;
    tracing::info!(rule = target.rule, key_hash = hashed(&target.key), "admin: an override was removed");
    let key = String::from_utf8_lossy(&target.key);
    Ok(super::json(&json!({ "rule": target.rule, "key": key, "removed": was_there })))
}

/// Every override that is known here.
pub(super) fn list(admin: &Admin) -> Answer {
    let snapshot = admin.overrides.snapshot();
    let all: Vec<Value> = snapshot.known.iter().map(|(target, known)| shown(target, known)).collect();
    let unreachable = snapshot.is_out_of_reach().map(|(since, error)| {
        format!("the board has been out of reach for {} s: {error}", since.elapsed().as_secs())
    });
    super::json(&json!({ "overrides": all, "unreachable": unreachable }))
}

/// The override that holds for a key, if one does: a person's, or the file's.
pub(super) fn of(admin: &Admin, policy: &Policy, target: &Target) -> Value {
    if let Some(known) = admin.overrides.snapshot().known.get(target) {
        return shown(target, known);
    }
    let rule = policy.rule(&target.rule);
    match rule.and_then(|rule| rule.overrides().get(target.key.as_slice())) {
        None => Value::Null,
        Some(Override::Blocked) => json!({ "from": "file", "blocked": true }),
        Some(Override::Unlimited) => json!({ "from": "file", "unlimited": true }),
        Some(Override::Limits(limits)) => {
            let limits: Vec<String> = limits.iter().map(rate_in_words).collect();
            json!({ "from": "file", "limits": limits })
        }
    }
}

fn shown(target: &Target, known: &Known) -> Value {
    let Known { change: Change { what, reason, by }, ends, idle } = known;
    let left = ends.saturating_duration_since(clock::instant());
    let mut shown = json!({
        "from": "admin",
        "rule": target.rule,
        "key": String::from_utf8_lossy(&target.key),
        "reason": reason,
        "by": by,
        "until": when(clock::wall() + Micros::from(left)),
        "seconds_left": left.as_secs(),
    });
    let (field, value) = match what {
        What::Blocked => ("blocked", true.into()),
        What::Unlimited => ("unlimited", true.into()),
        What::Limits(limits) => ("limits", json!(limits)),
    };
    shown[field] = value;
    if let Some(why) = idle {
        shown["idle"] = why.as_str().into();
    }
    shown
}

fn in_words(what: &What) -> String {
    match what {
        What::Blocked => "blocked".to_owned(),
        What::Unlimited => "unlimited".to_owned(),
        What::Limits(limits) => limits.iter().map(|one| one.limit.as_str()).collect::<Vec<_>>().join(", "),
    }
}

fn done(posted: Result<Post, StoreError>, what: &str) -> Result<(), Problem> {
    match posted {
        Ok(Post::Done) => Ok(()),
        Ok(Post::TooLong) => {
            Err(Problem::unchanged("key", "key, limits, reason and by are too long together"))
        }
        Ok(Post::Full) => {
            let title = "the board has no room for another override; nothing was changed";
            let detail = "remove some, or put what is to hold for long into the file";
            Err(Problem::new(StatusCode::INSUFFICIENT_STORAGE, "full", title, detail))
        }
        Err(error) => {
            let title = "the store does not answer; the change may or may not have been made";
            let detail = format!("{error}; to {what} it again does no harm");
            Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "store-away", title, detail))
        }
    }
}

/// An override as it is asked for.
#[derive(Debug)]
struct Wanted {
    target: Target,
    change: Change,
    keep_for: Duration,
    places: Vec<Places>,
}

/// Where the limit and the burst of one of the limits stand in the body.
#[derive(Debug, Clone)]
struct Places {
    limit: String,
    burst: String,
}

/// A limit that does not fit its rule, blamed on the field it came from.
fn blame(misfit: &Misfit, places: &[Places]) -> Problem {
    let Misfit { at, problem: LimitProblem { field, why, .. } } = misfit;
    let place = at.and_then(|at| places.get(at)).map(|place| match *field {
        "burst" => place.burst.as_str(),
        _ => place.limit.as_str(),
    });
    Problem::unchanged(place.unwrap_or(field), why.clone())
}

fn read(body: &[u8]) -> Result<Wanted, Problem> {
    let fields: Map<String, Value> = serde_json::from_slice(body).map_err(|error| {
        let title = "the body is no JSON object; nothing was changed";
        Problem::new(StatusCode::BAD_REQUEST, "bad-json", title, error.to_string())
    })?;
    if let Some(unknown) = fields.keys().find(|name| !FIELDS.contains(&name.as_str())) {
        return Err(Problem::unchanged(clip(unknown), format!("unknown field: use {}", FIELDS.join(", "))));
    }
    let mut fields = Fields(fields);
    let rule = fields.text("rule", 64)?.ok_or_else(|| missing("rule", "name the rule"))?;
    let key = fields.text("key", usize::MAX)?.ok_or_else(|| missing("key", "say whose limit it is"))?;
    check_key(key.as_bytes())?;
    let reason = fields.text("reason", REASON_CHARACTERS_MAX)?.filter(|reason| !reason.trim().is_empty());
    let reason = reason.ok_or_else(|| missing("reason", "say why, for whoever finds it"))?;
    let by = fields.text("by", BY_CHARACTERS_MAX)?.unwrap_or_default();
    let keep_for = match fields.text("ttl", 32)? {
        None => TTL,
        Some(ttl) => parse_span(&ttl, &(Duration::from_secs(1)..=TTL_MAX))
            .map_err(|why| Problem::unchanged("ttl", why))?,
    };
    let (what, places) = fields.what()?;
    let target = Target { rule, key: key.into_bytes() };
    Ok(Wanted { target, change: Change { what, reason, by }, keep_for, places })
}

fn missing(field: &'static str, hint: &str) -> Problem {
    Problem::unchanged(field, format!("is missing: {hint}"))
}

/// The fields of a body that have not been read yet.
struct Fields(Map<String, Value>);

impl Fields {
    fn text(&mut self, name: &'static str, characters_max: usize) -> Result<Option<String>, Problem> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.chars().any(char::is_control) => {
                Err(Problem::unchanged(name, "has control characters in it"))
            }
            Some(Value::String(text)) if text.chars().count() > characters_max => {
                Err(Problem::unchanged(name, format!("has more than {characters_max} characters")))
            }
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Problem::unchanged(name, "must be text")),
        }
    }

    /// What is asked for, and where its limits stand.
    fn what(&mut self) -> Result<(What, Vec<Places>), Problem> {
        const CHOICE: &str = "give one of limit, limits, blocked and unlimited";
        let given: Vec<&str> = ["limit", "limits", "blocked", "unlimited"]
            .into_iter()
            .filter(|name| self.0.get(*name).is_some_and(|value| !value.is_null()))
            .collect();
        let [given] = given[..] else {
            let field = given.get(1).copied().unwrap_or("limit");
            return Err(Problem::unchanged(field, CHOICE));
        };
        let burst = self.0.remove("burst").filter(|value| !value.is_null());
        if burst.is_some() && given != "limit" {
            return Err(Problem::unchanged("burst", "stands beside limit, or within each of limits"));
        }
        let value = self.0.remove(given).unwrap_or_default();
        match given {
            "blocked" | "unlimited" if value != Value::Bool(true) => {
                Err(Problem::unchanged(given, "is true, or left out"))
            }
            "blocked" => Ok((What::Blocked, Vec::new())),
            "unlimited" => Ok((What::Unlimited, Vec::new())),
            "limit" => {
                let places = Places { limit: "limit".to_owned(), burst: "burst".to_owned() };
                Ok((What::Limits(vec![limit_text(&places, value, burst)?]), vec![places]))
            }
            _ => many(value),
        }
    }
}

fn many(value: Value) -> Result<(What, Vec<Places>), Problem> {
    let Value::Array(items) = value else {
        return Err(Problem::unchanged("limits", "must be a list: one for each limit of the rule"));
    };
    if items.len() > LIMITS_MAX {
        return Err(Problem::unchanged("limits", format!("has more than {LIMITS_MAX}")));
    }
    let (mut limits, mut all) = (Vec::with_capacity(items.len()), Vec::with_capacity(items.len()));
    for (at, item) in items.into_iter().enumerate() {
        let mut places = Places { limit: format!("limits[{at}]"), burst: format!("limits[{at}].burst") };
        let (limit, burst) = match item {
            Value::Object(mut fields) => {
                places.limit.push_str(".limit");
                let parts = (fields.remove("limit").unwrap_or_default(), fields.remove("burst"));
                if let Some(unknown) = fields.keys().next() {
                    let field = format!("limits[{at}].{}", clip(unknown));
                    return Err(Problem::unchanged(field, "unknown field: use limit and burst"));
                }
                parts
            }
            text => (text, None),
        };
        limits.push(limit_text(&places, limit, burst.filter(|value| !value.is_null()))?);
        all.push(places);
    }
    Ok((What::Limits(limits), all))
}

fn limit_text(places: &Places, limit: Value, burst: Option<Value>) -> Result<LimitText, Problem> {
    let Places { limit: limit_at, burst: burst_at } = places;
    let Value::String(limit) = limit else {
        let why = "must be text: how many per how long, such as 100/s";
        return Err(Problem::unchanged(limit_at.as_str(), why));
    };
    if limit.len() > 64 {
        return Err(Problem::unchanged(limit_at.as_str(), "has more than 64 bytes"));
    }
    let burst = match burst {
        None => None,
        Some(number) => {
            let whole = number.as_u64().and_then(|number| u32::try_from(number).ok());
            let why = "must be a whole number from 1 to 4294967295";
            Some(whole.filter(|burst| *burst > 0).ok_or_else(|| Problem::unchanged(burst_at.as_str(), why))?)
        }
    };
    Ok(LimitText { limit, burst })
}
