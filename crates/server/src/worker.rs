//! One thread with a runtime of its own: what starts on it stays on it.

use std::future::Future;
use std::io;
use std::thread::{self, JoinHandle};

use tokio::runtime::Builder;
use tokio::sync::oneshot;

/// A running worker.
#[derive(Debug)]
pub(crate) struct Worker {
    name: String,
    thread: JoinHandle<io::Result<()>>,
    /// Closed when the work ends, however it ends.
    ended: oneshot::Receiver<()>,
}

impl Worker {
    /// Starts `work` on a thread of that name.
    pub(crate) fn start<F>(name: String, work: impl FnOnce() -> F + Send + 'static) -> io::Result<Worker>
    where
        F: Future<Output = io::Result<()>>,
    {
        let (alive, ended) = oneshot::channel::<()>();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let thread = thread::Builder::new().name(name.clone()).spawn(move || {
            let _alive = alive;
            runtime.block_on(async { work().await })
        })?;
        Ok(Worker { name, thread, ended })
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Waits for the work to end.
    pub(crate) async fn ended(&mut self) {
        let _ = (&mut self.ended).await;
    }

    /// What came of it; only after [`Worker::ended`].
    pub(crate) fn result(self) -> io::Result<()> {
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
    }
}
