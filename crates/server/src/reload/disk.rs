//! Work that waits for a disk, which may never answer: a network mount that is gone holds a thread for ever.
//!
//! It has one thread at a time and no more, however often it is asked, and nobody waits for it longer than
//! they can.

use std::time::Duration;

use tokio::task::JoinHandle;

/// A disk, and the work on it that did not end in time.
#[derive(Debug)]
pub(super) struct Disk<T> {
    stuck: Option<JoinHandle<T>>,
}

impl<T> Default for Disk<T> {
    fn default() -> Disk<T> {
        Disk { stuck: None }
    }
}

impl<T: Send + 'static> Disk<T> {
    /// Runs `work` on a thread that may block, or says why there is nothing to show for it.
    pub(super) async fn wait_for(
        &mut self,
        at_most: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, &'static str> {
        const LATE: &str = "it was not read in time: is its disk gone?";
        // Whatever that comes to say is of another time.
        if self.stuck.as_ref().is_some_and(|stuck| !stuck.is_finished()) {
            return Err(LATE);
        }
        let mut working = tokio::task::spawn_blocking(work);
        let worked = tokio::time::timeout(at_most, &mut working).await;
        let Ok(worked) = worked else {
            self.stuck = Some(working);
            return Err(LATE);
        };
        worked.map_err(|_| "it could not be read to its end")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_disk_that_does_not_answer_holds_one_thread_and_nobody_else() {
        let mut disk = Disk::default();
        assert_eq!(disk.wait_for(Duration::from_mins(1), || 1).await, Ok(1));
        let (answer, answers) = mpsc::channel();
        let stuck = disk.wait_for(Duration::from_millis(1), move || answers.recv().unwrap_or(0)).await;
        assert!(stuck.is_err());
        assert!(disk.wait_for(Duration::from_mins(1), || 2).await.is_err(), "not beside it");
        answer.send(1).unwrap();
        while disk.wait_for(Duration::from_mins(1), || 3).await != Ok(3) {
            tokio::task::yield_now().await;
        }
    }
}
