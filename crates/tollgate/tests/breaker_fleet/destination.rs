//! What the breakers stand before: a server that says how each call ends, and sees which are under way.
//!
//! It also hears what instances notice about their breaker, and stamps it by its own clock, which is Redis' too.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tollgate::clock;

use crate::worker::skew_us;

/// How calls end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conduct {
    Well,
    Fails,
    /// They do not end before this changes.
    Held,
    /// After up to ten milliseconds: most well, some badly, some never, and some are given up by the caller.
    Erratic,
}

#[derive(Debug, Clone, Default)]
struct Plan {
    of_one: HashMap<u32, Conduct>,
    of_others: Option<Conduct>,
}

/// One call as it was seen here, in microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub who: u32,
    pub began: u64,
    /// None while it is under way.
    pub ended: Option<u64>,
    /// When its lease ends, if it is a probe.
    pub lease_ends: Option<u64>,
    /// Whether the caller was in touch with the fleet; of a probe, whether its lease is the fleet's.
    pub is_shared: bool,
}

/// What an instance noticed about its breaker.
#[derive(Debug, Clone)]
pub(crate) struct Notice {
    pub who: u32,
    pub at: u64,
    pub state: String,
    pub is_shared: bool,
}

/// What an instance has counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stats {
    pub made: u64,
    pub refused: u64,
    /// The longest that leave to call was waited for.
    pub longest_us: u64,
}

#[derive(Debug, Default)]
struct Heard {
    calls: Vec<Seen>,
    notices: Vec<Notice>,
    latest: BTreeMap<u32, Notice>,
    stats: BTreeMap<u32, Stats>,
    /// The next call of anybody fails, and says to come again after so long.
    until_once: Option<Duration>,
    /// When and to whom that was last said.
    said_until: Option<(u32, u64)>,
}

#[derive(Debug)]
pub(crate) struct Destination {
    pub address: SocketAddr,
    heard: Arc<Mutex<Heard>>,
    plan: watch::Sender<Plan>,
    accepting: JoinHandle<()>,
}

impl Destination {
    pub(crate) async fn start() -> Destination {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let (plan, plans) = watch::channel(Plan::default());
        let heard = Arc::new(Mutex::new(Heard::default()));
        let shared = Arc::clone(&heard);
        let accepting = tokio::spawn(async move {
            while let Ok((line, _)) = listener.accept().await {
                tokio::spawn(serve(line, Arc::clone(&shared), plans.clone()));
            }
        });
        Destination { address, heard, plan, accepting }
    }

    pub(crate) fn conduct(&self, conduct: Conduct) {
        self.plan.send_modify(|plan| plan.of_others = Some(conduct));
    }

    pub(crate) fn conduct_to(&self, who: u32, conduct: Conduct) {
        self.plan.send_modify(|plan| {
            plan.of_one.insert(who, conduct);
        });
    }

    pub(crate) fn say_until_once(&self, wait: Duration) {
        let mut heard = self.heard();
        (heard.until_once, heard.said_until) = (Some(wait), None);
    }

    pub(crate) fn said_until(&self) -> Option<(u32, u64)> {
        self.heard().said_until
    }

    pub(crate) fn calls(&self) -> Vec<Seen> {
        self.heard().calls.clone()
    }

    pub(crate) fn notices(&self) -> Vec<Notice> {
        self.heard().notices.clone()
    }

    pub(crate) fn stats(&self) -> BTreeMap<u32, Stats> {
        self.heard().stats.clone()
    }

    /// How many were last heard to be in a state, and in touch with the fleet.
    pub(crate) fn in_state(&self, state: &str) -> usize {
        self.heard().latest.values().filter(|notice| notice.state == state && notice.is_shared).count()
    }

    /// One that is no more is in no state.
    pub(crate) fn forget(&self, who: u32) {
        self.heard().latest.remove(&who);
    }

    /// What was last heard of one.
    pub(crate) fn latest(&self, who: u32) -> Option<Notice> {
        self.heard().latest.get(&who).cloned()
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().expect("nobody panics while holding it")
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(line: TcpStream, heard: Arc<Mutex<Heard>>, plans: watch::Receiver<Plan>) {
    line.set_nodelay(true).expect("a socket of TCP");
    let (reading, mut writing) = line.into_split();
    let mut reading = BufReader::new(reading);
    let mut who = u32::MAX;
    let mut text = String::new();
    while reading.read_line(&mut text).await.is_ok_and(|count| count > 0) {
        let at = clock::wall().0;
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            ["hello", name, wall] => {
                who = number(name);
                let off = i64::try_from(number::<u64>(wall)).expect("this century") - at.cast_signed();
                let wrong = (off - skew_us(who)).abs();
                assert!(wrong < 20_000_000, "instance {who} was to be {} off and is {off}", skew_us(who));
            }
            ["state", state, is_shared] => {
                let notice = Notice { who, at, state: state.to_owned(), is_shared: is_shared == "true" };
                let mut heard = heard.lock().expect("nobody panics");
                heard.latest.insert(who, notice.clone());
                heard.notices.push(notice);
            }
            ["stats", made, refused, longest] => {
                let stats =
                    Stats { made: number(made), refused: number(refused), longest_us: number(longest) };
                heard.lock().expect("nobody panics").stats.insert(who, stats);
            }
            ["call", lease_ends, is_shared] => {
                let lease_ends =
                    (lease_ends != "-").then(|| number::<u64>(lease_ends).wrapping_add_signed(-skew_us(who)));
                let seen = Seen { who, began: at, ended: None, lease_ends, is_shared: is_shared == "true" };
                let (place, until) = heard.lock().expect("nobody panics").begin(seen);
                let answer = tokio::select! {
                    // Nothing comes before the answer but the end.
                    _ = reading.fill_buf() => None,
                    answer = answer(who, until, plans.clone()) => Some(answer),
                };
                heard.lock().expect("nobody panics").calls[place].ended = Some(clock::wall().0);
                let Some(answer) = answer else { break };
                if writing.write_all(answer.as_bytes()).await.is_err() {
                    break;
                }
            }
            _ => panic!("instance {who} says {text}"),
        }
        text.clear();
    }
}

impl Heard {
    fn begin(&mut self, seen: Seen) -> (usize, Option<Duration>) {
        self.calls.push(seen);
        let until = self.until_once.take();
        if until.is_some() {
            self.said_until = Some((seen.who, clock::wall().0));
        }
        (self.calls.len() - 1, until)
    }
}

async fn answer(who: u32, until: Option<Duration>, mut plans: watch::Receiver<Plan>) -> String {
    if let Some(wait) = until {
        return format!("until {}\n", wait.as_millis());
    }
    loop {
        let conduct = {
            let plan = plans.borrow_and_update();
            plan.of_one.get(&who).copied().or(plan.of_others)
        };
        match conduct {
            Some(Conduct::Well) => return "well\n".to_owned(),
            Some(Conduct::Fails) => return "fails\n".to_owned(),
            Some(Conduct::Erratic) => {
                tokio::time::sleep(Duration::from_micros(fastrand::u64(..10_000))).await;
                match fastrand::u32(..20) {
                    0..12 => return "well\n".to_owned(),
                    12..17 => return "fails\n".to_owned(),
                    17..19 => std::future::pending().await,
                    _ => return "given-up\n".to_owned(),
                }
            }
            Some(Conduct::Held) | None => plans.changed().await.expect("the destination is there"),
        }
    }
}

pub(crate) fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().ok().unwrap_or_else(|| panic!("{text} is no number"))
}
