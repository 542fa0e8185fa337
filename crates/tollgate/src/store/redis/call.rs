//! One call to Redis: as a function where that is allowed, else as a script, and healed where Redis
//! has lost either.
//!
//! Only an answer which proves that nothing ran is followed by another call.

use std::sync::atomic::{AtomicBool, Ordering};

use tollgate_core::store::{ErrorClass, StoreError};

use super::RedisStore;
use super::classify::{class_of, is_for_want_of_functions};
use super::link::Link;
use super::node::Spot;
use super::scripts::{Called, Entry};
use super::wire::{self, Reply};

/// How often a function or a script is loaded again for one call. One write is not always one read:
/// Redis takes 16 KiB at a time, and a flush may come between the two halves.
const HEALS_MAX: usize = 4;

/// Whether asks go out as calls of functions.
#[derive(Debug)]
pub(super) struct Functions {
    are_wanted: bool,
    /// What Redis last said.
    are_refused: AtomicBool,
    /// A connection was dialled since: it may be another server, or its administrator relented.
    is_worth_a_try: AtomicBool,
}

impl Functions {
    /// As the settings say, until Redis says otherwise.
    pub(super) fn new(are_wanted: bool) -> Functions {
        Functions { are_wanted, are_refused: AtomicBool::new(false), is_worth_a_try: AtomicBool::new(false) }
    }

    /// Whether they do, as far as is known.
    pub(super) fn are_used(&self) -> bool {
        self.are_wanted && !self.are_refused.load(Ordering::Relaxed)
    }

    /// A connection was dialled.
    pub(super) fn try_again(&self) {
        self.is_worth_a_try.store(true, Ordering::Relaxed);
    }

    /// Whether the next ask does.
    fn are_tried(&self) -> bool {
        self.are_used() || self.are_wanted && self.is_worth_a_try.load(Ordering::Relaxed)
    }

    fn refused(&self, why: &str) {
        self.is_worth_a_try.store(false, Ordering::Relaxed);
        if !self.are_refused.swap(true, Ordering::Relaxed) {
            tracing::info!(why, "Redis lets us call no functions: asks go out as scripts instead");
        }
    }

    fn answered(&self) {
        // Read first: every ask comes by, and nearly none has anything to change.
        if self.are_refused.load(Ordering::Relaxed) && self.are_refused.swap(false, Ordering::Relaxed) {
            tracing::info!("Redis lets us call functions: asks go out as scripts no longer");
        }
    }
}

/// What came of calling a function.
enum ByFunction {
    /// An answer.
    Answered(Reply),
    /// Nothing ran, and this ask must go out as a script.
    Lost,
    /// Nothing ran, and Redis says why no ask will.
    Refused(String),
}

impl RedisStore {
    /// Calls an entry.
    ///
    /// hot path: the request is written out once, and again only where nothing ran.
    pub(super) async fn call(
        &self,
        spot: &Spot,
        entry: Entry<'_>,
        request: impl Fn(Called<'_>) -> Vec<u8> + Send + Sync,
    ) -> Result<Reply, StoreError> {
        let link = &spot.link;
        let functions = &self.shared.functions;
        let mut refused = None;
        if functions.are_tried() {
            match self.by_function(link, entry, &request).await? {
                ByFunction::Answered(reply) => {
                    if !matches!(reply, Reply::Error(_)) {
                        functions.answered();
                    }
                    return Ok(reply);
                }
                ByFunction::Lost => {}
                ByFunction::Refused(why) => refused = Some(why),
            }
        }
        let reply = by_script(link, entry, &request).await?;
        if let Some(why) = refused
            && !is_error(&reply, ErrorClass::NoPermission)
        {
            // A user that may do neither is told so, and functions are tried again with the next ask.
            functions.refused(&why);
        }
        Ok(reply)
    }

    async fn by_function(
        &self,
        link: &Link,
        entry: Entry<'_>,
        request: &(impl Fn(Called<'_>) -> Vec<u8> + Send + Sync),
    ) -> Result<ByFunction, StoreError> {
        let again = || request(Called::Function(entry.function));
        let mut reply = link.call(again(), 1).await?;
        for _ in 0..HEALS_MAX {
            match reply {
                // To load a library is to write, and looking must work where nothing may be written.
                _ if is_lost(&reply) && entry.only_looks => return Ok(ByFunction::Lost),
                _ if is_lost(&reply) => {
                    let load = [&b"FUNCTION"[..], b"LOAD", b"REPLACE", self.scripts.library.text.as_bytes()];
                    reply = link.call(after_loading(&load, &again()), 2).await?;
                }
                Reply::Error(why) if is_for_want_of_functions(&why) => return Ok(ByFunction::Refused(why)),
                _ => break,
            }
        }
        // Somebody flushes functions in a loop: perhaps not scripts.
        Ok(if is_lost(&reply) { ByFunction::Lost } else { ByFunction::Answered(reply) })
    }
}

async fn by_script(
    link: &Link,
    entry: Entry<'_>,
    request: &(impl Fn(Called<'_>) -> Vec<u8> + Send + Sync),
) -> Result<Reply, StoreError> {
    let again = || request(Called::Script(&entry.script.sha));
    let mut reply = link.call(again(), 1).await?;
    for _ in 0..HEALS_MAX {
        if !is_lost(&reply) {
            break;
        }
        let load = [&b"SCRIPT"[..], b"LOAD", entry.script.text.as_bytes()];
        reply = link.call(after_loading(&load, &again()), 2).await?;
    }
    Ok(reply)
}

/// Both in one write: as two trips, a loop of `SCRIPT FLUSH` or `FUNCTION FLUSH` could starve them.
fn after_loading(load: &[&[u8]], request: &[u8]) -> Vec<u8> {
    let text = load.iter().map(|word| word.len() + 16).sum::<usize>();
    let mut both = Vec::with_capacity(text + request.len());
    wire::command(&mut both, load.iter().copied());
    both.extend_from_slice(request);
    both
}

fn is_lost(reply: &Reply) -> bool {
    is_error(reply, ErrorClass::NoScript)
}

fn is_error(reply: &Reply, class: ErrorClass) -> bool {
    matches!(reply, Reply::Error(message) if class_of(message) == class)
}
