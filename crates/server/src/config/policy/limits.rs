//! Limits as a file writes them: one, in four fields, or a list of such.

use tollgate::Algorithm;

use super::super::section::Section;
use crate::limit::Written;

const FIELDS: [&str; 4] = ["limit", "burst", "algorithm", "time_zone"];

/// The limits of a section that must have some. What is wrong has been reported.
pub(super) fn required(section: &mut Section<'_>, log_max: u32) -> Option<Vec<Algorithm>> {
    if !section.has("limits") {
        let limit = one(section, log_max);
        section.skip("limits");
        return limit.map(|limit| vec![limit]);
    }
    if let Some(field) = FIELDS.iter().find(|field| section.has(field)) {
        let place = section.place_of("limits").unwrap_or(section.place());
        let path = section.path_of("limits");
        section.problems().add(place, &path, format!("stands beside `{field}`: put it into the list"));
    }
    let (place, base) = (section.place_of("limits").unwrap_or(section.place()), section.path_of("limits"));
    let trees = section.list("limits")?;
    for field in FIELDS {
        section.skip(field);
    }
    if trees.is_empty() {
        section.problems().add(place, &base, "is empty: give at least one limit");
        return None;
    }
    let mut limits = Vec::new();
    let count = trees.len();
    for (at, tree) in trees.into_iter().enumerate() {
        let mut item = Section::open(&format!("{base}[{at}]"), tree, section.problems());
        limits.extend(one(&mut item, log_max));
        item.close();
    }
    (limits.len() == count).then_some(limits)
}

/// Fields that were reported otherwise, or have no meaning here.
pub(super) fn ignored(section: &mut Section<'_>) {
    for field in FIELDS.into_iter().chain(["limits"]) {
        section.skip(field);
    }
}

/// One limit, in four fields.
fn one(section: &mut Section<'_>, log_max: u32) -> Option<Algorithm> {
    let limit = section.text("limit");
    let burst = section.whole("burst", 1..=u64::from(u32::MAX));
    let algorithm = section.text("algorithm");
    let time_zone = section.text("time_zone");
    if limit.is_none() && !section.was_there("limit") {
        section.missing("limit", "is missing: write how many per how long, such as 100/s");
    }
    let limit = limit?;
    let written = Written {
        limit: &limit.value,
        burst: burst.as_ref().and_then(|burst| u32::try_from(burst.value).ok()),
        algorithm: algorithm.as_ref().map(|name| name.value.as_str()),
        time_zone: time_zone.as_ref().map(|zone| zone.value.as_str()),
    };
    let built = written.build(log_max).map_err(|problem| {
        let place = match problem.field {
            "burst" => burst.as_ref().map(|at| at.place),
            "algorithm" => algorithm.as_ref().map(|at| at.place),
            "time_zone" => time_zone.as_ref().map(|at| at.place),
            _ => None,
        };
        // A limit that cannot be kept with the burst it implies is the limit's own problem.
        let field = if place.is_some() { problem.field } else { "limit" };
        let path = section.path_of(field);
        section.problems().add(place.unwrap_or(limit.place), &path, problem.why);
    });
    built.ok().map(|built| built.algorithm)
}
