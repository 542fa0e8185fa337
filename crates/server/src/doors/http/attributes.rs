//! What a caller says about a call, read into what the policy asks for.

use std::borrow::Cow;

use tollgate::core::attributes::{Attribute, Known};

use super::raw::{ATTRIBUTES_MAX, RawAttributes, Value};
use crate::net::problem::Problem;

/// The attributes as named, or `None` if there are none.
pub(super) fn read(raw: RawAttributes<'_>, path: &str) -> Result<Option<Known>, Problem> {
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
    let mut known = Known::default();
    for (name, value) in pairs {
        let place = || format!("{path}.{}", name.chars().take(64).collect::<String>());
        let attribute =
            Attribute::parse(&name).map_err(|error| Problem::field(place(), error.to_string()))?;
        match &attribute {
            Attribute::Claim(_) => {
                let what = "is no attribute a caller can name: send the token as header.authorization, and its \
                            claims count once it is verified; or say it under a name of your own";
                return Err(Problem::field(place(), what));
            }
            Attribute::Parameter(_) => {
                return Err(Problem::field(place(), "comes from the path: send the path"));
            }
            _ => {}
        }
        let text: Cow<'_, str> = match value {
            Value::Absent => continue,
            Value::Text(text) => text,
            Value::Whole(number) => number.to_string().into(),
            Value::Other(found) => {
                return Err(Problem::field(place(), format!("must be text; found {found}")));
            }
        };
        let text: Cow<'_, str> = match attribute {
            Attribute::Method => text.to_ascii_uppercase().into(),
            Attribute::Host => text.to_ascii_lowercase().into(),
            _ => text,
        };
        known = known
            .with(attribute, &text)
            .ok_or_else(|| Problem::field(place(), "is no address: write 203.0.113.9 or 2001:db8::1"))?;
    }
    Ok(Some(known))
}
