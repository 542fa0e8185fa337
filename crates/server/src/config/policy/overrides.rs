//! A rule's `overrides`: other limits for single keys, each blamed by its own place.

use std::collections::HashSet;

use tollgate::core::policy::Override;

use super::super::problems::Place;
use super::super::section::{At, Section};
use super::limits;

/// Another limit for one key, and where it stands.
pub(super) struct Overridden {
    pub(super) key: At<String>,
    pub(super) instead: Override,
    pub(super) place: Place,
    pub(super) path: String,
}

pub(super) fn check(
    section: &mut Section<'_>,
    log_max: u32,
    check_key: impl Fn(&str) -> Result<(), String>,
) -> Vec<Overridden> {
    let base = section.path_of("overrides");
    let trees = section.list("overrides").unwrap_or_default();
    let mut seen = HashSet::new();
    let mut overrides = Vec::new();
    for (at, tree) in trees.into_iter().enumerate() {
        let mut one = Section::open(&format!("{base}[{at}]"), tree, section.problems());
        let (place, path) = (one.place(), one.path());
        let key = one.text("key");
        if key.is_none() && !one.was_there("key") {
            one.missing("key", "is missing: say whose limit it is");
        }
        if let Some(key) = &key {
            one.problems().keep(key.place, &key.path, check_key(&key.value));
            if !seen.insert(key.value.clone()) {
                one.problems().add(key.place, &key.path, "has an override already");
            }
        }
        let instead = instead(&mut one, log_max);
        one.close();
        let (Some(key), Some(instead)) = (key, instead) else { continue };
        overrides.push(Overridden { key, instead, place, path });
    }
    overrides
}

/// What holds for one key. What is wrong has been reported.
fn instead(one: &mut Section<'_>, log_max: u32) -> Option<Override> {
    let blocked = one.truth("blocked").is_some_and(|at| at.value);
    let unlimited = one.truth("unlimited").is_some_and(|at| at.value);
    let has_limit = one.has("limit") || one.has("limits");
    let instead = match (blocked, unlimited, has_limit) {
        (true, false, false) => Override::Blocked,
        (false, true, false) => Override::Unlimited,
        (false, false, true) => return limits::required(one, log_max).map(Override::Limits),
        _ => {
            let (place, path) = (one.place(), one.path());
            let what = "give one of `limit` (or `limits`), `blocked: true` and `unlimited: true`";
            one.problems().add(place, &path, what);
            limits::ignored(one);
            return None;
        }
    };
    let word = if blocked { "blocked" } else { "unlimited" };
    for field in
        ["burst", "algorithm", "time_zone"].into_iter().filter(|field| one.has(field)).collect::<Vec<_>>()
    {
        let (place, path) = (one.place_of(field).unwrap_or(one.place()), one.path_of(field));
        one.problems().add(place, &path, format!("says nothing beside `{word}`: leave it out"));
    }
    limits::ignored(one);
    Some(instead)
}
