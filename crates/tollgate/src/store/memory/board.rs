//! The notice board of this process alone.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tollgate_core::board::{
    BOARD_BYTES_MAX, Board, NOTICE_OVERHEAD, NOTICES_MAX, Notice, Post, Posted, fits,
};
use tollgate_core::units::Micros;

/// A board in memory.
#[derive(Debug, Default)]
pub(super) struct MemoryBoard {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    version: u64,
    bytes: usize,
    notices: HashMap<Vec<u8>, Up>,
}

#[derive(Debug)]
struct Up {
    text: Vec<u8>,
    ends: Micros,
}

impl MemoryBoard {
    pub(super) fn post(&self, name: &[u8], notice: Option<Notice<'_>>, now: Micros) -> Post {
        let mut inner = self.inner.lock();
        let Some(notice) = notice else {
            inner.take_down(name);
            inner.version += 1;
            return Post::Done;
        };
        if !fits(name, &notice) {
            return Post::TooLong;
        }
        if inner.is_full(name, notice.text) {
            inner.clear_away(now);
            if inner.is_full(name, notice.text) {
                return Post::Full;
            }
        }
        inner.take_down(name);
        inner.version += 1;
        inner.bytes += size(name, notice.text);
        let up = Up { text: notice.text.to_vec(), ends: now + Micros::from(notice.keep_for) };
        inner.notices.insert(name.to_vec(), up);
        Post::Done
    }

    pub(super) fn since(&self, seen: u64, now: Micros) -> Option<Board> {
        let inner = self.inner.lock();
        if inner.version == seen {
            return None;
        }
        let up = inner.notices.iter().filter(|(_, up)| up.ends > now);
        let notices = up.map(|(name, up)| Posted {
            name: name.clone(),
            text: up.text.clone(),
            left: Duration::from_micros((up.ends - now).0),
        });
        Some(Board { version: inner.version, notices: notices.collect() })
    }
}

impl Inner {
    fn is_full(&self, name: &[u8], text: &[u8]) -> bool {
        let before = self.notices.get(name);
        let others = self.notices.len() - usize::from(before.is_some());
        let bytes = self.bytes - before.map_or(0, |up| size(name, &up.text));
        others >= NOTICES_MAX || bytes + size(name, text) > BOARD_BYTES_MAX
    }

    fn take_down(&mut self, name: &[u8]) {
        if let Some(up) = self.notices.remove(name) {
            self.bytes -= size(name, &up.text);
        }
    }

    fn clear_away(&mut self, now: Micros) {
        self.notices.retain(|_, up| up.ends > now);
        self.bytes = self.notices.iter().map(|(name, up)| size(name, &up.text)).sum();
    }
}

fn size(name: &[u8], text: &[u8]) -> usize {
    name.len() + text.len() + NOTICE_OVERHEAD
}
