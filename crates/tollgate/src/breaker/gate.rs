//! What a call meets, in one word: pass, refuse until then, pass a share since then, or ask.
//!
//! One atomic word, so that a permit reads everything it needs at once. The tag names the stretch of time
//! between two changes; an outcome carries the tag it was let through under, and counts only under that.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::units::Micros;

/// Times are kept in units of 64 µs since the breakers were made: 45 bits of them last 71 years.
const UNIT_BITS: u32 = 6;
const TIME_BITS: u32 = 45;
const TIME_MAX: u64 = (1 << TIME_BITS) - 1;
const TAG_BITS: u32 = 16;

/// Names the stretch between two changes. Another comes again after 65,536 of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tag(u64);

impl Tag {
    pub(super) const FIRST: Tag = Tag(0);

    pub(super) fn next(self) -> Tag {
        Tag((self.0 + 1) & ((1 << TAG_BITS) - 1))
    }

    /// As it stands at the head of a counter.
    pub(super) fn head(self) -> u64 {
        self.0 << (u64::BITS - TAG_BITS)
    }

    /// Of a counter with such a head.
    pub(super) fn is_of(self, word: u64) -> bool {
        word >> (u64::BITS - TAG_BITS) == self.0
    }
}

/// What a call meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// It passes.
    Pass,
    /// It is refused.
    Refuse {
        /// Until when.
        until: Micros,
    },
    /// A share of calls passes.
    Share {
        /// When the ramp began.
        since: Micros,
    },
    /// It cannot be said from here.
    Ask,
}

/// The word.
#[derive(Debug)]
pub(super) struct Gate {
    word: AtomicU64,
    /// When the breakers were made.
    made: Micros,
}

impl Gate {
    pub(super) fn new(made: Micros) -> Gate {
        Gate { word: AtomicU64::new(pack(Way::Ask, Tag::FIRST, made)), made }
    }

    /// hot path: one load.
    #[inline]
    pub(super) fn read(&self) -> (Way, Tag) {
        let word = self.word.load(Ordering::Acquire);
        let time = self.made + Micros((word & TIME_MAX) << UNIT_BITS);
        let way = match word >> (u64::BITS - 3) {
            0 => Way::Pass,
            1 => Way::Refuse { until: time },
            2 => Way::Share { since: time },
            _ => Way::Ask,
        };
        (way, Tag(word >> TIME_BITS & ((1 << TAG_BITS) - 1)))
    }

    pub(super) fn write(&self, way: Way, tag: Tag) {
        self.word.store(pack(way, tag, self.made), Ordering::Release);
    }
}

fn pack(way: Way, tag: Tag, made: Micros) -> u64 {
    // Rounded up: refused for a moment longer, and a share for a moment smaller.
    let units = |time: Micros| (time - made).0.div_ceil(1 << UNIT_BITS).min(TIME_MAX);
    let (kind, time) = match way {
        Way::Pass => (0, 0),
        Way::Refuse { until } => (1, units(until)),
        Way::Share { since } => (2, units(since)),
        Way::Ask => (3, 0),
    };
    kind << (u64::BITS - 3) | tag.0 << TIME_BITS | time
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_times_are_rounded_up() {
        let made = Micros(1_800_000_000_000_000);
        let gate = Gate::new(made);
        let mut tag = Tag::FIRST;
        assert_eq!(gate.read(), (Way::Ask, tag));
        for after in [0, 1, 64, 1_000_000, 86_400_000_000 * 365 * 10] {
            for way in [
                Way::Pass,
                Way::Refuse { until: made + Micros(after) },
                Way::Share { since: made + Micros(after) },
            ] {
                tag = tag.next();
                gate.write(way, tag);
                let (read, read_tag) = gate.read();
                assert_eq!(read_tag, tag);
                match (way, read) {
                    (Way::Refuse { until: was }, Way::Refuse { until: is })
                    | (Way::Share { since: was }, Way::Share { since: is }) => {
                        assert!(is >= was && is < was + Micros(64), "{was} {is}");
                    }
                    _ => assert_eq!(way, read),
                }
            }
        }
    }

    #[test]
    fn tags_come_again_only_after_all_of_them() {
        let mut tag = Tag::FIRST;
        for _ in 1..65_536 {
            tag = tag.next();
            assert_ne!(tag, Tag::FIRST);
        }
        assert_eq!(tag.next(), Tag::FIRST);
    }
}
