//! envoyproxy/ratelimit's YAML, read as that program reads it, and a little more: windows of any length,
//! `algorithm` and `burst`.
//!
//! It knows its keys by name and not by place: one that is known and means nothing where it stands passes,
//! there in silence and here with a warning. What it does not know rejects all of it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tollgate::core::limit::Period;
use tollgate::{Algorithm, InlineLimit, Kind, LimitError, Micros, Rate};

use super::super::problems::{Place, Problems};
use super::super::section::{At, Section, clip};
use super::super::tree::{Node, Tree};
use super::spelling;
use crate::rls::{Dialect, DialectBuilder, Limit, LimitSpec, Metadata, Step, Unit, Value};

/// Every key the original knows, wherever it stands.
pub(super) const KEYS: [&str; 16] = [
    "domain",
    "key",
    "value",
    "descriptors",
    "rate_limit",
    "unit",
    "requests_per_unit",
    "unlimited",
    "shadow_mode",
    "quota_mode",
    "name",
    "replaces",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
];

/// How deep descriptors may be nested.
const DEPTH_MAX: usize = 32;

const UNITS: &str = "second, minute, hour, day, week, month or year, or a time such as 30s or 5m";

/// Whether several files may have limits of one domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Domains {
    /// Each stands in one file.
    Apart,
    /// What they say is put together.
    Merged,
}

/// Reads files, by name and text.
pub(super) fn read(
    files: &[(String, String)],
    domains: Domains,
    log_max: u32,
    problems: &mut Problems,
) -> (Dialect, Vec<String>) {
    let mut reading = Reading {
        builder: DialectBuilder::default(),
        seen: HashMap::new(),
        domains: HashMap::new(),
        warnings: Vec::new(),
        file: String::new(),
        log_max,
    };
    for (name, text) in files {
        problems.enter(name);
        reading.file.clone_from(name);
        if let Some(mut tree) = Tree::parse(text, problems) {
            spelling::respell(&mut tree, text);
            reading.root(Section::open("", tree, problems), domains);
        }
    }
    problems.leave();
    (reading.builder.build(), reading.warnings)
}

struct Reading {
    builder: DialectBuilder,
    /// The composites of each level, by its domain and those above it.
    seen: HashMap<Vec<String>, HashSet<String>>,
    /// The file each domain stands in.
    domains: HashMap<String, String>,
    warnings: Vec<String>,
    file: String,
    log_max: u32,
}

/// Where a descriptor hangs.
struct Above {
    domain: String,
    path: String,
    steps: Vec<Step>,
}

impl Reading {
    fn root(&mut self, mut section: Section<'_>, domains: Domains) {
        let domain = section.scalar("domain");
        if domain.as_ref().is_none_or(|domain| domain.value.is_empty()) {
            section.missing("domain", "is missing: config file cannot have empty domain");
        }
        let trees = section.list("descriptors").unwrap_or_default();
        let place = section.place();
        if let Some(domain) = domain.filter(|domain| !domain.value.is_empty()) {
            let name = domain.value;
            if let Some(other) = self.domains.get(&name)
                && domains == Domains::Apart
            {
                let what =
                    format!("duplicate domain '{}' in config file, it stands in {other} too", clip(&name));
                section.problems().add(domain.place, "domain", what);
            }
            self.domains.insert(name.clone(), self.file.clone());
            self.builder.domain(&name);
            let above = Above { path: name.clone(), domain: name, steps: Vec::new() };
            self.descriptors(section.problems(), "descriptors", place, trees, &above);
        }
        self.close(section);
    }

    fn descriptors(
        &mut self,
        problems: &mut Problems,
        path: &str,
        place: Place,
        trees: Vec<Tree>,
        above: &Above,
    ) {
        if above.steps.len() >= DEPTH_MAX && !trees.is_empty() {
            problems.add(place, path, format!("are nested deeper than {DEPTH_MAX}"));
            return;
        }
        for (at, tree) in trees.into_iter().enumerate() {
            let path = format!("{path}[{at}]");
            if !tree.is_map() {
                problems.add(
                    tree.place,
                    &path,
                    format!("must be a mapping with a key, and is {}", tree.kind()),
                );
                continue;
            }
            self.descriptor(Section::open(&path, tree, problems), above);
        }
    }

