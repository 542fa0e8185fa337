//! The notice board: the few words that instances on one store leave for each other.
//!
//! A limiter's instances share state and no channel. What a person changes on one of them (a key that is
//! blocked for an hour, say) is put on a board in the store, and every instance looks at it now and then.
//! Notices are bytes to the store; what they mean is the caller's. Each ends by itself.

use std::time::Duration;

/// The most notices on a board.
pub const NOTICES_MAX: usize = 10_000;

/// The longest notice, its name included, in bytes.
pub const NOTICE_BYTES_MAX: usize = 4096;

/// The most bytes of all notices together, with [`NOTICE_OVERHEAD`] for each: a look at a changed board
/// brings all of them.
pub const BOARD_BYTES_MAX: usize = 1_000_000;

/// What a notice takes beside its name and its text, in bytes.
pub const NOTICE_OVERHEAD: usize = 12;

/// What is put on the board.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notice<'a> {
    /// What it says.
    pub text: &'a [u8],
    /// How long it stays up, by the store's clock.
    pub keep_for: Duration,
}

/// What came of a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Post {
    /// It is up, or down.
    Done,
    /// Name and text have more than [`NOTICE_BYTES_MAX`] bytes. Nothing changed.
    TooLong,
    /// The board has no room for it. Nothing changed.
    Full,
}

/// A board that changed since it was last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Board {
    /// To be named when looking again. Every change makes another one, and so does the loss of the board.
    pub version: u64,
    /// What is up, in no order.
    pub notices: Vec<Posted>,
}

/// One notice that is up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posted {
    /// Its name.
    pub name: Vec<u8>,
    /// What it says.
    pub text: Vec<u8>,
    /// How long it will stay up.
    pub left: Duration,
}

/// Whether a notice is short enough.
pub fn fits(name: &[u8], notice: &Notice<'_>) -> bool {
    name.len().saturating_add(notice.text.len()) <= NOTICE_BYTES_MAX
}
