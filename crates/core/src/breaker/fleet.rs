//! The seam between one instance's breakers and the records they share.

use std::future::Future;
use std::sync::Arc;

use super::event::{Stance, View};
use super::{Breaker, Event, Mode, Permille, Step};
use crate::push::Listener;
use crate::store::StoreError;
use crate::units::Micros;

/// A place where the records of breakers live that many instances share, with the clock they are read by.
///
/// # Contract
///
/// A step is [`Breaker::step`] of the record by that name, at one instant, in one exchange. Steps of one
/// record come one after the other. One that fails may have been made. What has changed is pushed to all
/// that listen ([`Topic::Breaker`](crate::push::Topic::Breaker), [`Pushed`]), unless the push is lost.
pub trait Fleet: Send + Sync + 'static {
    /// What an event does to the record of the breaker called `id`. The dice, up to 1000, are thrown by
    /// the caller.
    fn step(
        &self,
        id: &[u8],
        breaker: &Breaker,
        event: &Event,
        dice: Permille,
    ) -> impl Future<Output = Result<Step, StoreError>> + Send;

    /// What a breaker is called in pushes.
    fn name(&self, id: &[u8]) -> String;

    /// Tells a listener of pushes from now on.
    fn hear(&self, listener: Arc<dyn Listener>);

    /// Whether pushes arrive, as far as is known. While they do not, who wants to know asks more often.
    fn is_listening(&self) -> bool;
}

/// What a push says of a breaker that has changed: `epoch phase span mode left name`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pushed<'a> {
    /// What it is called.
    pub name: &'a str,
    /// How it stands.
    pub view: View,
}

impl<'a> Pushed<'a> {
    /// As it came; `None` if it is of another form.
    pub fn read(text: &'a [u8]) -> Option<Pushed<'a>> {
        let mut words = std::str::from_utf8(text).ok()?.splitn(6, ' ');
        let mut number = || words.next()?.parse().ok();
        let view = View::of_numbers([number()?, number()?, number()?, number()?, number()?])?;
        Some(Pushed { name: words.next()?, view })
    }
}

impl View {
    /// As a store says it: epoch, phase (0 closed, 1 open, 2 half-open, 3 ramping) and its span, mode (0
    /// for none) and what is left of it.
    pub fn of_numbers([epoch, phase, span, mode, left]: [u64; 5]) -> Option<View> {
        let mode = match mode {
            0 => None,
            1 => Some(Mode::ForcedOpen),
            2 => Some(Mode::ForcedClosed),
            3 => Some(Mode::MetricsOnly),
            _ => return None,
        };
        let stance = Stance::of_numbers(phase, span)?;
        Some(View { epoch, stance, overridden: mode.map(|mode| (mode, Micros(left))) })
    }
}

impl Stance {
    /// As a store says it; see [`View::of_numbers`].
    pub fn of_numbers(phase: u64, span: u64) -> Option<Stance> {
        let span = Micros(span);
        match phase {
            0 => Some(Stance::Closed),
            1 => Some(Stance::Open { left: span }),
            2 => Some(Stance::HalfOpen),
            3 => Some(Stance::Ramping { elapsed: span }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_is_read_whole_or_not_at_all() {
        let view = View {
            epoch: 7,
            stance: Stance::Open { left: Micros(9) },
            overridden: Some((Mode::ForcedOpen, Micros(8))),
        };
        assert_eq!(Pushed::read(b"7 1 9 1 8 a b"), Some(Pushed { name: "a b", view }));
        for bad in
            [&b""[..], b"7 1 9 1 8", b"7 4 9 1 8 a", b"7 1 9 4 8 a", b"-7 1 9 1 8 a", b"7 1 9 1 8 \xff"]
        {
            assert_eq!(Pushed::read(bad), None, "{bad:?}");
        }
    }
}