    fn descriptor(&mut self, mut section: Section<'_>, above: &Above) {
        let key = section.scalar("key");
        if key.as_ref().is_none_or(|key| key.value.is_empty()) {
            section.missing("key", "is missing: descriptor has empty key");
        }
        let value = section.scalar("value").filter(|value| !value.value.is_empty());
        let mut truth = |name| section.truth(name);
        let (shadow, quota) = (truth("shadow_mode"), truth("quota_mode"));
        let (detailed, in_metric) = (truth("detailed_metric"), truth("value_to_metric"));
        let shares = truth("share_threshold");
        let is_so = |at: &Option<At<bool>>| at.as_ref().is_some_and(|at| at.value);
        let metadata = metadata(&mut section);
        let has_limit = section.has("rate_limit");
        let limit = self.rate_limit(section.section("rate_limit"), has_limit);
        let trees = section.list("descriptors").unwrap_or_default();
        let (place, base) = (section.place(), section.path_of("descriptors"));
        let Some(key) = key.filter(|key| !key.value.is_empty()) else {
            return self.close(section);
        };
        let step = Step {
            key: key.value,
            value: value.map(|value| value.value),
            shares_threshold: is_so(&shares),
            has_value_in_metric: is_so(&in_metric),
        };
        let composite = step.composite();
        let level = std::iter::once(above.domain.clone()).chain(above.steps.iter().map(Step::composite));
        if !self.seen.entry(level.collect()).or_default().insert(composite.clone()) {
            let what =
                format!("duplicate descriptor composite key '{}.{}'", clip(&above.path), clip(&composite));
            section.problems().add(key.place, &key.path, what);
        }
        if let Some(shares) = shares.filter(|at| at.value && !composite.contains('*')) {
            section.problems().add(shares.place, &shares.path, "needs a value with `*` in it");
        }
        let path = format!("{}.{composite}", above.path);
        let steps = [&above.steps[..], &[step]].concat();
        let limit = limit.map(|RateLimit { spec, name, replaces }| Limit {
            spec,
            name,
            replaces,
            is_shadow: is_so(&shadow),
            is_quota: is_so(&quota),
            has_detailed_metric: is_so(&detailed),
            metadata,
            path: path.as_str().into(),
            levels: Vec::new(),
        });
        self.builder.descriptor(&above.domain, &steps, limit);
        let below = Above { domain: above.domain.clone(), path, steps };
        self.descriptors(section.problems(), &base, place, trees, &below);
        self.close(section);
    }

    fn rate_limit(&mut self, mut section: Section<'_>, is_there: bool) -> Option<RateLimit> {
        let unlimited = section.truth("unlimited").is_some_and(|at| at.value);
        let unit = section.scalar("unit");
        let count = section.whole("requests_per_unit", 0..=u64::from(u32::MAX));
        let algorithm =
            section.word("algorithm", "fixed_window, token_bucket, sliding_window or sliding_log", |name| {
                Kind::parse(name).ok()
            });
        let burst = section.whole("burst", 1..=u64::from(u32::MAX));
        let name = section.scalar("name").filter(|name| !name.value.is_empty());
        let replaces = self.replaces(&mut section, name.as_ref());
        let spec = if !is_there {
            None
        } else if unlimited {
            if let Some(unit) = &unit {
                let what = "should not specify rate limit unit when unlimited";
                section.problems().add(unit.place, &unit.path, what);
            }
            Some(LimitSpec::Unlimited)
        } else {
            let written = Written { unit, count: count.map_or(0, |at| at.value), algorithm, burst };
            self.spec(&mut section, written)
        };
        self.close(section);
        Some(RateLimit { spec: spec?, name: name.map(|name| name.value.into()), replaces })
    }

