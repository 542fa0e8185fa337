//! The figures of one failover.
//!
//! The bound: over any T, admitted ≤ C·(1+L) + r·(T+S) + F. What Redis admitted is dated by Redis, and all servers of a
//! campaign run on the clock of one machine. F is counted from the verdicts, so what Redis admitted is
//! held to the bound without it, which is stricter.

use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tollgate::clock;

use crate::clients::{Asked, CAPACITY, DEADLINE, RATE};
use crate::excess::worst_excess;

/// Answers that are further apart are of two outages, and one that stays so long is over.
const QUIET: Duration = Duration::from_millis(500);

/// What one failover did.
#[derive(Debug)]
pub(crate) struct Round {
    /// What Redis admitted in the worst interval beyond r·T.
    pub excess: f64,
    /// Tokens that were spent and came back with the new primary; unknown where two decided at a time.
    pub lost: Option<f64>,
    /// S.
    pub both: Duration,
    /// F.
    pub by_fallback: usize,
    /// The longest outage that a client saw, from the first answer that was not Redis' to the last.
    pub unavailable: Duration,
    /// From the promotion until Redis has answered every client, and goes on to.
    pub back: Duration,
    /// The longest check.
    pub longest: Duration,
    /// By how much a plain sleep of a deadline overslept.
    pub stall: Duration,
}

impl Round {
    /// `broke`: when the fault began. `promoted`: when another server said that it was primary.
    pub(crate) fn new(
        asked: &[Asked],
        broke: Instant,
        promoted: Instant,
        both: Duration,
        stall: Duration,
    ) -> Round {
        let admitted = asked.iter().filter(|asked| asked.is_by_redis() && asked.is_allowed);
        let clients = asked.iter().map(|asked| asked.client).max().unwrap_or_default() + 1;
        Round {
            excess: worst_excess(admitted.map(|asked| asked.decided_us).collect(), f64::from(RATE)),
            lost: both.is_zero().then(|| lost(asked)),
            both,
            by_fallback: asked.iter().filter(|asked| !asked.is_by_redis() && asked.is_allowed).count(),
            unavailable: (0..clients)
                .map(|client| unavailable(asked, client, broke))
                .max()
                .unwrap_or_default(),
            back: (0..clients).map(|client| back(asked, client, promoted)).max().unwrap_or_default(),
            longest: asked.iter().map(|asked| asked.answered - asked.at).max().unwrap_or_default(),
            stall,
        }
    }

    /// L: 1 where writes were lost, and where nobody can tell.
    pub(crate) fn losses(&self) -> u32 {
        u32::from(self.lost.is_none_or(|lost| lost > 0.0))
    }

    /// What the worst interval may hold beyond r·T, without F.
    pub(crate) fn bound(&self) -> f64 {
        f64::from(CAPACITY * (1 + self.losses())) + f64::from(RATE) * self.both.as_secs_f64()
    }
}

/// The longest outage of a client: from the first answer that was not Redis' to the last, where no more than
/// [`QUIET`] lies between two. So an ask that the machine held up an hour later is an outage of its own.
pub(crate) fn unavailable(asked: &[Asked], client: usize, since: Instant) -> Duration {
    let away = answered(asked, client, since, |asked| !asked.is_by_redis());
    let outages = away.chunk_by(|one, next| *next - *one <= QUIET);
    outages.map(|outage| outage[outage.len() - 1] - outage[0]).max().unwrap_or_default()
}

/// From `since` to the first answer of Redis' after which none but Redis' came for [`QUIET`]; to the end where there
/// is none.
pub(crate) fn back(asked: &[Asked], client: usize, since: Instant) -> Duration {
    let by_redis = answered(asked, client, since, Asked::is_by_redis);
    let away = answered(asked, client, since, |asked| !asked.is_by_redis());
    let stays = |at: &Instant| {
        let next = away.partition_point(|away| away <= at);
        away.get(next).is_none_or(|away| *away - *at > QUIET)
    };
    let end = by_redis.iter().chain(&away).max().copied().unwrap_or(since);
    by_redis.into_iter().find(stays).unwrap_or(end) - since
}

