//! What the engine tells, as metrics.
//!
//! hot path: handles are resolved when a policy is put in force; a verdict is one counter increment,
//! and no label is hashed for it.

use std::sync::OnceLock;

use arc_swap::ArcSwap;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tollgate::core::decision::{Found, Outcome, Refunded, Returned, Verb};
use tollgate::core::policy::{Origin, Role};
use tollgate::core::store::ErrorClass;
use tollgate::observe::{Call, GuardChange, LeaseChange, Observer, Operation, Taken};
use tollgate::{Answer, OnOutage, Policy, Source, Verdict};

use super::{family, names};

/// The rule inline limits are counted under; no rule can have this name.
const INLINE: &str = "(inline)";

/// The rule that the policy's own lists are counted under.
const LISTS: &str = "(lists)";

/// The rule that asks are counted under to which none applied that could refuse.
const NONE: &str = "(none)";

/// From a tenth of a millisecond to a second; the deadline's 25 ms is a bound of its own.
const LATENCY_SECONDS: [f64; 13] =
    [0.0001, 0.0002, 0.0003, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerdictLabels {
    rule: String,
    outcome: &'static str,
    source: &'static str,
    on_outage: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PeekLabels {
    rule: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AdviceLabels {
    rule: String,
    mode: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReturnedLabel {
    returned: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FoundLabel {
    found: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ChangeLabel {
    change: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    operation: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabel {
    operation: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassLabel {
    class: &'static str,
}

/// What the engine tells.
#[derive(Debug)]
pub(crate) struct EngineMetrics {
    verdicts: Family<VerdictLabels, Counter>,
    peeks: Family<PeekLabels, Counter>,
    advice: Family<AdviceLabels, Counter>,
    rules: ArcSwap<Rules>,
    refunds: [Counter; 3],
    buckets: [Counter; 3],
    operations: Family<OperationLabels, Counter>,
    errors: Family<ClassLabel, Counter>,
    latency: Vec<Histogram>,
    done: Vec<Counter>,
    fallback_active: Gauge,
    outages: Counter,
    /// Tokens taken ahead, given back and lost.
    lease_tokens: [Counter; 3],
    policy_version: Gauge,
    policy_rules: Gauge,
}

/// The handles of one policy's rules.
#[derive(Debug, Default)]
struct Rules {
    version: u64,
    by_place: Vec<RuleHandles>,
    inline: RuleHandles,
    lists: RuleHandles,
    none: RuleHandles,
}

/// One rule's counters, each made when it is first needed: by outcome and source.
#[derive(Debug, Default)]
struct RuleHandles {
    name: String,
    verdicts: [[OnceLock<Counter>; Source::ALL.len()]; OUTCOMES.len()],
    peeks: [OnceLock<Counter>; OUTCOMES.len()],
    /// What the rule would have done, where it only watches, and what its candidate would have.
    advice: [[OnceLock<Counter>; OUTCOMES.len()]; 2],
}

const OUTCOMES: [&str; 3] = ["allowed", "refused", "never"];

fn place_of(outcome: Outcome) -> usize {
    match outcome {
        Outcome::Allowed => 0,
        Outcome::Denied { .. } => 1,
        Outcome::Never => 2,
    }
}

fn on_outage_label(source: Source) -> &'static str {
    match source {
        Source::Fallback(choice) => choice.name(),
        _ => "none",
    }
}

fn source_place(source: Source) -> usize {
    match source {
        Source::Store => 0,
        Source::Fallback(OnOutage::Allow) => 1,
        Source::Fallback(OnOutage::Deny) => 2,
        Source::Fallback(OnOutage::Local) => 3,
        Source::DenyList => 4,
        Source::Shadow => 5,
        Source::Unlimited => 6,
        Source::Lease => 7,
        Source::DenyCache => 8,
    }
}

impl Rules {
    /// The handles of what a check came from.
    fn of(&self, verdict: &Verdict, origin: Origin) -> Option<&RuleHandles> {
        match origin {
            Origin::Inline => Some(&self.inline),
            Origin::Policy => Some(&self.lists),
            Origin::Rule(place) if self.version == verdict.policy.version() => self.by_place.get(place),
            // Decided under a policy that has been replaced meanwhile: places have changed.
            Origin::Rule(_) => {
                let name = verdict.policy.rule_of(origin)?.name();
                self.by_place.iter().find(|handles| handles.name == name)
            }
        }
    }
}

impl EngineMetrics {
    /// Registers all of them.
    pub(crate) fn register(registry: &mut Registry) -> EngineMetrics {
        let verdicts = family(
            registry,
            names::VERDICTS,
            "Asks answered, under the rule that was binding",
            Family::default(),
        );
        let peeks = family(registry, names::PEEKS, "Peeks answered", Family::default());
        let help = "What limits would have done that refuse nobody: those of shadow rules, and candidates";
        let advice = family(registry, names::ADVICE, help, Family::default());
        let refunds: Family<ReturnedLabel, Counter> =
            family(registry, names::REFUNDS, "Refunds carried out, by how much came back", Family::default());
        let buckets: Family<FoundLabel, Counter> = family(
            registry,
            names::BUCKETS,
            "Keys spent from, by what stood there before",
            Family::default(),
        );
        let operations: Family<OperationLabels, Counter> =
            family(registry, names::REDIS_OPERATIONS, "Calls to Redis", Family::default());
        let errors =
            family(registry, names::REDIS_ERRORS, "Calls to Redis that failed, by why", Family::default());
        let latency =
            Family::<OperationLabel, Histogram>::new_with_constructor(|| Histogram::new(LATENCY_SECONDS));
        let help = "How long callers waited for Redis";
        registry.register_with_unit(names::REDIS_LATENCY, help, Unit::Seconds, latency.clone());
        let fallback_active = Gauge::default();
        let help = "shards of the store that are set aside, so that rules answer by on_outage: 1 or 0 unless it is a cluster";
        registry.register(names::REDIS_FALLBACK_ACTIVE, help, fallback_active.clone());
        let outages = Counter::default();
        registry.register(names::OUTAGES, "Times the store was set aside", outages.clone());
        let lease_tokens: Family<ChangeLabel, Counter> = family(
            registry,
            names::LEASE_TOKENS,
            "Tokens taken ahead for hot keys, and what was not spent of them",
            Family::default(),
        );
        let policy_version = Gauge::default();
        registry.register(names::POLICY_VERSION, "The policy in force", policy_version.clone());
        let policy_rules = Gauge::default();
        registry.register(names::POLICY_RULES, "Rules in the policy in force", policy_rules.clone());

        let operation = |operation: Operation| OperationLabel { operation: operation.name() };
        EngineMetrics {
            refunds: ["all", "part", "nothing"]
                .map(|returned| refunds.get_or_create_owned(&ReturnedLabel { returned })),
            buckets: ["state", "created", "malformed"]
                .map(|found| buckets.get_or_create_owned(&FoundLabel { found })),
            latency: Operation::ALL.map(|one| latency.get_or_create_owned(&operation(one))).into(),
            done: Operation::ALL
                .map(|one| {
                    let labels = OperationLabels { operation: one.name(), result: "ok" };
                    operations.get_or_create_owned(&labels)
                })
                .into(),
            lease_tokens: ["taken", "returned", "expired"]
                .map(|change| lease_tokens.get_or_create_owned(&ChangeLabel { change })),
            verdicts,
            peeks,
            advice,
            rules: ArcSwap::default(),
            operations,
            errors,
            fallback_active,
            outages,
            policy_version,
            policy_rules,
        }
    }

    fn count(&self, handles: &RuleHandles, verb: Verb, outcome: usize, source: Source) {
        match verb {
            Verb::Take => self.verdict_counter(handles, outcome, source).inc(),
            Verb::Peek => handles.peeks[outcome]
                .get_or_init(|| {
                    let labels = PeekLabels { rule: handles.name.clone(), outcome: OUTCOMES[outcome] };
                    self.peeks.get_or_create_owned(&labels)
                })
                .inc(),
        };
    }

    /// Counts what would have been done by limits that refuse nobody.
    fn advised(&self, rules: &Rules, verdict: &Verdict) {
        for judged in verdict.checks.iter().filter(|judged| judged.role != Role::Enforced) {
            let Some(handles) = rules.of(verdict, judged.origin) else { continue };
            let outcome = place_of(judged.decision.outcome);
            let by_role = &handles.advice[usize::from(judged.role == Role::Candidate)];
            by_role[outcome]
                .get_or_init(|| {
                    let (rule, mode) = (handles.name.clone(), judged.role.name());
                    self.advice.get_or_create_owned(&AdviceLabels { rule, mode, outcome: OUTCOMES[outcome] })
                })
                .inc();
        }
    }

    fn verdict_counter<'h>(&self, handles: &'h RuleHandles, outcome: usize, source: Source) -> &'h Counter {
        handles.verdicts[outcome][source_place(source)].get_or_init(|| {
            let (rule, on_outage) = (handles.name.clone(), on_outage_label(source));
            let labels = VerdictLabels { rule, outcome: OUTCOMES[outcome], source: source.name(), on_outage };
            self.verdicts.get_or_create_owned(&labels)
        })
    }

    /// Drops the series of a rule that is gone: they are as many as the policy's rules, however often it
    /// is replaced.
    fn forget(&self, gone: &RuleHandles) {
        let rule = || gone.name.clone();
        for outcome in OUTCOMES {
            for source in Source::ALL {
                let on_outage = on_outage_label(source);
                let labels = VerdictLabels { rule: rule(), outcome, source: source.name(), on_outage };
                self.verdicts.remove(&labels);
            }
            self.peeks.remove(&PeekLabels { rule: rule(), outcome });
            for mode in [Role::Shadow.name(), Role::Candidate.name()] {
                self.advice.remove(&AdviceLabels { rule: rule(), mode, outcome });
            }
        }
    }

    /// A rule's handles, with the two counters that everybody graphs there from the start.
    fn handles(&self, rule: &str) -> RuleHandles {
        let handles = RuleHandles { name: rule.to_owned(), ..RuleHandles::default() };
        for outcome in 0..2 {
            self.verdict_counter(&handles, outcome, Source::Store);
        }
        handles
    }
}

impl Observer for EngineMetrics {
    fn decided(&self, verb: Verb, verdict: &Verdict) {
        // What could not be understood was asked of no rule; the door counts it.
        if matches!(verdict.answer, Answer::Invalid(_)) {
            return;
        }
        let rules = self.rules.load();
        if verb == Verb::Take {
            self.advised(&rules, verdict);
        }
        let Some(binding) = verdict.binding() else {
            self.count(&rules.none, verb, 0, verdict.source);
            return;
        };
        let outcome = place_of(binding.decision.outcome);
        if let Some(handles) = rules.of(verdict, binding.origin) {
            self.count(handles, verb, outcome, verdict.source);
        }
        if verb == Verb::Take && verdict.source == Source::Store {
            let is_allowed = verdict.is_allowed();
            for judged in &verdict.checks {
                match judged.decision.found {
                    Found::State => self.buckets[0].inc(),
                    Found::Nothing if is_allowed => self.buckets[1].inc(),
                    Found::Nothing => continue,
                    Found::Malformed => self.buckets[2].inc(),
                };
            }
        }
    }

    fn took(&self, taken: &Taken) {
        let rules = self.rules.load();
        for (outcome, count) in [taken.allowed, taken.refused, taken.never].into_iter().enumerate() {
            if count > 0 {
                self.verdict_counter(&rules.inline, outcome, Source::Store).inc_by(count);
            }
        }
        for (found, count) in [taken.found, taken.created, taken.malformed].into_iter().enumerate() {
            if count > 0 {
                self.buckets[found].inc_by(count);
            }
        }
    }

    fn refunded(&self, refunds: &[Refunded]) {
        for refund in refunds {
            match refund.returned {
                Returned::All => self.refunds[0].inc(),
                Returned::Part => self.refunds[1].inc(),
                Returned::Nothing => self.refunds[2].inc(),
            };
        }
    }

    fn called(&self, call: &Call<'_>) {
        let place = Operation::ALL.iter().position(|one| *one == call.operation).unwrap_or(0);
        if let Some(latency) = self.latency.get(place) {
            latency.observe(call.took.as_secs_f64());
        }
        match call.error {
            None => {
                if let Some(done) = self.done.get(place) {
                    done.inc();
                }
            }
            // An outage is not the hot path: looking its labels up costs less than a handle for each.
            Some(error) => {
                let labels = OperationLabels { operation: call.operation.name(), result: "error" };
                self.operations.get_or_create_owned(&labels).inc();
                self.errors.get_or_create_owned(&ClassLabel { class: error.name() }).inc();
            }
        }
    }

    fn guard_changed(&self, change: &GuardChange<'_>) {
        match change {
            GuardChange::Opened { .. } => {
                self.fallback_active.inc();
                self.outages.inc();
            }
            GuardChange::Closed { .. } => {
                self.fallback_active.dec();
            }
        }
    }

    fn leased(&self, change: &LeaseChange) {
        let [taken, returned, expired] = &self.lease_tokens;
        match *change {
            LeaseChange::Taken { tokens } => taken.inc_by(tokens.into()),
            LeaseChange::Returned { tokens } => returned.inc_by(tokens.into()),
            LeaseChange::Expired { tokens } => expired.inc_by(tokens.into()),
        };
    }

    fn policy_swapped(&self, policy: &Policy) {
        self.policy_version.set(i64::try_from(policy.version()).unwrap_or(i64::MAX));
        self.policy_rules.set(i64::try_from(policy.rules().len()).unwrap_or(i64::MAX));
        let before = self.rules.swap(std::sync::Arc::new(Rules {
            version: policy.version(),
            by_place: policy.rules().iter().map(|rule| self.handles(rule.name())).collect(),
            inline: self.handles(INLINE),
            lists: RuleHandles { name: LISTS.to_owned(), ..RuleHandles::default() },
            none: RuleHandles { name: NONE.to_owned(), ..RuleHandles::default() },
        }));
        for gone in before.by_place.iter().filter(|handles| policy.rule(&handles.name).is_none()) {
            self.forget(gone);
        }
    }
}

/// The classes an error can have are the policy of the core; this only says that they are few.
const _: () = assert!(ErrorClass::ALL.len() < 64, "error classes are metric labels and must stay few");
