//! One server and the connections to it: a connection per thread that asks, and one for heartbeats.
//!
//! Where the server is may change under way ([`Place`]); the connections then follow. What one server
//! does to its connections touches no other's: each has its own turn to dial and its own clock.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tollgate_core::store::{Shard, StoreError};

use super::anchor::Anchor;
use super::cluster::slots::tag_in;
use super::dial::{Greeting, Stream, Wants, dial};
use super::link::{Link, Shared};
use super::sentinel::Sentinels;
use super::survey::Survey;
use super::url::Endpoint;
use super::wire;
use crate::clock;

/// How long the connections of checks may take to follow the one of heartbeats back. Bounded,
/// because one of them may belong to a runtime that nobody drives.
const FOLLOW_MAX: Duration = Duration::from_secs(1);

/// The pause before a connection that refused to ask is asked to again.
const FOLLOW_PAUSE: Duration = Duration::from_millis(5);

/// Where a server is.
#[derive(Debug)]
pub(super) enum Place {
    /// There, always.
    Fixed(Endpoint),
    /// Wherever Sentinels say that the primary is.
    Primary(Arc<Sentinels>),
}

/// What the connections to one server share.
#[derive(Debug)]
pub(super) struct Server {
    /// Where it is.
    pub place: Place,
    /// One dial at a time: a process that lost its Redis does not storm it.
    pub dialling: Semaphore,
    /// Our own reckoning of its clock, where scripts may not read it.
    pub anchor: Anchor,
    /// Wakes links that pause between dials.
    pub nudge: Arc<Notify>,
    /// Tells of every connection that has been opened.
    pub opened: Notify,
    /// Whom to tell that it may be another server's turn.
    doubted: Option<Arc<Notify>>,
}

/// A place for a connection, filled by the first thread that needs it.
type Slot = Mutex<Option<Link>>;

/// One server, and every connection to it.
#[derive(Debug)]
pub(super) struct Node {
    /// What its connections share.
    pub server: Arc<Server>,
    /// Which shard of the store it is.
    pub shard: Shard,
    /// What it last said about itself.
    pub survey: Arc<Mutex<Survey>>,
    shared: Arc<Shared>,
    /// One connection per thread that asks, up to `pool_size`.
    slots: Vec<Slot>,
    /// Heartbeats have their own connection, so that a probe does not queue behind checks.
    control: Slot,
    /// Since when heartbeats have been answered, one after the other.
    answering_since: Mutex<Option<Instant>>,
    /// The tag that heartbeats go by, and the slot it is in.
    tag: Mutex<Option<(u16, String)>>,
}

impl Server {
    /// A server that nobody has dialled yet.
    pub(super) fn new(place: Place, client_time: bool, doubted: Option<Arc<Notify>>) -> Server {
        let anchor = Anchor::default();
        if client_time {
            anchor.start_using();
        }
        let nudge = match &place {
            Place::Fixed(_) => Arc::default(),
            Place::Primary(sentinels) => Arc::clone(&sentinels.found),
        };
        let (dialling, opened) = (Semaphore::new(1), Notify::new());
        Server { place, dialling, anchor, nudge, opened, doubted }
    }

    /// Finds the server and greets it. One that was to be the primary says that it is.
    pub(super) async fn dial(&self, shared: &Shared) -> Result<(Stream, Greeting, Endpoint), StoreError> {
        let time = self.anchor.is_used();
        let url = &shared.config.url;
        match &self.place {
            Place::Fixed(endpoint) => {
                let wants = Wants { time, primary: false };
                let (stream, greeting) = dial(&url.at(endpoint.clone()), &shared.tls, wants).await?;
                Ok((stream, greeting, endpoint.clone()))
            }
            Place::Primary(sentinels) => {
                let endpoint = sentinels.primary().await;
                let wants = Wants { time, primary: true };
                let url = url.at(endpoint.clone());
                tokio::select! {
                    dialled = dial(&url, &shared.tls, wants) => dialled.map(|(stream, greeting)| (stream, greeting, endpoint)),
                    // A primary that hangs accepts, and says nothing.
                    () = sentinels.moved(&url.endpoint) => {
                        Err(StoreError::Unreachable { why: "another server was made the primary".into() })
                    }
                }
            }
        }
    }

    /// Returns when the server is to be found elsewhere.
    pub(super) async fn moved(&self, from: &Endpoint) {
        match &self.place {
            Place::Fixed(_) => std::future::pending().await,
            Place::Primary(sentinels) => sentinels.moved(from).await,
        }
    }

