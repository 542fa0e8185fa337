//! Checks to the bytes of one `FCALL` or `EVALSHA`.

use sha2::{Digest, Sha256};
use tollgate_core::algorithm::fixed_window::Windows;
use tollgate_core::algorithm::{Algorithm, Kind, TokenBucket};
use tollgate_core::check::{Check, Refund};
use tollgate_core::decision::Take;
use tollgate_core::key::{Key, encode};
use tollgate_core::units::Micros;

use super::config::Layout;
use super::scripts::{Called, kind_number};
use super::wire::{bulk, header};

/// Encoded subjects longer than this are hashed, so that keys stay short.
const SUBJECT_BYTES_PLAIN: usize = 128;

/// The generation of our key and value formats. Another one never shares a key with this.
const GENERATION: u8 = b'1';

/// A TTL above this, a quarter of a million years, would not be exact in Lua.
const TTL_MS_MAX: u64 = (1 << 53) - 1;

/// How this store names keys and how long it keeps them.
#[derive(Debug)]
pub(super) struct Naming {
    /// `prefix:generation:`, with the layout in the generation.
    head: String,
    /// The shortest TTL, in milliseconds, an exact double.
    ttl_ms_min: u64,
}

impl Naming {
    /// Names for a prefix and a layout.
    pub(super) fn new(prefix: &str, layout: Layout, ttl_ms_min: u64) -> Naming {
        let layout = match layout {
            Layout::Packed => 'p',
            Layout::Hash => 'h',
        };
        Naming {
            head: format!("{prefix}:{}{layout}:", char::from(GENERATION)),
            ttl_ms_min: ttl_ms_min.min(TTL_MS_MAX),
        }
    }

    /// The keys of the notice board: its notices, and its head. Neither can be a subject's.
    pub(super) fn board(&self) -> [String; 2] {
        ["", "=head"].map(|end| format!("{}{{board}}{end}", self.head))
    }

    /// The channel that pushes go by. Redis' channels know no databases, so the number of ours is in the name.
    pub(super) fn channel(&self, database: u32) -> String {
        match database {
            0 => format!("{}push", self.head),
            database => format!("{}push@{database}", self.head),
        }
    }

    /// Writes a key as Redis has it: `prefix:generation:{subject}:rule:limit:algorithm`.
    ///
    /// A long subject is hashed, marked with `~`, which no encoded subject begins with.
    pub(super) fn write_key(&self, key: &Key<'_>, out: &mut String) {
        out.push_str(&self.head);
        write_tag(key.subject, out);
        out.push(':');
        out.push_str(key.scope.as_str());
    }

    /// The hash tag that all keys of a subject share.
    pub(super) fn tag(subject: &[u8]) -> String {
        let mut tag = String::new();
        write_tag(subject, &mut tag);
        tag
    }

    fn ttl_ms(&self, algorithm: &Algorithm) -> u64 {
        // A bucket's TTL may be kept for all of its margin (`renew_every`), and must then still have
        // the second that a tolerated step of the clock takes.
        let spare = if algorithm.kind() == Kind::TokenBucket { Micros::SECOND } else { Micros::ZERO };
        (algorithm.keep_for() + spare).as_millis_ceil().max(self.ttl_ms_min).max(1)
    }

    /// One call for a take or a peek. `around` is where calendar windows are looked up; `now`
    /// is zero to let Redis read its own clock.
    pub(super) fn visits(
        &self,
        called: Called<'_>,
        checks: &[Check<'_>],
        now: Micros,
        around: Micros,
    ) -> Vec<u8> {
        let mut out = Vec::with_capacity(128 + checks.len() * 160);
        header(&mut out, b'*', 4 + checks.len() * 3);
        self.head_of_call(&mut out, called, checks.iter().map(|check| check.key), checks.len());
        let mut number = itoa::Buffer::new();
        bulk(&mut out, number.format(now.0).as_bytes());
        for check in checks {
            bulk(&mut out, pack(check, around).as_slice());
            bulk(&mut out, number.format(self.ttl_ms(check.algorithm)).as_bytes());
        }
        out
    }

    /// One call for a take from one token bucket, on Redis' own clock, of no more than it holds: the units
    /// of more might not be exact.
    pub(super) fn fast(&self, called: Called<'_>, check: &Check<'_>, bucket: &TokenBucket) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        header(&mut out, b'*', 5);
        self.head_of_call(&mut out, called, std::iter::once(check.key), 1);
        let mut packed = Packed::new();
        packed.push(&bucket.capacity().to_le_bytes());
        packed.push(&bucket.unit().to_le_bytes());
        packed.push(&bucket.pour().to_le_bytes());
        let renew_every = check.algorithm.keep_for() - check.algorithm.time_to_whole();
        let needed = bucket.units_of(check.cost);
        let ttl_ms = self.ttl_ms(check.algorithm);
        for number in [u64::from(bucket.pour()), needed, bucket.full(), renew_every.0, ttl_ms] {
            packed.push(&double(number).to_le_bytes());
        }
        bulk(&mut out, packed.as_slice());
        out
    }

