//! `when`, `allow` and `deny`: attributes, and what they must be.

use tollgate::core::attributes::Attribute;
use tollgate::core::policy::{Condition, List, When};

use super::super::section::Section;

/// Whether the subject of a list is known where the list stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keys {
    /// In a rule it is.
    Known,
    /// Before all rules it is not.
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
        let Some(attribute) = section.problems().keep(field.place, &path, Attribute::parse(&field.name))
        else {
            continue;
        };
        let condition = Condition::new(attribute, values.iter().map(|at| at.value.as_str()));
        let place = values.first().map_or(field.place, |at| at.place);
        conditions.extend(section.problems().keep(place, &path, condition));
    }
    conditions
}

/// `allow` or `deny`: any entry is enough.
pub(super) fn list(mut section: Section<'_>, keys: Keys) -> List {
    let keys = match keys {
        Keys::Unknown => Vec::new(),
        Keys::Known => section.texts("key").unwrap_or_default(),
    };
    let conditions = conditions(&mut section);
    section.close();
    List { conditions, keys: keys.into_iter().map(|at| at.value.into_bytes().into()).collect() }
}
