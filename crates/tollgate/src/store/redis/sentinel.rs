//! Who is the primary, as Sentinels tell it.
//!
//! Every Sentinel is asked again and again by a task of its own, so that one that hangs holds up none.
//! The newest configuration epoch wins: a Sentinel that was cut off tells of an older one. Where
//! the primary has become another server, every connection to the old one is given up at once,
//! answered or not: it may hang for ever, or go on accepting on the wrong side of a partition.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tollgate_core::store::StoreError;

use super::classify::answered;
use super::dial::{Stream, Wants, dial, exchange};
use super::link::Shared;
use super::url::{Endpoint, RedisUrl, Seed, SentinelSeeds};
use super::wire::{self, Reply};

/// How often a Sentinel is asked while all is well.
const EVERY: Duration = Duration::from_millis(500);

/// How often while it is doubted that the primary is one.
const EVERY_IN_DOUBT: Duration = Duration::from_millis(100);

/// How long a Sentinel may take to answer, dialled or not.
const PATIENCE: Duration = Duration::from_millis(500);

/// The Sentinels of one service, and what they last said.
#[derive(Debug)]
pub(super) struct Sentinels {
    seeds: SentinelSeeds,
    /// Tells of every change of primary: links that pause between dials have somewhere to go.
    pub found: Arc<Notify>,
    primary: watch::Sender<Option<Endpoint>>,
    reports: Mutex<Reports>,
    doubted: Notify,
    watching: Mutex<Vec<AbortHandle>>,
}

/// What one Sentinel says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Told {
    primary: Seed,
    /// The epoch of its configuration, where it lets us see that.
    epoch: u64,
}

/// What each Sentinel last said, and the newest epoch heard of.
#[derive(Debug)]
struct Reports {
    by_seed: Vec<Result<Told, String>>,
    newest: u64,
}

impl Reports {
    fn new(seeds: usize) -> Reports {
        Reports { by_seed: vec![Err("not asked yet".to_owned()); seeds], newest: 0 }
    }

    /// The primary by what is known: of the newest epoch, and of those what most say.
    ///
    /// An epoch older than one seen before is what Sentinels say that were cut off, and counts only if most
    /// of them say so: then they were set up anew.
    fn choose(&mut self) -> Option<Seed> {
        let told = || self.by_seed.iter().filter_map(|report| report.as_ref().ok());
        let epoch = told().map(|told| told.epoch).max()?;
        let count = |seed: &Seed| told().filter(|told| told.epoch == epoch && told.primary == *seed).count();
        let mut candidates = told().filter(|told| told.epoch == epoch).map(|told| &told.primary);
        // Of two that as many say, the earlier Sentinel's: any will do, but always the same.
        let first = candidates.next()?;
        let chosen =
            candidates.fold(first, |best, other| if count(other) > count(best) { other } else { best });
        if epoch < self.newest && count(chosen) * 2 <= self.by_seed.len() {
            return None;
        }
        let chosen = chosen.clone();
        self.newest = epoch;
        Some(chosen)
    }
}

impl Sentinels {
    /// Sentinels that have not been asked yet.
    pub(super) fn new(seeds: &SentinelSeeds) -> Sentinels {
        Sentinels {
            reports: Mutex::new(Reports::new(seeds.seeds.len())),
            seeds: seeds.clone(),
            found: Arc::default(),
            primary: watch::Sender::new(None),
            doubted: Notify::new(),
            watching: Mutex::default(),
        }
    }

    /// Where the primary is; waits until some Sentinel has said so.
    pub(super) async fn primary(&self) -> Endpoint {
        let mut told = self.primary.subscribe();
        loop {
            if let Some(endpoint) = told.borrow_and_update().clone() {
                return endpoint;
            }
            // The sender is ours, so it is not gone.
            let _ = told.changed().await;
        }
    }

    /// Returns when the primary is another one than `from`.
    pub(super) async fn moved(&self, from: &Endpoint) {
        let mut told = self.primary.subscribe();
        let _ = told.wait_for(|told| told.as_ref().is_some_and(|told| told != from)).await;
    }

    /// The primary did not answer, or not as one: Sentinels are asked again soon.
    pub(super) fn doubt(&self) {
        self.doubted.notify_waiters();
    }

