//! Takes as callers see them: what a check was answered with, and a refund calls it by.

use std::fmt::Write as _;

use tollgate::Micros;
use tollgate::core::ask::WANTS_MAX;
use tollgate::core::decision::Take;
use tollgate::core::units::EXACT_MAX;

/// The most takes one check can have made.
const TAKES_MAX: usize = WANTS_MAX;

/// Writes `at.entry` joined by commas.
pub(crate) fn text(takes: impl Iterator<Item = Take>) -> String {
    let mut text = String::new();
    for take in takes {
        if !text.is_empty() {
            text.push(',');
        }
        let _ = write!(text, "{}.{}", take.at.0, take.entry); // to a String: cannot fail
    }
    text
}

/// Reads `at.entry` joined by commas. Digits only, so that there is one way to write a take.
pub(crate) fn parse(text: &str) -> Option<Vec<Take>> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let mut takes = Vec::with_capacity(1);
    for one in text.split(',') {
        let (at, entry) = one.split_once('.')?;
        if !digits(at) || !digits(entry) || takes.len() == TAKES_MAX {
            return None;
        }
        let at = at.parse().ok().filter(|&at| at <= EXACT_MAX)?;
        takes.push(Take { at: Micros(at), entry: entry.parse().ok()? });
    }
    Some(takes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_read_as_they_are_written() {
        let takes = [Take { at: Micros(1_763_194_000_123_456), entry: 0 }, Take { at: Micros(7), entry: 3 }];
        let written = text(takes.into_iter());
        assert_eq!(written, "1763194000123456.0,7.3");
        assert_eq!(parse(&written).unwrap(), takes);
        for wrong in ["", "1", "1.", ".1", "1.1,", "+1.1", "1. 1", "99999999999999999999.0", "1.4294967296"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
