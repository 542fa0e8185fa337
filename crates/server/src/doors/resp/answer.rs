//! A question put to the engine, or to the breakers, and its answer written.

use std::sync::Arc;

use tollgate::core::decision::Take;
use tollgate::core::units::EXACT_MAX;
use tollgate::core::verdict::RefundAnswer;
use tollgate::engine::ForgetError;
use tollgate::{Answer, Ask, By, Cost, Micros, Policy, Want};

use super::command::{Fault, Question, Rare};
use super::encode::Out;
use super::throttle::{self, Rounding};
use super::{RespDoor, breakers, inspect};
use crate::engine::Engine;

/// Asks, and writes what is said.
#[inline]
pub(super) async fn answer(
    door: &RespDoor,
    policy: &Arc<Policy>,
    question: Question<'_>,
    out: &mut Out,
) -> Result<(), Fault> {
    let engine = &door.engine;
    match question {
        Question::Throttle { key, limit, cost, rounding } => {
            let wants = [Want { by: By::Inline(&limit), key, cost, takes: &[] }];
            let verdict = engine.decide_under(Arc::clone(policy), &Ask { wants: &wants }).await;
            match (&verdict.answer, verdict.binding()) {
                (Answer::Invalid(problem), _) => return Err(Fault::Ask(problem.clone())),
                (_, Some(judged)) => out.five(throttle::five(&judged.decision, false, rounding)),
                (_, None) => return Err(Fault::Bad("nothing was decided".into())),
            }
        }
        Question::Check { by, cost, spends } => {
            let wants = [by.want(cost, &[])];
            let ask = Ask { wants: &wants };
            let verdict = if spends {
                engine.decide_under(Arc::clone(policy), &ask).await
            } else {
                engine.peek_under(Arc::clone(policy), &ask).await
            };
            if let Answer::Invalid(problem) = &verdict.answer {
                return Err(Fault::Ask(problem.clone()));
            }
            out.verdict(&verdict, spends);
        }
        Question::Breaker(breaking) => Box::pin(breakers::answer(&door.breakers, breaking, out)).await?,
        // Boxed, as above: what is rare should not make what is frequent larger.
        Question::Rare(rare) => Box::pin(answer_rare(engine, policy, rare, out)).await?,
    }
    Ok(())
}

async fn answer_rare(
    engine: &Engine,
    policy: &Arc<Policy>,
    rare: Rare<'_>,
    out: &mut Out,
) -> Result<(), Fault> {
    match rare {
        Rare::Look { key, limit, rounding } => {
            let wants = [Want { by: By::Inline(&limit), key, cost: Cost::ONE, takes: &[] }];
            let verdict = engine.peek_under(Arc::clone(policy), &Ask { wants: &wants }).await;
            match (&verdict.answer, verdict.binding()) {
                (Answer::Invalid(problem), _) => return Err(Fault::Ask(problem.clone())),
                (_, Some(judged)) => out.five(throttle::five(&judged.decision, true, rounding)),
                (_, None) => return Err(Fault::Bad("nothing was decided".into())),
            }
        }
        Rare::Return { key, limit, cost, rounding } => {
            let want = Want { by: By::Inline(&limit), key, cost, takes: &[] };
            out.five(give_back(engine, want, rounding).await?);
        }
        Rare::Closed { asked, quantity } => out.five(throttle::five_closed(&asked, quantity)),
        Rare::Refund { by, cost, takes } => {
            let wants = [by.want(cost, &takes)];
            match engine.refund(&Ask { wants: &wants }).await {
                RefundAnswer::Done(refunds) => out.refunded(&refunds),
                RefundAnswer::NotDone { why } => return Err(Fault::Store(why)),
                RefundAnswer::Invalid(problem) => return Err(Fault::Ask(problem)),
            }
        }
        Rare::Forget { by } => {
            let wants = [by.want(Cost::ONE, &[])];
            forgotten(engine.forget(&Ask { wants: &wants }).await)?;
            out.simple("OK");
        }
        Rare::Delete { keys, limit } => {
            let want = |key| [Want { by: By::Inline(&limit), key, cost: Cost::ONE, takes: &[] }];
            // All of them are looked at before the first is forgotten.
            for key in &keys {
                policy.matched(&Ask { wants: &want(key) }).map_err(Fault::Ask)?;
            }
            for key in &keys {
                forgotten(engine.forget(&Ask { wants: &want(key) }).await)?;
            }
            out.integer(i64::try_from(keys.len()).unwrap_or(i64::MAX));
        }
        Rare::Inspect { key } => match inspect::in_words(engine, policy, key).await {
            Ok(text) => out.bulk(text.as_bytes()),
            Err(Answer::Invalid(problem)) => return Err(Fault::Ask(problem)),
            Err(_) => return Err(Fault::Bad("nothing was decided".into())),
        },
    }
    Ok(())
}

/// A negative quantity: so much comes back, as far as it is missing, whenever it was spent.
async fn give_back(engine: &Engine, want: Want<'_>, rounding: Rounding) -> Result<[i64; 5], Fault> {
    // A take that was never made, after every clock's end: none of it has flown back by itself.
    let takes = [Take { at: Micros(EXACT_MAX), entry: 0 }];
    let wants = [Want { takes: &takes, ..want }];
    match engine.refund(&Ask { wants: &wants }).await {
        RefundAnswer::Done(refunds) => match refunds.first() {
            Some(refunded) => Ok(throttle::five_returned(refunded, rounding)),
            None => Err(Fault::Bad("nothing was decided".into())),
        },
        RefundAnswer::NotDone { why } => Err(Fault::Store(why)),
        RefundAnswer::Invalid(problem) => Err(Fault::Ask(problem)),
    }
}

fn forgotten(result: Result<(), ForgetError>) -> Result<(), Fault> {
    match result {
        Ok(()) => Ok(()),
        Err(ForgetError::Invalid(problem)) => Err(Fault::Ask(problem)),
        Err(ForgetError::Store(error)) => Err(Fault::Store(error)),
        Err(_) => Err(Fault::Bad("the store did not forget".into())),
    }
}
