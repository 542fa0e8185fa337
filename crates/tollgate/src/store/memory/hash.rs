//! A key as 128 bits.
//!
//! The store keeps no key, only a SipHash-1-3 of it under a secret drawn at start: whoever chooses
//! subjects cannot choose collisions, so two keys share state with a chance of one in 2^112 per
//! pair, and state costs the same whatever the length of a subject.

use std::hash::{BuildHasher, Hasher, RandomState};

use siphasher::sip128::{Hasher128, SipHasher13};
use tollgate_core::algorithm::fixed_window::Windows;
use tollgate_core::algorithm::{Algorithm, Kind};
use tollgate_core::key::{Key, Scope};

/// Which key, in two words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct KeyHash {
    /// Picks the group and the tag.
    pub(super) first: u64,
    /// The upper 16 bits pick the shard; the lower 48 are compared.
    pub(super) second: u64,
}

/// The store's secret.
#[derive(Clone)]
pub(super) struct KeyHasher {
    secret: (u64, u64),
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
        KeyHasher { secret: (word(), word()) }
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

    /// The scope's length goes first, so that no two pairs of parts run together alike.
    #[inline]
    fn parts(&self, kind: u64, scope: &Scope, subject: &[u8]) -> KeyHash {
        let scope = scope.as_str().as_bytes();
        let mut hasher = SipHasher13::new_with_keys(self.secret.0, self.secret.1);
        hasher.write_u64(kind | (scope.len() as u64) << 8);
        hasher.write(scope);
        hasher.write(subject);
        let hash = hasher.finish128();
        KeyHash { first: hash.h1, second: hash.h2 }
    }
}
