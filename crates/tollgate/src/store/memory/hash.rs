//! A key as 128 bits.
//!
//! The store keeps no key, only a SipHash-1-3 of its subject under a secret drawn at start: whoever
//! chooses subjects cannot choose collisions, so two keys share state with a chance of one in 2^112
//! per pair, and state costs the same whatever the length of a subject.
//!
//! Every scope has a secret of its own, the store's mixed with the scope's digest. To hash the
//! scope's text along with every subject would take longer than the subject does.

use std::hash::{BuildHasher, Hasher, RandomState};

use tollgate_core::algorithm::fixed_window::Windows;
use tollgate_core::algorithm::{Algorithm, Kind};
use tollgate_core::key::{Key, Scope};
use tollgate_core::sip::Sip;

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
    secret: [u64; 2],
}

impl std::fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyHasher")
    }
}

/// Set beside the kind for what no caller can name: overflow buckets.
const RESERVED: u64 = 0x80;

impl KeyHasher {
    /// A secret from the operating system's randomness.
    pub(super) fn random() -> KeyHasher {
        let word = || RandomState::new().build_hasher().finish();
        KeyHasher { secret: [word(), word()] }
    }

    /// The hash of a key under one algorithm.
    ///
    /// hot path: no allocation.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see Taking")]
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

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see Taking")]
    fn parts(&self, kind: u64, scope: &Scope, subject: &[u8]) -> KeyHash {
        let ([first, second], digest) = (self.secret, scope.digest());
        let [first, second] = Sip::new(first ^ digest[0] ^ kind, second ^ digest[1]).hash(subject);
        KeyHash { first: first.max(1), second }
    }
}

#[cfg(test)]
mod tests {
    use siphasher::sip::SipHasher13;

    use super::*;

    #[test]
    fn the_rounds_are_siphash() {
        let bytes: Vec<u8> = (1..=100).collect();
        for length in 0..=bytes.len() {
            let bytes = &bytes[..length];
            let [first, second] = Sip::new(3, 5).hash(bytes);
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
}
