//! What is to be done about each descriptor of a request, before anything is.

use std::borrow::Cow;
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use tollgate::core::attributes::{Attribute, Attributes};
use tollgate::core::few::Few;
use tollgate::{By, Cost, InlineLimit, Kind, Micros, Rate, Want};

use super::dialect::{Dialect, Limit, LimitSpec};
use super::{Carried, Descriptor, Entry, Request, Shown, Unit, subject};
use crate::inline;
use crate::limit::Written;

/// One descriptor, ready to be decided.
#[derive(Debug)]
pub(super) struct Planned<'a> {
    pub(super) verb: Verb,
    pub(super) measure: Measure<'a>,
    /// The limit of the dialect that it met.
    pub(super) limit: Option<&'a Arc<Limit>>,
}

/// What a descriptor asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Take(Cost),
    Peek,
    Refund(Cost),
}

/// What a descriptor is measured by.
#[derive(Debug)]
pub(super) enum Measure<'a> {
    /// Nothing: it passes.
    Free,
    /// A limit that admits everything.
    Unlimited,
    /// A limit that admits nothing.
    Nothing { shown: Shown, span: Micros },
    /// A limit of the dialect, or one that the descriptor carries.
    Counted(Counted),
    /// The rules of the policy that apply.
    Rules(Described<'a>),
}

/// One limit, one subject.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) inline: Arc<InlineLimit>,
    pub(super) subject: String,
    pub(super) shown: Shown,
    /// The length of its windows, if they are fixed.
    pub(super) fixed: Option<Micros>,
}

/// A descriptor as the policy sees it: entries are `descriptor.KEY`, and the domain is `domain`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Described<'a> {
    domain: &'a str,
    entries: &'a [Entry<'a>],
}

impl Attributes for Described<'_> {
    fn text(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        let text = match attribute {
            Attribute::Descriptor(name) => &*self.entries.iter().find(|entry| *entry.key == **name)?.value,
            Attribute::Free(name) if &**name == "domain" => self.domain,
            _ => return None,
        };
        (!text.is_empty()).then_some(Cow::Borrowed(text))
    }

    fn address(&self) -> Option<IpAddr> {
        None
    }
}

impl Planned<'_> {
    /// As the engine is asked it, for so much.
    pub(super) fn want(&self, cost: Cost) -> Option<Want<'_>> {
        let (by, key): (By<'_>, &[u8]) = match &self.measure {
            Measure::Free | Measure::Unlimited | Measure::Nothing { .. } => return None,
            Measure::Counted(counted) => (By::Inline(&counted.inline), counted.subject.as_bytes()),
            Measure::Rules(described) => (By::Attributes(described), b""),
        };
        Some(Want { by, key, cost, takes: &[] })
    }
}

/// What is to be done about each descriptor, in order.
pub(super) fn of<'a>(dialect: Option<&'a Dialect>, request: &'a Request<'a>) -> Few<Planned<'a>> {
    let Some(dialect) = dialect else {
        let planned = request.descriptors.iter().map(|descriptor| {
            let entries = &*descriptor.entries;
            let measure = match descriptor.carried {
                Some(carried) => by_carried(carried, &request.domain, entries),
                None => Measure::Rules(Described { domain: &request.domain, entries }),
            };
            Planned { verb: verb(descriptor, request), measure, limit: None }
        });
        return planned.collect();
    };
    let found: Few<Option<&'a Arc<Limit>>> = request.descriptors.map(|descriptor| {
        // A limit that is carried counts instead of any other.
        descriptor.carried.is_none().then(|| dialect.find(&request.domain, &descriptor.entries)).flatten()
    });
    let replaced: HashSet<&str> =
        found.iter().flatten().flat_map(|limit| &limit.replaces).map(|name| &**name).collect();
    let is_known = dialect.has(&request.domain);
    let planned = request.descriptors.iter().zip(&found).map(|(descriptor, limit)| {
        let entries = &*descriptor.entries;
        let measure = match (limit, descriptor.carried) {
            (_, Some(carried)) if is_known => by_carried(carried, &request.domain, entries),
            (Some(limit), _) => by_limit(limit, &replaced, &request.domain, entries),
            _ => Measure::Free,
        };
        let limit = limit.filter(|_| !matches!(measure, Measure::Free));
        Planned { verb: verb(descriptor, request), measure, limit }
    });
    planned.collect()
}

/// What a descriptor costs: its own word, else the request's, else one.
fn verb(descriptor: &Descriptor<'_>, request: &Request<'_>) -> Verb {
    let hits = descriptor.hits_addend.unwrap_or(u64::from(request.hits_addend.max(1)));
    match Cost::new(u32::try_from(hits).unwrap_or(u32::MAX)) {
        None => Verb::Peek,
        Some(cost) if descriptor.is_negative => Verb::Refund(cost),
        Some(cost) => Verb::Take(cost),
    }
}

fn by_limit<'a>(limit: &Limit, replaced: &HashSet<&str>, domain: &str, entries: &[Entry<'_>]) -> Measure<'a> {
    let is_replaced = limit.name.as_ref().is_some_and(|name| replaced.contains(&**name));
    match &limit.spec {
        // One that admits everything is not asked whether it is replaced.
        LimitSpec::Unlimited => Measure::Unlimited,
        _ if is_replaced => Measure::Free,
        LimitSpec::Nothing { unit, span } => {
            let shown = Shown { requests_per_unit: 0, unit: *unit, name: limit.name.clone() };
            Measure::Nothing { shown, span: *span }
        }
        LimitSpec::Rate { requests_per_unit, unit, inline } => Measure::Counted(Counted {
            inline: Arc::clone(inline),
            subject: subject::of(domain, entries, |at| {
                limit.levels.get(at).and_then(|level| level.shared.as_deref())
            }),
            shown: Shown { requests_per_unit: *requests_per_unit, unit: *unit, name: limit.name.clone() },
            fixed: (inline.algorithm().kind() == Kind::FixedWindow).then(|| inline.algorithm().window()),
        }),
    }
}

fn by_carried<'a>(carried: Carried, domain: &str, entries: &[Entry<'_>]) -> Measure<'a> {
    // `Request::check` has refused the others.
    let unit = carried.unit.unwrap_or(Unit::Second);
    let shown = Shown { requests_per_unit: carried.requests_per_unit, unit: Some(unit), name: None };
    let Ok(rate) = Rate::try_new(carried.requests_per_unit, unit.span()) else {
        return Measure::Nothing { shown, span: unit.span() };
    };
    let limit = rate.to_string();
    let written =
        Written { limit: &limit, burst: None, algorithm: Some(Kind::FixedWindow.name()), time_zone: None };
    match inline::limit(&written, 0) {
        Ok(inline) => Measure::Counted(Counted {
            inline,
            subject: subject::of(domain, entries, |_| None),
            shown,
            fixed: Some(unit.span()),
        }),
        // A fixed window of a named unit can always be kept.
        Err(_) => Measure::Free,
    }
}
