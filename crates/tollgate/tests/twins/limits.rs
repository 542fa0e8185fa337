//! Random limits that lie where arithmetic breaks: the smallest, the largest, and the odd.

use std::sync::Arc;

use fastrand::Rng;
use tollgate::calendar::{CalendarUnit, ZonedCalendar};
use tollgate::core::algorithm::Calendar;
use tollgate::core::limit::SPAN_MAX;
use tollgate::{Algorithm, Kind, LimitError, Micros, Rate};

/// Spans and counts to draw from, and calendars, which are dear to build.
#[derive(Debug)]
pub(crate) struct Limits {
    calendars: Vec<Arc<dyn Calendar>>,
}

/// The longest log in a history, so that a hundred thousand histories stay affordable.
const LOG_MAX: u32 = 40;

/// A log whose entries need several ZADDs.
const LOG_LONG: u32 = 2_500;

impl Limits {
    pub(crate) fn new() -> Limits {
        let calendars = [
            (CalendarUnit::Day, "Europe/Berlin"),
            (CalendarUnit::Week, "America/New_York"),
            (CalendarUnit::Month, "Asia/Kathmandu"),
            (CalendarUnit::Month, "UTC"),
            (CalendarUnit::Day, "Australia/Lord_Howe"),
        ]
        .into_iter()
        .map(|(unit, zone)| -> Arc<dyn Calendar> {
            Arc::new(ZonedCalendar::try_new(unit, zone).expect("a zone of the database"))
        })
        .collect();
        Limits { calendars }
    }

    /// A limit of one kind.
    pub(crate) fn draw(&self, rng: &mut Rng, kind: Kind) -> Algorithm {
        match kind {
            Kind::TokenBucket => bucket(rng),
            Kind::SlidingLog => {
                let count = if rng.u32(..200) == 0 { LOG_LONG } else { rng.u32(1..=LOG_MAX) };
                let log = by_rate(kind, count, span(rng));
                with_lease(rng, log)
            }
            Kind::FixedWindow if rng.u32(..3) == 0 => {
                let calendar = Arc::clone(&self.calendars[rng.usize(..self.calendars.len())]);
                Algorithm::by_calendar(count(rng), calendar).expect("a count of at least one")
            }
            Kind::SlidingWindow | Kind::FixedWindow => by_rate(kind, count(rng), span(rng)),
        }
    }

    /// The same limit with one thing changed, as an edit of a policy would.
    pub(crate) fn redraw(&self, rng: &mut Rng, old: &Algorithm) -> Algorithm {
        let span = match old {
            Algorithm::SlidingLog(log) if log.lease() > Micros::ZERO && rng.u32(..3) > 0 => {
                let is_ahead = log.books_ahead() > Micros::ZERO;
                return if is_ahead { old.clone().leased(log.lease()) } else { old.ahead() };
            }
            Algorithm::SlidingLog(log) => Some(log.span()),
            Algorithm::SlidingWindow(window) => Some(window.span()),
            Algorithm::TokenBucket(_) | Algorithm::FixedWindow(_) => None,
        };
        match span {
            Some(span) if rng.bool() => {
                let most = if old.kind() == Kind::SlidingLog { LOG_MAX } else { u32::MAX };
                let count = old.limit().saturating_mul(rng.u32(1..4)) / rng.u32(1..4);
                by_rate(old.kind(), count.clamp(1, most), span)
            }
            _ => self.draw(rng, old.kind()),
        }
    }
}

fn by_rate(kind: Kind, count: u32, span: Micros) -> Algorithm {
    let rate = Rate::try_new(count, span).expect("a count and a span within bounds");
    Algorithm::try_new(kind, rate, None, LOG_LONG).expect("a limit within bounds")
}

/// A log of which tokens may be taken ahead, or one of which they may not.
fn with_lease(rng: &mut Rng, log: Algorithm) -> Algorithm {
    let longest = (log.window().0 / 50).min(1_000_000);
    if longest == 0 || rng.bool() {
        return log;
    }
    let lease = if rng.bool() { longest } else { rng.u64(1..=longest) };
    let log = log.leased(Micros(lease));
    if rng.bool() { log.ahead() } else { log }
}

/// One that fits, and often the largest that does.
fn bucket(rng: &mut Rng) -> Algorithm {
    loop {
        let rate = Rate::try_new(count(rng), span(rng)).expect("a count and a span within bounds");
        let burst = match rng.u32(..4) {
            0 => rate.count(),
            1 => u32::MAX,
            _ => count(rng),
        };
        match Algorithm::try_new(Kind::TokenBucket, rate, Some(burst), 1) {
            Ok(algorithm) => return algorithm,
            Err(LimitError::NotExact { burst_max, .. }) if burst_max > 0 => {
                let burst = u32::try_from(burst_max).expect("less than a burst that was too much");
                return Algorithm::try_new(Kind::TokenBucket, rate, Some(burst), 1)
                    .expect("the largest burst that fits fits");
            }
            Err(_) => {}
        }
    }
}

fn count(rng: &mut Rng) -> u32 {
    match rng.u32(..10) {
        0..4 => rng.u32(1..=5),
        4..6 => rng.u32(1..=1_000),
        6 => u32::MAX - rng.u32(..3),
        _ => 1 + (rng.u32(..) >> rng.u32(..32)).min(u32::MAX - 1),
    }
}

fn span(rng: &mut Rng) -> Micros {
    const USUAL: [u64; 10] = [
        1_000,
        250_000,
        1_000_000,
        10_000_000,
        60_000_000,
        61_000_000,
        3_600_000_000,
        86_400_000_000,
        2_592_000_000_000,
        SPAN_MAX.0,
    ];
    Micros(match rng.u32(..10) {
        0 => rng.u64(1..=10),
        1..6 => USUAL[rng.usize(..USUAL.len())],
        // A prime near a second: nothing divides it.
        6 => 999_983,
        _ => {
            let most = SPAN_MAX.0 >> rng.u32(..45);
            rng.u64(1..=most.max(2))
        }
    })
}
