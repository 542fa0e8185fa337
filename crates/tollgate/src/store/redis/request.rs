//! How keys are named and kept, and refunds and heartbeats in the bytes of one `FCALL` or `EVALSHA`.

use std::num::NonZeroU16;

use sha2::{Digest, Sha256};
use tollgate_core::algorithm::{Algorithm, Kind};
use tollgate_core::check::Refund;
use tollgate_core::decision::Take;
use tollgate_core::key::{Key, encode_subject};
use tollgate_core::units::Micros;

use super::cluster::slots::{slot_of, slot_of_key};
use super::config::{Layout, RedisConfig};
use super::part::Packed;
use super::scripts::Called;
use super::wire::{bulk, header};

/// Encoded subjects longer than this are hashed, so that keys stay short.
const SUBJECT_BYTES_PLAIN: usize = 128;

/// The generation of our key and value formats. Another one never shares a key with this.
const GENERATION: u8 = b'1';

/// A TTL above this, a quarter of a million years, would not be exact in Lua.
const TTL_MS_MAX: u64 = (1 << 53) - 1;

/// The hash tag of the notice board.
pub(super) const BOARD_TAG: &str = "board";

/// How this store names keys and how long it keeps them.
#[derive(Debug)]
pub(super) struct Naming {
    /// `prefix:generation:`, with the layout in the generation.
    head: String,
    /// The shortest TTL, in milliseconds, an exact double.
    ttl_ms_min: u64,
    /// How many hash tags subjects are folded into, if they are.
    partitions: Option<NonZeroU16>,
}

impl Naming {
    /// Names for a prefix and a layout.
    pub(super) fn new(config: &RedisConfig) -> Naming {
        let ttl_ms_min = u64::try_from(config.default_ttl.as_millis()).unwrap_or(u64::MAX);
        let (prefix, partitions) = (&config.key_prefix, config.partitions);
        let layout = match config.layout {
            Layout::Packed => 'p',
            Layout::Hash => 'h',
        };
        Naming {
            head: format!("{prefix}:{}{layout}:", char::from(GENERATION)),
            ttl_ms_min: ttl_ms_min.min(TTL_MS_MAX),
            partitions,
        }
    }

    /// The keys of the notice board: its notices, and its head. Neither can be a subject's.
    pub(super) fn board(&self) -> [String; 2] {
        ["", "=head"].map(|end| format!("{}{{{BOARD_TAG}}}{end}", self.head))
    }

    /// The channel that pushes go by. Redis' channels know no databases, so the number of ours is in the name.
    pub(super) fn channel(&self, database: u32) -> String {
        match database {
            0 => format!("{}push", self.head),
            database => format!("{}push@{database}", self.head),
        }
    }

    /// Writes a key as Redis has it: `prefix:generation:{subject}:rule:limit:algorithm`, or, in partitions,
    /// `prefix:generation:{=partition}subject:rule:limit:algorithm`.
    ///
    /// A long subject is hashed, marked with `~`, which no encoded subject begins with; nor does any with `=`.
    pub(super) fn write_key(&self, key: &Key<'_>, out: &mut String) {
        out.push_str(&self.head);
        self.write_stem(key.subject, out);
        out.push(':');
        out.push_str(key.scope.as_str());
    }

    /// The slot that a key is in, on a cluster.
    pub(super) fn slot(&self, key: Key<'_>) -> u16 {
        let mut stem = String::with_capacity(48);
        self.write_stem(key.subject, &mut stem);
        slot_of_key(&stem)
    }

    /// What all keys of a subject have between generation and rule, the hash tag with it.
    pub(super) fn stem(&self, subject: &[u8]) -> String {
        let mut stem = String::new();
        self.write_stem(subject, &mut stem);
        stem
    }

    /// A hash tag of one's own, of whatever is not a subject's.
    pub(super) fn tag(id: &[u8]) -> String {
        let mut tag = "{".to_owned();
        write_subject(id, &mut tag);
        tag.push('}');
        tag
    }

    fn write_stem(&self, subject: &[u8], out: &mut String) {
        out.push('{');
        if let Some(partitions) = self.partitions {
            out.push('=');
            out.push_str(itoa::Buffer::new().format(slot_of(subject) % partitions));
            out.push('}');
            write_subject(subject, out);
        } else {
            write_subject(subject, out);
            out.push('}');
        }
    }

    /// A key as Redis has it.
    pub(super) fn key(&self, key: &Key<'_>) -> Vec<u8> {
        let mut name = String::with_capacity(64);
        self.write_key(key, &mut name);
        name.into_bytes()
    }

    /// How long a key is kept after a spend.
    pub(super) fn ttl_ms(&self, algorithm: &Algorithm) -> u64 {
        // A bucket's TTL may be kept for all of its margin (`renew_every`), and must then still have
        // the second that a tolerated step of the clock takes.
        let spare = if algorithm.kind() == Kind::TokenBucket { Micros::SECOND } else { Micros::ZERO };
        (algorithm.keep_for() + spare).as_millis_ceil().max(self.ttl_ms_min).max(1)
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
            bulk(&mut out, Packed::of(check, around).as_slice());
            bulk(&mut out, number.format(self.ttl_ms(check.algorithm)).as_bytes());
            let mut named = [0; 12];
            named[..8].copy_from_slice(&at.0.to_le_bytes());
            named[8..].copy_from_slice(&entry.to_le_bytes());
            bulk(&mut out, &named);
        }
        out
    }

    /// One call that shows `instance` alive, among those under `tag`.
    pub(super) fn heartbeat(
        &self,
        called: Called<'_>,
        tag: &str,
        instance: &str,
        alive_for: Micros,
        now: Micros,
    ) -> Vec<u8> {
        let mut out = Vec::with_capacity(192);
        header(&mut out, b'*', 7);
        head(&mut out, called, 1);
        bulk(&mut out, format!("{}{{{tag}}}", self.head).as_bytes());
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

fn write_subject(subject: &[u8], out: &mut String) {
    let start = out.len();
    encode_subject(subject, out);
    if out.len() - start > SUBJECT_BYTES_PLAIN {
        out.truncate(start);
        out.push('~');
        for byte in Sha256::digest(subject).iter().take(16) {
            out.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or('0'));
            out.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or('0'));
        }
    }
}
