//! What a server says about its memory and its keys, asked now and then, where the user may.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::link::Link;
use super::wire::{self, Reply};
use crate::clock;

/// How often a server is asked.
const EVERY: Duration = Duration::from_secs(5);

/// What a server last said.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// Its `used_memory`.
    pub used_memory: Option<u64>,
    /// Its `maxmemory`, if there is one.
    pub max_memory: Option<u64>,
    /// Keys in the database.
    pub keys: Option<u64>,
    asked: Option<Instant>,
}

/// Asks, unless that was done a moment ago.
///
/// On the side: whether Redis is well must not wait for what it says about itself, and a
/// deadline that holds one trip need not hold two.
pub(super) fn survey(link: &Link, survey: &Arc<Mutex<Survey>>) {
    let mut last = survey.lock();
    if last.asked.is_some_and(|asked| asked.elapsed() < EVERY) {
        return;
    }
    last.asked = Some(clock::instant());
    tokio::spawn(ask(link.clone(), Arc::clone(survey)));
}

async fn ask(link: Link, survey: Arc<Mutex<Survey>>) {
    let mut bytes = Vec::new();
    wire::command(&mut bytes, [&b"INFO"[..], b"memory"].into_iter());
    let info = link.call(bytes, 1).await;
    let mut bytes = Vec::new();
    wire::command(&mut bytes, [&b"DBSIZE"[..]].into_iter());
    let keys = link.call(bytes, 1).await;

    let mut survey = survey.lock();
    if let Ok(Reply::Bulk(info)) = info {
        let info = String::from_utf8_lossy(&info);
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        survey.used_memory = field("used_memory:");
        survey.max_memory = field("maxmemory:").filter(|&bytes| bytes > 0);
    }
    if let Ok(Reply::Integer(count)) = keys {
        survey.keys = u64::try_from(count).ok();
    }
}
