//! The compiled dialect against a model that reads a list of paths: slow, and obviously right.

use super::*;
use crate::rls::Unit;

/// One descriptor of a file: its path, and whether a limit sits there.
#[derive(Debug, Clone)]
struct Written {
    path: Vec<Step>,
    /// Its place in the file, by which it is known.
    at: u32,
    has_limit: bool,
}

fn step(key: &str, value: Option<&str>) -> Step {
    Step {
        key: key.to_owned(),
        value: value.map(str::to_owned),
        shares_threshold: false,
        has_value_in_metric: false,
    }
}

fn limit(requests_per_unit: u32) -> Limit {
    let inline = crate::rls::tests::inline(requests_per_unit, Unit::Minute);
    Limit {
        spec: LimitSpec::Rate { requests_per_unit, unit: Some(Unit::Minute), inline },
        name: None,
        replaces: Vec::new(),
        is_shadow: false,
        is_quota: false,
        has_detailed_metric: false,
        metadata: Vec::new(),
        path: requests_per_unit.to_string().into(),
        levels: Vec::new(),
    }
}

fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.first(), text.first()) {
        (None, None) => true,
        (Some(b'*'), _) => glob(&pattern[1..], text) || !text.is_empty() && glob(pattern, &text[1..]),
        (Some(one), Some(other)) => one == other && glob(&pattern[1..], &text[1..]),
        _ => false,
    }
}

/// Walks the entries: at each, of those descriptors that continue the path walked so far, the very value,
/// else the first pattern that fits, else the key alone.
fn model(file: &[Written], entries: &[(&str, &str)]) -> Option<u32> {
    let mut walked: Vec<Step> = Vec::new();
    for (key, value) in entries {
        let here = || {
            let children = file.iter().filter(|one| one.path.len() == walked.len() + 1);
            let children = children.filter(|one| one.path[..walked.len()] == walked[..]);
            children.map(|one| &one.path[walked.len()]).filter(|step| step.key == *key)
        };
        let exact = here().find(|step| step.value.as_deref() == Some(*value) && !value.contains('*'));
        let fits = |step: &&Step| {
            let pattern = step.value.as_deref().unwrap_or("");
            pattern.contains('*') && glob(pattern.as_bytes(), value.as_bytes())
        };
        let next =
            exact.or_else(|| here().find(fits)).or_else(|| here().find(|step| step.value.is_none()))?;
        walked.push(next.clone());
    }
    file.iter().find(|one| one.path == walked && one.has_limit).map(|one| one.at)
}

struct Draw(u64);

impl Draw {
    fn of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        &list[usize::try_from(self.0 >> 33).unwrap() % list.len()]
    }
}

const VALUES: [Option<&str>; 8] =
    [None, Some("a"), Some("b"), Some("ab"), Some("a*"), Some("*b"), Some("*"), Some("a*b*")];

/// Descriptors below `path`, each of them unlike its brothers.
fn file(draw: &mut Draw, path: &[Step], into: &mut Vec<Written>) {
    let mut brothers: Vec<Step> = Vec::new();
    for _ in 0..*draw.of(&[0, 1, 2, 4]) {
        let one = step(draw.of::<&str>(&["k", "l", "k_a"]), *draw.of(&VALUES));
        if brothers.contains(&one) {
            continue;
        }
        brothers.push(one.clone());
        let path = [path, &[one]].concat();
        let at = u32::try_from(into.len()).unwrap() + 1;
        into.push(Written { path: path.clone(), at, has_limit: *draw.of(&[true, true, false]) });
        if path.len() < 3 {
            file(draw, &path, into);
        }
    }
}

#[test]
fn a_descriptor_meets_the_limit_that_the_model_says() {
    let mut met = 0;
    for seed in 0..3_000 {
        let mut draw = Draw(seed);
        let mut written = Vec::new();
        file(&mut draw, &[], &mut written);
        let mut builder = DialectBuilder::default();
        for one in &written {
            builder.descriptor("d", &one.path, one.has_limit.then(|| limit(one.at)));
        }
        let dialect = builder.build();
        for _ in 0..20 {
            let depth = *draw.of(&[1, 1, 2, 3, 4]);
            let entries: Vec<(&str, &str)> = (0..depth)
                .map(|_| (*draw.of(&["k", "l", "k_a"]), *draw.of(&["", "a", "b", "ab", "aab", "xb", "a*"])))
                .collect();
            let asked: Vec<Entry<'_>> = entries
                .iter()
                .map(|(key, value)| Entry { key: (*key).into(), value: (*value).into() })
                .collect();
            let found = dialect.find("d", &asked).map(|limit| limit.path.parse::<u32>().unwrap());
            let expected = model(&written, &entries);
            assert_eq!(found, expected, "seed {seed}: {entries:?} in {written:#?}");
            met += u32::from(found.is_some());
            assert!(dialect.find("e", &asked).is_none());
        }
    }
    assert!(met > 3_000, "most of it must be about something: {met}");
}

/// The original compares `key_value` as one text, and takes this entry for the other descriptor.
#[test]
fn a_key_is_not_taken_for_a_key_and_its_value() {
    let mut builder = DialectBuilder::default();
    builder.descriptor("d", &[step("a", Some("b"))], Some(limit(1)));
    let dialect = builder.build();
    let entry = |key, value| [Entry { key, value }];
    assert!(dialect.find("d", &entry("a".into(), "b".into())).is_some());
    assert!(dialect.find("d", &entry("a_b".into(), "c".into())).is_none());
}

#[test]
fn a_pattern_in_the_key_is_about_key_and_value() {
    let mut builder = DialectBuilder::default();
    builder.descriptor("d", &[step("path_/api/*", None)], Some(limit(1)));
    let dialect = builder.build();
    let met = |value: &str| dialect.find("d", &[Entry { key: "path".into(), value: value.into() }]).is_some();
    assert!(met("/api/x") && !met("/other"));
}
