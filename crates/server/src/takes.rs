//! Takes as text: how an answer names a spend, and how a refund names it back.

use tollgate::Micros;
use tollgate::core::ask::WANTS_MAX;
use tollgate::core::decision::Take;
use tollgate::core::units::EXACT_MAX;

/// The most takes one check can have made.
const TAKES_MAX: usize = WANTS_MAX;

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
