//! Envoy's rate-limit service, free of its encodings: what is asked, what is answered, and how it is
//! decided.
//!
//! gRPC and `/json` say the same things in two ways, so both doors translate into these types and ask
//! [`Service`]. With a [`Dialect`] the limits are those of envoyproxy/ratelimit's YAML; without one a
//! descriptor's entries are attributes (`descriptor.KEY`), and the policy's own rules apply.
//!
//! In reading order: `dialect` finds the limit of a descriptor, `subject` says what is counted together,
//! `plan` puts the two together for a request, `service` has it decided and answers, `metadata` is what is said
//! beside the answer, `stats` counts it.

mod dialect;
mod metadata;
mod plan;
mod service;
mod stats;
mod subject;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use tollgate::Micros;
use tollgate::core::few::Few;

pub(crate) use dialect::{Dialect, DialectBuilder, Limit, LimitSpec, Step};
pub(crate) use service::{Failure, HeaderNames, Outage, Service, Settings, Taking, is_healthy};
pub(crate) use stats::Stats;

/// The most descriptors of a request, and entries of a descriptor.
pub(crate) const DESCRIPTORS_MAX: usize = 64;
pub(crate) const ENTRIES_MAX: usize = 64;

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request<'a> {
    pub(crate) domain: Cow<'a, str>,
    pub(crate) descriptors: Few<Descriptor<'a>>,
    /// What each descriptor costs that says nothing else; 0 is 1.
    pub(crate) hits_addend: u32,
}

/// One thing a request is measured by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Descriptor<'a> {
    pub(crate) entries: Few<Entry<'a>>,
    /// A limit that the caller brings along.
    pub(crate) carried: Option<Carried>,
    /// What it costs; 0 only looks.
    pub(crate) hits_addend: Option<u64>,
    /// Whether the cost is given back instead of taken.
    pub(crate) is_negative: bool,
}

/// One key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) key: Cow<'a, str>,
    pub(crate) value: Cow<'a, str>,
}

/// A limit that a descriptor carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Carried {
    pub(crate) requests_per_unit: u32,
    /// `None` for a unit that nobody knows.
    pub(crate) unit: Option<Unit>,
}

/// Envoy's units of time, with the numbers they have in its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Unit {
    Second = 1,
    Minute = 2,
    Hour = 3,
    Day = 4,
    Month = 5,
    Year = 6,
    Week = 7,
}

impl Unit {
    /// All of them.
    pub(crate) const ALL: [Unit; 7] =
        [Unit::Second, Unit::Minute, Unit::Hour, Unit::Day, Unit::Month, Unit::Year, Unit::Week];

    /// By its number on the wire.
    pub(crate) fn of_number(number: u64) -> Option<Unit> {
        Unit::ALL.into_iter().find(|unit| *unit as u64 == number)
    }

    /// By its name, in any case.
    pub(crate) fn parse(name: &str) -> Option<Unit> {
        Unit::ALL.into_iter().find(|unit| unit.name().eq_ignore_ascii_case(name))
    }

    /// The one whose length this is.
    pub(crate) fn of_span(span: Micros) -> Option<Unit> {
        Unit::ALL.into_iter().find(|unit| unit.span() == span)
    }

    /// Its name on the wire.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Unit::Second => "SECOND",
            Unit::Minute => "MINUTE",
            Unit::Hour => "HOUR",
            Unit::Day => "DAY",
            Unit::Month => "MONTH",
            Unit::Year => "YEAR",
            Unit::Week => "WEEK",
        }
    }

    /// How long it is: a month has 30 days and a year 365, as in the original.
    pub(crate) const fn span(self) -> Micros {
        Micros::from_secs(match self {
            Unit::Second => 1,
            Unit::Minute => 60,
            Unit::Hour => 3_600,
            Unit::Day => 86_400,
            Unit::Week => 604_800,
            Unit::Month => 2_592_000,
            Unit::Year => 31_536_000,
        })
    }
}

/// Whether a request, or a descriptor, may pass; with the numbers of Envoy's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    Ok = 1,
    OverLimit = 2,
}

/// One answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Response {
    pub(crate) code: Code,
    /// One for each descriptor, in order.
    pub(crate) statuses: Few<Status>,
    /// Headers for the client of whoever asks.
    pub(crate) headers: Vec<(Arc<str>, String)>,
    /// What is said beside it.
    pub(crate) metadata: Option<Metadata>,
}

/// One descriptor's answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Status {
    pub(crate) code: Code,
    pub(crate) limit: Option<Shown>,
    pub(crate) remaining: u32,
    /// Whole seconds until the limit is whole again, rounded up.
    pub(crate) reset_after_secs: Option<u64>,
}

/// The limit that a status is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) requests_per_unit: u32,
    /// `None` for a window that Envoy has no name for.
    pub(crate) unit: Option<Unit>,
    pub(crate) name: Option<Arc<str>>,
}

/// A free value of a limit's `metadata`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Number(u64),
    Text(String),
    List(Vec<Value>),
    Map(Metadata),
}

/// Free values by name, in the order written.
pub(crate) type Metadata = Vec<(String, Value)>;

/// What is wrong with a request. Nothing was spent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BadRequest {
    /// `descriptors[1].limit.unit`
    pub(crate) field: String,
    pub(crate) what: String,
}

impl BadRequest {
    pub(crate) fn new(field: impl Into<String>, what: impl Into<String>) -> BadRequest {
        BadRequest { field: field.into(), what: what.into() }
    }
}

impl fmt::Display for BadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.what)
    }
}

impl Request<'_> {
    /// Whether the caller brings a limit along, or gives something back: what can undo a limit.
    pub(crate) fn undoes(&self) -> Option<&'static str> {
        self.descriptors.iter().find_map(|descriptor| {
            if descriptor.is_negative {
                Some("a refund (is_negative_hits)")
            } else if descriptor.carried.is_some() {
                Some("a limit in a descriptor")
            } else {
                None
            }
        })
    }

    /// What is wrong with it as a whole.
    pub(crate) fn check(&self) -> Result<(), BadRequest> {
        if self.domain.is_empty() {
            return Err(BadRequest::new("domain", "rate limit domain must not be empty"));
        }
        match self.descriptors.len() {
            0 => return Err(BadRequest::new("descriptors", "rate limit descriptor list must not be empty")),
            1..=DESCRIPTORS_MAX => {}
            many => {
                let what = format!("are {many}: at most {DESCRIPTORS_MAX} in one request");
                return Err(BadRequest::new("descriptors", what));
            }
        }
        for (at, descriptor) in self.descriptors.iter().enumerate() {
            if descriptor.entries.len() > ENTRIES_MAX {
                let what = format!("are {}: at most {ENTRIES_MAX}", descriptor.entries.len());
                return Err(BadRequest::new(format!("descriptors[{at}].entries"), what));
            }
            if descriptor.carried.is_some_and(|carried| carried.unit.is_none()) {
                let what = "is not known: use SECOND, MINUTE, HOUR, DAY, WEEK, MONTH or YEAR";
                return Err(BadRequest::new(format!("descriptors[{at}].limit.unit"), what));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
