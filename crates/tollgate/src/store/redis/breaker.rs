//! Breakers in Redis: one call of `breaker.lua` for each event.

use std::fmt::Write as _;
use std::sync::Arc;

use tollgate_core::breaker::{
    Answer, Breaker, COUNT_MAX, Cause, Counts, Event, Fleet, Health, Mode, Outcome, Permille, RAMP_MAX,
    Settings, Stance, Step, Transition, View, Window,
};
use tollgate_core::push::Listener;
use tollgate_core::store::{Store, StoreError};
use tollgate_core::units::{EXACT_MAX, Micros};

use super::RedisStore;
use super::classify::answered;
use super::cluster::slots::slot_of_key;
use super::part::double;
use super::reply::bad;
use super::request::{Naming, head};
use super::scripts::Called;
use super::topology::Lane;
use super::wire::{Reply, bulk, header};

/// The ends of a breaker's keys, in the order of the script's.
const ENDS: [&str; 7] = ["s", "w", "r", "t", "f", "p", "ev"];

/// Numbers for an answer and for a view, and then for each change.
const VIEW: usize = 7;
const CHANGE: usize = 11;

impl Fleet for RedisStore {
    async fn step(
        &self,
        id: &[u8],
        breaker: &Breaker,
        event: &Event,
        dice: Permille,
    ) -> Result<Step, StoreError> {
        let name = Naming::tag(id);
        let mut spot = self.spot_in(Lane::Thread(self.number()), || slot_of_key(&name)).await?;
        let now = self.now(&spot).await?;
        let words = words(event);
        let settings = pack(breaker.settings());
        let keep_ms = breaker.keep_for().as_millis_ceil();
        let prefix = &self.shared.config.key_prefix;
        let request = |called: Called<'_>| {
            let mut out = Vec::with_capacity(1024);
            header(&mut out, b'*', 3 + ENDS.len() + 7 + words.len());
            head(&mut out, called, ENDS.len());
            let mut text = String::with_capacity(96);
            for end in ENDS {
                text.clear();
                let _ = write!(text, "{prefix}:cb:{name}:{end}"); // writing to a String cannot fail
                bulk(&mut out, text.as_bytes());
            }
            let mut number = itoa::Buffer::new();
            bulk(&mut out, kind(event).as_bytes());
            bulk(&mut out, number.format(now.0).as_bytes());
            bulk(&mut out, number.format(dice.0).as_bytes());
            bulk(&mut out, &settings);
            bulk(&mut out, number.format(keep_ms).as_bytes());
            bulk(&mut out, self.channel().as_bytes());
            bulk(&mut out, name.as_bytes());
            for word in &words {
                bulk(&mut out, word);
            }
            out
        };
        read(self.call(&mut spot, self.shared.scripts.breaker(), request).await?)
    }

    /// Its hash tag: what is encoded or hashed in its keys is so here.
    fn name(&self, id: &[u8]) -> String {
        Naming::tag(id)
    }

    fn hear(&self, listener: Arc<dyn Listener>) {
        self.listen(listener);
        // Heartbeats see to it too, but who has breakers alone makes none.
        self.keep_listening();
    }

    fn is_listening(&self) -> bool {
        self.hearing.is_listening()
    }
}

fn kind(event: &Event) -> &'static str {
    match event {
        Event::Report(_) => "report",
        Event::Lease { .. } => "lease",
        Event::Settle { .. } => "settle",
        Event::Return { .. } => "return",
        Event::Override { .. } => "override",
        Event::Lift => "lift",
        Event::Look => "look",
    }
}

