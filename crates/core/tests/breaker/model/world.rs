//! The world around the step: messages under way, time, and an account of its own.

use std::collections::BTreeSet;

use tollgate_core::breaker::{
    Answer, Breaker, Counts, Event, Health, Outcome, Permille, Phase, Record, Report, Settings, Stance, Step,
    Window,
};
use tollgate_core::units::Micros;

use super::mutants::Mutant;

/// Time passes in these.
pub(super) const TICK: Micros = Micros::SECOND;

/// Instances.
pub(super) const INSTANCES: u64 = 3;
/// Probes in the whole fleet at a time.
const PROBES: u32 = 2;
/// Successes that end HalfOpen.
const SUCCESSES: u32 = 2;
/// Leases that may be asked for in one epoch. The next one begins with the same names again.
pub(super) const TOKENS: u64 = 3;
/// Messages under way at a time.
const MESSAGES: usize = 2;
/// Calls a window may hold before no more reports come in.
const CALLS: u64 = 3;
/// How long a lease lasts, in ticks.
const PROBE_TICKS: u64 = 2;
/// How long Open, a probe that nobody hears of and a ramp take at the most, in ticks, and one to begin.
const RECOVERY_TICKS: u64 = 2 + PROBE_TICKS + 2 + 1;

pub(super) fn breaker() -> Breaker {
    Breaker::try_new(Settings {
        failures: Some(2),
        failure_ratio: Some(Permille(500)),
        slow_ratio: None,
        slow_after: Micros::ZERO,
        window: Window::Time(TICK + TICK),
        minimum_calls: 2,
        quorum: Permille(600),
        open_for: TICK,
        open_max: TICK + TICK,
        jitter: Permille(0),
        decay_every: Micros::from_secs(86_400),
        hint_max: Micros::ZERO,
        probes: PROBES,
        probe_for: Micros(TICK.0 * PROBE_TICKS),
        successes_to_close: SUCCESSES,
        ramp: vec![Permille(500)],
        ramp_step: TICK + TICK,
    })
    .expect("settings of a test's")
}

/// What is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Message {
    pub what: What,
    /// The epoch it says it is of.
    pub epoch: u64,
    /// When it was born, by the world's own count.
    pub generation: u64,
}

/// What a message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum What {
    /// One call of an instance's went well.
    Well(u64),
    /// One call of an instance's failed, and it was not the first.
    Failing(u64),
    /// A probe went well.
    Succeeded(u64),
    /// A probe failed.
    Failed(u64),
    /// A lease was not used.
    Returned(u64),
}

/// What can happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Time passes.
    Tick,
    /// An instance's calls end; what it says of them is under way.
    Call(u64, Health),
    /// Somebody asks for a lease. It may have been asked for already: the answer was late.
    Lease(u64),
    /// Whoever has this lease says what came of it; or nobody does, and it was a crash.
    Probe(What),
    /// A message arrives; it may arrive again.
    Arrive(usize, Again),
    /// A message is lost.
    Lose(usize),
    /// Redis loses its data.
    Forget,
}

/// Whether a message that arrives is still under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    Yes,
    No,
}

/// A lease by the world's own account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Leased {
    pub token: u64,
    /// When it ends.
    pub ends: Micros,
    /// It was settled or returned.
    pub is_over: bool,
    /// What came of it was said.
    pub is_told: bool,
}

#[derive(Debug, Clone)]
pub(super) struct World {
    pub now: Micros,
    pub record: Record,
    /// Sorted: the order in which they left means nothing.
    pub messages: Vec<Message>,
    /// How often something changed, or everything was lost.
    pub generation: u64,
    /// Leases of this generation.
    pub leased: Vec<Leased>,
    /// Probes of this generation that went well.
    pub successes: u32,
    /// When Open ends.
    pub open_until: Option<Micros>,
}

impl World {
    pub(super) fn new(breaker: &Breaker, mutant: Mutant) -> World {
        let mut world = World {
            now: Micros(1_000_000 * TICK.0),
            record: Record::default(),
            messages: Vec::new(),
            generation: 0,
            leased: Vec::new(),
            successes: 0,
            open_until: None,
        };
        mutant.step(breaker, &mut world.record, &Event::Look, world.now);
        world
    }

