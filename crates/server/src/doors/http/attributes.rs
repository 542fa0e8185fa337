//! The attributes of a body, read into what the policy asks for.

use std::borrow::Cow;

use tollgate::identity::Identity;

use super::raw::{ATTRIBUTES_MAX, RawAttributes, Value};
use crate::net::problem::Problem;
use crate::told::Told;

/// The attributes as named, or `None` if there are none.
pub(super) fn read(
    raw: RawAttributes<'_>,
    path: &str,
    identity: &Identity,
) -> Result<Option<Box<Told>>, Problem> {
    let pairs = match raw {
        RawAttributes::Absent => return Ok(None),
        RawAttributes::Map(pairs) => pairs,
        RawAttributes::TooMany(count) => {
            return Err(Problem::field(path, format!("has {count} of them: at most {ATTRIBUTES_MAX}")));
        }
        RawAttributes::Other(found) => {
            return Err(Problem::field(path, format!("must be an object of names and texts; found {found}")));
        }
    };
    let mut told = Told::new(identity);
    for (name, value) in pairs {
        let place = || format!("{path}.{}", name.chars().take(64).collect::<String>());
        let text: Cow<'_, str> = match value {
            Value::Absent => {
                told.mention(&name).map_err(|what| Problem::field(place(), what))?;
                continue;
            }
            Value::Text(text) => text,
            Value::Whole(number) => number.to_string().into(),
            Value::Other(found) => {
                return Err(Problem::field(place(), format!("must be text; found {found}")));
            }
        };
        told.add(&name, text).map_err(|what| Problem::field(place(), what))?;
    }
    Ok(Some(Box::new(told)))
}
