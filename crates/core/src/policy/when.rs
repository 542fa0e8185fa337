//! When a rule applies: conditions on attributes, all of which must hold.

use std::collections::HashSet;

use super::pattern::{PathError, PathPattern, TextPattern};
use crate::address::{AddressSet, Cidr, CidrError};
use crate::attributes::{Attribute, Attributes};

/// When a rule applies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct When {
    all: Vec<Condition>,
    unless: Vec<Condition>,
}

/// One attribute, and what it must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    attribute: Attribute,
    accepts: Accepts,
}

/// What an attribute must be: any one of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Accepts {
    Texts { exact: HashSet<Box<str>>, globs: Vec<TextPattern> },
    Paths(Vec<PathPattern>),
    Addresses { set: AddressSet, ranges: Vec<Cidr> },
}

/// Why a condition cannot be kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConditionError {
    /// Nothing would ever match.
    #[error("is empty: say what it must be, or \"*\" for anything")]
    Empty,
    /// A value is no path pattern.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A value is no range of addresses.
    #[error(transparent)]
    Cidr(#[from] CidrError),
    /// A path's parameter is what a rule's key can use; nothing can be asked of it.
    #[error("path.NAME can be used in a key; to look at a path write `path: /users/7`")]
    Parameter,
}

impl Condition {
    /// An attribute, and the values of which it must be one.
    pub fn new<'v>(
        attribute: Attribute,
        values: impl IntoIterator<Item = &'v str>,
    ) -> Result<Condition, ConditionError> {
        let values: Vec<&str> = values.into_iter().collect();
        if values.is_empty() || values.contains(&"") {
            return Err(ConditionError::Empty);
        }
        let is_any = values.contains(&"*");
        let accepts = match attribute {
            Attribute::Path if !is_any => {
                let paths = values.iter().map(|value| PathPattern::parse(value));
                Accepts::Paths(paths.collect::<Result<_, _>>()?)
            }
            Attribute::Address => {
                let read = |value: &&str| match *value {
                    "*" => [Cidr::parse("0.0.0.0/0"), Cidr::parse("::/0")],
                    value => [Cidr::parse(value), Cidr::parse(value)],
                };
                let ranges: Vec<Cidr> = values.iter().flat_map(read).collect::<Result<_, _>>()?;
                Accepts::Addresses { set: ranges.iter().copied().collect(), ranges }
            }
            Attribute::Parameter(_) => return Err(ConditionError::Parameter),
            _ => {
                let spelled = |value: &str| match attribute {
                    Attribute::Method => value.to_ascii_uppercase(),
                    Attribute::Host => value.to_ascii_lowercase(),
                    _ => value.to_owned(),
                };
                let (mut exact, mut globs) = (HashSet::new(), Vec::new());
                for value in values {
                    match TextPattern::new(&spelled(value)) {
                        TextPattern::Exact(text) => {
                            exact.insert(text);
                        }
                        glob @ TextPattern::Glob(_) => globs.push(glob),
                    }
                }
                Accepts::Texts { exact, globs }
            }
        };
        Ok(Condition { attribute, accepts })
    }

    /// The attribute it looks at.
    pub fn attribute(&self) -> &Attribute {
        &self.attribute
    }

    /// What it accepts, as it is written, in an order of its own.
    pub fn values(&self) -> Vec<String> {
        match &self.accepts {
            Accepts::Texts { exact, globs } => {
                let mut values: Vec<String> = exact.iter().map(ToString::to_string).collect();
                values.sort_unstable();
                values.extend(globs.iter().map(ToString::to_string));
                values
            }
            Accepts::Paths(paths) => paths.iter().map(ToString::to_string).collect(),
            Accepts::Addresses { ranges, .. } => {
                let mut values: Vec<String> = ranges.iter().map(ToString::to_string).collect();
                values.dedup();
                values
            }
        }
    }

    pub(super) fn accepts(&self) -> &Accepts {
        &self.accepts
    }

    /// Whether it holds. What is absent is nothing, and holds for no condition.
    pub fn holds(&self, attributes: &dyn Attributes) -> bool {
        match &self.accepts {
            Accepts::Addresses { set, .. } => {
                attributes.address().is_some_and(|address| set.contains(address))
            }
            Accepts::Paths(paths) => {
                attributes.any(&self.attribute, &mut |path| paths.iter().any(|one| one.matches(path)))
            }
            Accepts::Texts { exact, globs } => attributes.any(&self.attribute, &mut |text| {
                exact.contains(text) || globs.iter().any(|pattern| pattern.matches(text))
            }),
        }
    }
}

impl When {
    /// Applies where all of `all` hold, and not where all of `unless` do.
    pub fn new(all: Vec<Condition>, unless: Vec<Condition>) -> When {
        When { all, unless }
    }

    /// What must hold.
    pub fn conditions(&self) -> &[Condition] {
        &self.all
    }

    /// Where it does not apply, if all of these hold.
    pub fn exceptions(&self) -> &[Condition] {
        &self.unless
    }

    /// The path patterns a key's parameters come from.
    pub(super) fn paths(&self) -> &[PathPattern] {
        let paths = self.all.iter().find_map(|condition| match &condition.accepts {
            Accepts::Paths(paths) => Some(paths.as_slice()),
            _ => None,
        });
        paths.unwrap_or_default()
    }

    /// Whether the rule applies.
    pub fn holds(&self, attributes: &dyn Attributes) -> bool {
        self.all.iter().all(|condition| condition.holds(attributes))
            && (self.unless.is_empty() || !self.unless.iter().all(|condition| condition.holds(attributes)))
    }
}