    fn spec(&self, section: &mut Section<'_>, written: Written) -> Option<LimitSpec> {
        let Written { unit, count, algorithm, burst } = written;
        let Some(unit_at) = unit else {
            section.missing("unit", &format!("is missing: invalid rate limit unit '', use {UNITS}"));
            return None;
        };
        let unit = Unit::parse(&unit_at.value);
        let span = unit.map(Unit::span).or_else(|| span_of(&unit_at.value));
        let Some(span) = span else {
            let what = format!("invalid rate limit unit '{}': use {UNITS}", clip(&unit_at.value));
            section.problems().add(unit_at.place, &unit_at.path, what);
            return None;
        };
        // A window of sixty seconds is a minute, however it was written.
        let unit = unit.or_else(|| Unit::of_span(span));
        let kind = algorithm.as_ref().map_or(Kind::FixedWindow, |at| at.value);
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        if count == 0 {
            return Some(LimitSpec::Nothing { unit, span });
        }
        let burst_given = burst.as_ref().and_then(|at| u32::try_from(at.value).ok());
        let built = Rate::try_new(count, span)
            .and_then(|rate| Algorithm::try_new(kind, rate, burst_given, self.log_max));
        match built {
            Ok(algorithm) => Some(LimitSpec::Rate {
                requests_per_unit: count,
                unit,
                inline: Arc::new(InlineLimit::new(algorithm, Period::Span(span))),
            }),
            Err(error) => {
                let blamed = match error {
                    LimitError::BurstUnused { .. } => burst.map(|at| (at.place, at.path)),
                    _ => algorithm.map(|at| (at.place, at.path)),
                };
                let (place, path) = blamed.unwrap_or((unit_at.place, unit_at.path));
                section.problems().add(place, &path, error.to_string());
                None
            }
        }
    }

    fn replaces(&mut self, section: &mut Section<'_>, own: Option<&At<String>>) -> Vec<Box<str>> {
        let base = section.path_of("replaces");
        let trees = section.list("replaces").unwrap_or_default();
        let mut names = Vec::new();
        for (at, tree) in trees.into_iter().enumerate() {
            let mut one = Section::open(&format!("{base}[{at}]"), tree, section.problems());
            let name = one.scalar("name").filter(|name| !name.value.is_empty());
            match name {
                None => one.missing("name", "is missing: should not have an empty replaces entry"),
                Some(name) if own.is_some_and(|own| own.value == name.value) => {
                    one.problems().add(
                        name.place,
                        &name.path,
                        "replaces should not contain name of same descriptor",
                    );
                }
                Some(name) => names.push(name.value.into()),
            }
            self.close(one);
        }
        names
    }

    /// Closes a section; keys that are known elsewhere are no mistake.
    fn close(&mut self, mut section: Section<'_>) {
        for key in KEYS {
            if section.has(key) {
                let path = section.path_of(key);
                self.warnings.push(format!("{}: {path}: means nothing here, and is ignored", self.file));
                section.skip(key);
            }
        }
        section.close();
    }
}

/// What `rate_limit` says.
struct RateLimit {
    spec: LimitSpec,
    name: Option<Arc<str>>,
    replaces: Vec<Box<str>>,
}

/// The numbers of a limit as written.
struct Written {
    unit: Option<At<String>>,
    count: u64,
    algorithm: Option<At<Kind>>,
    burst: Option<At<u64>>,
}

/// A time of its own: `30s`, `5m`.
fn span_of(text: &str) -> Option<Micros> {
    // A bare name is none of ours: `month` is one of the original's units.
    text.starts_with(|first: char| first.is_ascii_digit()).then_some(())?;
    Rate::parse(&format!("1/{text}")).ok()?.span().ok()
}

fn metadata(section: &mut Section<'_>) -> Metadata {
    let mut inner = section.section("metadata");
    let fields = inner.fields();
    inner.close();
    fields.into_iter().map(|(field, tree)| (field.name, value(tree))).collect()
}

fn value(tree: Tree) -> Value {
    match tree.node {
        // A number that is no whole one is left out: no limit says anything by it.
        Node::Null | Node::OtherNumber => Value::Null,
        Node::Bool(truth) => Value::Bool(truth),
        Node::Whole(number) => Value::Number(number),
        Node::Text(text) => Value::Text(text),
        Node::List(list) => Value::List(list.into_iter().map(value).collect()),
        Node::Map(fields) => {
            Value::Map(fields.into_iter().map(|(field, tree)| (field.name, value(tree))).collect())
        }
    }
}
