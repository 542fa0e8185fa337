//! Bytes to an ask. Everything a caller can get wrong ends here, with the field named and nothing
//! spent; what only the policy can know (an unknown rule, two checks on one key) the engine says.
//!
//! hot path: a check of a named rule borrows its key and rule from the body and allocates nothing.

use std::borrow::Cow;
use std::sync::Arc;

use tollgate::core::ask::WANTS_MAX;
use tollgate::core::decision::Take;
use tollgate::core::few::Few;
use tollgate::core::key::SUBJECT_BYTES_MAX;
use tollgate::{By, Cost, InlineLimit, Micros, Want};

use super::inline;
use super::raw::{Fault, RawAsk, RawCheck, RawChecks, Value};
use crate::limit::Written;
use crate::net::problem::Problem;

/// The fields a check may have.
const FIELDS: &str = "rule, key, cost, limit, burst, algorithm, time_zone (and take, to refund)";

/// The most takes one check can have made.
const TAKES_MAX: usize = WANTS_MAX;

/// One thing a body asks for.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    by: WantedBy<'a>,
    key: Cow<'a, str>,
    cost: Cost,
    takes: Vec<Take>,
}

#[derive(Debug)]
enum WantedBy<'a> {
    Rule(Cow<'a, str>),
    Inline(Arc<InlineLimit>),
}

/// What the caller wants done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Spend, or look.
    Ask,
    /// Undo: every check names its take.
    Refund,
}

impl Wanted<'_> {
    /// As the engine asks it.
    pub(super) fn want(&self) -> Want<'_> {
        let by = match &self.by {
            WantedBy::Rule(name) => By::Rule(name),
            WantedBy::Inline(limit) => By::Inline(limit),
        };
        Want { by, key: self.key.as_bytes(), cost: self.cost, takes: &self.takes }
    }

    /// Whether the caller brought the limit along.
    pub(super) fn is_inline(&self) -> bool {
        matches!(self.by, WantedBy::Inline(_))
    }
}

/// An ask as it was read: its checks, and whether they stood in a list.
#[derive(Debug)]
pub(super) struct Decoded<'a> {
    pub(super) wanted: Few<Wanted<'a>>,
    pub(super) shape: Shape,
}

/// How the checks were written, so that a problem is reported where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// The body is the check.
    Single,
    /// The body has a list of them.
    List,
}

impl Shape {
    /// The path of a field of the check at that place.
    pub(super) fn path(self, at: usize, field: &str) -> String {
        match self {
            Shape::Single => field.to_owned(),
            Shape::List => format!("checks[{at}].{field}"),
        }
    }
}

/// Reads a body.
pub(super) fn ask(body: &[u8], purpose: Purpose, log_max: u32) -> Result<Decoded<'_>, Problem> {
    let raw: RawAsk<'_> = serde_json::from_slice(body).map_err(|error| not_json(&error))?;
    let RawAsk { check, checks } = raw;
    let Some(checks) = checks else {
        let wanted = wanted(check, Shape::Single, 0, purpose, log_max)?;
        return Ok(Decoded { wanted: Few::One(wanted), shape: Shape::Single });
    };
    if let Some(fault) = check.fault {
        return Err(fault_problem(fault, String::new()));
    }
    if check != RawCheck::default() {
        return Err(Problem::field(
            "checks",
            "stands beside fields of a single check: put them into the list",
        ));
    }
    let list = match checks {
        RawChecks::List(list) if list.is_empty() => {
            return Err(Problem::field("checks", "is empty: give at least one check"));
        }
        RawChecks::List(list) => list,
        RawChecks::TooMany(count) => {
            return Err(Problem::field(
                "checks",
                format!("has {count} checks: at most {WANTS_MAX} in one ask"),
            ));
        }
        RawChecks::Other(found) => {
            return Err(Problem::field("checks", format!("must be a list of checks; found {found}")));
        }
    };
    let read = |(at, raw)| wanted(raw, Shape::List, at, purpose, log_max);
    let wanted = list.into_iter().enumerate().map(read).collect::<Result<Few<_>, _>>()?;
    Ok(Decoded { wanted, shape: Shape::List })
}

fn not_json(error: &serde_json::Error) -> Problem {
    let title = "the body is not JSON; nothing was spent";
    Problem::new(hyper::StatusCode::BAD_REQUEST, "not-json", title, error.to_string())
}

fn fault_problem(fault: Fault<'_>, prefix: String) -> Problem {
    match fault {
        Fault::NotAnObject(found) => {
            let what = format!("must be an object with {FIELDS}; found {found}");
            if !prefix.is_empty() {
                return Problem::field(prefix, what);
            }
            let title = "the body is not an object; nothing was spent";
            Problem::new(hyper::StatusCode::BAD_REQUEST, "bad-body", title, format!("the body {what}"))
        }
        Fault::Unknown(name) => {
            let name: String = name.chars().take(64).collect();
            let what = format!("unknown field: use {FIELDS}, or checks with a list of these");
            Problem::field(join(&prefix, &name), what)
        }
        Fault::Twice(name) => Problem::field(join(&prefix, name), "is written twice: say it once"),
    }
}

fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") }
}

