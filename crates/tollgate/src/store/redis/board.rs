//! The notice board in Redis: a hash of notices and a head with its version, on one slot.

use std::time::Duration;

use tollgate_core::board::{BOARD_BYTES_MAX, Board, NOTICES_MAX, Notice, Post, Posted, fits};
use tollgate_core::store::StoreError;
use tollgate_core::units::Micros;

use super::RedisStore;
use super::classify::answered;
use super::reply::{bad, whole};
use super::request::head;
use super::scripts::Called;
use super::wire::{Reply, bulk, header};

impl RedisStore {
    pub(super) async fn post_notice(
        &self,
        name: &[u8],
        notice: Option<Notice<'_>>,
    ) -> Result<Post, StoreError> {
        if notice.as_ref().is_some_and(|notice| !fits(name, notice)) {
            return Ok(Post::TooLong);
        }
        let packed = notice.map(|notice| pack(name, notice.text)).unwrap_or_default();
        let keep_for = notice.map_or(Micros::ZERO, |notice| Micros::from(notice.keep_for));
        // With the heartbeats: a board that is long must not hold up checks.
        let link = self.fill(&self.control);
        let [notices, board_head] = self.naming.board();
        let numbers = [keep_for.0, self.now(&link).await?.0, NOTICES_MAX as u64, BOARD_BYTES_MAX as u64];
        let [keep_for, now, most, bytes_most] = numbers.map(|number| number.to_string());
        let words = [
            notices.as_bytes(),
            board_head.as_bytes(),
            name,
            &packed,
            keep_for.as_bytes(),
            now.as_bytes(),
            most.as_bytes(),
            bytes_most.as_bytes(),
        ];
        let request = |called: Called<'_>| call_on_two(called, &words);
        match self.call(&link, self.scripts.post(), request).await? {
            Reply::Integer(0) => Ok(Post::Done),
            Reply::Integer(1) => Ok(Post::Full),
            Reply::Error(message) => Err(answered(&message)),
            _ => Err(bad("neither posted nor full")),
        }
    }

    pub(super) async fn board_since(&self, seen: u64) -> Result<Option<Board>, StoreError> {
        let link = self.fill(&self.control);
        let [notices, board_head] = self.naming.board();
        let [seen, now] = [seen, self.now(&link).await?.0].map(|number| number.to_string());
        let words = [notices.as_bytes(), board_head.as_bytes(), seen.as_bytes(), now.as_bytes()];
        let request = |called: Called<'_>| call_on_two(called, &words);
        let parts = match self.call(&link, self.scripts.board(), request).await? {
            Reply::Array(parts) => parts,
            Reply::Error(message) => return Err(answered(&message)),
            _ => return Err(bad("a board that is no array")),
        };
        match parts.as_slice() {
            [Reply::Integer(_)] => Ok(None),
            [Reply::Integer(version), Reply::Integer(now), Reply::Bulk(packed)] => {
                let whole = |number: i64| u64::try_from(number).map_err(|_| bad("a negative number"));
                let (version, now) = (whole(*version)?, Micros(whole(*now)?));
                Ok(Some(Board { version, notices: unpack(packed, now)? }))
            }
            _ => Err(bad("a board of another shape")),
        }
    }
}

/// A call on two keys, which come first among its words.
fn call_on_two(called: Called<'_>, words: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    header(&mut out, b'*', words.len() + 3);
    head(&mut out, called, 2);
    for word in words {
        bulk(&mut out, word);
    }
    out
}

/// A notice as `post.lua` keeps it, but for its end: the lengths of name and text, and both.
fn pack(name: &[u8], text: &[u8]) -> Vec<u8> {
    let length = |bytes: &[u8]| u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_le_bytes();
    [&length(name)[..], &length(text), name, text].concat()
}

/// Every notice that has not ended.
fn unpack(mut packed: &[u8], now: Micros) -> Result<Vec<Posted>, StoreError> {
    let short = || bad("a notice that was cut short");
    let mut notices = Vec::new();
    while !packed.is_empty() {
        let (fixed, rest) = packed.split_at_checked(12).ok_or_else(short)?;
        let ends = Micros(whole(&fixed[..8])?);
        let length = |at: usize| usize::from(u16::from_le_bytes([fixed[at], fixed[at + 1]]));
        let (name, rest) = rest.split_at_checked(length(8)).ok_or_else(short)?;
        let (text, rest) = rest.split_at_checked(length(10)).ok_or_else(short)?;
        packed = rest;
        if ends > now {
            let left = Duration::from_micros(ends.0 - now.0);
            notices.push(Posted { name: name.to_vec(), text: text.to_vec(), left });
        }
    }
    Ok(notices)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(ends: u32, name: &[u8], text: &[u8]) -> Vec<u8> {
        [&f64::from(ends).to_le_bytes()[..], &pack(name, text)].concat()
    }

    #[test]
    fn a_board_is_read_as_it_was_packed_without_what_has_ended() {
        let board = [kept(5, b"a\0b", b"one"), kept(3, b"gone", b"x"), kept(9, b"c", b"")].concat();
        let posted = |name: &[u8], text: &[u8], left| Posted {
            name: name.to_vec(),
            text: text.to_vec(),
            left: Duration::from_micros(left),
        };
        assert_eq!(unpack(&board, Micros(3)), Ok(vec![posted(b"a\0b", b"one", 2), posted(b"c", b"", 6)]));
        assert_eq!(unpack(b"", Micros(3)), Ok(Vec::new()));
        for cut in 1..board.len() {
            let is_whole = [kept(5, b"a\0b", b"one").len(), board.len() - kept(9, b"c", b"").len()];
            assert_eq!(unpack(&board[..cut], Micros(0)).is_ok(), is_whole.contains(&cut), "cut at {cut}");
        }
    }
}
