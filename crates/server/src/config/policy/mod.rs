//! Rules, plans and lists: from a tree to a policy that can be trusted.

mod attribute;
mod conditions;
mod cost;
mod lease;
mod limits;
mod overrides;
mod print;
pub(crate) mod subject;
mod trials;

use std::collections::{BTreeMap, HashMap};

use tollgate::core::address::Grouping;
use tollgate::core::attributes::Attribute;
use tollgate::core::policy::{List, Mode, PolicyError, RuleBuilder};
use tollgate::{Algorithm, OnOutage, Policy, Rule};

use super::check::ON_OUTAGE;
use super::section::{At, Section, clip};
use crate::facing::Facing;

use overrides::Overridden;
pub(crate) use print::{print, quoted};
pub(crate) use trials::Trial;

/// The most rules of a file.
const RULES_MAX: usize = 100_000;

/// The policy as a file describes it: everything but its version.
#[derive(Debug, Clone, Default)]
pub(crate) struct PolicyConfig {
    pub(crate) rules: Vec<Rule>,
    pub(crate) allow: List,
    pub(crate) deny: List,
    pub(crate) grouping: Grouping,
    /// What the file says its rules must do.
    pub(crate) trials: Vec<Trial>,
}

impl PolicyConfig {
    /// The policy under a version, with what travels with it.
    pub(crate) fn build(&self, version: u64, facing: &Facing) -> Result<Policy, PolicyError> {
        Policy::builder(version)
            .companion(facing.clone())
            .rules(self.rules.clone())
            .allow(self.allow.clone())
            .deny(self.deny.clone())
            .grouping(self.grouping)
            .build()
    }
}

/// The limits of every plan, by name.
type Plans = BTreeMap<String, Vec<Algorithm>>;

/// Reads `plans`, `rules`, `allow`, `deny` and `tests`.
pub(super) fn check(root: &mut Section<'_>, log_max: u32, grouping: Grouping) -> PolicyConfig {
    let plans = plans(root.section("plans"), log_max);
    let rules = rules(root, &plans, log_max, grouping);
    let allow = conditions::list(root.section("allow"), conditions::Keys::Unknown);
    let deny = conditions::list(root.section("deny"), conditions::Keys::Unknown);
    let trials = trials::check(root);
    PolicyConfig { rules, allow, deny, grouping, trials }
}

fn plans(mut section: Section<'_>, log_max: u32) -> Plans {
    let mut plans = Plans::new();
    for (field, tree) in section.fields() {
        let path = section.path_of(&field.name);
        let is_good =
            (1..=64).contains(&field.name.len()) && !field.name.bytes().any(|byte| byte.is_ascii_control());
        if !is_good {
            section.problems().add(field.place, &path, "a plan's name has 1 to 64 characters");
        }
        let mut plan = Section::open(&path, tree, section.problems());
        let limits = limits::required(&mut plan, log_max);
        plan.close();
        plans.insert(field.name, limits.unwrap_or_default());
    }
    plans
}

/// The rules, in the order written; one with a problem is left out.
fn rules(root: &mut Section<'_>, plans: &Plans, log_max: u32, grouping: Grouping) -> Vec<Rule> {
    let place = root.place_of("rules").unwrap_or(root.place());
    let trees = root.list("rules");
    if !root.was_there("rules") {
        // A file that was cut short, or is not written yet, must not lift every limit.
        root.problems().add(place, "rules", "is missing: write `rules: []` if there are to be none");
    }
    let Some(trees) = trees else { return Vec::new() };
    if trees.len() > RULES_MAX {
        root.problems().add(place, "rules", format!("are {}: at most {RULES_MAX}", trees.len()));
        return Vec::new();
    }
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut rules = Vec::new();
    for (at, tree) in trees.into_iter().enumerate() {
        let path = format!("rules[{at}]");
        if !tree.is_map() {
            let what = format!("must be a mapping with a name and a limit, and is {}", tree.kind());
            root.problems().add(tree.place, &path, what);
            continue;
        }
        let (name, rule) = rule(Section::open(&path, tree, root.problems()), plans, log_max, grouping);
        rules.extend(rule);
        let Some(name) = name else { continue };
        if let Some(first) = seen.insert(name.value.clone(), at) {
            let what =
                format!("\"{}\" is the name of rules[{first}] too: names are unique", clip(&name.value));
            root.problems().add(name.place, &name.path, what);
        }
    }
    rules
}

/// What can be wrong with a rule as a whole is blamed on the field it is about.
const FIELDS_OF_PROBLEMS: [&str; 4] = ["key", "plan", "lease", "name"];

