//! What is counted together: a scope (which limit) and a subject (whose).
//!
//! A key is never text on the way to a decision: the memory store hashes its parts, and the Redis
//! store writes them straight into the command. Both go through [`Key::write_to`] or the same
//! parts, so that no two inputs share a key and no input breaks out of the hash tag.

use std::fmt::{self, Write as _};

use crate::algorithm::Kind;
use crate::sip::Sip;
use crate::units::Micros;

/// The longest subject a door lets in, in bytes.
pub const SUBJECT_BYTES_MAX: usize = 1024;

/// What stands in a key for the limit of a bucket that is by key alone; no inline limit has such a period.
pub const KEY_ALONE: &str = "key";

/// Which limit a key belongs to: `rule:limit:algorithm`, encoded once when the policy is built.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope {
    text: String,
    /// Of the text, by which a store in memory tells scopes apart without reading them again.
    ///
    /// The hash has no secret, yet nobody can make two scopes meet: rules are named by the policy's
    /// author, and all that callers can write into a scope is a period, of which there are far too
    /// few to find two alike in 128 bits.
    digest: [u64; 2],
}

impl Scope {
    /// The scope of a rule's `limit`-th limit. The plan is not in it: an upgrade does not refill.
    pub fn of_rule(rule: &str, limit: usize, kind: Kind) -> Scope {
        let mut text = String::with_capacity(rule.len().saturating_add(16));
        encode(rule.as_bytes(), &mut text);
        let _ = write!(text, ":{limit}:{}", kind.initials()); // writing to a String cannot fail
        Scope::of_text(text)
    }

    /// The scope of the `limit`-th limit that a rule tries out beside its own.
    pub fn of_candidate(rule: &str, limit: usize, kind: Kind) -> Scope {
        let mut text = String::with_capacity(rule.len().saturating_add(16));
        encode(rule.as_bytes(), &mut text);
        let _ = write!(text, ":candidate-{limit}:{}", kind.initials()); // writing to a String cannot fail
        Scope::of_text(text)
    }

    /// The scope of limits that callers bring along. The period is in it, so that 10/s and
    /// 1000/day on one key are two limits, while a changed count or burst keeps the state.
    pub fn of_inline(period: &str, kind: Kind) -> Scope {
        // `=` is encoded in every rule's name, so no rule can be called this.
        Scope::of_text(format!("=inline:{period}:{}", kind.initials()))
    }

    /// The scope of token buckets whose state is by key alone: whatever burst and rate they are asked for
    /// with, one key is one bucket.
    pub fn of_key_alone() -> Scope {
        Scope::of_text(format!("=:{KEY_ALONE}:{}", Kind::TokenBucket.initials()))
    }

    fn of_text(text: String) -> Scope {
        let digest = Sip::new(0, 0).hash(text.as_bytes());
        Scope { text, digest }
    }

    /// As it stands in a key.
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// 128 bits that stand for it within this process.
    #[inline]
    pub fn digest(&self) -> [u64; 2] {
        self.digest
    }
}

/// The scope part for an inline period.
pub fn inline_period(span: Option<Micros>, calendar: Option<&str>) -> String {
    let mut text = String::new();
    match (span, calendar) {
        (_, Some(name)) => encode(name.as_bytes(), &mut text),
        (Some(span), None) => text = span.to_string(),
        (None, None) => text.push_str("month"),
    }
    text
}

/// What one check is counted under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key<'a> {
    /// Which limit.
    pub scope: &'a Scope,
    /// Whose.
    pub subject: &'a [u8],
}

impl Key<'_> {
    /// Appends `{subject}:scope`, with the subject encoded. The braces make it the hash tag.
    pub fn write_to(&self, out: &mut String) {
        out.push('{');
        encode_subject(self.subject, out);
        out.push_str("}:");
        out.push_str(&self.scope.text);
    }
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.write_to(&mut text);
        f.write_str(&text)
    }
}

/// Whether a byte stands for itself in a key. Everything that separates parts (`:`), delimits the
/// hash tag (`{`, `}`), marks what we write ourselves (`=`, `~`, `%`) or upsets a terminal does not.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._@/+,_".contains(&byte)
}

/// Appends bytes so that different bytes give different text: plain ones as they are, the others
/// as `%XX`. An empty part becomes `%`, because Redis takes `{}` for no hash tag at all.
pub fn encode(bytes: &[u8], out: &mut String) {
    encode_unless(is_plain, bytes, out);
}

/// The same of a subject, in which `:` is common and stands for itself: three parts follow it, and none of
/// them has one, so where it ends is known.
pub fn encode_subject(bytes: &[u8], out: &mut String) {
    encode_unless(|byte| is_plain(byte) || byte == b':', bytes, out);
}

fn encode_unless(is_plain: impl Fn(u8) -> bool, bytes: &[u8], out: &mut String) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    if bytes.is_empty() {
        out.push('%');
    }
    for &byte in bytes {
        if is_plain(byte) {
            out.push(char::from(byte));
        } else {
            let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
            out.push('%');
            out.extend([HEX.get(high), HEX.get(low)].into_iter().flatten().copied().map(char::from));
        }
    }
}

/// The inverse of [`encode`] and of [`encode_subject`]; `None` if the text was not written by it.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    if text == "%" {
        return Some(Vec::new());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let high = char::from(rest.next()?).to_digit(16)?;
            let low = char::from(rest.next()?).to_digit(16)?;
            bytes.push(u8::try_from(high.checked_mul(16)?.checked_add(low)?).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn key(rule: &str, subject: &[u8]) -> String {
        let scope = Scope::of_rule(rule, 0, Kind::TokenBucket);
        Key { scope: &scope, subject }.to_string()
    }

    #[test]
    fn keys_read_as_documented() {
        assert_eq!(key("login", b"user_123"), "{user_123}:login:0:tb");
    }

    #[test]
    fn no_two_inputs_share_a_key() {
        let parts: [&[u8]; 14] = [
            b"", b"%", b"a", b"a:b", b"{a}", b"a}", b"}a{", b"a%3Ab", b"%25", b"\0", b"\xff", b"=inline",
            b"b:0", b"a b",
        ];
        let mut seen = HashMap::new();
        for rule in parts.iter().filter_map(|p| std::str::from_utf8(p).ok()) {
            for subject in parts {
                let text = key(rule, subject);
                if let Some(other) = seen.insert(text.clone(), (rule, subject)) {
                    panic!("{other:?} and {:?} share {text}", (rule, subject));
                }
            }
        }
    }

    #[test]
    fn no_subject_breaks_out_of_the_hash_tag() {
        for subject in [&b"}"[..], b"{", b"a}b{c", b"", b"}:x:{"] {
            let text = key("r", subject);
            let tag = &text[1..text.find('}').unwrap()];
            assert!(!tag.is_empty() && !tag.contains('{'), "{text}");
            assert_eq!(decode(tag).unwrap(), subject, "{text}");
        }
    }
}
