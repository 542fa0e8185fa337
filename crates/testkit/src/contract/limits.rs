//! Limits with names, as rules would have them.

use tollgate_core::algorithm::{Algorithm, Kind};
use tollgate_core::check::{Check, Refund};
use tollgate_core::decision::{Decision, Refunded, Take};
use tollgate_core::key::{Key, Scope};
use tollgate_core::limit::Rate;
use tollgate_core::store::Store;
use tollgate_core::units::Cost;

use crate::unique_prefix;

/// One limit on one subject.
#[derive(Debug, Clone)]
pub(super) struct Limit {
    scope: Scope,
    subject: String,
    algorithm: Algorithm,
}

impl Limit {
    /// A limit on a subject that nobody else has.
    pub(super) fn new(kind: Kind, rate: &str) -> Limit {
        let scope = Scope::of_rule("contract", 0, kind);
        Limit { scope, subject: unique_prefix(), algorithm: algorithm(kind, rate) }
    }

    /// The same limit with other numbers: its key stays.
    pub(super) fn changed(&self, rate: &str) -> Limit {
        Limit { algorithm: algorithm(self.algorithm.kind(), rate), ..self.clone() }
    }

    pub(super) fn kind(&self) -> Kind {
        self.algorithm.kind()
    }

    pub(super) fn key(&self) -> Key<'_> {
        Key { scope: &self.scope, subject: self.subject.as_bytes() }
    }

    pub(super) fn check(&self, cost: u32) -> Check<'_> {
        let cost = Cost::new(cost).expect("a cost is at least one");
        Check { key: self.key(), algorithm: &self.algorithm, cost }
    }

    pub(super) async fn take(&self, store: &impl Store, cost: u32) -> Decision {
        take(store, &[self.check(cost)]).await[0]
    }

    pub(super) async fn peek(&self, store: &impl Store, cost: u32) -> Decision {
        let checks = [self.check(cost)];
        store.peek(&checks).await.expect("the store answers")[0]
    }

    pub(super) async fn refund(&self, store: &impl Store, cost: u32, take: Take) -> Refunded {
        let refunds = [Refund { check: self.check(cost), take }];
        store.refund(&refunds).await.expect("the store answers")[0]
    }
}

pub(super) async fn take(store: &impl Store, checks: &[Check<'_>]) -> Vec<Decision> {
    let decisions = store.take(checks).await.expect("the store answers").to_vec();
    assert_eq!(decisions.len(), checks.len(), "one answer per check");
    decisions
}

fn algorithm(kind: Kind, rate: &str) -> Algorithm {
    let rate = Rate::parse(rate).expect("a rate");
    Algorithm::try_new(kind, rate, None, 10_000).expect("a limit")
}
