//! Inline limits, remembered: a caller that sends `"limit":"100/s"` a million times sends it a million
//! times alike, and building it once a thread is enough.
//!
//! Bounded: callers choose what stands here, so a full memory is emptied and begins again.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use tollgate::InlineLimit;

use crate::limit::{LimitProblem, Written};

/// The most limits one thread remembers.
const REMEMBERED_MAX: usize = 512;

/// Longer texts are no limit anybody writes; they are built, and refused, without being remembered.
const TEXT_BYTES_MAX: usize = 128;

#[derive(Default)]
struct Memory {
    known: HashMap<String, Arc<InlineLimit>>,
    text: String,
}

thread_local! {
    static MEMORY: RefCell<Memory> = RefCell::default();
}

/// The limit as written, built or remembered.
pub(crate) fn limit(written: &Written<'_>, log_max: u32) -> Result<Arc<InlineLimit>, LimitProblem> {
    MEMORY.with_borrow_mut(|Memory { known, text }| {
        let Written { limit, burst, algorithm, time_zone } = *written;
        text.clear();
        // Each field on a line of its own, and an absent one unlike any text.
        let _ = write!(text, "{limit}\n{}", burst.unwrap_or(0)); // to a String: cannot fail
        for field in [algorithm, time_zone] {
            text.push_str(if field.is_some() { "\n+" } else { "\n-" });
            text.push_str(field.unwrap_or_default());
        }
        if let Some(limit) = known.get(text.as_str()) {
            return Ok(Arc::clone(limit));
        }
        let built = written.build(log_max)?;
        let limit = Arc::new(InlineLimit::new(built.algorithm, built.period));
        if text.len() <= TEXT_BYTES_MAX {
            if known.len() == REMEMBERED_MAX {
                known.clear();
            }
            known.insert(text.clone(), Arc::clone(&limit));
        }
        Ok(limit)
    })
}