fn rule(
    mut section: Section<'_>,
    plans: &Plans,
    log_max: u32,
    grouping: Grouping,
) -> (Option<At<String>>, Option<Rule>) {
    let problems_before = section.problems().count();
    let name = section.text("name");
    if name.is_none() && !section.was_there("name") {
        section.missing("name", "is missing: verdicts, metrics and callers know a rule by its name");
    }
    if let Some(name) = &name {
        section.problems().keep(name.place, &name.path, Rule::check_name(&name.value));
    }
    let when = conditions::when(&mut section);
    let key = section
        .text("key")
        .and_then(|at| section.problems().keep(at.place, &at.path, attribute::template(&at.value)));
    let template = key.clone();
    let keys = conditions::Keys::Of(template.as_ref(), grouping);
    let mut builder = Rule::builder(name.as_ref().map_or("unnamed", |name| &name.value)).when(when);
    if let Some(key) = key {
        builder = builder.key(key);
    }
    builder = limits_or_plan(&mut section, builder, plans, log_max);
    if let Some(cost) = cost::check(&mut section) {
        builder = builder.cost(cost);
    }
    builder = builder.allow(conditions::list(section.section("allow"), keys));
    builder = builder.deny(conditions::list(section.section("deny"), keys));
    let overrides = overrides::check(&mut section, log_max, |key| {
        conditions::check_key(template.as_ref(), grouping, key)
    });
    builder = builder.candidate(candidate(section.section("candidate"), log_max));
    if let Some(lease) = lease::check(&mut section) {
        builder = builder.lease(lease);
    }
    if let Some(on_outage) = section.word("on_outage", ON_OUTAGE, OnOutage::parse) {
        builder = builder.on_outage(on_outage.value);
    }
    if let Some(mode) = section.word("mode", "enforce or shadow", Mode::parse) {
        builder = builder.mode(mode.value);
    }
    let places = FIELDS_OF_PROBLEMS.map(|field| section.place_of(field));
    let (path, place) = (section.path(), section.place());
    // Only a rule whose fields are right can be wrong as a whole.
    let is_good = section.problems().count() == problems_before && name.is_some();
    let rule = is_good.then(|| {
        let whole = overrides.iter().fold(builder.clone(), |builder, one| {
            builder.override_key(one.key.value.as_bytes(), one.instead.clone())
        });
        let rule = match whole.build() {
            Ok(rule) => rule,
            // Each by itself, to blame each by its place.
            Err(PolicyError::OverrideDiffers { .. }) => {
                for Overridden { key, instead, place, path } in &overrides {
                    let alone = builder.clone().override_key(key.value.as_bytes(), instead.clone()).build();
                    section.problems().keep(*place, path, alone);
                }
                return None;
            }
            Err(error) => {
                let what = match &error {
                    PolicyError::Lease { why, .. } => why.to_string(),
                    _ => error.to_string(),
                };
                let field = match error {
                    PolicyError::NoKey { .. } | PolicyError::NoParameter { .. } => "key",
                    PolicyError::PlansDiffer { .. } | PolicyError::NoPlan { .. } => "plan",
                    PolicyError::Lease { .. } => "lease",
                    _ => "name",
                };
                let at = FIELDS_OF_PROBLEMS.iter().position(|known| *known == field).unwrap_or(0);
                let place = places.get(at).copied().flatten().unwrap_or(place);
                section.problems().add(place, &format!("{path}.{field}"), what);
                return None;
            }
        };
        if let Some(what) = cost::too_dear(&rule) {
            let place = section.place_of("cost").unwrap_or(place);
            section.problems().add(place, &format!("{path}.cost"), what);
        }
        Some(rule)
    });
    section.close();
    (name, rule.flatten())
}

/// A rule has limits of its own, or picks a plan.
fn limits_or_plan(
    section: &mut Section<'_>,
    builder: RuleBuilder,
    plans: &Plans,
    log_max: u32,
) -> RuleBuilder {
    if section.has("plan") {
        let place = section.place_of("plan").unwrap_or(section.place());
        if let Some(field) =
            ["limit", "limits", "burst", "algorithm", "time_zone"].iter().find(|field| section.has(field))
        {
            let path = section.path_of("plan");
            section.problems().add(
                place,
                &path,
                format!("stands beside `{field}`: a rule has limits of its own, or a plan's"),
            );
        }
        let picked = plan(section.section("plan"), plans);
        limits::ignored(section);
        return match picked {
            Some((by, plans, default)) => builder.plans(by, plans, &default),
            None => builder,
        };
    }
    section.skip("plan");
    match limits::required(section, log_max) {
        Some(limits) => builder.limits(limits),
        None => builder,
    }
}

type Picked = (Attribute, Vec<(String, Vec<Algorithm>)>, String);

fn plan(mut section: Section<'_>, plans: &Plans) -> Option<Picked> {
    let by = section.text("by");
    let default = section.text("default");
    let of = section.texts("of");
    for (field, is_there, what) in [
        ("by", by.is_some(), "is missing: say which attribute names the plan, such as claim.plan"),
        ("default", default.is_some(), "is missing: say which plan everyone else has"),
    ] {
        if !is_there && !section.was_there(field) {
            section.missing(field, what);
        }
    }
    let by = by.and_then(|by| section.problems().keep(by.place, &by.path, attribute::read_text(&by.value)));
    let known = || {
        if plans.is_empty() {
            "there are no `plans`".to_owned()
        } else {
            format!("there are {}", plans.keys().map(|name| clip(name)).collect::<Vec<_>>().join(", "))
        }
    };
    let named: Vec<At<String>> = of.into_iter().flatten().chain(default.clone()).collect();
    for name in &named {
        if !plans.contains_key(&name.value) {
            let what = format!("\"{}\" is no plan: {}", clip(&name.value), known());
            section.problems().add(name.place, &name.path, what);
        }
    }
    let has_of = section.was_there("of");
    section.close();
    let picked = plans
        .iter()
        .filter(|(name, _)| !has_of || named.iter().any(|one| one.value == **name))
        .map(|(name, limits)| (name.clone(), limits.clone()))
        .collect();
    Some((by?, picked, default?.value))
}

fn candidate(mut section: Section<'_>, log_max: u32) -> Vec<Algorithm> {
    let limits = if section.is_absent() { None } else { limits::required(&mut section, log_max) };
    section.close();
    limits.unwrap_or_default()
}
