//! What no history of admitted calls may exceed, whoever admitted them and whoever died.

use std::collections::BTreeMap;

use tollgate::{Kind, Micros};

/// A call that was admitted, one token, at some instant between these two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Call {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl Call {
    pub(crate) fn at(instant: Micros) -> Call {
        Call { first: instant.0, last: instant.0 }
    }
}

/// A limit of so many in such a span, all of which may come at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) kind: Kind,
    pub(crate) count: u64,
    pub(crate) span: Micros,
    /// For how long tokens may be out; zero without leases.
    pub(crate) lease: Micros,
}

impl Bound {
    /// Whatever the true instants of the calls: count + rate × (time + lease) in any time, and what the windows of
    /// an algorithm say beyond that.
    pub(crate) fn check(&self, calls: &[Call]) -> Result<(), String> {
        match self.kind {
            Kind::FixedWindow => self.in_each_window(calls),
            Kind::SlidingLog => self.in_any_window(calls),
            Kind::TokenBucket => self.in_any_time(calls, 0),
            Kind::SlidingWindow => self.in_any_time(calls, 1),
        }
    }

    /// Only what certainly was in one window is counted in it.
    fn in_each_window(&self, calls: &[Call]) -> Result<(), String> {
        let mut windows = BTreeMap::<u64, u64>::new();
        for call in calls.iter().filter(|call| call.first / self.span.0 == call.last / self.span.0) {
            *windows.entry(call.first / self.span.0).or_default() += 1;
        }
        match windows.iter().find(|(_, admitted)| **admitted > self.count) {
            Some((window, admitted)) => Err(format!("{admitted} of {} in window {window}", self.count)),
            None => Ok(()),
        }
    }

    fn in_any_window(&self, calls: &[Call]) -> Result<(), String> {
        for oldest in calls {
            let inside = |call: &&Call| call.first >= oldest.first && call.last - oldest.first < self.span.0;
            let admitted = calls.iter().filter(inside).count() as u64;
            if admitted > self.count {
                return Err(format!("{admitted} of {} in the window from {}", self.count, oldest.first));
            }
        }
        Ok(())
    }

    /// In parts of a token, of which a microsecond brings `count`: nothing is rounded.
    fn in_any_time(&self, calls: &[Call], more: u64) -> Result<(), String> {
        let (count, token) = (i128::from(self.count), i128::from(self.span.0));
        let most = (count + i128::from(more)) * token + i128::from(self.lease.0) * count;
        let mut by_end: Vec<&Call> = calls.iter().collect();
        by_end.sort_unstable_by_key(|call| call.last);
        let (mut admitted, mut lowest) = (0, i128::MAX);
        for call in by_end {
            lowest = lowest.min(admitted - i128::from(call.first) * count);
            admitted += token;
            let over = admitted - i128::from(call.last) * count - lowest - most;
            if over > 0 {
                return Err(format!("{over} parts of {token} too many at {}", call.last));
            }
        }
        Ok(())
    }
}

/// A bound that nothing exceeds would pass whatever happens.
#[test]
fn one_call_too_many_is_found() {
    const COUNT: u64 = 10;
    const SPAN: Micros = Micros(1_000_000);
    const LEASE: Micros = Micros(200_000);
    let at = |instants: &[u64]| instants.iter().map(|at| Call::at(Micros(*at))).collect::<Vec<_>>();
    for (kind, lease, fits) in [
        (Kind::TokenBucket, Micros::ZERO, 10),
        (Kind::TokenBucket, LEASE, 12),
        (Kind::SlidingWindow, Micros::ZERO, 11),
        (Kind::SlidingLog, LEASE, 10),
        (Kind::FixedWindow, LEASE, 10),
    ] {
        let bound = Bound { kind, count: COUNT, span: SPAN, lease };
        assert_eq!(bound.check(&at(&vec![5_000_000; fits])), Ok(()), "{kind}");
        assert!(bound.check(&at(&vec![5_000_000; fits + 1])).is_err(), "{kind}");
        // A tenth of a second later there may be one more, but for windows.
        let later = [vec![5_000_000; fits], vec![5_100_000]].concat();
        assert_eq!(
            bound.check(&at(&later)).is_ok(),
            matches!(kind, Kind::TokenBucket | Kind::SlidingWindow),
            "{kind}"
        );
        let sooner = [vec![5_000_000; fits], vec![5_099_999]].concat();
        assert!(bound.check(&at(&sooner)).is_err(), "{kind}");
        // What may have been later is not held against anybody.
        let mut unsure = at(&vec![5_000_000; fits]);
        unsure.push(Call { first: 5_000_000, last: 6_000_000 });
        assert_eq!(bound.check(&unsure), Ok(()), "{kind}");
    }
}
