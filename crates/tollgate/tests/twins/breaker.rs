//! Random histories of one breaker through both twins: the same answers, views and changes.
//!
//! `TOLLGATE_SEED=n cargo test -p tollgate --test twins breaker` plays that one first.

use std::fmt::Write as _;

use fastrand::Rng;
use testkit::RedisServer;
use tollgate::Micros;
use tollgate::core::breaker::{
    Breaker, Counts, Event, Fleet, Health, Mode, Outcome, Permille, Phase, Record, Report, Settings, Step,
    Window,
};
use tollgate::store::redis::RedisStore;

use crate::world::{self, NOON, WAYS, Way};

/// Histories of each way in a normal run.
const HISTORIES: u64 = 400;

/// Histories in a campaign, both ways together.
const CAMPAIGN: u64 = 40_000;

#[tokio::test]
async fn breakers_do_the_same_by_function() {
    run(WAYS[0], HISTORIES).await;
}

#[tokio::test]
async fn breakers_do_the_same_by_script() {
    run(WAYS[1], HISTORIES).await;
}

#[tokio::test]
#[ignore = "campaign"]
async fn campaign_of_breakers_does_the_same() {
    let both = [WAYS[0], WAYS[1]].map(|way| tokio::spawn(run(way, CAMPAIGN / 2)));
    for way in both {
        way.await.expect("no history disagrees");
    }
}

#[expect(clippy::print_stdout, reason = "a campaign says what it did")]
async fn run(way: Way, histories: u64) {
    let first_seed = crate::history::seed().unwrap_or_else(|| fastrand::u64(..u64::MAX / 2));
    println!("breakers by {}: seeds from {first_seed}, {histories} histories", way.command());
    let server = world::frozen_redis().await;
    let store = world::store(&server, way);
    let (mut events, mut changes) = (0, 0);
    for seed in first_seed..first_seed + histories {
        let mut history = History::new(seed, &server, &store);
        for _ in 0..history.rng.u32(20..120) {
            history.pass_time();
            history.change_window();
            let step = history.happen().await;
            events += 1;
            changes += step.transitions.len();
        }
    }
    println!("breakers by {}: {events} events, {changes} changes", way.command());
    assert!(changes as u64 > histories, "hardly anything has changed: {changes}");
}

/// One history under way.
struct History<'a> {
    seed: u64,
    rng: Rng,
    server: &'a RedisServer,
    store: &'a RedisStore,
    breaker: Breaker,
    now: u64,
    record: Record,
    /// The last millisecond Redis has it.
    expires_ms: u64,
    /// When that was last put off.
    kept: u64,
    /// Epochs that were.
    epochs: Vec<u64>,
    told: String,
}

fn settings(rng: &mut Rng) -> Settings {
    let ratio = |rng: &mut Rng| Permille([1, 300, 500, 999, 1000][rng.usize(..5)]);
    let span = |rng: &mut Rng, most: u64| Micros(rng.u64(1..=most));
    let calls = rng.u32(1..60);
    let window = match rng.u32(..3) {
        0 => Window::Calls(calls),
        1 => Window::Time(Micros(rng.u64(1_000..100_000))),
        _ => Window::Time(Micros(rng.u64(1_000_000..20_000_000))),
    };
    let open_for = span(rng, 10_000_000);
    let mut ramp: Vec<Permille> = (0..rng.usize(..=8)).map(|_| Permille(rng.u16(1..=1000))).collect();
    ramp.sort_unstable();
    Settings {
        failures: rng.bool().then(|| rng.u32(1..6)),
        failure_ratio: Some(ratio(rng)),
        slow_ratio: rng.bool().then(|| ratio(rng)),
        slow_after: Micros::SECOND,
        window,
        minimum_calls: rng.u32(1..=calls),
        quorum: Permille([0, 1, 500, 600, 1000][rng.usize(..5)]),
        open_for,
        open_max: open_for + Micros(rng.u64(..200_000_000)),
        jitter: Permille([0, 1, 100, 1000][rng.usize(..4)]),
        decay_every: span(rng, 60_000_000),
        hint_max: if rng.bool() { Micros::ZERO } else { span(rng, 30_000_000) },
        probes: rng.u32(1..4),
        probe_for: span(rng, 5_000_000),
        successes_to_close: rng.u32(1..4),
        ramp,
        ramp_step: span(rng, 5_000_000),
    }
}

