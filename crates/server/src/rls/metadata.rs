//! What a proxy is told about a request beside its answer, by choice: the request itself, the quotas it is
//! over, and what the limits that it passed say of themselves.

use super::plan::Planned;
use super::service::Decided;
use super::{Carried, Code, Descriptor, Metadata, Request, Value};

/// All of it, under the original's names. Of two that say something under one name, the first counts.
pub(super) fn of(request: &Request<'_>, planned: &[Planned<'_>], decided: &[Decided]) -> Metadata {
    let mut all = Metadata::new();
    let mut say = |name: &str, value| all.push((name.to_owned(), value));
    say("domain", Value::Text(request.domain.clone().into_owned()));
    say("descriptors", Value::List(request.descriptors.iter().map(described).collect()));
    if request.hits_addend > 0 {
        say("hitsAddend", Value::Number(request.hits_addend.into()));
    }
    let is_over = |one: &Decided| one.is_quota && one.status.code == Code::OverLimit;
    let over: Vec<_> = decided.iter().enumerate().filter(|(_, one)| is_over(one)).collect();
    if !over.is_empty() {
        let places = over.into_iter().map(|(at, _)| Value::Number(at as u64));
        say("quotaModeViolations", Value::List(places.collect()));
    }
    let has_quota = planned.iter().any(|one| one.limit.is_some_and(|limit| limit.is_quota));
    say("quotaModeEnabled", Value::Bool(has_quota));
    for (planned, decided) in planned.iter().zip(decided) {
        let Some(limit) = planned.limit.filter(|_| decided.status.code == Code::Ok) else { continue };
        for (name, value) in &limit.metadata {
            if !all.iter().any(|(known, _)| known == name) {
                all.push((name.clone(), value.clone()));
            }
        }
    }
    all
}

fn described(descriptor: &Descriptor<'_>) -> Value {
    let entries =
        descriptor.entries.iter().map(|entry| Value::Text(format!("{}={}", entry.key, entry.value)));
    let mut fields = vec![("entries".to_owned(), Value::List(entries.collect()))];
    if let Some(carried) = descriptor.carried {
        fields.push(("limit".to_owned(), Value::Text(in_words(carried))));
    }
    if let Some(hits) = descriptor.hits_addend {
        fields.push(("hitsAddend".to_owned(), Value::Number(hits)));
    }
    Value::Map(fields)
}

/// `requests_per_unit:5 unit:MINUTE`; what is zero is left out.
fn in_words(Carried { requests_per_unit, unit }: Carried) -> String {
    let count = (requests_per_unit > 0).then(|| format!("requests_per_unit:{requests_per_unit}"));
    let unit = unit.map(|unit| format!("unit:{}", unit.name()));
    count.into_iter().chain(unit).collect::<Vec<_>>().join(" ")
}
