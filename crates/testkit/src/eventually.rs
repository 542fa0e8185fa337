//! Waits for something that announces itself to nobody: a counter, a process table, a log.
//!
//! Where an event can be awaited, await it. This is for the rest, in place of a `sleep` long enough
//! for the slowest machine.

use std::time::{Duration, Instant};

/// How long [`eventually`] waits. Far beyond any healthy wait, so that a busy machine fails no test.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The pause between two looks.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Waits until `condition` holds, and panics naming `what` when it does not within [`PATIENCE`].
///
/// ```no_run
/// # async fn example(proxy: testkit::ChaosProxy) {
/// testkit::eventually("the client connects again", || proxy.accepted() == 2).await;
/// # }
/// ```
#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool + Send) -> impl Future<Output = ()> + Send {
    let caller = std::panic::Location::caller();
    async move {
        let deadline = Instant::now() + PATIENCE;
        while !condition() {
            assert!(Instant::now() < deadline, "{caller}: waited {PATIENCE:?} in vain until {what}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}