    /// A connection was lost, or none could be had: whoever knows where servers are is to look again.
    pub(super) fn doubt(&self) {
        match (&self.place, &self.doubted) {
            (Place::Primary(sentinels), _) => sentinels.doubt(),
            (_, Some(doubted)) => doubted.notify_one(),
            (Place::Fixed(_), None) => {}
        }
    }

    /// Why no connection can be had, if the server cannot even be found.
    pub(super) fn lost_sight(&self) -> Option<StoreError> {
        match &self.place {
            Place::Fixed(_) => None,
            Place::Primary(sentinels) => sentinels.trouble(),
        }
    }
}

impl Node {
    /// A node with no connection yet.
    pub(super) fn new(shared: &Arc<Shared>, server: Server, which: Shard) -> Node {
        Node {
            shard: which,
            server: Arc::new(server),
            survey: Arc::default(),
            slots: (0..shared.config.pool_size.max(1)).map(|_| Slot::default()).collect(),
            control: Slot::default(),
            answering_since: Mutex::default(),
            tag: Mutex::default(),
            shared: Arc::clone(shared),
        }
    }

    /// The connection of the threads with that number.
    pub(super) fn link(&self, number: usize) -> Link {
        self.fill(&self.slots[number % self.slots.len()])
    }

    /// The connection of heartbeats.
    pub(super) fn control(&self) -> Link {
        self.fill(&self.control)
    }

    /// The tag that instances show themselves alive by on a node that serves `slot`. All instances with the same
    /// map have the same.
    pub(super) fn tag(&self, slot: u16) -> String {
        let mut known = self.tag.lock();
        match &*known {
            Some((of, tag)) if *of == slot => tag.clone(),
            _ => known.insert((slot, tag_in(slot, "instances="))).1.clone(),
        }
    }

    /// Whether it seems to be there.
    pub(super) fn is_answering(&self) -> bool {
        self.control.lock().as_ref().is_some_and(Link::is_open)
    }

    /// Every connection there is.
    pub(super) fn links(&self) -> impl Iterator<Item = Link> {
        self.slots.iter().chain([&self.control]).filter_map(|slot| slot.lock().clone())
    }

    fn fill(&self, slot: &Slot) -> Link {
        let mut slot = slot.lock();
        match &*slot {
            Some(link) if !link.is_dead() => link.clone(),
            _ => {
                self.look_out();
                slot.insert(Link::spawn(Arc::clone(&self.shared), Arc::clone(&self.server))).clone()
            }
        }
    }

    /// Sees to it that whoever looks out for the server does.
    pub(super) fn look_out(&self) {
        if let Place::Primary(sentinels) = &self.server.place {
            sentinels.watch(&self.shared);
        }
    }

    /// A heartbeat is about to be sent: until when they were answered, one after the other, is forgotten
    /// unless this one is too, also if its caller gives it up.
    pub(super) fn beats(&self) -> Option<Instant> {
        self.look_out();
        self.answering_since.lock().take()
    }

    /// A heartbeat was answered. While that is news, every other connection has to answer as well:
    /// otherwise a store that has just called itself well would send the next checks to a dead
    /// connection, and be set aside again.
    pub(super) async fn answered(&self, since: Option<Instant>) {
        let since = since.unwrap_or_else(clock::instant);
        *self.answering_since.lock() = Some(since);
        if since.elapsed() < FOLLOW_MAX {
            let links = self.slots.iter().filter_map(|slot| slot.lock().clone());
            let mut following: JoinSet<()> = links
                .filter(|link| !link.is_dead())
                .map(|link| follow(link, Arc::clone(&self.server)))
                .collect();
            while following.join_next().await.is_some() {}
        }
    }
}

/// Returns when a link answers. It may be between dials, or hold on to a server that does not.
async fn follow(link: Link, server: Arc<Server>) {
    loop {
        let mut opened = pin!(server.opened.notified());
        opened.as_mut().enable();
        if !link.is_open() {
            // If it pauses between dials: the server it waits for is there.
            server.nudge.notify_waiters();
            opened.await;
            continue;
        }
        let mut bytes = Vec::new();
        wire::command(&mut bytes, [&b"PING"[..]].into_iter());
        // A user that may not PING is answered too.
        if link.call(bytes, 1).await.is_ok() {
            return;
        }
        tokio::time::sleep(FOLLOW_PAUSE).await;
    }
}
