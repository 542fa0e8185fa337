//! Whether a rule's tokens may be taken ahead for hot keys.

use std::time::Duration;

use tollgate::Micros;
use tollgate::core::policy::{LEASE_TIME_MAX, LEASE_TIME_MIN, Lease};

use super::super::section::Section;

/// Reads `lease`: `auto`, or `{max: 50, for: 100ms}`. What its limit cannot bear is found when the rule is
/// built.
pub(super) fn check(section: &mut Section<'_>) -> Option<Lease> {
    if !section.is_mapping("lease") {
        let allowed = "auto, or {max: 50, for: 100ms}";
        return section
            .word("lease", allowed, |word| (word == "auto").then_some(Lease::Auto))
            .map(|at| at.value);
    }
    let mut section = section.section("lease");
    let max = section.whole("max", 2..=u64::from(u32::MAX));
    let bounds: std::ops::RangeInclusive<Duration> =
        LEASE_TIME_MIN.to_duration()..=LEASE_TIME_MAX.to_duration();
    let time = section.span("for", bounds);
    for (field, is_there, what) in [
        ("max", max.is_some(), "is missing: say how many may be taken ahead, such as 50"),
        ("for", time.is_some(), "is missing: say how long they may be spent, such as 100ms"),
    ] {
        if !is_there && !section.was_there(field) {
            section.missing(field, what);
        }
    }
    section.close();
    Some(Lease::Within { max: u32::try_from(max?.value).ok()?, time: Micros::from(time?.value) })
}
