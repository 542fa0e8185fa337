//! What breakers tell, as metrics. Labels are names of the policy's entries, never ids.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tollgate::core::breaker::{Cause, State};
use tollgate::observe::{BreakerChange, BreakerTold, Observer, RecordOf};

use super::{family, names};
use crate::breakers::{Figures, Late, Outcome, Service};

/// Outcomes are told ten times a second, those that went well once a second.
const LAG_SECONDS: [f64; 11] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5];

/// What came of asking for leave.
const ANSWERS: [&str; 3] = ["granted", "probe", "refused"];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AcquireLabels {
    breaker: String,
    answer: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    breaker: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LateLabels {
    breaker: String,
    why: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TransitionLabels {
    breaker: String,
    record: &'static str,
    cause: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// What breakers tell.
#[derive(Debug)]
pub(crate) struct BreakerMetrics {
    acquires: Family<AcquireLabels, Counter>,
    calls: Family<CallLabels, Counter>,
    late: Family<LateLabels, Counter>,
    transitions: Family<TransitionLabels, Counter>,
    unreported: Counter,
    lag: Histogram,
    /// Told, lost.
    flushes: [Counter; 2],
}

/// The counters of one entry of the policy.
#[derive(Debug)]
pub(crate) struct Meters {
    answers: [Counter; ANSWERS.len()],
    calls: [Counter; Outcome::ALL.len()],
    late: [Counter; Late::ALL.len()],
}

/// What came of asking for leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answered {
    Granted,
    Probe,
    Refused,
}

impl BreakerMetrics {
    /// Registers all of them.
    pub(crate) fn register(registry: &mut Registry) -> BreakerMetrics {
        let help = "Calls asked for at breakers, by what was answered";
        let acquires = family(registry, names::BREAKER_ACQUIRES, help, Family::default());
        let help = "Calls reported to breakers that count, by how they ended";
        let calls = family(registry, names::BREAKER_CALLS, help, Family::default());
        let help = "Reports that came too late to decide anything, by why";
        let late = family(registry, names::BREAKER_LATE, help, Family::default());
        let help = "Changes of breakers, by cause: of the fleet's record, told by who made it, and of this instance's own";
        let transitions = family(registry, names::BREAKER_TRANSITIONS, help, Family::default());
        let unreported = Counter::default();
        let help = "Calls that were granted and never reported";
        registry.register(names::BREAKER_UNREPORTED, help, unreported.clone());
        let lag = Histogram::new(LAG_SECONDS);
        let help = "How long outcomes waited to be told to the fleet";
        registry.register_with_unit(names::BREAKER_FLUSH_LAG, help, Unit::Seconds, lag.clone());
        let help = "Reports to the fleet of what breakers had counted, and those that nobody answered";
        let flushes: Family<ResultLabel, Counter> =
            family(registry, names::BREAKER_FLUSHES, help, Family::default());
        let flushes = ["told", "lost"].map(|result| flushes.get_or_create_owned(&ResultLabel { result }));
        BreakerMetrics { acquires, calls, late, transitions, unreported, lag, flushes }
    }

    /// The counters of an entry of that name.
    pub(crate) fn meters(&self, name: &str) -> Meters {
        let breaker = || name.to_owned();
        Meters {
            answers: ANSWERS.map(|answer| {
                self.acquires.get_or_create_owned(&AcquireLabels { breaker: breaker(), answer })
            }),
            calls: Outcome::ALL.map(|outcome| {
                self.calls.get_or_create_owned(&CallLabels { breaker: breaker(), outcome: outcome.name() })
            }),
            late: Late::ALL.map(|why| {
                self.late.get_or_create_owned(&LateLabels { breaker: breaker(), why: why.name() })
            }),
        }
    }

    /// An entry that is no more.
    pub(crate) fn forget(&self, name: &str) {
        let breaker = || name.to_owned();
        for answer in ANSWERS {
            self.acquires.remove(&AcquireLabels { breaker: breaker(), answer });
        }
        for outcome in Outcome::ALL {
            self.calls.remove(&CallLabels { breaker: breaker(), outcome: outcome.name() });
        }
        for why in Late::ALL {
            self.late.remove(&LateLabels { breaker: breaker(), why: why.name() });
        }
        for (cause, record) in Cause::ALL.into_iter().flat_map(|cause| RECORDS.map(|record| (cause, record)))
        {
            let cause = cause.name();
            self.transitions.remove(&TransitionLabels {
                breaker: breaker(),
                record: record_name(record),
                cause,
            });
        }
    }

    /// So many calls were never reported.
    pub(crate) fn unreported(&self, count: usize) {
        self.unreported.inc_by(u64::try_from(count).unwrap_or(u64::MAX));
    }
}

impl Meters {
    /// Counts what came of asking for leave.
    pub(crate) fn acquired(&self, answered: Answered) {
        let at = match answered {
            Answered::Granted => 0,
            Answered::Probe => 1,
            Answered::Refused => 2,
        };
        self.answers[at].inc();
    }

    /// Counts a report that counts.
    pub(crate) fn counted(&self, outcome: Outcome) {
        if let Some(at) = Outcome::ALL.iter().position(|one| *one == outcome) {
            self.calls[at].inc();
        }
    }

    /// Counts one that does not.
    pub(crate) fn late(&self, why: Late) {
        if let Some(at) = Late::ALL.iter().position(|one| *one == why) {
            self.late[at].inc();
        }
    }
}

const RECORDS: [RecordOf; 2] = [RecordOf::Fleet, RecordOf::Own];

const fn record_name(record: RecordOf) -> &'static str {
    match record {
        RecordOf::Fleet => "fleet",
        RecordOf::Own => "own",
    }
}

impl Observer for BreakerMetrics {
    fn breaker_changed(&self, change: &BreakerChange<'_>) {
        let labels = TransitionLabels {
            breaker: change.behaviour.to_owned(),
            record: record_name(change.record),
            cause: change.transition.cause.name(),
        };
        self.transitions.get_or_create(&labels).inc();
    }

    fn breaker_told(&self, told: &BreakerTold<'_>) {
        match told.lag {
            Some(lag) => {
                self.flushes[0].inc();
                self.lag.observe(lag.as_secs_f64());
            }
            None => {
                self.flushes[1].inc();
            }
        }
    }
}

/// Asks at each scrape how breakers stand.
#[derive(Debug)]
pub(crate) struct BreakerFigures {
    pub(crate) breakers: Arc<Service>,
}

impl Collector for BreakerFigures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Figures { kinds, held } = self.breakers.figures();
        let kind = ConstGauge::new(0_i64).metric_type();
        let help = "Breakers in use here, by how they stand";
        let mut metric = encoder.encode_descriptor(names::BREAKERS, help, None, kind)?;
        for (name, figures) in &kinds {
            for (state, count) in
                [State::Closed, State::Open, State::HalfOpen].into_iter().zip(figures.states)
            {
                let labels = [("breaker", name.as_str()), ("state", state.name())];
                gauge(count).encode(metric.encode_family(&labels)?)?;
            }
        }
        let help = "Probes under way that were granted here";
        let mut metric = encoder.encode_descriptor(names::BREAKER_PROBES, help, None, kind)?;
        for (name, figures) in &kinds {
            gauge(figures.probes).encode(metric.encode_family(&[("breaker", name.as_str())])?)?;
        }
        let help = "Calls under way whose reports are waited for";
        gauge(held).encode(encoder.encode_descriptor(names::BREAKER_CALLS_HELD, help, None, kind)?)
    }
}

fn gauge(count: usize) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX))
}
