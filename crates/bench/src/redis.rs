//! Checks on Redis at scale: `bench redis [--write] [PART] [WORD]...`.
//!
//! Parts: `matrix` (the engine with every tier on every store, rows filtered by words), `spread` (over ever more
//! connections), `bytes` (what a key takes in Redis), `server` (the built server), `peers` (what a user would pick
//! instead), `batches`. Without a part all of them run, and docs/sizing.md
//! is reckoned anew.

mod batches;
mod bytes;
mod client;
mod door;
mod load;
mod matrix;
mod page;
mod peers;
mod place;
mod sizing;
mod spread;
mod tier;
mod work;

use anyhow::{Result, ensure};

use page::Page;
pub(crate) use peers::child as peer;
use sizing::Figures;

const PARTS: &[&str] = &["matrix", "spread", "bytes", "server", "peers", "batches"];

/// Runs what the words name.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let mut words = words.to_vec();
    let page = Page::new(&mut words);
    let (part, words) = match words.split_first() {
        Some((part, rest)) => (Some(*part), rest),
        None => (None, &[][..]),
    };
    ensure!(part.is_none_or(|part| PARTS.contains(&part)), "a part is one of {}", PARTS.join(", "));
    let has = |name: &str| part.is_none_or(|part| part == name);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    place::pin(0);
    let (mut figures, mut alone, mut key_bytes, mut door) = (Vec::new(), None, None, None);
    if has("matrix") {
        figures = runtime.block_on(matrix::run(&page, words))?;
    }
    if has("spread") {
        alone = Some(runtime.block_on(spread::run(&page))?);
    }
    if has("bytes") {
        key_bytes = Some(runtime.block_on(bytes::run(&page))?);
    }
    if has("server") {
        door = runtime.block_on(door::run(&page, words))?;
    }
    // What a fleet needs follows from all of them.
    if let (Some(alone), Some(key_bytes), Some(door)) = (alone, key_bytes, door) {
        sizing::run(&page, &Figures { rows: figures, alone, key_bytes, door })?;
    }
    if has("peers") {
        runtime.block_on(peers::run(&page, words))?;
    }
    if has("batches") {
        runtime.block_on(batches::run())?;
    }
    Ok(())
}
