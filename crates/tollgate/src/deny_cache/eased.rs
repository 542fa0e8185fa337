//! How instances tell each other which keys have more left: the text of [`Topic::Eased`](tollgate_core::push::Topic).
//!
//! Each key is the digest of its scope (16 bytes), the length of its subject (2, little-endian) and the subject itself. A hash of
//! all that would be shorter, but every instance hashes under a secret of its own.

use tollgate_core::key::Key;
use tollgate_core::push::PUSH_BYTES_MAX;

/// What a key takes beside its subject.
const OVERHEAD: usize = 18;

/// The longest text.
const TEXT_MAX: usize = PUSH_BYTES_MAX - 2;

/// The texts that name these keys: as many as it takes.
pub(crate) fn texts<'a>(keys: impl Iterator<Item = Key<'a>>) -> Vec<Vec<u8>> {
    let mut texts: Vec<Vec<u8>> = Vec::new();
    for key in keys {
        // A door lets no longer subject in than fits.
        let Ok(length) = u16::try_from(key.subject.len()) else { continue };
        let bytes = OVERHEAD + key.subject.len();
        if texts.last().is_none_or(|text| text.len() + bytes > TEXT_MAX) {
            texts.push(Vec::with_capacity(bytes));
        }
        if let Some(text) = texts.last_mut() {
            let [first, second] = key.scope.digest();
            text.extend_from_slice(&first.to_le_bytes());
            text.extend_from_slice(&second.to_le_bytes());
            text.extend_from_slice(&length.to_le_bytes());
            text.extend_from_slice(key.subject);
        }
    }
    texts
}

/// The keys that a text names, each as its scope's digest and its subject; a last `None` if it ends otherwise.
pub(super) fn keys(mut text: &[u8]) -> impl Iterator<Item = Option<([u64; 2], &[u8])>> {
    std::iter::from_fn(move || {
        if text.is_empty() {
            return None;
        }
        let key = first_of(text);
        text = key.map_or(&[], |(_, _, rest)| rest);
        Some(key.map(|(digest, subject, _)| (digest, subject)))
    })
}

fn first_of(text: &[u8]) -> Option<([u64; 2], &[u8], &[u8])> {
    let (first, rest) = text.split_first_chunk::<8>()?;
    let (second, rest) = rest.split_first_chunk::<8>()?;
    let (length, rest) = rest.split_first_chunk::<2>()?;
    let (subject, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    Some(([u64::from_le_bytes(*first), u64::from_le_bytes(*second)], subject, rest))
}