fn wanted(
    raw: RawCheck<'_>,
    shape: Shape,
    at: usize,
    purpose: Purpose,
    log_max: u32,
) -> Result<Wanted<'_>, Problem> {
    let RawCheck { rule, key, cost, limit, burst, algorithm, time_zone, take, fault } = raw;
    if let Some(fault) = fault {
        let prefix = if shape == Shape::Single { String::new() } else { format!("checks[{at}]") };
        return Err(fault_problem(fault, prefix));
    }
    let field = |name: &'static str| move |what| Problem::field(shape.path(at, name), what);

    let rule = text(rule).map_err(field("rule"))?;
    let key = text(key).and_then(check_key).map_err(field("key"))?;
    let cost = whole(&cost).map_err(field("cost"))?.map_or(Cost::ONE, |n| Cost::new(n).unwrap_or(Cost::ONE));
    let written_limit = text(limit).map_err(field("limit"))?;
    let burst = whole(&burst).map_err(field("burst"))?;
    let algorithm = text(algorithm).map_err(field("algorithm"))?;
    let time_zone = text(time_zone).map_err(field("time_zone"))?;

    let by = match (rule, written_limit) {
        (Some(_), Some(_)) => {
            return Err(field("limit")(
                "stands beside a rule, which has a limit of its own: give one of them".into(),
            ));
        }
        (None, None) => {
            let what = "is missing: name a rule, or bring a limit such as \"limit\":\"100/s\"";
            return Err(field("rule")(what.into()));
        }
        (Some(rule), None) => {
            for (name, is_there) in [
                ("burst", burst.is_some()),
                ("algorithm", algorithm.is_some()),
                ("time_zone", time_zone.is_some()),
            ] {
                if is_there {
                    return Err(Problem::field(
                        shape.path(at, name),
                        "belongs to an inline limit; the rule has its own",
                    ));
                }
            }
            WantedBy::Rule(rule)
        }
        (None, Some(limit)) => {
            let written = Written {
                limit: &limit,
                burst,
                algorithm: algorithm.as_deref(),
                time_zone: time_zone.as_deref(),
            };
            let built = inline::limit(&written, log_max);
            WantedBy::Inline(
                built.map_err(|problem| Problem::field(shape.path(at, problem.field), problem.why))?,
            )
        }
    };
    let takes = match (purpose, text(take).map_err(field("take"))?) {
        (Purpose::Ask, None) => Vec::new(),
        (Purpose::Ask, Some(_)) => return Err(field("take")("belongs to /v1/refund".into())),
        (Purpose::Refund, None) => {
            return Err(field("take")("is missing: give it as the check answered it".into()));
        }
        (Purpose::Refund, Some(text)) => takes(&text).ok_or_else(|| {
            field("take")(
                "is not a take: give it as the check answered it, such as \"1763194000123456.0\"".into(),
            )
        })?,
    };
    Ok(Wanted { by, key, cost, takes })
}

type What = Cow<'static, str>;

fn text(value: Value<'_>) -> Result<Option<Cow<'_, str>>, What> {
    match value {
        Value::Absent => Ok(None),
        Value::Text(text) => Ok(Some(text)),
        Value::Whole(_) => Err("must be text; found a number".into()),
        Value::Other(found) => Err(format!("must be text; found {found}").into()),
    }
}

/// A count: at least one.
fn whole(value: &Value<'_>) -> Result<Option<u32>, What> {
    let found = match *value {
        Value::Absent => return Ok(None),
        Value::Whole(number) => match u32::try_from(number) {
            Ok(number) if number > 0 => return Ok(Some(number)),
            _ => number.to_string().into(),
        },
        Value::Text(_) => Cow::Borrowed("text"),
        Value::Other(found) => Cow::Borrowed(found),
    };
    Err(format!("must be a whole number from 1 to {}; found {found}", u32::MAX).into())
}

fn check_key(key: Option<Cow<'_, str>>) -> Result<Cow<'_, str>, What> {
    let Some(key) = key else { return Err("is missing: say whose limit it is".into()) };
    if key.is_empty() {
        return Err("is empty: say whose limit it is".into());
    }
    if key.len() > SUBJECT_BYTES_MAX {
        return Err(format!("is {} bytes long: at most {SUBJECT_BYTES_MAX}", key.len()).into());
    }
    let has_control = if key.is_ascii() {
        key.bytes().any(|byte| byte.is_ascii_control())
    } else {
        key.chars().any(char::is_control)
    };
    if has_control {
        return Err("has a control character: use printable text".into());
    }
    Ok(key)
}

/// Reads `at.entry` joined by commas. Digits only, so that there is one way to write a take.
fn takes(text: &str) -> Option<Vec<Take>> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let mut takes = Vec::with_capacity(1);
    for one in text.split(',') {
        let (at, entry) = one.split_once('.')?;
        if !digits(at) || !digits(entry) || takes.len() == TAKES_MAX {
            return None;
        }
        let at = at.parse().ok().filter(|&at| at <= tollgate::core::units::EXACT_MAX)?;
        takes.push(Take { at: Micros(at), entry: entry.parse().ok()? });
    }
    Some(takes)
}
