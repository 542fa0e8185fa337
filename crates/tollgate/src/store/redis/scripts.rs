//! The Lua, assembled once per store from the twins in `scripts/`, in the two forms Redis runs.
//!
//! As a library of functions (`FCALL`): its text runs once, when it is loaded, so one general
//! function with every kind in it serves all asks. As scripts (`EVALSHA`), for those who may not or
//! will not keep a library in their Redis: a script's whole text runs on every call, function
//! definitions included, so an ask of one kind of check (nearly all of them) gets a script with
//! that kind alone. Both are made of the same files.

use std::fmt::Write as _;

use sha1::{Digest, Sha1};
use tollgate_core::algorithm::Kind;

use super::config::Layout;

/// What is asked of Redis.
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

/// A library, with the names of its functions. Each carries the digest of the text, so that two
/// releases or two layouts side by side never call, nor replace, each other's.
#[derive(Debug)]
pub(super) struct Library {
    /// Its text.
    pub text: String,
    take: String,
    peek: String,
    refund: String,
    heartbeat: String,
    post: String,
    fast: String,
    batch: String,
}

/// One thing to ask of Redis, by both of its names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'a> {
    /// Its name as a function of a library.
    pub function: &'a str,
    /// The text of that library.
    pub library: &'a str,
    /// The same as a script of its own.
    pub script: &'a Script,
    /// Whether it only looks, and so must work where nothing may be written.
    pub only_looks: bool,
}

/// Which of its two names an entry is called by.
#[derive(Debug, Clone, Copy)]
pub(super) enum Called<'a> {
    /// `FCALL`, and the function.
    Function(&'a str),
    /// `EVALSHA`, and the script's digest.
    Script(&'a str),
}

/// Everything a store of one layout can ask.
#[derive(Debug)]
pub(super) struct Scripts {
    /// All of it as one library.
    pub library: Library,
    /// By verb, then by kind, the mixed one last.
    by_verb: [[Script; 5]; 3],
    fast: Script,
    batch: Script,
    heartbeat: Script,
    post: Script,
    breaker: Breaker,
}

/// The breaker's step. A library of its own: who has no breakers need not keep it, and who has limits
/// need not load it with them.
#[derive(Debug)]
struct Breaker {
    library: String,
    function: String,
    script: Script,
}

const FAST: &str = include_str!("../../../scripts/token_bucket_fast.lua");
const FAST_SCRIPT: &str = include_str!("../../../scripts/fast_script.lua");
const FAST_LIBRARY: &str = include_str!("../../../scripts/fast_library.lua");
const NUMBERS: &str = include_str!("../../../scripts/numbers.lua");
const DISPATCH: &str = include_str!("../../../scripts/dispatch.lua");
const SEVERAL: &str = include_str!("../../../scripts/several.lua");
const BATCH: &str = include_str!("../../../scripts/batch.lua");
const TAKE: &str = include_str!("../../../scripts/take.lua");
const REFUND: &str = include_str!("../../../scripts/refund.lua");
const HEARTBEAT: &str = include_str!("../../../scripts/heartbeat.lua");
const POST: &str = include_str!("../../../scripts/post.lua");
const BREAKER: &str = include_str!("../../../scripts/breaker.lua");
const LIBRARY: &str = include_str!("../../../scripts/library.lua");

const CONSTANTS: &str = "local ALLOWED, DENIED, NEVER, STALE = 0, 1, 2, 3\n\
                         local RETURNED_ALL, RETURNED_PART, RETURNED_NOTHING = 0, 1, 2\n";

/// Stands for the library's name until its digest is known.
const NAMELESS: &str = "LIBRARY_";

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
            .map(|kind| Script::new(&script("", layout, verb, kind)))
        };
        let fast = [FAST_SCRIPT, FAST].concat();
        Scripts {
            library: Library::new(layout),
            fast: Script::new(&script(&fast, layout, Verb::Take, Some(Kind::TokenBucket))),
            batch: Script::new(&batch(layout)),
            by_verb: [Verb::Take, Verb::Peek, Verb::Refund].map(for_verb),
            heartbeat: Script::new(&["#!lua\n", HEARTBEAT].concat()),
            post: Script::new(&["#!lua\n", POST].concat()),
            breaker: Breaker::new(),
        }
    }

    /// What to call for checks of these kinds.
    pub(super) fn pick(&self, verb: Verb, mut kinds: impl Iterator<Item = Kind>) -> Entry<'_> {
        let first = kinds.next().map_or(5, kind_number);
        let is_mixed = kinds.any(|kind| kind_number(kind) != first);
        let [take, peek, refund] = &self.by_verb;
        let (scripts, function) = match verb {
            Verb::Take => (take, &self.library.take),
            Verb::Peek => (peek, &self.library.peek),
            Verb::Refund => (refund, &self.library.refund),
        };
        let at = if is_mixed { 5 } else { first };
        let (script, only_looks) = (&scripts[usize::from(at) - 1], verb == Verb::Peek);
        Entry { function, library: &self.library.text, script, only_looks }
    }

    /// One event of a breaker.
    pub(super) fn breaker(&self) -> Entry<'_> {
        let Breaker { library, function, script } = &self.breaker;
        Entry { function, library, script, only_looks: false }
    }

    /// Takes from one token bucket. Only where the layout is packed.
    pub(super) fn fast(&self) -> Entry<'_> {
        self.entry(&self.library.fast, &self.fast)
    }

    /// Takes of many asks.
    pub(super) fn batch(&self) -> Entry<'_> {
        self.entry(&self.library.batch, &self.batch)
    }

    /// Puts a notice on the board.
    pub(super) fn post(&self) -> Entry<'_> {
        self.entry(&self.library.post, &self.post)
    }

    /// Shows an instance alive.
    pub(super) fn heartbeat(&self) -> Entry<'_> {
        self.entry(&self.library.heartbeat, &self.heartbeat)
    }

    /// One that may write.
    fn entry<'a>(&'a self, function: &'a str, script: &'a Script) -> Entry<'a> {
        Entry { function, library: &self.library.text, script, only_looks: false }
    }
}

