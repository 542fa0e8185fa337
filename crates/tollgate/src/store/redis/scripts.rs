//! The Lua scripts, assembled once per store from the twins in `scripts/`.
//!
//! A script's whole text runs on every call, function definitions included, so an ask of one kind
//! of check (nearly all of them) gets a script with that kind alone.

use std::fmt::Write as _;

use sha1::{Digest, Sha1};
use tollgate_core::algorithm::Kind;

use super::config::Layout;

/// What a script does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    /// Spend all, or none.
    Take,
    /// Look.
    Peek,
    /// Give back.
    Refund,
}

/// A script, with the name Redis knows it by.
#[derive(Debug)]
pub(super) struct Script {
    /// Its text.
    pub text: String,
    /// The SHA-1 of its text, in hexadecimal.
    pub sha: String,
}

/// Every script a store of one layout can need.
#[derive(Debug)]
pub(super) struct Scripts {
    /// By verb, then by kind, the mixed one last.
    by_verb: [[Script; 5]; 3],
    /// Takes from one token bucket; where the layout is packed.
    pub fast: Option<Script>,
    /// Shows an instance alive.
    pub heartbeat: Script,
}

/// The number a kind has in packed arguments; `scripts/dispatch.lua` has the same order.
pub(super) const fn kind_number(kind: Kind) -> u8 {
    match kind {
        Kind::TokenBucket => 1,
        Kind::SlidingLog => 2,
        Kind::SlidingWindow => 3,
        Kind::FixedWindow => 4,
    }
}

impl Scripts {
    /// Assembles all of them.
    pub(super) fn new(layout: Layout) -> Scripts {
        let for_verb = |verb| {
            [
                Some(Kind::TokenBucket),
                Some(Kind::SlidingLog),
                Some(Kind::SlidingWindow),
                Some(Kind::FixedWindow),
                None,
            ]
            .map(|kind| Script::new(&assemble("", layout, verb, kind)))
        };
        let fast = include_str!("../../../scripts/token_bucket_fast.lua");
        let fast = || Script::new(&assemble(fast, layout, Verb::Take, Some(Kind::TokenBucket)));
        Scripts {
            fast: (layout == Layout::Packed).then(fast),
            by_verb: [Verb::Take, Verb::Peek, Verb::Refund].map(for_verb),
            heartbeat: Script::new(include_str!("../../../scripts/heartbeat.lua")),
        }
    }

    /// The script for checks of these kinds.
    pub(super) fn pick(&self, verb: Verb, mut kinds: impl Iterator<Item = Kind>) -> &Script {
        let first = kinds.next().map_or(5, kind_number);
        let is_mixed = kinds.any(|kind| kind_number(kind) != first);
        let [take, peek, refund] = &self.by_verb;
        let scripts = match verb {
            Verb::Take => take,
            Verb::Peek => peek,
            Verb::Refund => refund,
        };
        let at = if is_mixed { 5 } else { first };
        &scripts[usize::from(at) - 1]
    }
}

impl Script {
    /// Without comments and indentation: what is loaded anew after a flush should be short, and fit
    /// into one read of Redis' together with the call that needs it.
    pub(super) fn new(text: &str) -> Script {
        let lines =
            text.lines().map(str::trim_start).filter(|line| !line.is_empty() && !line.starts_with("--"));
        let text = lines.flat_map(|line| [line, "\n"]).collect::<String>();
        let mut sha = String::with_capacity(40);
        for byte in Sha1::digest(text.as_bytes()) {
            let _ = write!(sha, "{byte:02x}"); // writing to a String cannot fail
        }
        Script { text, sha }
    }
}

fn assemble(first: &str, layout: Layout, verb: Verb, kind: Option<Kind>) -> String {
    // Flagged scripts are refused before their first line where they cannot run to the end (out of
    // memory, read only); a peek, flagged as not writing, still answers there.
    let flags = if verb == Verb::Peek { "#!lua flags=no-writes\n" } else { "#!lua\n" };
    let constants = format!(
        "local ALLOWED, DENIED, NEVER, STALE = 0, 1, 2, 3\n\
         local RETURNED_ALL, RETURNED_PART, RETURNED_NOTHING = 0, 1, 2\n\
         local PEEKING = {}\n",
        verb == Verb::Peek
    );
    let layout = match layout {
        Layout::Packed => include_str!("../../../scripts/layout_packed.lua"),
        Layout::Hash => include_str!("../../../scripts/layout_hash.lua"),
    };
    let driver = match verb {
        Verb::Take | Verb::Peek => include_str!("../../../scripts/take.lua"),
        Verb::Refund => include_str!("../../../scripts/refund.lua"),
    };
    // In a function of its own, so that what comes first need not set any of it up.
    let mut text = [flags, first, "return (function()\n", &constants, layout].concat();
    if matches!(kind, None | Some(Kind::TokenBucket | Kind::SlidingWindow)) {
        text.push_str(include_str!("../../../scripts/numbers.lua"));
    }
    if let Some(kind) = kind {
        text.push_str(source(kind));
        text.push_str(&alias(kind));
    } else {
        text.extend(Kind::ALL.map(source));
        text.push_str(include_str!("../../../scripts/dispatch.lua"));
    }
    text.push_str(driver);
    text.push_str("end)()\n");
    text
}

fn source(kind: Kind) -> &'static str {
    match kind {
        Kind::TokenBucket => include_str!("../../../scripts/token_bucket.lua"),
        Kind::SlidingLog => include_str!("../../../scripts/sliding_log.lua"),
        Kind::SlidingWindow => include_str!("../../../scripts/sliding_window.lua"),
        Kind::FixedWindow => include_str!("../../../scripts/fixed_window.lua"),
    }
}

/// The names the drivers use, for a script of one kind.
fn alias(kind: Kind) -> String {
    let name = kind.name();
    let mend = match kind {
        Kind::TokenBucket | Kind::SlidingLog => format!("{name}_mend"),
        Kind::SlidingWindow | Kind::FixedWindow => "function() end".to_owned(),
    };
    format!("local visit, write, mend, refund = {name}_visit, {name}_write, {mend}, {name}_refund\n")
}
