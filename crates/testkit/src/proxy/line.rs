//! One connection through the proxy: two streams, and the fault that lies on them.
//!
//! Replies pass through a queue, so that the proxy keeps reading while it delays or holds them, and
//! the server never learns that its client is slow. All parts of a connection run in one task: a
//! fault set between two of its steps meets them in a known order.

use std::{
    future,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::{mpsc, watch},
    time::{self, Instant},
};

use super::{Fault, Shared};

const CHUNK_BYTES: usize = 16 * 1024;

/// The pause between two pieces of a sliced reply, without which the kernel would join them again.
const PIECE_EVERY: Duration = Duration::from_millis(1);

/// A connection, from its acceptance to its end.
#[derive(Debug)]
pub(super) struct Line {
    number: u64,
    upstream: SocketAddr,
    fault: watch::Receiver<Fault>,
    /// Whether a byte was swallowed, after which nothing may pass any more.
    has_hole: AtomicBool,
    /// Whether the next reply is to be lost, and the client reset in its place.
    loses_reply: AtomicBool,
    shared: Arc<Shared>,
}

/// How a connection ends for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Closed,
    Reset,
}

/// Bytes from the server, and when they came.
struct Chunk {
    bytes: Vec<u8>,
    arrived: Instant,
}

impl Line {
    /// Opens a connection under the fault that is in force for new ones.
    pub(super) fn register(shared: Arc<Shared>) -> Line {
        let mut plan = shared.plan();
        let number = shared.accepted.fetch_add(1, Ordering::SeqCst);
        let (sender, fault) = watch::channel(plan.fault_of_new);
        plan.open.insert(number, sender);
        let has_hole = AtomicBool::new(plan.fault_of_new == Fault::Swallow);
        let upstream = plan.upstream;
        drop(plan);
        Line { number, upstream, fault, has_hole, loses_reply: AtomicBool::new(false), shared }
    }

    /// Carries bytes until either side, or a fault, ends the connection.
    pub(super) async fn carry(self, mut client: TcpStream) {
        let ending = tokio::select! {
            biased;
            () = self.wait_for_cut() => Ending::Reset,
            ending = self.exchange(&mut client) => ending,
        };
        if ending == Ending::Reset {
            // Without lingering, closing sends a reset. A client that is already gone needs none.
            let _ = client.set_zero_linger();
        }
    }

    async fn wait_for_cut(&self) {
        let mut fault = self.fault.clone();
        if fault.wait_for(|fault| *fault == Fault::Cut).await.is_err() {
            future::pending::<()>().await;
        }
    }

    async fn exchange(&self, client: &mut TcpStream) -> Ending {
        if self.is_silent() {
            let (mut requests, _) = client.split();
            return read_until_closed(&mut requests).await;
        }
        let Ok(mut server) = TcpStream::connect(self.upstream).await else {
            return Ending::Reset;
        };
        if client.set_nodelay(true).and_then(|()| server.set_nodelay(true)).is_err() {
            return Ending::Reset;
        }

        let (requests, deliveries) = client.split();
        let (replies, forwarding) = server.split();
        let (queue, queued) = mpsc::unbounded_channel();
        tokio::select! {
            ending = self.forward_requests(requests, forwarding) => ending,
            ending = self.deliver_replies(queued, deliveries) => ending,
            () = collect_replies(replies, queue) => unreachable!("collecting never completes"),
        }
    }

