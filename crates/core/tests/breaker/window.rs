//! Windows against the slow and obvious: every call kept, with the instant it was counted at.

use proptest::prelude::*;
use tollgate_core::breaker::{Breaker, Counts, Event, Health, Permille, Record, Window};
use tollgate_core::units::Micros;

use crate::stand::{EPOCH, NOW, closed, report, settings};

fn breaker(window: Window) -> Breaker {
    let mut settings = settings();
    // Nothing trips: what is counted is looked at from outside.
    (settings.failures, settings.failure_ratio) = (None, Some(Permille(1000)));
    (settings.slow_ratio, settings.window, settings.minimum_calls) = (None, window, 1);
    Breaker::try_new(settings).expect("settings of a test's")
}

fn deltas() -> impl Strategy<Value = Vec<(u64, Counts)>> {
    let counts = (1..20_u64, 0..5_u64, 0..5_u64).prop_map(|(ok, failed, slow)| Counts { ok, failed, slow });
    proptest::collection::vec((0..3_000_000_u64, counts), 1..60)
}

fn add(sum: &mut Counts, counts: Counts) {
    sum.ok += counts.ok;
    sum.failed += counts.failed;
    sum.slow += counts.slow;
}

/// Every delta kept.
struct Model {
    kept: Vec<(u64, Counts)>,
}

impl Model {
    /// Those counted in the same tenth of a window as now, or in one of the nine before.
    fn by_time(&self, now: u64, width: u64) -> Counts {
        let mut sum = Counts::default();
        let recent = self.kept.iter().filter(|(at, _)| at / width + 10 > now / width);
        recent.for_each(|(_, counts)| add(&mut sum, *counts));
        sum
    }
}

proptest! {
    #[test]
    fn a_window_by_time_looks_back_by_its_tenths(span in 1_000..20_000_000_u64, deltas in deltas()) {
        let breaker = breaker(Window::Time(Micros(span)));
        let (mut record, mut model, mut now) = (closed(), Model { kept: Vec::new() }, NOW.0);
        for (pause, counts) in deltas {
            now += pause;
            breaker.step(&mut record, &report(1, EPOCH, counts, Health::Well), Micros(now), Permille(0));
            model.kept.push((now, counts));
            prop_assert_eq!(record.window.total(), model.by_time(now, span.div_ceil(10)));
            prop_assert!(record.window.buckets.len() <= 10);
        }
    }

    /// As after a reload: what another window has counted is of no use to this one, and does not stay for ever.
    #[test]
    fn another_window_counts_from_where_it_begins(
        windows in proptest::collection::vec(
            prop_oneof![
                (1_000..20_000_000_u64).prop_map(|span| Window::Time(Micros(span))),
                (1..300_u32).prop_map(Window::Calls),
            ],
            2..4,
        ),
        deltas in deltas(),
    ) {
        let (mut record, mut now) = (closed(), NOW.0);
        for window in windows {
            let breaker = breaker(window);
            let mut counted = Vec::new();
            for (pause, counts) in &deltas {
                now += pause;
                breaker.step(&mut record, &report(1, EPOCH, *counts, Health::Well), Micros(now), Permille(0));
                counted.push((now, *counts));
                prop_assert!(record.window.buckets.is_sorted_by_key(|bucket| bucket.at));
            }
            let own = Model { kept: counted };
            match window {
                Window::Time(span) => {
                    prop_assert_eq!(record.window.total(), own.by_time(now, span.0.div_ceil(10)));
                }
                Window::Calls(calls) => {
                    let all: u64 = own.kept.iter().map(|(_, counts)| counts.calls()).sum();
                    let held = record.window.total().calls();
                    prop_assert!(held >= all.min(u64::from(calls)), "{} {} {}", held, all, calls);
                    prop_assert!(held <= all, "{} of {}", held, all);
                }
            }
        }
    }

    #[test]
    fn a_window_by_calls_holds_its_calls_and_at_most_the_last_bucket_more(
        calls in 1..300_u32,
        deltas in deltas(),
    ) {
        let breaker = breaker(Window::Calls(calls));
        let (mut record, mut all): (Record, Vec<Counts>) = (closed(), Vec::new());
        for (_, counts) in deltas {
            breaker.step(&mut record, &report(1, EPOCH, counts, Health::Well), NOW, Permille(0));
            all.push(counts);
            let held = record.window.total();
            let ever: u64 = all.iter().map(|counts| counts.calls()).sum();
            prop_assert!(held.calls() >= ever.min(u64::from(calls)), "{} of {ever}", held.calls());
            let oldest = record.window.buckets.first().map_or(0, |bucket| bucket.counts.calls());
            prop_assert!(held.calls() - oldest < u64::from(calls), "it could do without the oldest");
            prop_assert!(record.window.buckets.len() <= 11);
            // What is held is the end of what came, delta by delta.
            let mut sum = Counts::default();
            let is_suffix = all.iter().rev().any(|counts| { add(&mut sum, *counts); sum == held });
            prop_assert!(is_suffix, "{held:?} is no end of {all:?}");
        }
    }

    #[test]
    fn counts_saturate(ok in any::<u64>(), failed in any::<u64>(), slow in any::<u64>()) {
        let breaker = breaker(Window::Time(Micros::SECOND));
        let mut record = closed();
        for _ in 0..3 {
            let event = report(1, EPOCH, Counts { ok, failed, slow }, Health::Well);
            breaker.step(&mut record, &event, NOW, Permille(0));
        }
        let total = record.window.total();
        prop_assert!([total.ok, total.failed, total.slow].iter().all(|&n| u32::try_from(n).is_ok()));
        prop_assert!(breaker.step(&mut record, &Event::Look, NOW, Permille(0)).transitions.is_empty());
    }
}