    /// One call for refunds.
    pub(super) fn refunds(
        &self,
        called: Called<'_>,
        refunds: &[Refund<'_>],
        now: Micros,
        around: Micros,
    ) -> Vec<u8> {
        let mut out = Vec::with_capacity(128 + refunds.len() * 200);
        header(&mut out, b'*', 4 + refunds.len() * 4);
        self.head_of_call(&mut out, called, refunds.iter().map(|refund| refund.check.key), refunds.len());
        let mut number = itoa::Buffer::new();
        bulk(&mut out, number.format(now.0).as_bytes());
        for Refund { check, take } in refunds {
            let Take { at, entry } = *take;
            bulk(&mut out, pack(check, around).as_slice());
            bulk(&mut out, number.format(self.ttl_ms(check.algorithm)).as_bytes());
            let mut named = [0; 12];
            named[..8].copy_from_slice(&at.0.to_le_bytes());
            named[8..].copy_from_slice(&entry.to_le_bytes());
            bulk(&mut out, &named);
        }
        out
    }

    /// One call that shows `instance` alive.
    pub(super) fn heartbeat(
        &self,
        called: Called<'_>,
        instance: &str,
        alive_for: Micros,
        now: Micros,
    ) -> Vec<u8> {
        let mut out = Vec::with_capacity(192);
        header(&mut out, b'*', 7);
        head(&mut out, called, 1);
        bulk(&mut out, format!("{}{{instances}}", self.head).as_bytes());
        bulk(&mut out, instance.as_bytes());
        let mut number = itoa::Buffer::new();
        bulk(&mut out, number.format(alive_for.0).as_bytes());
        bulk(&mut out, number.format(now.0).as_bytes());
        out
    }

    fn head_of_call<'a>(
        &self,
        out: &mut Vec<u8>,
        called: Called<'_>,
        keys: impl Iterator<Item = Key<'a>>,
        count: usize,
    ) {
        head(out, called, count);
        let mut name = String::with_capacity(96);
        for key in keys {
            name.clear();
            self.write_key(&key, &mut name);
            bulk(out, name.as_bytes());
        }
    }
}

/// How to call, what, and the number of its keys.
pub(super) fn head(out: &mut Vec<u8>, called: Called<'_>, keys: usize) {
    let name = match called {
        Called::Function(name) => {
            out.extend_from_slice(b"$5\r\nFCALL\r\n");
            name
        }
        Called::Script(sha) => {
            out.extend_from_slice(b"$7\r\nEVALSHA\r\n");
            sha
        }
    };
    bulk(out, name.as_bytes());
    bulk(out, itoa::Buffer::new().format(keys).as_bytes());
}

fn write_tag(subject: &[u8], out: &mut String) {
    out.push('{');
    let start = out.len();
    encode(subject, out);
    if out.len() - start > SUBJECT_BYTES_PLAIN {
        out.truncate(start);
        out.push('~');
        for byte in Sha256::digest(subject).iter().take(16) {
            out.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or('0'));
            out.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or('0'));
        }
    }
    out.push('}');
}

/// A check's packed arguments, as its twin's `Args` says.
struct Packed {
    bytes: [u8; 96],
    length: usize,
}

impl Packed {
    fn new() -> Packed {
        Packed { bytes: [0; 96], length: 0 }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

fn pack(check: &Check<'_>, around: Micros) -> Packed {
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

/// A time of at most a second.
fn micros(time: Micros) -> [u8; 4] {
    u32::try_from(time.0).unwrap_or(u32::MAX).to_le_bytes()
}

/// A whole number as Lua has it: exact, because every number of ours is below 2^53.
#[expect(clippy::cast_precision_loss, reason = "numbers of ours are below 2^53")]
fn double(number: u64) -> f64 {
    number as f64
}

/// Whether any check follows a calendar, and so needs to know roughly what time it is.
pub(super) fn has_calendar<'a>(mut algorithms: impl Iterator<Item = &'a Algorithm>) -> bool {
    algorithms.any(|algorithm| {
        matches!(algorithm, Algorithm::FixedWindow(window) if matches!(window.windows(), Windows::Calendar(_)))
    })
}
