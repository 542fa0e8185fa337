//! Asks whose keys are in several slots of a cluster.
//!
//! Slots are taken in ascending order, so that two asks never wait for each other's slots the wrong way
//! round, and what was taken is given back if a later slot refuses, or does not answer. It never admits
//! more than its limits; it may charge more, for good if this instance dies in between.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tollgate_core::algorithm::Algorithm;
use tollgate_core::check::{Check, Refund};
use tollgate_core::decision::{Decision, Outcome, Refunded};
use tollgate_core::few::Few;
use tollgate_core::key::{Key, Scope};
use tollgate_core::store::{Spent, StoreError};
use tollgate_core::units::Cost;

use super::RedisStore;
use super::topology::Topology;

/// How often it is tried to give back what was taken, and the pause in between: five seconds in all.
const GIVE_BACK_TRIES: u32 = 25;
const GIVE_BACK_PAUSE: Duration = Duration::from_millis(200);

/// A check that outlives its ask.
#[derive(Debug, Clone)]
struct Owned {
    scope: Scope,
    subject: Vec<u8>,
    algorithm: Algorithm,
    cost: Cost,
}

impl Owned {
    fn of(check: &Check<'_>) -> Owned {
        Owned {
            scope: check.key.scope.clone(),
            subject: check.key.subject.to_vec(),
            algorithm: check.algorithm.clone(),
            cost: check.cost,
        }
    }

    fn check(&self) -> Check<'_> {
        let key = Key { scope: &self.scope, subject: &self.subject };
        Check { key, algorithm: &self.algorithm, cost: self.cost }
    }
}

/// The places, in an ask, of what is in one slot; slots in ascending order.
fn groups(slots: &[u16]) -> Vec<Vec<usize>> {
    let mut places: Vec<usize> = (0..slots.len()).collect();
    places.sort_by_key(|&at| slots[at]);
    places.chunk_by(|&one, &other| slots[one] == slots[other]).map(<[usize]>::to_vec).collect()
}

/// Puts what was found for groups back into the order asked.
fn in_order<T>(groups: &[Vec<usize>], found: Vec<Few<T>>) -> Few<T> {
    let mut placed: Vec<(usize, T)> =
        groups.iter().flatten().copied().zip(found.into_iter().flatten()).collect();
    placed.sort_by_key(|(at, _)| *at);
    placed.into_iter().map(|(_, one)| one).collect()
}

