//! Whether a rule's key template could ever write a key that somebody names.
//!
//! `{token|address}` writes `address/203.0.113.9` and never `203.0.113.9`: an override for the latter would be
//! accepted, and obeyed for nobody.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};

use tollgate::core::address::Grouping;
use tollgate::core::attributes::Attribute;
use tollgate::core::policy::KeyTemplate;

use super::super::section::clip;

/// What stands for a secret is `~` and so many hex digits.
const HASH_DIGITS: usize = 32;

enum Part {
    Text(String),
    First(Vec<Attribute>),
}

/// Refuses a key that the template cannot write, and says how to write it.
///
/// Any rule can also be asked for by name with a key of the caller's own. So where a template writes one attribute as
/// it is, every key is one; only an address that is not grouped as the rule does it is a mistake.
pub(crate) fn check(template: Option<&KeyTemplate>, grouping: Grouping, key: &[u8]) -> Result<(), String> {
    let Some(template) = template else { return Ok(()) };
    let written = template.to_string();
    let parts = parts(&written);
    let key = String::from_utf8_lossy(key);
    let no_key = |instead: &str| {
        let what = clip(&key);
        Err(format!("\"{what}\" is no key of this rule, which counts by \"{written}\": write {instead}"))
    };
    if let [Part::First(choice)] = parts.as_slice() {
        let address = choice.contains(&Attribute::Address).then(|| grouped(&key, grouping)).flatten();
        if choice.len() == 1 {
            let bare = key.strip_prefix("address/").and_then(|bare| grouped(bare, grouping));
            let address = bare.filter(|_| *choice == [Attribute::Address]).or(address);
            return match address {
                Some(address) if address != key => no_key(&address),
                _ => Ok(()),
            };
        }
        if let Some(address) = address {
            return no_key(&format!("address/{address}"));
        }
    }
    let has_choice = parts.iter().any(|part| matches!(part, Part::First(choice) if choice.len() > 1));
    if !has_choice || can_be(&parts, &key, grouping) { Ok(()) } else { no_key(&samples(&parts, grouping)) }
}

/// A template taken apart, as it is written.
fn parts(written: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    for piece in written.split_inclusive('}') {
        let (text, names) = piece.split_once('{').unwrap_or((piece, ""));
        if !text.is_empty() {
            parts.push(Part::Text(text.to_owned()));
        }
        let names = names.trim_end_matches('}').split('|');
        let choice: Vec<Attribute> = names.filter_map(|name| Attribute::parse(name.trim()).ok()).collect();
        if !choice.is_empty() {
            parts.push(Part::First(choice));
        }
    }
    parts
}

/// Whether the parts can write the key: walks all ways to do it at once.
fn can_be(parts: &[Part], key: &str, grouping: Grouping) -> bool {
    // One that was too long as a whole was hashed as a whole.
    if hash(key) == Some(key.len()) {
        return true;
    }
    let mut ends = BTreeSet::from([0]);
    for part in parts {
        let mut next = BTreeSet::new();
        for rest in ends.iter().filter_map(|&at| key.get(at..)) {
            let at = key.len() - rest.len();
            match part {
                Part::Text(text) => next.extend(rest.starts_with(text.as_str()).then_some(at + text.len())),
                Part::First(choice) => {
                    for attribute in choice {
                        let name = if choice.len() > 1 { format!("{attribute}/") } else { String::new() };
                        let Some(value) = rest.strip_prefix(&name) else { continue };
                        let lengths = values(attribute, value, grouping);
                        next.extend(lengths.into_iter().map(|length| at + name.len() + length));
                    }
                }
            }
        }
        ends = next;
    }
    ends.contains(&key.len())
}

/// The lengths of what could be a value of the attribute at the beginning of a text.
fn values(attribute: &Attribute, text: &str, grouping: Grouping) -> Vec<usize> {
    if *attribute == Attribute::Address {
        let is_one = |one: &str| grouped(one, grouping).is_some_and(|written| written == one);
        return (1..=text.len().min(64)).filter(|&end| text.get(..end).is_some_and(is_one)).collect();
    }
    let mut lengths: Vec<usize> = hash(text).into_iter().collect();
    if !attribute.is_secret() {
        // Everything else is escaped.
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._@+,%".contains(byte);
        lengths.extend(1..=text.bytes().take_while(plain).count());
    }
    lengths
}

