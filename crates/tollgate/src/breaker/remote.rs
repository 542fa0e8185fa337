//! A breaker for calls that somebody else makes: what is asked and told by its name, without a permit in hand.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::breaker::{
    Answer, Event, Fleet, Mode, OVERRIDE_MAX, Outcome, REASON_BYTES_MAX, Stance, View, WHO_BYTES_MAX,
};
use tollgate_core::units::Micros;

use super::belief::Asked;
use super::gate::Way;
use super::permit::{Lease, Whose};
use super::{Behaviour, Decree, Handle, OverrideError};

/// How a breaker stands, as this instance goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// What is done with calls.
    pub stance: Stance,
    /// The epoch of the fleet's record, if it was ever heard of.
    pub epoch: Option<u64>,
    /// What a person has decided instead of the rules, and how long that stays.
    pub overridden: Option<(Mode, Micros)>,
    /// Whether the fleet's record was in reach when it was last asked for.
    pub is_shared: bool,
}

/// What became of an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// It counts.
    Counted,
    /// It came too late, and decides nothing: of another epoch, or its lease has ended or was settled.
    Late,
    /// Nobody answered. It may count; if it does not, its lease ends by itself.
    Unanswered,
}

impl<F: Fleet> Handle<F> {
    /// Its name.
    pub fn id(&self) -> &[u8] {
        &self.cell.id
    }

    /// How it behaves.
    pub fn behaviour(&self) -> Arc<Behaviour> {
        self.cell.behaviour()
    }

    /// Asks the fleet how it stands, if it was never heard of here; waits no longer than a call would.
    pub async fn learn(&self) {
        self.cell.mark_used();
        let asked = self.cell.belief.lock().0.asked();
        if asked == Asked::Look {
            self.look().await;
        }
    }

    /// How it stands, all of it.
    pub fn status(&self) -> Status {
        let now = self.now();
        let belief = &self.cell.belief.lock().0;
        let (epoch, overridden) = belief.fleet(now);
        Status { stance: belief.stance(now), epoch, overridden, is_shared: belief.is_in_reach() }
    }

    /// How a call that went well in so long ended.
    pub fn outcome_of(&self, took: Micros) -> Outcome {
        if self.cell.is_slow(took) { Outcome::Slow } else { Outcome::Success }
    }

    /// Counts a call that was made without a permit, as of now. It counts where calls flow; while Open or HalfOpen
    /// it decides nothing.
    pub fn record(&self, outcome: Outcome, retry_after: Option<Duration>) -> Heard {
        let (way, tag) = self.cell.gate.read();
        let is_counted = match way {
            Way::Pass | Way::Share { .. } => self.count(tag, outcome, retry_after.map(Micros::from)),
            Way::Refuse { .. } | Way::Ask => false,
        };
        if is_counted { Heard::Counted } else { Heard::Late }
    }

    /// Ends a probe that was made elsewhere; `None` says nothing about the other side, and gives its lease back.
    /// A lease of the fleet's may have been given by another instance.
    pub async fn settle(&self, lease: Lease, outcome: Option<(Outcome, Option<Duration>)>) -> Heard {
        let Lease { token, epoch, whose } = lease;
        let outcome = outcome.map(|(outcome, retry_after)| (outcome, retry_after.map(Micros::from)));
        let answer = match whose {
            Whose::Own => {
                let now = self.now();
                Some(self.cell.believe(now, |belief, _| belief.end_own(token, epoch, outcome, now)))
            }
            Whose::Fleet => {
                let event = match outcome {
                    Some((outcome, hint)) => Event::Settle { token, epoch, outcome, hint },
                    None => Event::Return { token, epoch },
                };
                self.cell.hub.exchange(&self.cell, event).await.map(|step| step.answer)
            }
        };
        match answer {
            Some(Answer::Late) => Heard::Late,
            Some(_) => Heard::Counted,
            None => Heard::Unanswered,
        }
    }

    /// Decides for the whole fleet.
    pub async fn overrule(&self, decree: Decree) -> Result<View, OverrideError> {
        let Decree { mode, keep_for, reason, who } = decree;
        let keep_for = Micros::from(keep_for);
        let field = |field, what: String| Err(OverrideError::Field { field, what });
        if keep_for == Micros::ZERO || keep_for > OVERRIDE_MAX {
            return field("keep_for", format!("{keep_for} is not from 1us to {OVERRIDE_MAX}"));
        }
        if reason.len() > REASON_BYTES_MAX {
            return field("reason", format!("at most {REASON_BYTES_MAX} bytes"));
        }
        if who.len() > WHO_BYTES_MAX {
            return field("who", format!("at most {WHO_BYTES_MAX} bytes"));
        }
        Ok(self.cell.hub.tell(&self.cell, Event::Override { mode, keep_for, reason, who }).await?)
    }

    /// Lets the rules decide again.
    pub async fn lift(&self) -> Result<View, OverrideError> {
        Ok(self.cell.hub.tell(&self.cell, Event::Lift).await?)
    }
}