    async fn forward_requests(&self, mut requests: ReadHalf<'_>, mut server: WriteHalf<'_>) -> Ending {
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            let Ok(count @ 1..) = requests.read(&mut buffer).await else {
                return Ending::Closed;
            };
            if self.swallows() {
                continue;
            }
            if server.write_all(&buffer[..count]).await.is_err() {
                // The server is gone. What it still had to say is delivered first, and that ends us.
                return read_until_closed(&mut requests).await;
            }
            self.shared.bytes_up.fetch_add(count as u64, Ordering::SeqCst);
            if spend(&mut self.shared.plan().request_bytes_until_cut, count).is_some() {
                self.loses_reply.store(true, Ordering::SeqCst);
            }
        }
    }

    async fn deliver_replies(
        &self,
        mut queued: mpsc::UnboundedReceiver<Chunk>,
        mut client: WriteHalf<'_>,
    ) -> Ending {
        while let Some(Chunk { bytes, arrived }) = queued.recv().await {
            let piece_bytes = match self.wait_until_due(arrived).await {
                Fault::Slice { piece_bytes } => piece_bytes,
                _ => bytes.len(),
            };
            if self.loses_reply.load(Ordering::SeqCst) {
                return Ending::Reset;
            }
            for piece in bytes.chunks(piece_bytes) {
                if self.swallows() {
                    break;
                }
                let cut_at = spend(&mut self.shared.plan().reply_bytes_until_cut, piece.len());
                let piece = &piece[..cut_at.unwrap_or(piece.len())];
                if client.write_all(piece).await.is_err() {
                    return Ending::Closed;
                }
                self.shared.bytes_down.fetch_add(piece.len() as u64, Ordering::SeqCst);
                if cut_at.is_some() {
                    return Ending::Reset;
                }
                if piece_bytes < bytes.len() {
                    time::sleep(PIECE_EVERY).await;
                }
            }
        }
        self.wait_until_heard().await;
        Ending::Closed
    }

    /// Waits until what came at `arrived` may be delivered, and returns the fault it goes under.
    async fn wait_until_due(&self, arrived: Instant) -> Fault {
        let mut faults = self.fault.clone();
        loop {
            let fault = *faults.borrow_and_update();
            let due = async {
                match fault {
                    Fault::Pass | Fault::Swallow | Fault::Slice { .. } | Fault::Cut => {}
                    Fault::Delay(delay) => time::sleep_until(arrived + delay).await,
                    Fault::Hold => future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = due => return fault,
                changed = faults.changed() => changed.expect("the sender lives until this line is dropped"),
            }
        }
    }

    /// Waits until the client may hear that the server has hung up: a silent line tells it nothing.
    async fn wait_until_heard(&self) {
        let mut faults = self.fault.clone();
        while self.is_silent() {
            faults.changed().await.expect("the sender lives until this line is dropped");
        }
    }

    /// Whether bytes are lost now; if so, the line remembers that some were.
    fn swallows(&self) -> bool {
        let swallows = self.is_silent();
        if swallows {
            self.has_hole.store(true, Ordering::SeqCst);
        }
        swallows
    }

    fn is_silent(&self) -> bool {
        self.has_hole.load(Ordering::SeqCst) || *self.fault.borrow() == Fault::Swallow
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.shared.plan().open.remove(&self.number);
    }
}

/// Queues what the server says. Never returns: the end of the queue tells of the end, after
/// everything in it has been delivered.
async fn collect_replies(mut replies: ReadHalf<'_>, queue: mpsc::UnboundedSender<Chunk>) {
    let mut buffer = vec![0; CHUNK_BYTES];
    while let Ok(count @ 1..) = replies.read(&mut buffer).await {
        let chunk = Chunk { bytes: buffer[..count].to_vec(), arrived: Instant::now() };
        if queue.send(chunk).is_err() {
            break;
        }
    }
    drop(queue);
    future::pending::<()>().await;
}

async fn read_until_closed(requests: &mut ReadHalf<'_>) -> Ending {
    let mut buffer = vec![0; CHUNK_BYTES];
    while let Ok(1..) = requests.read(&mut buffer).await {}
    Ending::Closed
}

/// Takes `count` bytes off what is left until a cut. When the cut falls within them, disarms it and
/// returns after how many.
fn spend(left: &mut Option<u64>, count: usize) -> Option<usize> {
    let until_cut = left.as_mut()?;
    let cut_at = usize::try_from(*until_cut).ok().filter(|cut_at| *cut_at <= count);
    if cut_at.is_some() {
        *left = None;
    } else {
        *until_cut -= count as u64;
    }
    cut_at
}