/// The length of a hash at the beginning of a text.
fn hash(text: &str) -> Option<usize> {
    let digits = text.strip_prefix('~')?.as_bytes().get(..HASH_DIGITS)?;
    let is_hash = digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    is_hash.then_some(HASH_DIGITS + 1)
}

/// An address, or a network of them, as a rule writes it.
fn grouped(text: &str, grouping: Grouping) -> Option<String> {
    let address: IpAddr = text.split('/').next()?.parse().ok()?;
    let mut written = String::new();
    grouping.write(address, &mut written);
    Some(written)
}

/// What keys look like: one for each thing that can fill a place.
fn samples(parts: &[Part], grouping: Grouping) -> String {
    let sizes = parts.iter().map(|part| if let Part::First(choice) = part { choice.len() } else { 1 });
    let example = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));
    let mut samples: Vec<String> = Vec::new();
    for at in 0..sizes.max().unwrap_or(1) {
        let mut sample = String::new();
        for part in parts {
            let choice = match part {
                Part::Text(text) => {
                    sample.push_str(text);
                    continue;
                }
                Part::First(choice) => choice,
            };
            let Some(attribute) = choice.get(at).or(choice.last()) else { continue };
            if choice.len() > 1 {
                let _ = write!(sample, "{attribute}/"); // writing to a String cannot fail
            }
            match attribute {
                Attribute::Address => grouping.write(example, &mut sample),
                secret if secret.is_secret() => sample.push_str("~HASH"),
                _ => sample.push_str("VALUE"),
            }
        }
        samples.push(sample);
    }
    let samples = samples.join(" or ");
    let hashed = "where HASH is the first 32 hex digits of the SHA-256";
    if samples.contains("~HASH") { format!("{samples}, {hashed}") } else { samples }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(template: &str, key: &str) -> Result<(), String> {
        check(Some(&KeyTemplate::parse(template).unwrap()), Grouping::default(), key.as_bytes())
    }

    #[test]
    fn what_a_template_writes_is_a_key() {
        let hash = format!("~{}", "0f".repeat(16));
        for (template, key) in [
            ("{token|address}", &format!("token/{hash}")[..]),
            ("{token|address}", "address/203.0.113.9"),
            ("{token|ip}", "address/2001:db8::/64"),
            ("{token|address}", &hash),
            ("{claim.sub|address}:{path.user}", "claim.sub/ann%20b:7"),
            ("{claim.sub|address}:{path.user}", "address/2001:db8::/64:7"),
            ("to {claim.sub|tier}", &format!("to tier/{hash}")),
            ("{address}", "203.0.113.9"),
            ("{address}", "2001:db8::/64"),
            ("{address}", "user_123"),
            ("{claim.sub}", "10.0.0.1"),
            ("{claim.sub}:{path.user}", "whatever"),
            ("everyone", "ann"),
        ] {
            assert_eq!(checked(template, key), Ok(()), "{template} {key}");
        }
        assert_eq!(check(None, Grouping::default(), b"\xff"), Ok(()));
    }

    #[test]
    fn what_it_cannot_write_is_refused_with_the_right_spelling() {
        for (template, key, instead) in [
            ("{token|address}", "203.0.113.9", "write address/203.0.113.9"),
            ("{token|address}", "2001:db8::7", "write address/2001:db8::/64"),
            ("{token|address}", "s3cret", "write token/~HASH or address/203.0.113.9, where HASH is"),
            ("{token|address}", "token/s3cret", "write token/~HASH or"),
            ("{token|address}", "address/2001:db8::7", "address/203.0.113.9"),
            ("{address}", "2001:db8::7", "write 2001:db8::/64"),
            ("{address}", "address/203.0.113.9", "write 203.0.113.9"),
            ("{claim.sub|tier}:{host}", "claim.sub/ann", "write claim.sub/VALUE:VALUE or tier/VALUE:VALUE"),
        ] {
            let why = checked(template, key).unwrap_err();
            assert!(why.contains(instead), "{template} {key}: {why}");
        }
    }
}
