//! How the server ends: readiness fails first, then no connection is accepted, then requests under
//! way finish, and only then the process ends.
//!
//! A watch channel carries the phase to every runtime. It only ever moves forward.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Where in its life the server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Not every door is open yet.
    Starting,
    /// Everything answers.
    Serving,
    /// Readiness fails; everything still answers.
    Draining,
    /// Nothing is accepted any more; requests under way finish.
    Closing,
}

/// Moves the phase.
#[derive(Debug)]
pub(crate) struct Life {
    phase: watch::Sender<Phase>,
}

/// Sees the phase.
#[derive(Debug, Clone)]
pub(crate) struct LifeView {
    phase: watch::Receiver<Phase>,
}

impl Life {
    /// A life that is just starting.
    pub(crate) fn start() -> (Life, LifeView) {
        let (sender, receiver) = watch::channel(Phase::Starting);
        (Life { phase: sender }, LifeView { phase: receiver })
    }

    /// Moves on to `phase`.
    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.send_if_modified(|now| {
            let is_later = phase > *now;
            *now = phase.max(*now);
            is_later
        });
    }
}

impl LifeView {
    /// The phase we are in.
    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Waits until the phase is another than this.
    pub(crate) async fn moved(&mut self, from: Phase) {
        let _ = self.phase.wait_for(|phase| *phase != from).await;
    }

    /// Waits until nothing may be accepted any more. A life that was dropped is over too.
    pub(crate) async fn closing(&mut self) {
        let _ = self.phase.wait_for(|phase| *phase >= Phase::Closing).await;
    }
}

/// The signals that ask us to end. The second one means it.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    /// Listens from now on.
    pub(crate) fn listen() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next one and says its name.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