impl<'a> History<'a> {
    fn new(seed: u64, server: &'a RedisServer, store: &'a RedisStore) -> History<'a> {
        let mut rng = Rng::with_seed(seed);
        let settings = settings(&mut rng);
        let told = format!("{settings:?}\n");
        let breaker = Breaker::try_new(settings).expect("settings that can be");
        let now = NOON + rng.u64(..1_000_000_000);
        let (record, epochs) = (Record::default(), vec![0]);
        History { seed, rng, server, store, breaker, now, record, expires_ms: 0, kept: 0, epochs, told }
    }

    /// Most of the time a little, or none; now and then to where something is about to change.
    fn pass_time(&mut self) {
        let settings = self.breaker.settings();
        let now = self.now;
        let mut marks = vec![
            now + settings.window.width(),
            now + settings.window.reach(),
            now + settings.decay_every.0,
            now + settings.probe_for.0,
            now + settings.ramp_step.0,
        ];
        match self.record.phase {
            Phase::Open { until, .. } => marks.extend([until.0; 4]),
            Phase::Ramping { since } => marks.push((since + self.breaker.ramp_for()).0),
            Phase::Closed { since } => marks.push(since.0 + 1_000_000),
            Phase::HalfOpen { .. } => {}
        }
        marks.extend(self.record.leases.values().map(|ends| ends.0));
        marks.extend(self.record.overridden.iter().map(|standing| standing.until.0));
        let mark = marks[self.rng.usize(..marks.len())];
        let then = match self.rng.u32(..40) {
            0..14 => now,
            14..18 => now + self.rng.u64(..100_000),
            18..22 => now + self.rng.u64(..2_000_000),
            22..35 => (mark + self.rng.u64(..3)).saturating_sub(1).max(now),
            35 => now - self.rng.u64(..=1_000_000),
            36 => now - self.rng.u64(999_999..1_000_003),
            37 => now - self.rng.u64(1_000_001..30_000_000),
            38 => now + 60_000_000,
            _ => self.expires_ms.max(now / 1_000) * 1_000 + self.rng.u64(..3_000),
        };
        // Wherever the clock went, it came from this century.
        self.now = then.max(NOON - 3_600_000_000);
    }

    /// Now and then another window, as a reload brings. What it must last stays, or else the keys would not end
    /// together and the record would say less than the twin.
    fn change_window(&mut self) {
        if self.rng.u32(..12) > 0 {
            return;
        }
        let span = |window| if let Window::Time(span) = window { span.0 } else { 0 };
        let other = settings(&mut self.rng);
        let mut changed = self.breaker.settings().clone();
        let open_max = (changed.open_max.0 + span(changed.window)).checked_sub(span(other.window));
        let least = changed.open_for.max(changed.hint_max);
        let Some(open_max) = open_max.map(Micros).filter(|open_max| *open_max >= least) else { return };
        (changed.window, changed.minimum_calls) = (other.window, other.minimum_calls);
        (changed.open_max, changed.failures, changed.quorum) = (open_max, other.failures, other.quorum);
        if let Ok(breaker) = Breaker::try_new(changed)
            && breaker.keep_for() == self.breaker.keep_for()
        {
            let _ = writeln!(self.told, "{} {:?}", self.now, breaker.settings());
            self.breaker = breaker;
        }
    }

    fn event(&mut self) -> Event {
        let rng = &mut self.rng;
        let epoch = match rng.u32(..10) {
            0 => self.epochs[rng.usize(..self.epochs.len())],
            1 => self.record.epoch + 1,
            _ => self.record.epoch,
        };
        let token = rng.u64(..5);
        let hint = (rng.u32(..8) == 0).then(|| Micros(rng.u64(..40_000_000)));
        let is_half_open = matches!(self.record.phase, Phase::HalfOpen { .. });
        match rng.u32(..100) {
            0..45 if !is_half_open => Event::Report(self.report(epoch, hint)),
            0..25 | 60..75 => Event::Lease { token },
            25..50 => {
                let outcome =
                    [Outcome::Success, Outcome::Success, Outcome::Failure, Outcome::Slow][rng.usize(..4)];
                Event::Settle { token, epoch, outcome, hint }
            }
            50..60 => Event::Return { token, epoch },
            75..85 => Event::Report(self.report(epoch, hint)),
            85..88 => {
                let mode = [Mode::ForcedOpen, Mode::ForcedClosed, Mode::MetricsOnly][rng.usize(..3)];
                let keep_for = match rng.u32(..4) {
                    0 => Micros(u64::MAX / 4096),
                    1 => Micros::ZERO,
                    _ => Micros(rng.u64(1..20_000_000)),
                };
                let (reason, who) = ("because: it \u{fc}".to_owned(), format!("ann {token}"));
                Event::Override { mode, keep_for, reason, who }
            }
            88..90 => Event::Lift,
            _ => Event::Look,
        }
    }

    fn report(&mut self, epoch: u64, hint: Option<Micros>) -> Report {
        let rng = &mut self.rng;
        let count = |rng: &mut Rng| match rng.u32(..20) {
            0 => rng.u64(..100_000),
            1 => u64::from(u32::MAX) - rng.u64(..3),
            2..12 => 0,
            _ => rng.u64(..12),
        };
        let counts = Counts { ok: count(rng), failed: count(rng), slow: count(rng) };
        let health = [Health::Well, Health::Troubled, Health::Troubled, Health::Failing][rng.usize(..4)];
        Report { reporter: rng.u64(..6), epoch, counts, health, hint: hint.filter(|_| rng.bool()) }
    }

    async fn happen(&mut self) -> Step {
        let (event, dice) = (self.event(), Permille(self.rng.u16(..=1000)));
        let _ = writeln!(self.told, "{} {event:?} dice {}", self.now, dice.0);
        world::freeze(self.server, self.now);
        // What has expired is gone; that it was worth nothing is for `keep_for` to see to.
        if self.now / 1_000 > self.expires_ms {
            (self.record, self.kept) = (Record::default(), 0);
        }
        let is_stepped = self.record.seen > Micros(self.now) + Micros::SECOND;
        let expected = self.breaker.step(&mut self.record, &event, Micros(self.now), dice);
        let id = format!("b{{}}\u{0}{}", self.seed);
        let answered = match self.store.step(id.as_bytes(), &self.breaker, &event, dice).await {
            Ok(answered) => answered,
            Err(error) => self.fail(&error.to_string()),
        };
        if answered != expected {
            self.fail(&format!("Redis: {answered:#?}\nRust: {expected:#?}\n{:#?}", self.record));
        }
        self.keep(&expected, is_stepped);
        self.epochs.push(self.record.epoch);
        expected
    }

    /// Its life is lengthened with every change, after a clock was set back, and else once in an eighth of
    /// what it must last; then by as much more.
    fn keep(&mut self, step: &Step, is_stepped: bool) {
        let keep_ms = self.breaker.keep_for().as_millis_ceil();
        let now = self.record.seen.0;
        if step.transitions.is_empty() && !is_stepped && self.kept > 0 && now - self.kept < keep_ms * 125 {
            return;
        }
        let left = step.view.overridden.map_or(Micros::ZERO, |(_, left)| left);
        self.expires_ms = self.now / 1_000 + keep_ms + keep_ms.div_ceil(8) + left.as_millis_ceil();
        self.kept = now;
    }

    fn fail(&self, why: &str) -> ! {
        panic!("seed {}: {why}\n{}", self.seed, self.told);
    }
}