    /// Everything that can happen next.
    pub(super) fn actions(&self) -> Vec<Action> {
        let mut actions = vec![Action::Tick, Action::Forget];
        for at in 0..self.messages.len() {
            let is_counted = !matches!(self.messages[at].what, What::Well(_) | What::Failing(_))
                || self.record.window.total().calls() < CALLS;
            if is_counted {
                actions.extend([Action::Arrive(at, Again::No), Action::Arrive(at, Again::Yes)]);
            }
            actions.push(Action::Lose(at));
        }
        if self.messages.len() < MESSAGES {
            if matches!(self.record.phase, Phase::Closed { .. } | Phase::Ramping { .. }) {
                for instance in 0..INSTANCES {
                    let both = [Health::Well, Health::Failing];
                    actions.extend(both.map(|health| Action::Call(instance, health)));
                }
            }
            for leased in self.leased.iter().filter(|leased| !leased.is_told) {
                let told = [What::Succeeded, What::Failed, What::Returned];
                actions.extend(told.map(|what| Action::Probe(what(leased.token))));
            }
        }
        if !matches!(self.record.phase, Phase::Closed { .. } | Phase::Ramping { .. }) {
            // A name is not used again in its epoch, but it may be asked for again while its lease is out.
            actions.extend(self.live().map(|leased| Action::Lease(leased.token)));
            let next = self.leased.len() as u64;
            actions.extend((next < TOKENS).then_some(Action::Lease(next)));
        }
        actions
    }

    /// Does it, and says what is not as it should be.
    pub(super) fn act(&mut self, breaker: &Breaker, mutant: Mutant, action: Action) -> Result<(), String> {
        match action {
            Action::Tick => {
                self.now = self.now + TICK;
                self.step(breaker, mutant, &Event::Look).map(drop)
            }
            Action::Forget => {
                self.record = Record::default();
                // It takes a moment to come back.
                self.now = self.now + TICK;
                self.changed(None);
                self.step(breaker, mutant, &Event::Look).map(drop)
            }
            Action::Call(instance, health) => {
                let what =
                    if health == Health::Well { What::Well(instance) } else { What::Failing(instance) };
                self.send(what);
                Ok(())
            }
            Action::Probe(what) => {
                self.send(what);
                let token = token_of(what);
                self.leased
                    .iter_mut()
                    .filter(|one| Some(one.token) == token)
                    .for_each(|one| one.is_told = true);
                Ok(())
            }
            Action::Lease(token) => self.lease(breaker, mutant, token),
            Action::Lose(at) => {
                self.messages.remove(at);
                Ok(())
            }
            Action::Arrive(at, again) => {
                let message = self.messages[at];
                if again == Again::No {
                    self.messages.remove(at);
                }
                self.arrive(breaker, mutant, message)
            }
        }?;
        self.check()
    }

    fn send(&mut self, what: What) {
        self.messages.push(Message { what, epoch: self.record.epoch, generation: self.generation });
        self.messages.sort_unstable();
    }

    /// One step of the breaker, and what of it changes the account.
    fn step(&mut self, breaker: &Breaker, mutant: Mutant, event: &Event) -> Result<Step, String> {
        let step = mutant.step(breaker, &mut self.record, event, self.now);
        for transition in &step.transitions {
            if let (Some(until), Stance::Open { .. }) = (self.open_until, transition.from)
                && self.now < until
            {
                return Err(format!("open is left at {} and not at {until}", self.now));
            }
            self.changed(match transition.to {
                Stance::Open { left } => Some(self.now + left),
                _ => None,
            });
        }
        Ok(step)
    }

    fn changed(&mut self, open_until: Option<Micros>) {
        self.generation += 1;
        self.leased.clear();
        self.successes = 0;
        self.open_until = open_until;
    }

    fn live(&self) -> impl Iterator<Item = &Leased> {
        self.leased.iter().filter(|leased| !leased.is_over && leased.ends > self.now)
    }

    fn lease(&mut self, breaker: &Breaker, mutant: Mutant, token: u64) -> Result<(), String> {
        let step = self.step(breaker, mutant, &Event::Lease { token })?;
        let is_live = self.live().any(|leased| leased.token == token);
        let is_full = self.live().count() >= PROBES as usize;
        match step.answer {
            Answer::Granted { left } if is_live || !is_full => {
                let (ends, is_told) = (self.now + left, false);
                match self.leased.iter_mut().find(|leased| leased.token == token) {
                    Some(leased) if leased.ends != ends => return Err("one lease has two ends".to_owned()),
                    Some(_) => {}
                    None => self.leased.push(Leased { token, ends, is_over: false, is_told }),
                }
                Ok(())
            }
            Answer::Full { .. } if is_full && !is_live => Ok(()),
            Answer::Moot if !matches!(self.record.phase, Phase::HalfOpen { .. }) => Ok(()),
            answer => Err(format!("{answer:?} to a lease while {} are out", self.live().count())),
        }
    }

