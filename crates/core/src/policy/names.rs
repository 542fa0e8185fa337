//! A small hash for rule names.
//!
//! Rule names come from the policy's author, so nobody can choose them to collide; what callers
//! choose is only looked up. FNV-1a is a third of the cost of the standard library's keyed hash.

use std::hash::{BuildHasher, Hasher};

/// Builds [`NameHash`]es.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct NameHasher;

impl BuildHasher for NameHasher {
    type Hasher = NameHash;

    #[inline]
    fn build_hasher(&self) -> NameHash {
        NameHash(0xcbf2_9ce4_8422_2325)
    }
}

/// FNV-1a, 64 bits.
pub(super) struct NameHash(u64);

impl Hasher for NameHash {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
