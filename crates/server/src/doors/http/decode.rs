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
use tollgate::identity::Identity;
use tollgate::{By, Cost, InlineLimit, Rule, Want};

use super::attributes;
use super::raw::{ASKS_MAX, Fault, RawAsk, RawCheck, RawList, Value};
use crate::inline;
use crate::limit::{LimitProblem, Written};
use crate::net::problem::Problem;
use crate::takes;
use crate::told::Told;

/// The fields a check may have.
const FIELDS: &str = "attributes, rule, key, cost, limit, burst, algorithm, time_zone (and take, to refund)";

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
    RuleFor(Cow<'a, str>, Box<Told>),
    Attributes(Box<Told>),
    Inline(Arc<InlineLimit>),
}

/// What a body is read with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading<'i> {
    /// What the caller wants done.
    pub(super) purpose: Purpose,
    /// The longest `sliding_log`.
    pub(super) log_max: u32,
    /// Where tokens stand, and how they are verified.
    pub(super) identity: &'i Identity,
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
            WantedBy::RuleFor(name, told) => By::RuleFor(name, &**told),
            WantedBy::Attributes(told) => By::Attributes(&**told),
            WantedBy::Inline(limit) => By::Inline(limit),
        };
        Want { by, key: self.key.as_bytes(), cost: self.cost, takes: &self.takes }
    }

    /// Whether the caller brought the limit along.
    pub(super) fn is_inline(&self) -> bool {
        matches!(self.by, WantedBy::Inline(_))
    }
}

/// A body as it was read.
#[derive(Debug)]
pub(super) enum Decoded<'a> {
    /// One ask.
    Ask(DecodedAsk<'a>),
    /// Several, each answered by itself.
    Batch(Vec<DecodedAsk<'a>>),
}

/// An ask as it was read: its checks, and how they were written.
#[derive(Debug)]
pub(super) struct DecodedAsk<'a> {
    pub(super) wanted: Few<Wanted<'a>>,
    pub(super) shape: Shape,
}

impl<'a> Decoded<'a> {
    /// Every ask in it.
    pub(super) fn asks(&self) -> &[DecodedAsk<'a>] {
        match self {
            Decoded::Ask(ask) => std::slice::from_ref(ask),
            Decoded::Batch(asks) => asks,
        }
    }
}

/// How an ask was written, so that a problem is reported where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// Its place among the body's asks, if there are several.
    ask: Option<usize>,
    /// Whether its checks stand in a list.
    is_list: bool,
}

impl Shape {
    /// The path of a field of the check at that place.
    pub(super) fn path(self, at: usize, field: &str) -> String {
        join(&self.prefix(at), field)
    }

    /// The path of a field of the ask itself.
    pub(super) fn path_of_ask(self, field: &str) -> String {
        match self.ask {
            Some(ask) => format!("asks[{ask}].{field}"),
            None => field.to_owned(),
        }
    }

    /// The path of the check at that place; empty for a body that is one.
    fn prefix(self, at: usize) -> String {
        match (self.ask, self.is_list) {
            (None, false) => String::new(),
            (None, true) => format!("checks[{at}]"),
            (Some(ask), false) => format!("asks[{ask}]"),
            (Some(ask), true) => format!("asks[{ask}].checks[{at}]"),
        }
    }
}

/// Reads a body.
pub(super) fn body<'b>(body: &'b [u8], reading: Reading<'_>) -> Result<Decoded<'b>, Problem> {
    let mut raw: RawAsk<'_> = serde_json::from_slice(body).map_err(|error| not_json(&error))?;
    let Some(asks) = raw.asks.take() else {
        return ask(raw, None, reading).map(Decoded::Ask);
    };
    if let Some(fault) = raw.check.fault {
        return Err(fault_problem(fault, ""));
    }
    if raw.check != RawCheck::default() || raw.checks.is_some() {
        return Err(Problem::field("asks", "stands beside fields of a single ask: put them into the list"));
    }
    let asks = listed(asks, "asks", "asks", ASKS_MAX)?;
    let read = |(at, raw)| ask(raw, Some(at), reading);
    asks.into_iter().enumerate().map(read).collect::<Result<_, _>>().map(Decoded::Batch)
}

fn ask<'b>(raw: RawAsk<'b>, at: Option<usize>, reading: Reading<'_>) -> Result<DecodedAsk<'b>, Problem> {
    let RawAsk { check, checks, asks } = raw;
    let single = Shape { ask: at, is_list: false };
    if asks.is_some() {
        return Err(Problem::field(
            single.path_of_ask("asks"),
            "asks stand in no other ask: put them side by side",
        ));
    }
    let Some(checks) = checks else {
        let wanted = wanted(check, single, 0, reading)?;
        return Ok(DecodedAsk { wanted: Few::One(wanted), shape: single });
    };
    if let Some(fault) = check.fault {
        return Err(fault_problem(fault, &single.prefix(0)));
    }
    let path = single.path_of_ask("checks");
    if check != RawCheck::default() {
        return Err(Problem::field(path, "stands beside fields of a single check: put them into the list"));
    }
    let list = listed(checks, &path, "checks", WANTS_MAX)?;
    let shape = Shape { ask: at, is_list: true };
    let read = |(at, raw)| wanted(raw, shape, at, reading);
    let wanted = list.into_iter().enumerate().map(read).collect::<Result<Few<_>, _>>()?;
    Ok(DecodedAsk { wanted, shape })
}