    fn arrive(&mut self, breaker: &Breaker, mutant: Mutant, message: Message) -> Result<(), String> {
        // What time alone would have done.
        let mut elapsed = self.clone();
        elapsed.step(breaker, Mutant::None, &Event::Look)?;
        let lease = token_of(message.what).map(|token| elapsed.live().any(|one| one.token == token));
        let is_late = message.generation != elapsed.generation || lease == Some(false);
        let before = self.successes;

        let step = self.step(breaker, mutant, &message.event())?;
        if is_late {
            if self.record != elapsed.record || self.generation != elapsed.generation {
                return Err(format!(
                    "a late {:?} has decided something: {:?}",
                    message.what, step.transitions
                ));
            }
            return Ok(());
        }
        if self.generation == elapsed.generation {
            self.end_lease(message.what);
        }
        match message.what {
            What::Succeeded(_) if before + 1 < SUCCESSES => self.successes = before + 1,
            What::Succeeded(_) if matches!(self.record.phase, Phase::Ramping { .. }) => {}
            What::Failed(_) if matches!(self.record.phase, Phase::Open { .. }) => {}
            What::Returned(_) | What::Well(_) | What::Failing(_) => {}
            what => return Err(format!("{what:?} after {before} leads to {:?}", self.record.phase)),
        }
        Ok(())
    }

    fn end_lease(&mut self, what: What) {
        let token = token_of(what);
        self.leased.iter_mut().filter(|one| Some(one.token) == token).for_each(|one| one.is_over = true);
    }

    /// What holds of every state.
    fn check(&self) -> Result<(), String> {
        let out: BTreeSet<(u64, Micros)> = self.live().map(|one| (one.token, one.ends)).collect();
        if out.len() > PROBES as usize {
            return Err(format!("{} leases are out", out.len()));
        }
        let live = self.record.leases.iter().filter(|(_, ends)| **ends > self.now);
        let held: BTreeSet<(u64, Micros)> = live.map(|(token, ends)| (*token, *ends)).collect();
        if held != out {
            return Err(format!("leases {held:?} in the record, and {out:?} are out"));
        }
        match self.record.phase {
            Phase::HalfOpen { successes } if successes != self.successes => {
                Err(format!("{successes} successes are counted, and there were {}", self.successes))
            }
            Phase::Open { until, .. } if Some(until) != self.open_until => {
                Err(format!("open until {until} and not {:?}", self.open_until))
            }
            _ => Ok(()),
        }
    }
}

impl Message {
    fn event(self) -> Event {
        let Message { what, epoch, .. } = self;
        let report =
            |reporter, counts, health| Event::Report(Report { reporter, epoch, counts, health, hint: None });
        let settle = |token, outcome| Event::Settle { token, epoch, outcome, hint: None };
        match what {
            What::Well(reporter) => report(reporter, Counts { ok: 1, failed: 0, slow: 0 }, Health::Well),
            What::Failing(reporter) => {
                report(reporter, Counts { ok: 0, failed: 1, slow: 0 }, Health::Failing)
            }
            What::Succeeded(token) => settle(token, Outcome::Success),
            What::Failed(token) => settle(token, Outcome::Failure),
            What::Returned(token) => Event::Return { token, epoch },
        }
    }
}

fn token_of(what: What) -> Option<u64> {
    match what {
        What::Succeeded(token) | What::Failed(token) | What::Returned(token) => Some(token),
        What::Well(_) | What::Failing(_) => None,
    }
}

/// From here on all calls go well and all messages arrive: it is Closed in time, whatever was before.
pub(super) fn recovers(
    breaker: &Breaker,
    mutant: Mutant,
    record: &Record,
    now: Micros,
) -> Result<(), String> {
    let mut record = record.clone();
    for tick in 0..=RECOVERY_TICKS {
        let now = now + Micros(tick * TICK.0);
        for probe in 0..u64::from(SUCCESSES) {
            // A name that nobody has used.
            let token = 1_000 + tick * 10 + probe;
            let lease = mutant.step(breaker, &mut record, &Event::Lease { token }, now);
            if matches!(lease.answer, Answer::Granted { .. }) {
                let what = What::Succeeded(token);
                let event = Message { what, epoch: lease.view.epoch, generation: 0 }.event();
                mutant.step(breaker, &mut record, &event, now);
            }
        }
        let event = Message { what: What::Well(0), epoch: record.epoch, generation: 0 }.event();
        mutant.step(breaker, &mut record, &event, now);
        if matches!(record.phase, Phase::Closed { .. }) {
            return Ok(());
        }
    }
    Err(format!("all goes well, and no lease leads to Closed within {RECOVERY_TICKS} ticks: {record:?}"))
}
