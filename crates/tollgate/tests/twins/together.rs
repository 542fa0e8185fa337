//! Asks that travel together: the same answers as one by one, in the order they came.

use std::fmt::Write as _;

use tollgate::Algorithm;
use tollgate::core::algorithm::fixed_window::Windows;
use tollgate::core::check::Check;
use tollgate::core::decision::{Decision, Outcome, Verb};
use tollgate::core::store::Store;
use tollgate::{Cost, Micros};

use super::History;
use crate::world::Named;

/// One ask of several: which keys, under which limits, at what cost.
type Drawn = Vec<(usize, Algorithm, u32)>;

/// How far from the edge of the windows that are sent along a calendar may be asked for. An ask beyond
/// it is asked again, and so comes after those it travelled with.
const EDGE: u64 = 2_000_000;

impl History<'_> {
    pub(super) async fn take_together(&mut self) {
        let asks_max = match self.rng.u32(..20) {
            0 => 300,
            1..5 => 60,
            _ => 12,
        };
        let drawn: Vec<Drawn> = (0..self.rng.usize(2..=asks_max)).map(|_| self.draw_ask()).collect();
        let asks: Vec<Vec<Check<'_>>> = drawn.iter().map(|ask| checks_of(&self.keys, ask)).collect();
        let expected: Vec<Vec<Decision>> =
            asks.iter().map(|checks| self.reference.visit(checks, Micros(self.now), Verb::Take)).collect();
        let answered = testkit::together(asks.iter().map(|checks| self.store.take(checks))).await;
        drop(asks);

        let _ = writeln!(self.told, "{} Take together {drawn:?}", self.now);
        for (at, (answered, expected)) in answered.into_iter().zip(&expected).enumerate() {
            match answered {
                Ok(answered) if *answered == **expected => {}
                Ok(answered) => {
                    let answered = answered.to_vec();
                    self.fail(&format!("ask {at}: Redis answers {answered:?}\nRust answers  {expected:?}"));
                }
                Err(error) => self.fail(&format!("ask {at}: {error}")),
            }
        }
        for (ask, decisions) in drawn.into_iter().zip(&expected) {
            if decisions.iter().all(|one| one.outcome == Outcome::Allowed) {
                let taken = ask.into_iter().zip(decisions);
                self.takes.extend(taken.map(|((at, limit, cost), one)| (at, limit, cost, one.take)));
            }
        }
    }

    /// Mostly of one check; now and then under a limit that was just changed, or is about to be.
    fn draw_ask(&mut self) -> Drawn {
        let mut picked: Vec<usize> = (0..self.keys.len()).collect();
        self.rng.shuffle(&mut picked);
        picked.truncate(if self.rng.u32(..4) == 0 { self.rng.usize(1..=6) } else { 1 });
        let ask = picked.into_iter().map(|at| {
            let mut algorithm = self.keys[at].algorithm.clone();
            if self.rng.u32(..16) == 0 || self.is_at_an_edge(&algorithm) {
                algorithm = self.limits.redraw(&mut self.rng, &algorithm);
            }
            let cost = self.cost(at).min(algorithm.limit().saturating_add(1));
            (at, algorithm, cost)
        });
        let mut ask: Drawn = ask.collect();
        ask.retain(|(_, algorithm, _)| !self.is_at_an_edge(algorithm));
        if ask.is_empty() { self.draw_ask() } else { ask }
    }

    fn is_at_an_edge(&self, algorithm: &Algorithm) -> bool {
        let Algorithm::FixedWindow(window) = algorithm else { return false };
        let Windows::Calendar(calendar) = window.windows() else { return false };
        let bounds = calendar.around(tollgate::clock::wall());
        !(bounds.previous.0 + EDGE..bounds.end.0 - EDGE).contains(&self.now)
    }
}

fn checks_of<'a>(keys: &'a [Named], ask: &'a Drawn) -> Vec<Check<'a>> {
    let check = |(at, algorithm, cost): &'a (usize, Algorithm, u32)| Check {
        key: keys[*at].key(),
        algorithm,
        cost: Cost::new(*cost).expect("never zero"),
    };
    ask.iter().map(check).collect()
}
