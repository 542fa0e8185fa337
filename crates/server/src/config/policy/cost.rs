//! What an ask costs: a number, by the value of an attribute, or the number an attribute is.

use std::collections::HashMap;

use tollgate::Cost;
use tollgate::core::attributes::Attribute;
use tollgate::core::policy::CostBy;

use super::super::section::Section;

/// The dearest ask.
const COST_MAX: u64 = u32::MAX as u64;

pub(super) fn check(section: &mut Section<'_>) -> Option<CostBy> {
    if !section.is_mapping("cost") {
        return section.whole("cost", 1..=COST_MAX).and_then(|at| cost(at.value)).map(CostBy::Fixed);
    }
    let mut section = section.section("cost");
    let attribute = |section: &mut Section<'_>, name: &'static str| {
        let text = section.text(name)?;
        let attribute = Attribute::parse(&text.value);
        section.problems().keep(text.place, &text.path, attribute)
    };
    let by = attribute(&mut section, "by");
    let from = attribute(&mut section, "from");
    let default = section.whole("default", 1..=COST_MAX).and_then(|at| cost(at.value)).unwrap_or(Cost::ONE);
    let max = section.whole("max", 1..=COST_MAX).and_then(|at| cost(at.value));
    let mut costs = HashMap::new();
    let mut values = section.section("values");
    for (value, number) in values.wholes_by_name(1..=COST_MAX) {
        costs.extend(cost(number).map(|cost| (value.into(), cost)));
    }
    values.close();
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

fn cost(number: u64) -> Option<Cost> {
    u32::try_from(number).ok().and_then(Cost::new)
}