impl Breaker {
    fn new() -> Breaker {
        let body = bare(BREAKER);
        let name = format!("tollgate_{}", &digest(&body)[..12]);
        let function = format!("{name}_breaker");
        let kept = format!(
            "local step\nredis.register_function('{function}', function(keys, arguments)\n\
             if not step then step = breaker() end\nreturn step(keys, arguments)\nend)\n"
        );
        Breaker {
            library: format!("#!lua name={name}\n{body}{kept}"),
            function,
            script: Script::new(&["#!lua\n", BREAKER, "return breaker()(KEYS, ARGV)\n"].concat()),
        }
    }
}

impl Script {
    fn new(text: &str) -> Script {
        let text = bare(text);
        Script { sha: digest(&text), text }
    }
}

impl Library {
    fn new(layout: Layout) -> Library {
        let body = bare(&library(layout));
        let name = format!("tollgate_{}", &digest(&body)[..12]);
        let function = |end: &str| format!("{name}_{end}");
        Library {
            text: format!("#!lua name={name}\n{}", body.replace(NAMELESS, &function(""))),
            take: function("take"),
            peek: function("peek"),
            refund: function("refund"),
            heartbeat: function("heartbeat"),
            post: function("post"),
            fast: function("fast"),
            batch: function("batch"),
        }
    }
}

/// Without comments and indentation: what is loaded anew after a flush should be short, and fit
/// into one read of Redis' together with the call that needs it.
fn bare(text: &str) -> String {
    let lines = text.lines().map(str::trim_start).filter(|line| !line.is_empty() && !line.starts_with("--"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

fn digest(text: &str) -> String {
    let mut sha = String::with_capacity(40);
    for byte in Sha1::digest(text.as_bytes()) {
        let _ = write!(sha, "{byte:02x}"); // writing to a String cannot fail
    }
    sha
}

/// One script, `first` before everything else.
fn script(first: &str, layout: Layout, verb: Verb, kind: Option<Kind>) -> String {
    // Flagged scripts are refused before their first line where they cannot run to the end (out of
    // memory, read only); a peek, flagged as not writing, still answers there.
    let flags = if verb == Verb::Peek { "#!lua flags=no-writes\n" } else { "#!lua\n" };
    let peeking = if verb == Verb::Peek { "local PEEKING = true\n" } else { "local PEEKING = false\n" };
    let driver = match verb {
        Verb::Take | Verb::Peek => [TAKE, SEVERAL],
        Verb::Refund => [REFUND, ""],
    };
    // In a function of its own, so that what comes first need not set any of it up.
    [flags, first, "return (function()\n", peeking, &general(layout, kind), &driver.concat(), "end)()\n"]
        .concat()
}

/// The script for many asks, of whatever kinds.
fn batch(layout: Layout) -> String {
    ["#!lua\nlocal PEEKING = false\n", &general(layout, None), &several(), BATCH].concat()
}

/// `several.lua` as a function.
fn several() -> String {
    ["local function several(now, KEYS, ARGV)\n", SEVERAL, "end\n"].concat()
}

/// The library, nameless: everything as functions, set up by the first call.
fn library(layout: Layout) -> String {
    let mut text = ["local function general(PEEKING)\n", &general(layout, None), &several()].concat();
    text.extend(["return function(KEYS, ARGV)\n", TAKE, "return several(now, KEYS, ARGV)\nend, "]);
    text.extend(["function(KEYS, ARGV)\n", REFUND, "end, function(KEYS, ARGV)\n", BATCH, "end\nend\n"]);
    text.push_str(LIBRARY);
    if layout == Layout::Packed {
        text.extend([FAST_LIBRARY, FAST, "return take(KEYS, ARGV)\nend)\n"]);
    }
    text.extend(["redis.register_function('LIBRARY_heartbeat', function(KEYS, ARGV)\n", HEARTBEAT, "end)\n"]);
    text.extend(["redis.register_function('LIBRARY_post', function(KEYS, ARGV)\n", POST, "end)\n"]);
    text
}

/// What the drivers stand on: constants, the layout, and the twins of one kind or of all.
fn general(layout: Layout, kind: Option<Kind>) -> String {
    let layout = match layout {
        Layout::Packed => include_str!("../../../scripts/layout_packed.lua"),
        Layout::Hash => include_str!("../../../scripts/layout_hash.lua"),
    };
    let mut text = [CONSTANTS, layout].concat();
    if matches!(kind, None | Some(Kind::TokenBucket | Kind::SlidingWindow)) {
        text.push_str(NUMBERS);
    }
    if let Some(kind) = kind {
        text.push_str(source(kind));
        text.push_str(&alias(kind));
    } else {
        text.extend(Kind::ALL.map(source));
        text.push_str(DISPATCH);
    }
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
