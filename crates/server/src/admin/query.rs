//! `?rule=…&key=…`, undone.

use std::borrow::Cow;

use tollgate::core::key::SUBJECT_BYTES_MAX;

use crate::net::percent;
use crate::net::problem::Problem;
use crate::overrides::Target;

/// The rule and the key that a query names, and nothing else.
pub(super) fn target(query: Option<&str>) -> Result<Target, Problem> {
    let (mut rule, mut key) = (None, None);
    for pair in query.unwrap_or("").split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (place, name) = match name {
            "rule" => (&mut rule, "rule"),
            "key" => (&mut key, "key"),
            _ => return Err(Problem::unchanged(clip(name), "unknown parameter: use rule and key")),
        };
        let value = percent::of_query(value)
            .ok_or_else(|| Problem::unchanged(name, "has a % without two hex digits"))?;
        if place.replace(value).is_some() {
            return Err(Problem::unchanged(name, "stands there twice"));
        }
    }
    let rule = rule.ok_or_else(|| Problem::unchanged("rule", "is missing: name the rule"))?;
    let key = key.ok_or_else(|| Problem::unchanged("key", "is missing: say whose limit it is"))?;
    let rule = String::from_utf8(rule).map_err(|_| Problem::unchanged("rule", "is not UTF-8"))?;
    check_key(&key)?;
    Ok(Target { rule, key })
}

/// Whether a key can be one.
pub(super) fn check_key(key: &[u8]) -> Result<(), Problem> {
    match key.len() {
        0 => Err(Problem::unchanged("key", "is empty: say whose limit it is")),
        1..=SUBJECT_BYTES_MAX => Ok(()),
        bytes => {
            Err(Problem::unchanged("key", format!("is {bytes} bytes long: at most {SUBJECT_BYTES_MAX}")))
        }
    }
}

/// A word of the caller's, short enough to be said back.
pub(super) fn clip(word: &str) -> Cow<'_, str> {
    word.char_indices().nth(64).map_or(Cow::Borrowed(word), |(end, _)| word[..end].to_owned().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_read_byte_by_byte() {
        let read = |query| target(Some(query)).unwrap();
        assert_eq!(read("rule=api&key=ann"), Target { rule: "api".to_owned(), key: b"ann".to_vec() });
        assert_eq!(read("key=a%00%ff+%2B%26b&rule=a").key, b"a\0\xff +&b");
        assert_eq!(read("key=a=b&rule=a").key, b"a=b");
        for wrong in
            ["", "rule=a", "key=k", "rule=a&key=", "rule=a&key=%4", "rule=a&key=%zz", "rule=a&key=k&x=1"]
        {
            assert!(target(Some(wrong)).is_err(), "{wrong}");
        }
        assert!(target(Some("rule=a&rule=b&key=k")).is_err());
        assert!(target(Some(&format!("rule=a&key={}", "k".repeat(1025)))).is_err());
        assert!(target(None).is_err());
    }
}
