//! `when`, `allow` and `deny`: attributes, and what they must be.
//!
//! A value that no call could have is refused: a rule on `/a/../login` or `api.example.com:443` would be there, and
//! limit nothing.

use tollgate::core::address::Grouping;
use tollgate::core::attributes::Attribute;
use tollgate::core::key::SUBJECT_BYTES_MAX;
use tollgate::core::policy::{Condition, KeyTemplate, List, When};
use tollgate::identity::normal_path;

use super::super::section::{At, Section, clip};
use super::{attribute, subject};

/// What is known of the subject of a list where the list stands.
#[derive(Debug, Clone, Copy)]
pub(super) enum Keys<'a> {
    /// In a rule: how it writes its keys.
    Of(Option<&'a KeyTemplate>, Grouping),
    /// Before all rules: nothing.
    Unknown,
}

/// `when`, with its `not`.
pub(super) fn when(section: &mut Section<'_>) -> When {
    let mut when = section.section("when");
    let mut not = when.section("not");
    let unless = conditions(&mut not);
    not.close();
    let all = conditions(&mut when);
    when.close();
    When::new(all, unless)
}

/// Everything left in a section, as conditions.
fn conditions(section: &mut Section<'_>) -> Vec<Condition> {
    let mut conditions = Vec::new();
    for (field, values) in section.texts_by_name() {
        let path = section.path_of(&field.name);
        if field.name == "key" {
            let what =
                "is no attribute: the key is known once a rule applies, and then to its own allow and deny";
            section.problems().add(field.place, &path, what);
            continue;
        }
        let Some(attribute) = section.problems().keep(field.place, &path, attribute::read(&field.name))
        else {
            continue;
        };
        // Each by itself, to say of each what is wrong with it.
        let is_good = |value: &&At<String>| {
            let checked = possible(&attribute, &value.value).and_then(|()| {
                let alone = Condition::new(attribute.clone(), [value.value.as_str()]);
                alone.map(drop).map_err(|error| error.to_string())
            });
            section.problems().keep(value.place, &value.path, checked).is_some()
        };
        let good: Vec<&str> = values.iter().filter(is_good).map(|at| at.value.as_str()).collect();
        if good.is_empty() && !values.is_empty() {
            continue;
        }
        let condition = Condition::new(attribute.clone(), good);
        conditions.extend(section.problems().keep(field.place, &path, condition));
    }
    conditions
}

/// Whether a call can be so at all.
fn possible(attribute: &Attribute, value: &str) -> Result<(), String> {
    let rewrite = |why: &str, instead: &str| Err(format!("{why}: write it as {}", clip(instead)));
    match attribute {
        // What else can be wrong with it is said by whoever reads it.
        Attribute::Path if value.starts_with('/') && !value.contains(['?', '#']) => {
            let normal = normal_path(value);
            if normal == value { Ok(()) } else { rewrite("paths come to the rules in one spelling", &normal) }
        }
        Attribute::Host => {
            let is_port = |port: &str| port == "*" || port.bytes().all(|byte| byte.is_ascii_digit());
            let host =
                value.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(value, |(host, _)| host);
            let bare = host.trim_end_matches('.');
            if value.contains(['/', ' ']) {
                return Err("a host is a name and no more, such as api.example.com".to_owned());
            }
            // `[::1]` keeps its brackets, and its colons are within.
            if bare == value || value.ends_with(']') || bare.is_empty() {
                return Ok(());
            }
            rewrite("hosts come to the rules without a port and without a dot at the end", bare)
        }
        Attribute::Method if value.contains(|letter: char| letter.is_whitespace() || letter == ',') => {
            let each: Vec<_> = value.split([' ', ',']).filter(|one| !one.is_empty()).collect();
            rewrite("a method is one word", &format!("[{}]", each.join(", ")))
        }
        _ => Ok(()),
    }
}

/// `allow` or `deny`: any entry is enough.
pub(super) fn list(mut section: Section<'_>, keys: Keys<'_>) -> List {
    let mut known = Vec::new();
    if let Keys::Of(template, grouping) = keys {
        for key in section.texts("key").unwrap_or_default() {
            let checked = check_key(template, grouping, &key.value);
            section.problems().keep(key.place, &key.path, checked);
            known.push(key.value.into_bytes().into());
        }
    }
    let conditions = conditions(&mut section);
    section.close();
    List { conditions, keys: known }
}

/// Whether a key that a file names can be one of its rule's.
pub(super) fn check_key(template: Option<&KeyTemplate>, grouping: Grouping, key: &str) -> Result<(), String> {
    match key.len() {
        0 => Err("is empty: say whose limit it is".to_owned()),
        1..=SUBJECT_BYTES_MAX => subject::check(template, grouping, key.as_bytes()),
        bytes => Err(format!("is {bytes} bytes long: at most {SUBJECT_BYTES_MAX}")),
    }
}
