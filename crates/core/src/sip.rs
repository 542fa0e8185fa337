//! SipHash-1-3 over whole parts.
//!
//! The rounds are written out here because a general hasher, which takes bytes in any portions,
//! spends more on joining them than on hashing. And both halves of what SipHash folds into one word
//! are kept: 128 bits name a key, 64 would not do.
//!
//! Proved by: tollgate/src/store/memory/hash.rs, against `siphasher`

/// The state of a SipHash-1-3, from its key on.
#[derive(Clone, Copy)]
pub struct Sip([u64; 4]);

impl std::fmt::Debug for Sip {
    /// Says nothing: the state gives the key away.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sip")
    }
}

impl Sip {
    /// A hash under this key.
    #[inline]
    pub const fn new(first: u64, second: u64) -> Sip {
        Sip([
            first ^ 0x736f_6d65_7073_6575,
            second ^ 0x646f_7261_6e64_6f6d,
            first ^ 0x6c79_6765_6e65_7261,
            second ^ 0x7465_6462_7974_6573,
        ])
    }

    /// The hash of these bytes, in two words. Their exclusive or is SipHash's one.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "out of line, its state goes by way of the stack: a tenth of a check"
    )]
    #[must_use]
    pub fn hash(mut self, bytes: &[u8]) -> [u64; 2] {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        // The last eight bytes overlap the word before; shifting drops what it has had.
        let rest = match bytes.last_chunk::<8>() {
            Some(_) if rest.is_empty() => 0,
            Some(last) => u64::from_le_bytes(*last) >> 8_usize.wrapping_sub(rest.len()).wrapping_mul(8),
            None => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
        };
        self.word(rest | (bytes.len() as u64) << 56);
        self.finish()
    }

    #[inline]
    fn word(&mut self, word: u64) {
        self.0[3] ^= word;
        self.round();
        self.0[0] ^= word;
    }

    #[inline]
    fn finish(mut self) -> [u64; 2] {
        self.0[2] ^= 0xff;
        for _ in 0..3 {
            self.round();
        }
        let Sip([v0, v1, v2, v3]) = self;
        [v0 ^ v1, v2 ^ v3]
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
}