/// When answers of one kind came, in order.
fn answered(
    asked: &[Asked],
    client: usize,
    since: Instant,
    is_meant: impl Fn(&Asked) -> bool,
) -> Vec<Instant> {
    let own =
        asked.iter().filter(|asked| asked.client == client && asked.answered >= since && is_meant(asked));
    let mut answered: Vec<Instant> = own.map(|asked| asked.answered).collect();
    answered.sort();
    answered
}

/// How many tokens appeared that time had not brought. Takes without an answer hide as many as they spent.
///
/// What is left is told in whole tokens, so that a fraction of one may have been there unseen.
fn lost(asked: &[Asked]) -> f64 {
    let mut history: Vec<&Asked> = asked.iter().filter(|asked| asked.is_by_redis()).collect();
    // Of one microsecond, the one that found more came first.
    history.sort_by_key(|asked| (asked.decided_us, std::cmp::Reverse(asked.remaining)));
    let jumps = history.windows(2).map(|pair| {
        let passed = Duration::from_micros(pair[1].decided_us - pair[0].decided_us);
        let at_most = f64::from(pair[0].remaining) + 1.0 + passed.as_secs_f64() * f64::from(RATE);
        let found = pair[1].remaining + u32::from(pair[1].is_allowed);
        (f64::from(found) - at_most.min(f64::from(CAPACITY))).max(0.0)
    });
    jumps.sum()
}

/// By how much the machine itself oversleeps a deadline, at worst, until the task is stopped.
pub(crate) struct Stalls(JoinHandle<()>, std::sync::Arc<parking_lot::Mutex<Duration>>);

impl Stalls {
    /// Begins to sleep.
    pub(crate) fn watch() -> Stalls {
        let worst = std::sync::Arc::<parking_lot::Mutex<Duration>>::default();
        let its = std::sync::Arc::clone(&worst);
        let task = tokio::spawn(async move {
            loop {
                let begun = clock::instant();
                tokio::time::sleep(DEADLINE).await;
                let late = begun.elapsed().saturating_sub(DEADLINE);
                let mut worst = its.lock();
                *worst = worst.max(late);
            }
        });
        Stalls(task, worst)
    }

    /// The worst.
    pub(crate) fn worst(self) -> Duration {
        self.0.abort();
        *self.1.lock()
    }
}

#[cfg(test)]
mod tests {
    use tollgate::{OnOutage, Source};

    use super::*;

    fn asked(at_ms: u64, source: Source, is_allowed: bool, remaining: u32) -> Asked {
        let at = START.with(|start| *start) + Duration::from_millis(at_ms);
        Asked { client: 0, at, answered: at, is_allowed, source, decided_us: at_ms * 1000, remaining }
    }

    thread_local!(static START: Instant = clock::instant());

    #[test]
    fn tokens_that_time_did_not_bring_were_lost() {
        let mut history = vec![
            asked(0, Source::Store, true, 0),
            asked(1, Source::Store, false, 0),
            // A second away brings the rate; ten more were spent and came back.
            asked(1001, Source::Store, true, RATE + 9),
        ];
        assert!((lost(&history) - 9.0).abs() < 1e-6, "{}", lost(&history));
        history[2].remaining = RATE - 1;
        assert!(lost(&history).abs() < 1e-6);
    }

    #[test]
    fn a_client_is_back_when_redis_answers_and_goes_on_to() {
        let fallback = Source::Fallback(OnOutage::Local);
        let history = [
            asked(0, Source::Store, true, 0),
            asked(100, fallback, true, 0),
            asked(200, Source::Store, true, 0),
            asked(300, fallback, true, 0),
            asked(350, Source::Store, true, 0),
        ];
        let since = history[0].at + Duration::from_millis(150);
        assert_eq!(back(&history, 0, since), Duration::from_millis(200));
        assert_eq!(unavailable(&history, 0, history[0].at), Duration::from_millis(200));
        assert_eq!(back(&history[..4], 0, since), Duration::from_millis(150), "to the end, as it never was");
        let later = [&history[..], &[asked(5000, fallback, true, 0)]].concat();
        assert_eq!(back(&later, 0, since), Duration::from_millis(200), "that is another outage");
        assert_eq!(unavailable(&later, 0, later[0].at), Duration::from_millis(200));
    }
}
