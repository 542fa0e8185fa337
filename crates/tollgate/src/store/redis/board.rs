//! The notice board in Redis: a hash of notices and a head with its version, on one slot.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tollgate_core::board::{
    BOARD_BYTES_MAX, Board, NOTICE_OVERHEAD, NOTICES_MAX, Notice, Post, Posted, fits,
};
use tollgate_core::store::StoreError;
use tollgate_core::units::Micros;

use super::RedisStore;
use super::classify::answered;
use super::cluster::slots::slot_of;
use super::dial::time_of;
use super::reply::{bad, whole};
use super::request::{BOARD_TAG, head};
use super::scripts::Called;
use super::topology::{Lane, Spot};
use super::wire::{Reply, bulk, header};

/// The length of a head: version, bytes of all notices, and the end of the last one, as doubles.
const HEAD_BYTES: usize = 24;

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
        let mut spot = self.board_spot().await?;
        let [notices, board_head] = self.naming.board();
        let numbers = [keep_for.0, self.now(&spot).await?.0, NOTICES_MAX as u64, BOARD_BYTES_MAX as u64];
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
        match self.call(&mut spot, self.shared.scripts.post(), request).await? {
            Reply::Integer(0) => Ok(Post::Done),
            Reply::Integer(1) => Ok(Post::Full),
            Reply::Error(message) => Err(answered(&message)),
            _ => Err(bad("neither posted nor full")),
        }
    }

    /// With the heartbeats: a board that is long must not hold up checks.
    async fn board_spot(&self) -> Result<Spot, StoreError> {
        self.spot_in(Lane::Control, || slot_of(BOARD_TAG.as_bytes())).await
    }

    /// Plain commands and no script: a look that finds nothing new is one `GET`, and of 3,000 notices in one
    /// string Lua makes 6 to 12 ms where `HVALS` takes 0.3.
    pub(super) async fn board_since(&self, seen: u64) -> Result<Option<Board>, StoreError> {
        let mut spot = self.board_spot().await?;
        let [notices, head] = self.naming.board();
        // Order: the version first. A notice that comes in between is read with an older version, and the
        // next look reads it again.
        let version = match self.plain(&mut spot, &[b"GET", head.as_bytes()]).await? {
            Reply::Nil => 0,
            // A head that is not ours says nothing: the board is read each time, until the next post mends it.
            Reply::Bulk(head) => {
                let version = head.get(..8).filter(|_| head.len() == HEAD_BYTES);
                version.and_then(|version| whole(version).ok()).unwrap_or(u64::MAX)
            }
            _ => u64::MAX,
        };
        if version == seen && version != u64::MAX {
            return Ok(None);
        }
        let Reply::Array(values) = self.plain(&mut spot, &[b"HVALS", notices.as_bytes()]).await? else {
            return Err(bad("a board that is no array"));
        };
        let now = match self.plain(&mut spot, &[b"TIME"]).await? {
            Reply::Array(parts) => time_of(&parts).ok_or_else(|| bad("a time that is none"))?,
            _ => return Err(bad("a time that is none")),
        };
        let mut notices = Vec::with_capacity(values.len());
        let mut malformed = 0;
        for value in &values {
            match unpack(value, now) {
                Ok(notice) => notices.extend(notice),
                Err(_) => malformed += 1,
            }
        }
        if malformed > 0 {
            self.malformed.fetch_add(malformed, Ordering::Relaxed);
            tracing::warn!(malformed, "notices of another shape on the board were passed over");
        }
        Ok(Some(Board { version, notices }))
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

/// A notice as it was kept; `None` if it has ended.
fn unpack(value: &Reply, now: Micros) -> Result<Option<Posted>, StoreError> {
    let short = || bad("a notice of another shape");
    let Reply::Bulk(value) = value else { return Err(short()) };
    let (fixed, rest) = value.split_at_checked(NOTICE_OVERHEAD).ok_or_else(short)?;
    let ends = Micros(whole(&fixed[..8])?);
    let length = |at: usize| usize::from(u16::from_le_bytes([fixed[at], fixed[at + 1]]));
    let (name, text) = rest.split_at_checked(length(8)).ok_or_else(short)?;
    if text.len() != length(10) {
        return Err(short());
    }
    let left = Duration::from_micros((ends - now).0);
    Ok((ends > now).then(|| Posted { name: name.to_vec(), text: text.to_vec(), left }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(ends: u32, name: &[u8], text: &[u8]) -> Reply {
        Reply::Bulk([&f64::from(ends).to_le_bytes()[..], &pack(name, text)].concat())
    }

    #[test]
    fn a_notice_is_read_as_it_was_packed_unless_it_has_ended() {
        let left = Duration::from_micros(2);
        let posted = Posted { name: b"a\0b".to_vec(), text: b"one".to_vec(), left };
        assert_eq!(unpack(&kept(5, b"a\0b", b"one"), Micros(3)), Ok(Some(posted)));
        assert_eq!(unpack(&kept(3, b"gone", b"x"), Micros(3)), Ok(None));
        let Reply::Bulk(whole) = kept(5, b"name", b"text") else { unreachable!("kept makes bulks") };
        for cut in 0..whole.len() {
            assert!(unpack(&Reply::Bulk(whole[..cut].to_vec()), Micros(0)).is_err(), "cut at {cut}");
        }
        assert!(unpack(&Reply::Integer(1), Micros(0)).is_err());
    }
}