impl RedisStore {
    /// The slot of each key, if they are not all in the same; on anything but a cluster they are.
    pub(super) fn slots_of<'a>(&self, keys: impl Iterator<Item = Key<'a>>) -> Option<Vec<u16>> {
        let Topology::Cluster(_) = &self.topology else { return None };
        let (mut slots, mut subject): (Vec<u16>, Option<&[u8]>) = (Vec::new(), None);
        for key in keys {
            // Keys of one subject share its tag.
            let slot = match slots.last() {
                Some(&last) if subject == Some(key.subject) => last,
                _ => self.naming.slot(key),
            };
            subject = Some(key.subject);
            slots.push(slot);
        }
        slots.iter().any(|slot| Some(slot) != slots.first()).then_some(slots)
    }

    /// A take. It is carried through by a task of its own: if its caller gives up, what it took and what it
    /// is yet to hear of is given back all the same.
    pub(super) async fn take_across(
        &self,
        checks: &[Check<'_>],
        slots: &[u16],
    ) -> Result<Few<Decision>, StoreError> {
        let (done, answer) = oneshot::channel();
        let checks: Vec<Owned> = checks.iter().map(Owned::of).collect();
        let (store, groups) = (self.clone(), groups(slots));
        tokio::spawn(async move { store.carry_through(checks, groups, done).await });
        answer.await.unwrap_or_else(|_| Err(StoreError::Lost { why: "its task has ended".into() }))
    }

    async fn carry_through(
        self,
        checks: Vec<Owned>,
        groups: Vec<Vec<usize>>,
        done: oneshot::Sender<Result<Few<Decision>, StoreError>>,
    ) {
        let mut decisions: Vec<Option<Decision>> = vec![None; checks.len()];
        let mut taken: Vec<usize> = Vec::new();
        let mut stopped = None;
        for (number, group) in groups.iter().enumerate() {
            if done.is_closed() {
                stopped = Some((number, None));
                break;
            }
            let asked: Vec<Check<'_>> = group.iter().map(|&at| checks[at].check()).collect();
            match self.take_all(&asked).await {
                Ok(answers) => {
                    let is_refused = answers.iter().any(|answer| answer.outcome != Outcome::Allowed);
                    group.iter().zip(answers).for_each(|(&at, answer)| decisions[at] = Some(answer));
                    if is_refused {
                        stopped = Some((number + 1, None));
                        break;
                    }
                    taken.extend(group);
                }
                Err(error) => {
                    stopped = Some((number, Some(error)));
                    break;
                }
            }
        }
        let Some((next, error)) = stopped else {
            let all = decisions.iter().flatten().copied().collect();
            if done.send(Ok(all)).is_err() {
                // Nobody waits any more: another has answered, and this was not spent.
                self.undo(&checks, &taken, &mut decisions).await;
            }
            return;
        };
        if let Some(error) = error {
            // The answer first: what a failed shard holds up must not be held up more.
            let _ = done.send(Err(error));
            self.undo(&checks, &taken, &mut decisions).await;
            return;
        }
        // What was not asked is looked at, so that the answer tells of every check.
        let rest: Vec<usize> = groups[next..].iter().flatten().copied().collect();
        let ((), looked) = tokio::join!(self.undo(&checks, &taken, &mut decisions), async {
            let asked: Vec<Check<'_>> = rest.iter().map(|&at| checks[at].check()).collect();
            match self.slots_of(asked.iter().map(|check| check.key)) {
                _ if asked.is_empty() || done.is_closed() => Ok(Few::Many(Vec::new())),
                None => self.look(&asked).await,
                Some(slots) => self.peek_across(&asked, &slots).await,
            }
        });
        let _ = done.send(looked.map(|looked| {
            rest.iter().zip(looked).for_each(|(&at, answer)| decisions[at] = Some(answer));
            decisions.into_iter().flatten().collect()
        }));
    }

    /// Gives back what was taken, each by its own instant, and says in its decision what is left then.
    async fn undo(&self, checks: &[Owned], taken: &[usize], decisions: &mut [Option<Decision>]) {
        let slots: Vec<u16> = taken.iter().map(|&at| self.naming.slot(checks[at].check().key)).collect();
        for group in groups(&slots) {
            let places: Vec<usize> = group.into_iter().map(|at| taken[at]).collect();
            let named = places.iter().filter_map(|&at| Some((at, decisions[at]?.take)));
            let refunds: Vec<Refund<'_>> =
                named.map(|(at, take)| Refund { check: checks[at].check(), take }).collect();
            match self.give_back_at_last(&refunds).await {
                Ok(refunded) => {
                    for (at, now) in places.into_iter().zip(refunded) {
                        if let Some(decision) = &mut decisions[at] {
                            decision.remaining = now.remaining;
                            decision.reset_after = now.reset_after;
                        }
                    }
                }
                Err(error) => tracing::warn!(%error, "what an ask took on one node could not be given back"),
            }
        }
    }

    /// Gives back, and tries again where nothing can have been: what may have been given is not given twice.
    async fn give_back_at_last(&self, refunds: &[Refund<'_>]) -> Result<Few<Refunded>, StoreError> {
        for _ in 0..GIVE_BACK_TRIES {
            match self.give_back(refunds).await {
                Err(error) if error.spent() == Spent::Nothing => tokio::time::sleep(GIVE_BACK_PAUSE).await,
                done => return done,
            }
        }
        self.give_back(refunds).await
    }

    /// A look at several slots, all at once.
    pub(super) async fn peek_across(
        &self,
        checks: &[Check<'_>],
        slots: &[u16],
    ) -> Result<Few<Decision>, StoreError> {
        let groups = groups(slots);
        let mut looking = JoinSet::new();
        for (number, group) in groups.iter().enumerate() {
            let (store, asked) =
                (self.clone(), group.iter().map(|&at| Owned::of(&checks[at])).collect::<Vec<_>>());
            looking.spawn(async move {
                let asked: Vec<Check<'_>> = asked.iter().map(Owned::check).collect();
                (number, store.look(&asked).await)
            });
        }
        let found = gathered(looking).await?;
        Ok(in_order(&groups, found))
    }

    /// Refunds in several slots, one slot after the other. What is given back before one fails stays given.
    pub(super) async fn give_back_across(
        &self,
        refunds: &[Refund<'_>],
        slots: &[u16],
    ) -> Result<Few<Refunded>, StoreError> {
        let groups = groups(slots);
        let mut found = Vec::with_capacity(groups.len());
        let mut failed = None;
        for group in &groups {
            let asked: Vec<Refund<'_>> = group.iter().map(|&at| refunds[at]).collect();
            match self.give_back(&asked).await {
                Ok(refunded) => found.push(refunded),
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(in_order(&groups, found)),
        }
    }

    /// Forgets keys in several slots.
    pub(super) async fn delete_across(&self, keys: &[Key<'_>], slots: &[u16]) -> Result<(), StoreError> {
        let mut failed = None;
        for group in groups(slots) {
            let keys: Vec<Key<'_>> = group.iter().map(|&at| keys[at]).collect();
            failed = self.delete(&keys).await.err().or(failed);
        }
        failed.map_or(Ok(()), Err)
    }
}

/// What tasks found, by their numbers; or why one found nothing.
async fn gathered<T: 'static>(
    mut tasks: JoinSet<(usize, Result<T, StoreError>)>,
) -> Result<Vec<T>, StoreError> {
    let mut found = Vec::new();
    while let Some(task) = tasks.join_next().await {
        let (number, one) = task.map_err(|_| StoreError::Lost { why: "its task has ended".into() })?;
        found.push((number, one?));
    }
    found.sort_by_key(|(number, _)| *number);
    Ok(found.into_iter().map(|(_, one)| one).collect())
}
