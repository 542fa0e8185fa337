//! One ask in the bytes that Redis is sent: made where it is asked, written where its connection is.
//!
//! A part needs nothing of the ask it was made of, so that it can wait for its turn, travel with
//! others, and be written again where nothing ran.

use tollgate_core::algorithm::fixed_window::Windows;
use tollgate_core::algorithm::{Algorithm, Kind, TokenBucket};
use tollgate_core::check::Check;
use tollgate_core::few::Few;
use tollgate_core::units::Micros;

use super::request::{Naming, head};
use super::scripts::{Called, Entry, Scripts, Verb, kind_number};
use super::wire::{bulk, header};

/// The most bytes a check's arguments take.
const PACKED_MAX: usize = 56;

/// One ask.
#[derive(Debug)]
pub(super) struct Part {
    /// The cluster slot of its keys, where there is a cluster: only asks of one slot travel together.
    pub slot: Option<u16>,
    /// What is asked.
    pub asked: Asked,
}

/// What is asked.
#[derive(Debug)]
pub(super) enum Asked {
    /// One packed bucket on Redis' own clock, for no more than it holds: `token_bucket_fast.lua`.
    Bucket {
        /// Its key, as Redis has it.
        key: Vec<u8>,
        /// Its arguments.
        packed: Packed,
    },
    /// Anything else: `take.lua`.
    Checks(Few<Argued>),
}

/// One check with its arguments.
#[derive(Debug)]
pub(super) struct Argued {
    /// Its key, as Redis has it.
    pub key: Vec<u8>,
    /// Its kind, which the script may have to be picked by.
    pub kind: Kind,
    /// Its arguments.
    pub packed: Packed,
    /// How long its key is kept.
    pub ttl_ms: u64,
}

impl Part {
    /// How many checks it is.
    pub(super) fn checks(&self) -> usize {
        match &self.asked {
            Asked::Bucket { .. } => 1,
            Asked::Checks(checks) => checks.len(),
        }
    }

    /// How many arguments of a batch it makes, unless others have the same.
    pub(super) fn arguments(&self) -> usize {
        match &self.asked {
            Asked::Bucket { .. } => 1,
            Asked::Checks(checks) => 2 * checks.len(),
        }
    }

    /// About how many bytes of a call it makes.
    pub(super) fn bytes(&self) -> usize {
        match &self.asked {
            Asked::Bucket { key, packed } => key.len() + packed.length + 16,
            Asked::Checks(checks) => checks.iter().map(|one| one.key.len() + one.packed.length + 40).sum(),
        }
    }

    /// What to call for this one alone.
    pub(super) fn entry<'a>(&self, scripts: &'a Scripts, verb: Verb) -> Entry<'a> {
        match &self.asked {
            Asked::Bucket { .. } => scripts.fast(),
            Asked::Checks(checks) => scripts.pick(verb, checks.iter().map(|check| check.kind)),
        }
    }

    /// Writes the call for this one alone. `now` is zero to let Redis read its own clock.
    pub(super) fn write(&self, called: Called<'_>, now: Micros, out: &mut Vec<u8>) {
        match &self.asked {
            Asked::Bucket { key, packed } => {
                header(out, b'*', 5);
                head(out, called, 1);
                bulk(out, key);
                bulk(out, packed.as_slice());
            }
            Asked::Checks(checks) => {
                header(out, b'*', 4 + checks.len() * 3);
                head(out, called, checks.len());
                for check in checks {
                    bulk(out, &check.key);
                }
                let mut number = itoa::Buffer::new();
                bulk(out, number.format(now.0).as_bytes());
                for check in checks {
                    bulk(out, check.packed.as_slice());
                    bulk(out, number.format(check.ttl_ms).as_bytes());
                }
            }
        }
    }
}