    /// What Sentinels say instead of naming a primary, while none is known.
    pub(super) fn trouble(&self) -> Option<StoreError> {
        if self.primary.borrow().is_some() {
            return None;
        }
        let reports = self.reports.lock();
        let said: Vec<String> = self
            .seeds
            .seeds
            .iter()
            .zip(&reports.by_seed)
            .filter_map(|(Seed { host, port }, said)| {
                Some(format!("{host}:{port}: {}", said.as_ref().err()?))
            })
            .collect();
        let why = format!("no Sentinel tells where \"{}\" is ({})", self.seeds.service, said.join("; "));
        Some(StoreError::Unreachable { why: why.into() })
    }

    /// Starts to ask, on the current runtime, unless that is being done.
    pub(super) fn watch(self: &Arc<Self>, shared: &Arc<Shared>) {
        let mut watching = self.watching.lock();
        if !watching.is_empty() && !watching.iter().any(AbortHandle::is_finished) {
            return;
        }
        watching.drain(..).for_each(|task| task.abort());
        // Weakly: whoever watches must not keep alive what it watches for.
        let ask = |seed| tokio::spawn(keep_asking(Arc::downgrade(self), seed, Arc::clone(shared)));
        watching.extend((0..self.seeds.seeds.len()).map(|seed| ask(seed).abort_handle()));
    }

    fn hear(&self, seed: usize, said: Result<Told, String>) {
        let chosen = {
            let mut reports = self.reports.lock();
            reports.by_seed[seed] = said;
            reports.choose()
        };
        let Some(chosen) = chosen else { return };
        let endpoint = chosen.endpoint(self.seeds.is_tls);
        let is_other = self.primary.send_if_modified(|known| {
            let is_other = known.as_ref() != Some(&endpoint);
            if is_other {
                *known = Some(endpoint);
            }
            is_other
        });
        if is_other {
            let Seed { host, port } = chosen;
            tracing::info!(service = self.seeds.service, host, port, "Sentinels name the primary");
            self.found.notify_waiters();
        }
    }
}

impl Drop for Sentinels {
    fn drop(&mut self) {
        self.watching.get_mut().drain(..).for_each(|task| task.abort());
    }
}

/// Asks one Sentinel for as long as somebody wants to know.
async fn keep_asking(sentinels: std::sync::Weak<Sentinels>, seed: usize, shared: Arc<Shared>) {
    let Some((url, service)) = sentinels.upgrade().map(|sentinels| {
        let SentinelSeeds { seeds, service, username, password, is_tls } = sentinels.seeds.clone();
        (RedisUrl { endpoint: seeds[seed].endpoint(is_tls), username, password, database: 0 }, service)
    }) else {
        return;
    };
    let mut line = None;
    loop {
        let asked = timeout(PATIENCE, ask(&mut line, &url, &service, &shared)).await;
        let said = asked.unwrap_or_else(|_| Err("no answer".to_owned()));
        if said.is_err() {
            line = None;
        }
        let Some(sentinels) = sentinels.upgrade() else { return };
        sentinels.hear(seed, said);
        let every = if sentinels.primary.borrow().is_none() { EVERY_IN_DOUBT } else { EVERY };
        let pause = every.mul_f64(0.75 + fastrand::f64() / 2.0);
        let rest = pause.saturating_sub(EVERY_IN_DOUBT);
        // Never without a pause: many connections may doubt at once, and again.
        sleep(EVERY_IN_DOUBT.min(pause)).await;
        tokio::select! {
            () = sleep(rest) => {}
            () = sentinels.doubted.notified() => {}
        }
    }
}

/// One question to one Sentinel, on a connection that is kept.
async fn ask(
    line: &mut Option<Stream>,
    url: &RedisUrl,
    service: &str,
    shared: &Shared,
) -> Result<Told, String> {
    let stream = if let Some(stream) = line {
        stream
    } else {
        let dialled = dial(url, &shared.tls, Wants::default()).await.map_err(|error| error.to_string())?;
        line.insert(dialled.0)
    };
    let mut bytes = Vec::new();
    // Both: the first tells of a promoted server a little earlier, the second of its epoch.
    for question in ["GET-MASTER-ADDR-BY-NAME", "MASTER"] {
        wire::command(&mut bytes, ["SENTINEL", question, service].into_iter().map(str::as_bytes));
    }
    let replies = exchange(stream, &bytes, 2).await.map_err(|error| error.to_string())?;
    let [address, about] = replies.as_slice() else { return Err("no two answers".to_owned()) };
    told(address, about, service)
}

