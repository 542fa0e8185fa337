//! Side by side, on one task.

use std::future::poll_fn;
use std::task::Poll;

/// Polls futures side by side until all are done; what each came to, in their order.
///
/// Each is polled once, in order, before anything else of the same thread runs: what they ask of a
/// connection that lives on this thread has been asked in that order when its task wakes up.
pub async fn together<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_none()
                && let Poll::Ready(done) = future.as_mut().poll(context)
            {
                *output = Some(done);
            }
        }
        if outputs.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outputs.into_iter().flatten().collect()
}
