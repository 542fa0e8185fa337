//! A network that fails on command.
//!
//! Stands between a client and a server and spoils what passes: the faults of a real network, which
//! the kernel would need root and `tc` for, switched by the test at the moment it wants them.
//!
//! One fault is in force at a time; calling another replaces it. A fault holds from the moment the
//! call returns: whatever the client sends afterwards meets it. Requests pass unharmed under the
//! faults of replies (`delay_replies`, `hold_replies`, `slice`).
//!
//! TCP never delivers a stream with a hole in it, and neither does this proxy: a connection from
//! which a byte was swallowed stays silent for good, also after [`ChaosProxy::pass`], until either
//! side closes it. Otherwise a client would be handed the reply to another request, which no
//! network can do to it.

mod line;

use std::{
    collections::HashMap,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    net::TcpListener,
    sync::watch,
    task::{JoinHandle, JoinSet},
    time,
};

use self::line::Line;

/// A TCP proxy with faults. Its connections are dropped with it.
#[derive(Debug)]
pub struct ChaosProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

/// What the proxy and its connections know in common.
#[derive(Debug)]
struct Shared {
    plan: Mutex<Plan>,
    accepted: AtomicU64,
    bytes_up: AtomicU64,
    bytes_down: AtomicU64,
}

#[derive(Debug)]
struct Plan {
    upstream: SocketAddr,
    fault_of_new: Fault,
    open: HashMap<u64, watch::Sender<Fault>>,
    /// Request bytes still to be forwarded until the connection that forwards the last one loses
    /// its reply.
    request_bytes_until_cut: Option<u64>,
    /// Reply bytes still to be delivered until the connection that gets the last one is reset.
    reply_bytes_until_cut: Option<u64>,
}

/// What happens to one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Pass,
    Swallow,
    Delay(Duration),
    Hold,
    Slice { piece_bytes: usize },
    Cut,
}

impl ChaosProxy {
    /// Opens a proxy to `upstream` on a free loopback port, passing everything.
    pub async fn start(upstream: SocketAddr) -> ChaosProxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let plan = Plan {
            upstream,
            fault_of_new: Fault::Pass,
            open: HashMap::new(),
            request_bytes_until_cut: None,
            reply_bytes_until_cut: None,
        };
        let shared = Arc::new(Shared {
            plan: Mutex::new(plan),
            accepted: AtomicU64::new(0),
            bytes_up: AtomicU64::new(0),
            bytes_down: AtomicU64::new(0),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        ChaosProxy { address, shared, accepting }
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The port of [`ChaosProxy::address`].
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The URL for clients of a plain Redis without a password: `redis://127.0.0.1:1234`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Ends every fault: held and delayed replies are delivered at once, and a cut that was armed but
    /// not yet due is called off.
    pub fn pass(&self) {
        self.set(Fault::Pass, Fault::Pass);
        let mut plan = self.shared.plan();
        plan.request_bytes_until_cut = None;
        plan.reply_bytes_until_cut = None;
    }

    /// Swallows every byte in both directions while TCP stays open. New connections are accepted, by
    /// the proxy alone, and swallowed as well.
    pub fn blackhole(&self) {
        self.set(Fault::Swallow, Fault::Swallow);
    }

    /// Swallows every byte of the connections that are open now, as a firewall does that has lost
    /// its state. New connections pass.
    pub fn blackhole_existing(&self) {
        self.set(Fault::Swallow, Fault::Pass);
    }

    /// Delivers every reply `delay` after it came, in order. Also delays those that wait already.
    pub fn delay_replies(&self, delay: Duration) {
        self.set(Fault::Delay(delay), Fault::Delay(delay));
    }

    /// Keeps every reply back until [`ChaosProxy::release_replies`].
    pub fn hold_replies(&self) {
        self.set(Fault::Hold, Fault::Hold);
    }

    /// Delivers the replies that were held, in order, and passes everything from now on.
    pub fn release_replies(&self) {
        self.pass();
    }

    /// Resets every connection, and closes new ones as soon as they are accepted.
    pub fn cut(&self) {
        self.set(Fault::Cut, Fault::Cut);
    }

    /// Resets every connection that is open now. New ones pass.
    pub fn cut_existing(&self) {
        self.set(Fault::Cut, Fault::Pass);
    }

    /// Loses one reply after its request was executed: once `count` more bytes of requests have been
    /// forwarded, on whatever connections, the one that forwarded the last of them is reset at the
    /// moment its next reply arrives. With a `count` of 1 that is the very next request.
    ///
    /// Arm it while that connection awaits no earlier reply, or the earlier one is the one lost.
    pub fn cut_after_request_bytes(&self, count: u64) {
        self.shared.plan().request_bytes_until_cut = Some(count);
    }

    /// Cuts one reply short: delivers exactly `count` more bytes of replies, and resets the
    /// connection that got the last of them.
    pub fn cut_after_reply_bytes(&self, count: u64) {
        self.shared.plan().reply_bytes_until_cut = Some(count);
    }

    /// Delivers replies in pieces of `piece_bytes`, about a millisecond apart, so that the client
    /// reads each by itself.
    pub fn slice(&self, piece_bytes: usize) {
        assert!(piece_bytes > 0, "a reply cannot be delivered in pieces of nothing");
        self.set(Fault::Slice { piece_bytes }, Fault::Slice { piece_bytes });
    }

    /// Sends new connections elsewhere, as DNS does after a failover. Open ones stay.
    pub fn repoint(&self, upstream: SocketAddr) {
        self.shared.plan().upstream = upstream;
    }

    /// Connections accepted so far, including those cut or swallowed.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Connections open now.
    pub fn open(&self) -> usize {
        self.shared.plan().open.len()
    }

    /// Bytes of requests forwarded to the server. Swallowed ones do not count.
    pub fn bytes_up(&self) -> u64 {
        self.shared.bytes_up.load(Ordering::SeqCst)
    }

    /// Bytes of replies delivered to clients. Held and swallowed ones do not count.
    pub fn bytes_down(&self) -> u64 {
        self.shared.bytes_down.load(Ordering::SeqCst)
    }

    fn set(&self, of_existing: Fault, of_new: Fault) {
        let mut plan = self.shared.plan();
        for fault in plan.open.values() {
            fault.send_if_modified(|fault| {
                // A cut connection may not have noticed yet; no later fault brings it back.
                let is_open = *fault != Fault::Cut;
                if is_open {
                    *fault = of_existing;
                }
                is_open
            });
        }
        plan.fault_of_new = of_new;
    }
}

impl Drop for ChaosProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Shared {
    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Owns the connections: when this ends, they end.
async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => {
                    let line = Line::register(Arc::clone(&shared));
                    connections.spawn(line.carry(client));
                }
                // Out of file descriptors, most likely: leave room for others to close theirs.
                Err(_) => time::sleep(Duration::from_millis(10)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}
