//! P1: between any two admitted instants, no more than was promised. What was given back is not counted.

use std::collections::BTreeMap;

use tollgate_core::algorithm::sliding_window::{self, SlidingWindow, State};
use tollgate_core::decision::{Outcome, Verb};
use tollgate_core::limit::Rate;
use tollgate_core::units::{Cost, Micros};

use crate::histories::pairs::{FixedWindows, Pair, SlidingLogs, SlidingWindows, TokenBuckets};
use crate::histories::{Admitted, Weather, walk_many};
use crate::models::fixed_window::Windows;

const OPERATIONS: u64 = 300;

/// Calls `holds` with what was admitted from each admitted instant to each later one, and the time between.
fn between_any_two(admitted: &[Admitted], holds: impl Fn(u128, u128) -> bool) {
    for (index, first) in admitted.iter().enumerate() {
        let mut sum = 0;
        for last in &admitted[index..] {
            sum += u128::from(last.cost);
            let elapsed = u128::from(last.at - first.at);
            assert!(holds(sum, elapsed), "{sum} admitted from {} to {}", first.at, last.at);
        }
    }
}

fn in_fair_weather<P: Pair>(histories: u64, after: impl Fn(&P::Limit, &[Admitted])) {
    walk_many::<P>(histories, OPERATIONS, |_| Weather::Fair, after);
}

fn token_bucket(histories: u64) {
    in_fair_weather::<TokenBuckets>(histories, |limit, admitted| {
        let (count, period) = (u128::from(limit.model.count), u128::from(limit.model.period));
        let capacity = u128::from(limit.model.capacity);
        between_any_two(admitted, |sum, elapsed| sum * period <= capacity * period + count * elapsed);
    });
}

fn sliding_log(histories: u64) {
    in_fair_weather::<SlidingLogs>(histories, |limit, admitted| {
        let (most, span) = (u128::from(limit.model.limit), u128::from(limit.model.span));
        between_any_two(admitted, |sum, elapsed| {
            sum * span <= most * (span + elapsed) && (elapsed >= span || sum <= most)
        });
    });
}

fn sliding_window(histories: u64) {
    in_fair_weather::<SlidingWindows>(histories, |limit, admitted| {
        let (most, span) = (u128::from(limit.model.limit), u128::from(limit.model.span));
        // Less than one more, and so, as calls are whole, at most the bound rounded up.
        between_any_two(admitted, |sum, elapsed| sum * span < most * (span + elapsed) + span);
    });
}

fn fixed_window(histories: u64) {
    in_fair_weather::<FixedWindows>(histories, |limit, admitted| {
        let most = u128::from(limit.model.limit);
        let mut per_window = BTreeMap::<_, u128>::new();
        for one in admitted {
            *per_window.entry(limit.model.windows.around(one.at)).or_default() += u128::from(one.cost);
        }
        assert!(per_window.values().all(|&count| count <= most), "{per_window:?} of {most}");
        if let Windows::Every(span) = limit.model.windows {
            let span = u128::from(span);
            between_any_two(admitted, |sum, elapsed| sum * span <= most * (2 * span + elapsed));
        }
    });
}

#[test]
fn token_bucket_admits_at_most_capacity_and_rate_times_time() {
    token_bucket(150);
}

#[test]
fn sliding_log_admits_at_most_its_limit_in_any_window() {
    sliding_log(150);
}

#[test]
fn sliding_window_admits_less_than_one_more() {
    sliding_window(150);
}

#[test]
fn fixed_window_admits_at_most_its_limit_per_window() {
    fixed_window(150);
}

#[test]
#[ignore = "campaign: 2 * 10^4 long histories of each algorithm"]
fn bound_campaign() {
    token_bucket(20_000);
    sliding_log(20_000);
    sliding_window(20_000);
    fixed_window(20_000);
}

/// Not a sample but all of them: every schedule of every small sliding window, over four windows, from
/// every state that any schedule leads to. The worst of each is kept and held to the bound.
#[test]
fn no_schedule_at_all_gets_more_out_of_a_small_sliding_window() {
    for (limit, span) in (1..=4).flat_map(|limit| (1..=6).map(move |span| (limit, span))) {
        let sliding = SlidingWindow::try_new(Rate::try_new(limit, Micros(span)).unwrap()).unwrap();
        let nothing = State { start: Micros::ZERO, current: 0, previous: 0 };
        let mut best = Schedules::from([(key(&nothing), 0)]);
        let mut at_each_time = Vec::new();
        for now in 0..3 * span {
            at_each_time.push(best.clone());
            best = one_microsecond(&sliding, &best, now);
        }
        for (from, reached) in (2 * span..).zip(&at_each_time[usize::try_from(2 * span).unwrap()..]) {
            let mut best: Schedules = reached.keys().map(|&state| (state, 0)).collect();
            for now in from..from + 4 * span {
                best = one_microsecond(&sliding, &best, now);
                let most = u64::from(*best.values().max().unwrap());
                let (limit, elapsed) = (u64::from(limit), now - from);
                assert!(
                    most * span < limit * (span + elapsed) + span,
                    "{most} from {from} to {now}: {limit}/{span}us"
                );
            }
        }
    }
}

/// By state (start, current, previous), the most that any schedule has admitted on its way there.
type Schedules = BTreeMap<(u64, u32, u32), u32>;

fn key(state: &State) -> (u64, u32, u32) {
    (state.start.0, state.current, state.previous)
}

/// Lets every schedule go on with every cost that passes at `now`, and with none.
fn one_microsecond(sliding: &SlidingWindow, schedules: &Schedules, now: u64) -> Schedules {
    let mut next = Schedules::new();
    for (&(start, current, previous), &admitted) in schedules {
        let state = State { start: Micros(start), current, previous };
        let mut reach = |state: &State, admitted: u32| {
            let most = next.entry(key(state)).or_insert(admitted);
            *most = admitted.max(*most);
        };
        reach(&state, admitted);
        for cost in 1..=sliding.limit() {
            let cost = Cost::new(cost).unwrap();
            let step = sliding_window::visit(sliding, Some(&state), Micros(now), cost, Verb::Take);
            if step.decision.outcome == Outcome::Allowed {
                reach(&step.spend.unwrap(), admitted + cost.get());
            }
        }
    }
    next
}
