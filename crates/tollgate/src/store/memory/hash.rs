//! A key as 128 bits.
//!
//! The store keeps no key, only a SipHash-1-3 of it under a secret drawn at start: whoever chooses
//! subjects cannot choose collisions, so two keys share state with a chance of one in 2^112 per
//! pair, and state costs the same whatever the length of a subject.
//!
//! The rounds are written out here because keys come in two parts: a general hasher that takes
//! bytes in any portions spends more on joining them than on hashing. The tests compare them with
//! `siphasher`'s.

use std::hash::{BuildHasher, Hasher, RandomState};

use tollgate_core::algorithm::fixed_window::Windows;
use tollgate_core::algorithm::{Algorithm, Kind};
use tollgate_core::key::{Key, Scope};

/// Which key, in two words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct KeyHash {
    /// Picks the group, the slot and the tag. Never zero.
    pub(super) first: u64,
    /// The upper 16 bits pick the shard; the lower 48 are compared.
    pub(super) second: u64,
}

/// The store's secret.
#[derive(Clone)]
pub(super) struct KeyHasher {
    start: Sip,
}

impl std::fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyHasher")
    }
}

/// Set in the kind's byte for what no caller can name: overflow buckets.
const RESERVED: u64 = 0x80;

impl KeyHasher {
    /// A secret from the operating system's randomness.
    pub(super) fn random() -> KeyHasher {
        let word = || RandomState::new().build_hasher().finish();
        KeyHasher { start: Sip::new(word(), word()) }
    }

    /// The hash of a key under one algorithm.
    ///
    /// hot path: no allocation.
    #[inline]
    pub(super) fn key(&self, key: &Key<'_>, kind: Kind) -> KeyHash {
        self.parts(kind as u64, key.scope, key.subject)
    }

    /// The hash of what newcomers of one scope and one limit share once the store is full.
    pub(super) fn overflow(&self, scope: &Scope, algorithm: &Algorithm) -> KeyHash {
        let mut limit = Vec::with_capacity(40);
        limit.extend(algorithm.limit().to_le_bytes());
        match algorithm {
            Algorithm::TokenBucket(bucket) => {
                limit.extend(bucket.unit().to_le_bytes());
                limit.extend(bucket.pour().to_le_bytes());
            }
            Algorithm::SlidingLog(log) => limit.extend(log.span().0.to_le_bytes()),
            Algorithm::SlidingWindow(window) => limit.extend(window.span().0.to_le_bytes()),
            Algorithm::FixedWindow(window) => match window.windows() {
                Windows::Every(span) => limit.extend(span.0.to_le_bytes()),
                Windows::Calendar(calendar) => limit.extend(calendar.name().bytes()),
            },
        }
        self.parts(RESERVED | algorithm.kind() as u64, scope, &limit)
    }

    /// Both lengths go first, so that no two pairs of parts run together alike.
    #[inline]
    fn parts(&self, kind: u64, scope: &Scope, subject: &[u8]) -> KeyHash {
        let scope = scope.as_str().as_bytes();
        let mut sip = self.start;
        sip.word(kind | (scope.len() as u64) << 8 | (subject.len() as u64) << 32);
        sip.bytes(scope);
        sip.bytes(subject);
        sip.finish()
    }
}

/// The state of a SipHash-1-3.
#[derive(Clone, Copy)]
struct Sip([u64; 4]);

impl Sip {
    fn new(first: u64, second: u64) -> Sip {
        Sip([
            first ^ 0x736f_6d65_7073_6575,
            second ^ 0x646f_7261_6e64_6f6d,
            first ^ 0x6c79_6765_6e65_7261,
            second ^ 0x7465_6462_7974_6573,
        ])
    }

    #[inline]
    fn round(&mut self) {
        let Sip([v0, v1, v2, v3]) = *self;
        let (v0, v2) = (v0.wrapping_add(v1), v2.wrapping_add(v3));
        let (v1, v3) = (v1.rotate_left(13) ^ v0, v3.rotate_left(16) ^ v2);
        let (v2, v0) = (v2.wrapping_add(v1), v0.rotate_left(32).wrapping_add(v3));
        let (v1, v3) = (v1.rotate_left(17) ^ v2, v3.rotate_left(21) ^ v0);
        *self = Sip([v0, v1, v2.rotate_left(32), v3]);
    }

    #[inline]
    fn word(&mut self, word: u64) {
        self.0[3] ^= word;
        self.round();
        self.0[0] ^= word;
    }

    /// The bytes in words of eight, the last one filled up with zeros.
    #[inline]
    fn bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        if rest.is_empty() {
            return;
        }
        // The last eight bytes overlap the word before; shifting drops what it has had.
        let last = match bytes.last_chunk::<8>() {
            Some(last) => u64::from_le_bytes(*last) >> (64 - 8 * rest.len()),
            None => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
        };
        self.word(last);
    }

    /// Both halves of what SipHash folds into one word of 64 bits. Nobody outside sees either.
    #[inline]
    fn finish(mut self) -> KeyHash {
        self.0[2] ^= 0xff;
        for _ in 0..3 {
            self.round();
        }
        KeyHash { first: (self.0[0] ^ self.0[1]).max(1), second: self.0[2] ^ self.0[3] }
    }
}

#[cfg(test)]
mod tests {
    use siphasher::sip::SipHasher13;

    use super::*;

    /// SipHash itself ends with a word that holds the length.
    #[test]
    fn the_rounds_are_siphash() {
        let bytes: Vec<u8> = (0..100).collect();
        for length in 0..bytes.len() {
            let bytes = &bytes[..length];
            let mut sip = Sip::new(3, 5);
            let (words, rest) = bytes.as_chunks::<8>();
            sip.bytes(words.as_flattened());
            let rest = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            sip.word(rest | (length as u64) << 56);
            let KeyHash { first, second } = sip.finish();
            assert_eq!(first ^ second, SipHasher13::new_with_keys(3, 5).hash(bytes), "{length}");
        }
    }

    #[test]
    fn no_two_pairs_of_parts_hash_alike() {
        let hasher = KeyHasher::random();
        let mut seen = std::collections::HashSet::new();
        for scope in 0..30 {
            for subject in 0..30 {
                let scope = Scope::of_rule(&"a".repeat(scope), 0, Kind::TokenBucket);
                let (zeros, letters) = (vec![0; subject], vec![b'a'; subject]);
                for subject in [&zeros, &letters].into_iter().take(if zeros.is_empty() { 1 } else { 2 }) {
                    for kind in Kind::ALL {
                        assert!(seen.insert(hasher.key(&Key { scope: &scope, subject }, kind)));
                    }
                }
            }
        }
    }

    /// However long the part, its last word is what the bytes say.
    #[test]
    fn a_part_is_hashed_by_its_bytes_alone() {
        for length in 0..40 {
            let bytes: Vec<u8> = (1..=length).collect();
            let mut padded = bytes.clone();
            padded.resize(bytes.len().next_multiple_of(8), 0);
            let (mut by_parts, mut by_words) = (Sip::new(1, 2), Sip::new(1, 2));
            by_parts.bytes(&bytes);
            for word in padded.as_chunks().0 {
                by_words.word(u64::from_le_bytes(*word));
            }
            assert_eq!(by_parts.0, by_words.0, "{length}");
        }
    }
}