/// A list that has something in it, and not too much.
fn listed<T>(list: RawList<T>, path: &str, what: &str, most: usize) -> Result<Vec<T>, Problem> {
    match list {
        RawList::List(list) if list.is_empty() => {
            let one = what.trim_end_matches('s');
            Err(Problem::field(path, format!("is empty: give at least one {one}")))
        }
        RawList::List(list) => Ok(list),
        RawList::TooMany(count) => {
            let where_to = if what == "checks" { "one ask" } else { "one body" };
            Err(Problem::field(path, format!("has {count} {what}: at most {most} in {where_to}")))
        }
        RawList::Other(found) => {
            Err(Problem::field(path, format!("must be a list of {what}; found {found}")))
        }
    }
}

fn not_json(error: &serde_json::Error) -> Problem {
    let title = "the body is not JSON; nothing was spent";
    Problem::new(hyper::StatusCode::BAD_REQUEST, "not-json", title, error.to_string())
}

fn fault_problem(fault: Fault<'_>, prefix: &str) -> Problem {
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
            let what = format!(
                "unknown field: use {FIELDS}, or checks with a list of these, or asks with a list of such bodies"
            );
            Problem::field(join(prefix, &name), what)
        }
        Fault::Twice(name) => Problem::field(join(prefix, name), "is written twice: say it once"),
    }
}

fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") }
}

fn wanted<'b>(
    raw: RawCheck<'b>,
    shape: Shape,
    at: usize,
    reading: Reading<'_>,
) -> Result<Wanted<'b>, Problem> {
    let RawCheck { rule, key, cost, limit, burst, algorithm, time_zone, take, attributes, fault } = raw;
    if let Some(fault) = fault {
        return Err(fault_problem(fault, &shape.prefix(at)));
    }
    let field = |name: &'static str| move |what| Problem::field(shape.path(at, name), what);

    let rule = text(rule).and_then(check_rule).map_err(field("rule"))?;
    let key = text(key).map_err(field("key"))?;
    let known = attributes::read(attributes, &shape.path(at, "attributes"), reading.identity)?;
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
            let Some(known) = known else {
                let what =
                    "is missing: name a rule, or bring a limit such as \"limit\":\"100/s\", or attributes";
                return Err(field("rule")(what.into()));
            };
            if key.is_some() {
                let what = "belongs to a rule or a limit: the rules that apply know their own keys";
                return Err(field("key")(what.into()));
            }
            foreign_fields(
                &["burst", "algorithm", "time_zone"],
                [burst.is_some(), algorithm.is_some(), time_zone.is_some()],
                shape,
                at,
            )?;
            WantedBy::Attributes(known)
        }
        (Some(rule), None) => {
            foreign_fields(
                &["burst", "algorithm", "time_zone"],
                [burst.is_some(), algorithm.is_some(), time_zone.is_some()],
                shape,
                at,
            )?;
            match known {
                Some(known) => WantedBy::RuleFor(rule, known),
                None => WantedBy::Rule(rule),
            }
        }
        (None, Some(limit)) => {
            if known.is_some() {
                let what = "say nothing to an inline limit: leave them out, or name a rule";
                return Err(field("attributes")(what.into()));
            }
            let written = Written {
                limit: &limit,
                burst,
                algorithm: algorithm.as_deref(),
                time_zone: time_zone.as_deref(),
            };
            let built = inline::limit(&written, reading.log_max);
            WantedBy::Inline(built.map_err(|problem| limit_problem(problem, shape, at))?)
        }
    };
    let takes = match (reading.purpose, text(take).map_err(field("take"))?) {
        (Purpose::Ask, None) => Vec::new(),
        (Purpose::Ask, Some(_)) => return Err(field("take")("belongs to /v1/refund".into())),
        (Purpose::Refund, None) => {
            return Err(field("take")("is missing: give it as the check answered it".into()));
        }
        (Purpose::Refund, Some(text)) => takes::parse(&text).ok_or_else(|| {
            field("take")(
                "is not a take: give it as the check answered it, such as \"1763194000123456.0\"".into(),
            )
        })?,
    };
    let key = match by {
        WantedBy::Attributes(_) => Cow::Borrowed(""),
        _ => check_key(key).map_err(field("key"))?,
    };
    Ok(Wanted { by, key, cost, takes })
}

fn limit_problem(problem: LimitProblem, shape: Shape, at: usize) -> Problem {
    let field = shape.path(at, problem.field);
    if problem.is_conflict {
        Problem::conflict(field, problem.why)
    } else {
        Problem::field(field, problem.why)
    }
}

/// Fields that only an inline limit has.
fn foreign_fields(names: &[&str; 3], are_there: [bool; 3], shape: Shape, at: usize) -> Result<(), Problem> {
    match names.iter().zip(are_there).find(|(_, is_there)| *is_there) {
        Some((name, _)) => {
            Err(Problem::field(shape.path(at, name), "belongs to an inline limit; a rule has its own"))
        }
        None => Ok(()),
    }
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

/// A name that no rule can have is refused before the policy is asked.
fn check_rule(rule: Option<Cow<'_, str>>) -> Result<Option<Cow<'_, str>>, What> {
    match &rule {
        Some(name) => match Rule::check_name(name) {
            Ok(()) => Ok(rule),
            Err(_) => Err("is no name of a rule: they have 1 to 64 letters, digits, '-', '_' or '.'".into()),
        },
        None => Ok(None),
    }
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
