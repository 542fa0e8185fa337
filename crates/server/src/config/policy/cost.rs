//! What an ask costs: a number, by the value of an attribute, or the number an attribute is.

use std::collections::HashMap;

use tollgate::core::attributes::Attribute;
use tollgate::core::policy::{CostBy, Plan};
use tollgate::{Cost, Rule};

use super::super::section::Section;
use super::attribute;

/// The dearest ask.
const COST_MAX: u64 = u32::MAX as u64;

pub(super) fn check(section: &mut Section<'_>) -> Option<CostBy> {
    if !section.is_mapping("cost") {
        return section.whole("cost", 1..=COST_MAX).and_then(|at| cost(at.value)).map(CostBy::Fixed);
    }
    let mut section = section.section("cost");
    let attribute = |section: &mut Section<'_>, name: &'static str| {
        let text = section.text(name)?;
        section.problems().keep(text.place, &text.path, attribute::read_text(&text.value))
    };
    let by = attribute(&mut section, "by");
    let from = attribute(&mut section, "from");
    let default = section.whole("default", 1..=COST_MAX).and_then(|at| cost(at.value)).unwrap_or(Cost::ONE);
    let max = section.whole("max", 1..=COST_MAX).and_then(|at| cost(at.value));
    let mut costs = HashMap::new();
    let mut values = section.section("values");
    for (value, number) in values.wholes_by_name(1..=COST_MAX) {
        // As calls have them.
        let value = match by {
            Some(Attribute::Method) => value.to_ascii_uppercase(),
            Some(Attribute::Host) => value.to_ascii_lowercase(),
            _ => value,
        };
        costs.extend(cost(number).map(|cost| (value.into(), cost)));
    }
    values.close();
    let misplaced = match (&by, &from) {
        (Some(_), None) => Some(("max", "says nothing beside `by`: it bounds what `from` says")),
        (None, Some(_)) => Some(("values", "says nothing beside `from`: give values to `by`")),
        _ => None,
    };
    if let Some((field, what)) = misplaced.filter(|(field, _)| section.was_there(field)) {
        let (place, path) = (section.place_of(field).unwrap_or(section.place()), section.path_of(field));
        section.problems().add(place, &path, what);
    }
    if let Some(max) = max.filter(|max| from.is_some() && default > *max) {
        let place = section.place_of("default").unwrap_or(section.place());
        let what = format!("is {}, above the max of {}", default.get(), max.get());
        let path = section.path_of("default");
        section.problems().add(place, &path, what);
    }
    let built = match (by, from) {
        (Some(by), None) => {
            if costs.is_empty() && !section.was_there("values") {
                section.missing("values", "is missing: say what some values cost, such as {POST: 5}");
            }
            Some(CostBy::Value { by, costs, default })
        }
        (None, Some(from)) => {
            if let Some(max) = max {
                Some(CostBy::Number { from, max, default })
            } else {
                section.missing(
                    "max",
                    "is missing: the caller says the number, so say how much of it is believed",
                );
                None
            }
        }
        (None, None) if section.was_there("by") || section.was_there("from") => None,
        _ => {
            let what =
                "give `by` an attribute and `values`, or `from` an attribute that is a number and `max`";
            let (place, path) = (section.place(), section.path());
            section.problems().add(place, &path, what);
            None
        }
    };
    section.close();
    built
}

/// Says so where something costs more than the rule ever has: no such call could pass.
pub(super) fn too_dear(rule: &Rule) -> Option<String> {
    let dearest = match rule.cost() {
        CostBy::Fixed(cost) => *cost,
        CostBy::Value { costs, default, .. } => costs.values().copied().fold(*default, Cost::max),
        // What a caller says may be too much for it; what is charged without its word may not.
        CostBy::Number { default, .. } => *default,
    };
    let least = |plan: &Plan| plan.limits().iter().map(|limit| limit.algorithm().limit()).min();
    let at_once = rule.plans().iter().filter_map(least).max()?;
    (u64::from(dearest.get()) > u64::from(at_once)).then(|| {
        let dearest = dearest.get();
        format!(
            "{dearest} is more than the {at_once} there are at once, so that no such call could ever pass"
        )
    })
}

fn cost(number: u64) -> Option<Cost> {
    u32::try_from(number).ok().and_then(Cost::new)
}
