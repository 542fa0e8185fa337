//! Which asks travel together: those of one slot, in the order they came, as many as there is room for.

use tokio::sync::oneshot::Receiver;
use tollgate_core::algorithm::{Algorithm, Kind};
use tollgate_core::check::Check;
use tollgate_core::key::{Key, Scope};
use tollgate_core::limit::Rate;
use tollgate_core::units::Cost;

use super::super::config::RedisConfig;
use super::super::part::Asked;
use super::super::request::Naming;
use super::super::url::RedisUrl;
use super::*;

/// Asks that wait, and those who wait for them.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    callers: Vec<Option<Receiver<Result<Told, StoreError>>>>,
}

impl Queue {
    /// Asks of these slots, each of so many checks of a key that says which ask it is.
    fn of(asks: &[(Option<u16>, usize)]) -> Queue {
        let mut queue = Queue::default();
        for (at, &(slot, checks)) in asks.iter().enumerate() {
            let subject = at.to_string();
            let (done, caller) = oneshot::channel();
            let part = Part { slot, ..part(&subject, checks) };
            queue.waiting.push_back(Waiting { part, done });
            queue.callers.push(Some(caller));
        }
        queue
    }

    /// Which asks make up the next call.
    fn next(&mut self, checks_max: usize) -> Option<Vec<usize>> {
        let batch = Batch::form(&mut self.waiting, checks_max, &Functions::new(true))?;
        Some(batch.asks.iter().map(|ask| number_of(&ask.part)).collect())
    }

    /// Which asks make up each call.
    fn all(mut self, checks_max: usize) -> Vec<Vec<usize>> {
        std::iter::from_fn(|| self.next(checks_max)).collect()
    }
}

fn part(subject: &str, checks: usize) -> Part {
    let rate = Rate::parse("10/min").expect("a rate");
    let algorithm = Algorithm::try_new(Kind::SlidingWindow, rate, None, 0).expect("a limit");
    let scope = Scope::of_rule("api", 0, Kind::SlidingWindow);
    let key = Key { scope: &scope, subject: subject.as_bytes() };
    let checks = vec![Check { key, algorithm: &algorithm, cost: Cost::ONE }; checks];
    let config = RedisConfig::new(RedisUrl::parse("redis://localhost").expect("a URL"));
    Naming::new(&config).part(&checks, Micros::ZERO)
}

/// Which ask it is, by its key.
fn number_of(part: &Part) -> usize {
    let Asked::Checks(checks) = &part.asked else { panic!("not a bucket") };
    let key = String::from_utf8(checks[0].key.clone()).expect("text");
    let number = key.split(['{', '}']).nth(1).expect("a subject");
    number.parse().expect("a number")
}

#[test]
fn without_slots_all_travel_together_as_far_as_there_is_room() {
    let asks = vec![(None, 1); 5];
    assert_eq!(Queue::of(&asks).all(128), [[0, 1, 2, 3, 4].to_vec()]);
    assert_eq!(Queue::of(&asks).all(2), [vec![0, 1], vec![2, 3], vec![4]]);
    assert_eq!(Queue::of(&asks).all(1), [[0], [1], [2], [3], [4]]);
}

#[test]
fn asks_of_different_slots_do_not_travel_together() {
    let asks = [7, 9, 7, 8, 9, 7].map(|slot| (Some(slot), 1));
    assert_eq!(Queue::of(&asks).all(128), [vec![0, 2, 5], vec![1, 4], vec![3]]);
    assert_eq!(Queue::of(&asks).all(2), [vec![0, 2], vec![1, 4], vec![3], vec![5]]);
}

/// A small ask that came later may be for the same key.
#[test]
fn an_ask_without_room_is_overtaken_by_none_of_its_slot() {
    let asks = [(Some(7), 2), (Some(9), 1), (Some(7), 3), (Some(7), 1), (Some(9), 1)];
    assert_eq!(Queue::of(&asks).all(4), [vec![0], vec![1, 4], vec![2, 3]]);
}

#[test]
fn an_ask_with_too_many_checks_has_its_turn_alone() {
    let asks = [(None, 1), (None, 9), (None, 1)];
    assert_eq!(Queue::of(&asks).all(4), [[0], [1], [2]]);
}

#[test]
fn those_whose_callers_have_gone_are_left_out() {
    let mut queue = Queue::of(&[7, 7, 9, 7].map(|slot| (Some(slot), 1)));
    for gone in [0, 3] {
        queue.callers[gone] = None;
    }
    assert_eq!(queue.next(128), Some(vec![1]));
    queue.callers[2] = None;
    assert_eq!(queue.next(128), None);
    assert!(queue.waiting.is_empty());
}
