//! What is counted together: a domain and the entries of a descriptor.

use tollgate::core::key::SUBJECT_BYTES_MAX;
use tollgate::core::policy::write_hash;

use super::Entry;

/// Before every subject, so that no key of an ask by name meets one by accident.
const PREFIX: &str = "envoy,";

/// The subject of a descriptor: `envoy,domain,key,value,…`. The values of some entries may be given
/// otherwise: a pattern that all its matches are counted under.
///
/// No two descriptors share one, which in the original they can (`a_b`, `c` and `a`, `b_c`). What is too
/// long to be a key is hashed.
pub(super) fn of<'a>(
    domain: &str,
    entries: &[Entry<'_>],
    shared: impl Fn(usize) -> Option<&'a str>,
) -> String {
    let parts =
        entries.iter().map(|entry| entry.key.len().saturating_add(entry.value.len()).saturating_add(2));
    let mut subject = String::with_capacity(PREFIX.len() + domain.len() + parts.sum::<usize>());
    subject.push_str(PREFIX);
    escape(domain, &mut subject);
    for (at, entry) in entries.iter().enumerate() {
        subject.push(',');
        escape(&entry.key, &mut subject);
        subject.push(',');
        match shared(at) {
            // No value can look so: what is escaped is never `*` after a comma and a percent sign.
            Some(pattern) => {
                subject.push_str("%*");
                escape(pattern, &mut subject);
            }
            None => escape(&entry.value, &mut subject),
        }
    }
    if subject.len() <= SUBJECT_BYTES_MAX {
        return subject;
    }
    let mut hashed = String::with_capacity(PREFIX.len() + 33);
    hashed.push_str(PREFIX);
    write_hash(subject.as_bytes(), &mut hashed);
    hashed
}

/// Appends a part so that it cannot be taken for two, nor for a hash.
fn escape(part: &str, out: &mut String) {
    if !part.contains([',', '%', '~']) {
        out.push_str(part);
        return;
    }
    for letter in part.chars() {
        match letter {
            ',' => out.push_str("%2C"),
            '%' => out.push_str("%25"),
            '~' => out.push_str("%7E"),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn entries<'a>(pairs: &[(&'a str, &'a str)]) -> Vec<Entry<'a>> {
        pairs.iter().map(|(key, value)| Entry { key: (*key).into(), value: (*value).into() }).collect()
    }

    #[test]
    fn no_two_descriptors_share_a_subject() {
        let words = ["", "a", "b", "a,b", ",", "%2C", "a_b", "~", "%*", "*"];
        let mut seen = HashMap::new();
        for domain in words {
            for key in words {
                for value in words {
                    for shared in [None, Some("*"), Some("a")] {
                        let one = entries(&[(key, value)]);
                        // Those that share a pattern share whatever their values are.
                        let meant = (domain, key, shared.map_or((0, value), |pattern| (1, pattern)));
                        let subject = of(domain, &one, |_| shared);
                        let other = seen.insert(subject.clone(), meant);
                        assert!(other.is_none_or(|other| other == meant), "{subject}: {other:?} {meant:?}");
                    }
                    let two = entries(&[(key, value), (value, key)]);
                    assert_ne!(of(domain, &two, |_| None), of(domain, &two[..1], |_| None));
                }
            }
        }
    }

    #[test]
    fn what_is_too_long_is_hashed_and_still_told_apart() {
        let long = "x".repeat(SUBJECT_BYTES_MAX);
        let (one, other) = (format!("{long}1"), format!("{long}2"));
        let (one, other) = (entries(&[("k", &one)]), entries(&[("k", &other)]));
        let (one, other) = (of("d", &one, |_| None), of("d", &other, |_| None));
        assert_ne!(one, other);
        assert!(one.len() < 64 && one.starts_with("envoy,~"), "{one}");
    }
}
