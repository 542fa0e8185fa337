//! One call to Redis: as a function where that is allowed, else as a script, and healed where Redis
//! has lost either.
//!
//! Only an answer which proves that nothing ran is followed by another call.

use std::sync::atomic::{AtomicBool, Ordering};

use tollgate_core::store::{ErrorClass, StoreError};

use super::RedisStore;
use super::classify::{class_of, is_for_want_of_functions};
use super::scripts::{Called, Entry};
use super::topology::Spot;
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

/// One call under way: how it goes out next, and what its answers say about that.
#[derive(Debug)]
pub(super) struct Attempt {
    way: Way,
    /// Whether what it calls goes out with it.
    loads: bool,
    heals: usize,
    /// Why Redis lets us call no functions.
    refused: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Function,
    Script,
}

impl Attempt {
    /// A call that has not gone out yet.
    pub(super) fn new(functions: &Functions) -> Attempt {
        let way = if functions.are_tried() { Way::Function } else { Way::Script };
        Attempt { way, loads: false, heals: 0, refused: None }
    }

    /// Appends the call, after what it needs where that was lost; says how many replies it makes.
    ///
    /// Both in one write: as two trips, a loop of `SCRIPT FLUSH` or `FUNCTION FLUSH` could starve them.
    pub(super) fn write(
        &self,
        entry: Entry<'_>,
        out: &mut Vec<u8>,
        call: impl FnOnce(Called<'_>, &mut Vec<u8>),
    ) -> u8 {
        let called = match self.way {
            Way::Function => Called::Function(entry.function),
            Way::Script => Called::Script(&entry.script.sha),
        };
        match self.way {
            _ if !self.loads => {}
            Way::Function => {
                let load = [&b"FUNCTION"[..], b"LOAD", b"REPLACE", entry.library.as_bytes()];
                wire::command(out, load.into_iter());
            }
            Way::Script => {
                wire::command(out, [&b"SCRIPT"[..], b"LOAD", entry.script.text.as_bytes()].into_iter());
            }
        }
        call(called, out);
        1 + u8::from(self.loads)
    }

    /// Whether this answer proves that nothing ran, and the call is to go out again.
    pub(super) fn is_to_go_again(&mut self, reply: &Reply, entry: Entry<'_>, functions: &Functions) -> bool {
        let is_lost = is_error(reply, ErrorClass::NoScript);
        match (self.way, reply) {
            // To load a library is to write, and looking must work where nothing may be written. And who
            // flushes functions in a loop perhaps does not flush scripts.
            (Way::Function, _) if is_lost && (entry.only_looks || self.heals == HEALS_MAX) => {
                self.by_script()
            }
            (_, _) if is_lost && self.heals < HEALS_MAX => {
                self.heals += 1;
                self.loads = true;
                true
            }
            (Way::Function, Reply::Error(why)) if is_for_want_of_functions(why) => {
                self.refused = Some(why.clone());
                self.by_script()
            }
            (Way::Function, Reply::Error(_)) => false,
            (Way::Function, _) => {
                functions.answered();
                false
            }
            (Way::Script, _) => {
                // A user that may do neither is told so, and functions are tried again with the next ask.
                if let Some(why) = self.refused.take_if(|_| !is_error(reply, ErrorClass::NoPermission)) {
                    functions.refused(&why);
                }
                false
            }
        }
    }

    fn by_script(&mut self) -> bool {
        (self.way, self.loads, self.heals) = (Way::Script, false, 0);
        true
    }
}

impl RedisStore {
    /// Calls an entry, where its keys are and wherever they have moved.
    ///
    /// The request is written out once, and again only where nothing ran.
    pub(super) async fn call(
        &self,
        spot: &mut Spot,
        entry: Entry<'_>,
        request: impl Fn(Called<'_>) -> Vec<u8> + Send + Sync,
    ) -> Result<Reply, StoreError> {
        loop {
            let reply = self.call_at(spot, entry, &request).await?;
            match &reply {
                Reply::Error(message) if self.is_sent_on(spot, message).await => {}
                _ => return Ok(reply),
            }
        }
    }

    async fn call_at(
        &self,
        spot: &Spot,
        entry: Entry<'_>,
        request: &(impl Fn(Called<'_>) -> Vec<u8> + Send + Sync),
    ) -> Result<Reply, StoreError> {
        let functions = &self.shared.functions;
        let mut attempt = Attempt::new(functions);
        loop {
            let mut bytes = Vec::new();
            let write = |called: Called<'_>, out: &mut Vec<u8>| {
                // Last before the call: it holds for the next command alone.
                spot.ask_first(out);
                out.append(&mut request(called));
            };
            let replies = attempt.write(entry, &mut bytes, write) + u8::from(spot.asking);
            let reply = spot.link.call(bytes, replies).await?;
            if !attempt.is_to_go_again(&reply, entry, functions) {
                return Ok(reply);
            }
        }
    }
}

fn is_error(reply: &Reply, class: ErrorClass) -> bool {
    matches!(reply, Reply::Error(message) if class_of(message) == class)
}
