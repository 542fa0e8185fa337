//! Integers to decisions, checked: what a script answers is believed only if it could be true.

use tollgate_core::algorithm::{Algorithm, Kind, TokenBucket, token_bucket};
use tollgate_core::check::{Check, Refund};
use tollgate_core::decision::{Decision, Found, Outcome, Refunded, Returned, Take};
use tollgate_core::few::Few;
use tollgate_core::store::StoreError;
use tollgate_core::units::{Cost, Micros};

use super::batch::Told;
use super::classify::answered;
use super::wire::Reply;

/// What a script said.
#[derive(Debug)]
pub(super) enum Answer<T> {
    /// The answer.
    Done(T),
    /// The calendar windows it was sent do not hold Redis' now: ask again with those around it.
    /// Nothing was spent.
    Stale {
        /// Redis' now.
        now: Micros,
    },
}

/// Five integers per check, after the instant they were decided at; or what the fast path says.
pub(super) fn decisions(reply: Reply, checks: &[Check<'_>]) -> Result<Answer<Few<Decision>>, StoreError> {
    if let [Check { algorithm: Algorithm::TokenBucket(bucket), cost, .. }] = checks
        && let Some((found, bytes)) = fast(&reply)
    {
        return bucket_decision(bucket, *cost, found, bytes).map(|decision| Answer::Done(Few::One(decision)));
    }
    of_numbers(&integers(reply, 1 + 5 * checks.len())?, checks)
}

/// The same, of an ask that went to Redis alone or with others.
pub(super) fn told(told: Told, checks: &[Check<'_>]) -> Result<Answer<Few<Decision>>, StoreError> {
    match (told, checks) {
        (Told::Reply(reply), checks) => decisions(reply, checks),
        (
            Told::Bucket { left, is_spent, found },
            [Check { algorithm: Algorithm::TokenBucket(bucket), cost, .. }],
        ) => Ok(Answer::Done(Few::One(if is_spent {
            left.after_spending(bucket, found)
        } else {
            left.when_refused(bucket, *cost, found)
        }))),
        (Told::Bucket { .. }, _) => Err(bad("a bucket that nobody asked for")),
        (Told::Numbers(numbers), checks) if numbers.len() == 1 + 5 * checks.len() => {
            of_numbers(&numbers, checks)
        }
        (Told::Numbers(_), _) => Err(bad("an answer of another length")),
    }
}

fn of_numbers(numbers: &[u64], checks: &[Check<'_>]) -> Result<Answer<Few<Decision>>, StoreError> {
    let now = Micros(numbers[0]);
    let parts = numbers[1..].chunks_exact(5);
    if parts.clone().any(|part| part[0] % 4 == 3) {
        return Ok(Answer::Stale { now });
    }
    checks
        .iter()
        .zip(parts)
        .map(|(check, part)| decision(check, now, part))
        .collect::<Result<_, _>>()
        .map(Answer::Done)
}

/// The bytes that `token_bucket_fast.lua` answers with, and what it found.
fn fast(reply: &Reply) -> Option<(Found, &[u8])> {
    match reply {
        Reply::Bulk(bytes) => Some((Found::State, bytes)),
        Reply::Array(items) => match items.as_slice() {
            [Reply::Bulk(bytes)] => Some((Found::Nothing, bytes)),
            _ => None,
        },
        _ => None,
    }
}

fn bucket_decision(
    bucket: &TokenBucket,
    cost: Cost,
    found: Found,
    bytes: &[u8],
) -> Result<Decision, StoreError> {
    let (numbers, is_spent) = match bytes.len() {
        16 => (bytes, true),
        17 => (&bytes[..16], false),
        29 | 33 => (&bytes[1..17], true),
        _ => return Err(bad("a bucket of another length")),
    };
    let left = token_bucket::Left { units: whole(&numbers[..8])?, now: Micros(whole(&numbers[8..])?) };
    Ok(if is_spent { left.after_spending(bucket, found) } else { left.when_refused(bucket, cost, found) })
}

/// A double that holds a whole number, as all of ours do.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked just before")]
pub(super) fn whole(bytes: &[u8]) -> Result<u64, StoreError> {
    let number = bytes.try_into().map(f64::from_le_bytes).map_err(|_| bad("a short number"))?;
    if !(0.0..=9_007_199_254_740_991.0).contains(&number) {
        return Err(bad("a number that is none of ours"));
    }
    Ok(number as u64)
}

fn decision(check: &Check<'_>, now: Micros, part: &[u64]) -> Result<Decision, StoreError> {
    let &[code, remaining, retry_after, reset_after, mark] = part else { return Err(bad("a short reply")) };
    let found = match code / 4 {
        0 => Found::Nothing,
        1 => Found::State,
        2 => Found::Malformed,
        _ => return Err(bad("an unknown outcome")),
    };
    let outcome = match code % 4 {
        0 => Outcome::Allowed,
        1 => Outcome::Denied { retry_after: Micros(retry_after) },
        _ => Outcome::Never,
    };
    let take = match check.algorithm.kind() {
        Kind::SlidingLog => {
            let entry = u32::try_from(mark & u64::from(u32::MAX)).unwrap_or(0);
            Take { at: now + Micros(mark >> 32), entry }
        }
        Kind::TokenBucket | Kind::SlidingWindow | Kind::FixedWindow => Take { at: now, entry: 0 },
    };
    let limit = check.algorithm.limit();
    let remaining =
        u32::try_from(remaining).ok().filter(|&left| left <= limit).ok_or(bad("more left than there is"))?;
    Ok(Decision { outcome, limit, remaining, reset_after: Micros(reset_after), take, found })
}

/// Three integers per refund, after the instant they were decided at. `None` where the calendar
/// windows were stale: that refund alone is to be asked again, for the others are done.
pub(super) fn refunds(
    reply: Reply,
    refunds: &[Refund<'_>],
) -> Result<(Micros, Vec<Option<Refunded>>), StoreError> {
    let numbers = integers(reply, 1 + 3 * refunds.len())?;
    let refunded = refunds.iter().zip(numbers[1..].chunks_exact(3)).map(|(refund, part)| {
        let returned = match part[0] {
            0 => Returned::All,
            1 => Returned::Part,
            2 => Returned::Nothing,
            _ => return Ok(None),
        };
        let limit = refund.check.algorithm.limit();
        let remaining = u32::try_from(part[1]).map_err(|_| bad("more left than there is"))?;
        Ok(Some(Refunded { returned, limit, remaining, reset_after: Micros(part[2]) }))
    });
    Ok((Micros(numbers[0]), refunded.collect::<Result<_, _>>()?))
}

/// A flat array of that many integers, none negative.
pub(super) fn integers(reply: Reply, count: usize) -> Result<Vec<u64>, StoreError> {
    let items = match reply {
        Reply::Array(items) => items,
        Reply::Error(message) => return Err(answered(&message)),
        _ => return Err(bad("not an array")),
    };
    if items.len() != count {
        return Err(bad("an array of another length"));
    }
    items
        .into_iter()
        .map(|item| match item {
            Reply::Integer(number) => u64::try_from(number).map_err(|_| bad("a negative number")),
            _ => Err(bad("something that is not an integer")),
        })
        .collect()
}

/// An answer that cannot be.
pub(super) fn bad(what: &str) -> StoreError {
    StoreError::BadReply { what: what.to_owned() }
}