fn told(address: &Reply, about: &Reply, service: &str) -> Result<Told, String> {
    let words = match address {
        Reply::Array(words) => words.iter().map(text).collect::<Option<Vec<_>>>(),
        Reply::Nil => return Err(format!("knows nothing of \"{service}\"")),
        Reply::Error(message) => return Err(answered(message).to_string()),
        _ => None,
    };
    let (host, port) = match words.as_deref() {
        Some([host, port]) => (host.clone(), port.parse().map_err(|_| "a port that is none".to_owned())?),
        _ => return Err("an address that is none".to_owned()),
    };
    // A user that may not ask for it is no reason to know nothing.
    let epoch = match about {
        Reply::Array(words) => {
            let at =
                words.iter().position(|word| matches!(word, Reply::Bulk(name) if name == b"config-epoch"));
            at.and_then(|at| text(words.get(at + 1)?)?.parse().ok()).unwrap_or(0)
        }
        _ => 0,
    };
    Ok(Told { primary: Seed { host, port }, epoch })
}

fn text(reply: &Reply) -> Option<String> {
    match reply {
        Reply::Bulk(bytes) => String::from_utf8(bytes.clone()).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(port: u16, epoch: u64) -> Option<Told> {
        (port != 0).then(|| Told { primary: Seed { host: "h".to_owned(), port }, epoch })
    }

    fn chosen(reports: &mut Reports, by_seed: [Option<Told>; 3]) -> Option<u16> {
        reports.by_seed = by_seed.map(|said| said.ok_or("gone".to_owned())).into();
        reports.choose().map(|seed| seed.port)
    }

    #[test]
    fn the_newest_epoch_wins_and_then_the_most() {
        let gone = || None;
        let mut reports = Reports::new(3);
        assert_eq!(chosen(&mut reports, [gone(), gone(), gone()]), None);
        assert_eq!(chosen(&mut reports, [gone(), said(1, 0), gone()]), Some(1));
        assert_eq!(chosen(&mut reports, [said(2, 0), said(1, 0), said(1, 0)]), Some(1));
        // One that knows more is believed before the others are.
        assert_eq!(chosen(&mut reports, [said(1, 4), said(1, 4), said(3, 5)]), Some(3));
        // Only those that were cut off are left: nobody goes back.
        assert_eq!(chosen(&mut reports, [said(1, 4), gone(), gone()]), None);
        // Unless most say so: they were set up anew.
        assert_eq!(chosen(&mut reports, [said(7, 0), said(7, 0), gone()]), Some(7));
        assert_eq!(chosen(&mut reports, [said(7, 0), gone(), gone()]), Some(7));
    }

    #[test]
    fn a_sentinel_may_keep_its_epoch_to_itself() {
        let bulk = |text: &str| Reply::Bulk(text.as_bytes().to_vec());
        let address = Reply::Array(vec![bulk("10.0.0.1"), bulk("6379")]);
        let about = Reply::Array(["name", "main", "config-epoch", "12"].map(bulk).into());
        let primary = Seed { host: "10.0.0.1".to_owned(), port: 6379 };
        let expected = Told { primary, epoch: 12 };
        assert_eq!(told(&address, &about, "main"), Ok(expected.clone()));
        let secret = Reply::Error("NOPERM".to_owned());
        assert_eq!(told(&address, &secret, "main"), Ok(Told { epoch: 0, ..expected }));
        let error = told(&Reply::Nil, &Reply::Error("ERR No such master with that name".to_owned()), "main");
        assert_eq!(error, Err("knows nothing of \"main\"".to_owned()));
        assert!(told(&Reply::Array(vec![bulk("h"), bulk("x")]), &about, "main").is_err());
    }
}
