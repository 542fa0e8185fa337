//! Checks on Redis at scale: `bench redis [--write] [PART] [WORD]...`.
//!
//! Parts: `matrix` (the engine with every tier on every store, rows filtered by words), `bytes` (what a key takes in
//! Redis), `server` (the built server), `peers` (the same through what a user would pick instead), `batches`. Without a part all of them run.

mod batches;
mod bytes;
mod client;
mod door;
mod load;
mod matrix;
mod page;
mod peers;
mod place;
mod tier;
mod work;

use anyhow::{Result, ensure};

use page::Page;
pub(crate) use peers::child as peer;

const PARTS: &[&str] = &["matrix", "bytes", "server", "peers", "batches"];

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
    if has("matrix") {
        runtime.block_on(matrix::run(&page, words))?;
    }
    if has("bytes") {
        runtime.block_on(bytes::run(&page))?;
    }
    if has("server") {
        runtime.block_on(door::run(&page, words))?;
    }
    if has("peers") {
        runtime.block_on(peers::run(&page, words))?;
    }
    if has("batches") {
        runtime.block_on(batches::run())?;
    }
    Ok(())
}