impl Naming {
    /// A take from one token bucket, on Redis' own clock, of no more than it holds: the units of more might
    /// not be exact.
    pub(super) fn bucket_part(&self, check: &Check<'_>, bucket: &TokenBucket) -> Part {
        let mut packed = Packed::new();
        let renew_every = check.algorithm.keep_for() - check.algorithm.time_to_whole();
        let needed = bucket.units_of(check.cost);
        let ttl_ms = self.ttl_ms(check.algorithm);
        for number in [u64::from(bucket.pour()), needed, bucket.full(), renew_every.0, ttl_ms] {
            packed.push(&double(number).to_le_bytes());
        }
        packed.push(&bucket.capacity().to_le_bytes());
        match u32::try_from(bucket.unit()) {
            Ok(unit) => packed.push(&unit.to_le_bytes()),
            Err(_) => packed.push(&bucket.unit().to_le_bytes()),
        }
        packed.push(&bucket.pour().to_le_bytes());
        Part { slot: None, asked: Asked::Bucket { key: self.key(&check.key), packed } }
    }

    /// A take or a peek. `around` is where calendar windows are looked up.
    pub(super) fn part(&self, checks: &[Check<'_>], around: Micros) -> Part {
        let argued = checks.iter().map(|check| Argued {
            key: self.key(&check.key),
            kind: check.algorithm.kind(),
            packed: Packed::of(check, around),
            ttl_ms: self.ttl_ms(check.algorithm),
        });
        Part { slot: None, asked: Asked::Checks(argued.collect()) }
    }
}

/// A check's packed arguments, as its twin's `Args` says, or as `token_bucket_fast.lua` does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packed {
    bytes: [u8; PACKED_MAX],
    length: usize,
}

impl Packed {
    fn new() -> Packed {
        Packed { bytes: [0; PACKED_MAX], length: 0 }
    }

    /// The arguments of a check for its twin.
    pub(super) fn of(check: &Check<'_>, around: Micros) -> Packed {
        let mut packed = Packed::new();
        packed.push(&[kind_number(check.algorithm.kind())]);
        packed.push(&check.cost.get().to_le_bytes());
        packed.push(&check.algorithm.limit().to_le_bytes());
        match check.algorithm {
            Algorithm::TokenBucket(bucket) => {
                packed.push(&bucket.unit().to_le_bytes());
                packed.push(&bucket.pour().to_le_bytes());
            }
            Algorithm::SlidingLog(log) => {
                packed.push(&log.span().0.to_le_bytes());
                packed.push(&micros(log.lease()));
                packed.push(&micros(log.books_ahead()));
            }
            Algorithm::SlidingWindow(window) => packed.push(&window.span().0.to_le_bytes()),
            Algorithm::FixedWindow(window) => match window.windows() {
                Windows::Every(span) => packed.push(&span.0.to_le_bytes()),
                Windows::Calendar(calendar) => {
                    let bounds = calendar.around(around);
                    for number in [0, bounds.previous.0, bounds.current.0, bounds.next.0, bounds.end.0] {
                        packed.push(&number.to_le_bytes());
                    }
                }
            },
        }
        packed
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    /// The bytes.
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Of a bucket's arguments, the units it is asked for.
    pub(super) fn needed(&self) -> &[u8] {
        &self.bytes[8..16]
    }
}

/// A time of at most a second.
fn micros(time: Micros) -> [u8; 4] {
    u32::try_from(time.0).unwrap_or(u32::MAX).to_le_bytes()
}

/// A whole number as Lua has it: exact, because every number of ours is below 2^53.
#[expect(clippy::cast_precision_loss, reason = "numbers of ours are below 2^53")]
pub(super) fn double(number: u64) -> f64 {
    number as f64
}

/// Whether any check follows a calendar, and so needs to know roughly what time it is.
pub(super) fn has_calendar<'a>(mut algorithms: impl Iterator<Item = &'a Algorithm>) -> bool {
    algorithms.any(|algorithm| {
        matches!(algorithm, Algorithm::FixedWindow(window) if matches!(window.windows(), Windows::Calendar(_)))
    })
}