/// What an event says, word by word.
fn words(event: &Event) -> Vec<Vec<u8>> {
    let number = |number: u64| number.min(EXACT_MAX).to_string().into_bytes();
    let name = |name: u64| format!("{name:016x}").into_bytes();
    let hint = |hint: Option<Micros>| number(hint.unwrap_or(Micros::ZERO).0);
    match event {
        Event::Report(report) => {
            let Counts { ok, failed, slow } = report.counts;
            let count = |count: u64| number(count.min(COUNT_MAX));
            let health = match report.health {
                Health::Well => 0,
                Health::Troubled => 1,
                Health::Failing => 2,
            };
            let counts = [count(ok), count(failed), count(slow)];
            let mut words = vec![name(report.reporter), number(report.epoch)];
            words.extend(counts);
            words.extend([number(health), hint(report.hint)]);
            words
        }
        Event::Lease { token } => vec![name(*token)],
        Event::Settle { token, epoch, outcome, hint: said } => {
            let outcome = match outcome {
                Outcome::Success => 0,
                Outcome::Failure => 1,
                Outcome::Slow => 2,
            };
            vec![name(*token), number(*epoch), number(outcome), hint(*said)]
        }
        Event::Return { token, epoch } => vec![name(*token), number(*epoch)],
        Event::Override { mode, keep_for, reason, who } => {
            let mode = match mode {
                Mode::ForcedOpen => 1,
                Mode::ForcedClosed => 2,
                Mode::MetricsOnly => 3,
            };
            vec![number(mode), number(keep_for.0), reason.clone().into_bytes(), who.clone().into_bytes()]
        }
        Event::Lift | Event::Look => Vec::new(),
    }
}

/// The settings as doubles, in the order that `breaker.lua` lists them in.
fn pack(settings: &Settings) -> Vec<u8> {
    let ratio = |ratio: Option<Permille>| ratio.map_or(0, |Permille(ratio)| u64::from(ratio));
    let by_calls = u64::from(matches!(settings.window, Window::Calls(_)));
    let mut numbers = vec![
        settings.failures.map_or(0, u64::from),
        ratio(settings.failure_ratio),
        ratio(settings.slow_ratio),
        by_calls,
        settings.window.reach(),
        settings.window.width(),
        u64::from(settings.minimum_calls),
        u64::from(settings.quorum.0),
        settings.open_for.0,
        settings.open_max.0,
        u64::from(settings.jitter.0),
        settings.decay_every.0,
        settings.hint_max.0,
        u64::from(settings.probes),
        settings.probe_for.0,
        u64::from(settings.successes_to_close),
        settings.ramp_step.0,
        settings.ramp.len() as u64,
    ];
    numbers.extend((0..RAMP_MAX).map(|step| ratio(settings.ramp.get(step).copied())));
    numbers.into_iter().flat_map(|number| double(number).to_le_bytes()).collect()
}

fn read(reply: Reply) -> Result<Step, StoreError> {
    let items = match reply {
        Reply::Array(items) => items,
        Reply::Error(message) => return Err(answered(&message)),
        _ => return Err(bad("not an array")),
    };
    let numbers = items
        .into_iter()
        .map(|item| match item {
            Reply::Integer(number) => u64::try_from(number).map_err(|_| bad("a negative number")),
            _ => Err(bad("something that is not an integer")),
        })
        .collect::<Result<Vec<u64>, _>>()?;
    let Some((&[answer, span, epoch, phase, phase_span, mode, left], changes)) =
        numbers.split_first_chunk::<VIEW>()
    else {
        return Err(bad("an array of another length"));
    };
    let view = View::of_numbers([epoch, phase, phase_span, mode, left])
        .ok_or_else(|| bad("no view of a breaker"))?;
    let (changes, rest) = changes.as_chunks::<CHANGE>();
    if !rest.is_empty() {
        return Err(bad("an array of another length"));
    }
    let transitions = changes.iter().map(change).collect::<Option<_>>();
    Ok(Step {
        answer: match answer {
            0 => Answer::Done,
            1 => Answer::Late,
            2 => Answer::Granted { left: Micros(span) },
            3 => Answer::Full { wait: Micros(span) },
            4 => Answer::Moot,
            _ => return Err(bad("an unknown answer")),
        },
        view,
        transitions: transitions.ok_or_else(|| bad("an unknown change"))?,
    })
}

fn change(numbers: &[u64; CHANGE]) -> Option<Transition> {
    let [cause, from, from_span, to, to_span, epoch, ok, failed, slow, reporters, troubled] = *numbers;
    let cause = usize::try_from(cause).ok()?.checked_sub(1)?;
    Some(Transition {
        cause: *Cause::ALL.get(cause)?,
        from: Stance::of_numbers(from, from_span)?,
        to: Stance::of_numbers(to, to_span)?,
        epoch,
        counts: Counts { ok, failed, slow },
        reporters,
        troubled,
    })
}
