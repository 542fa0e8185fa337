//! A request decided: each descriptor by itself, as the original does it, or all together.

use std::sync::Arc;

use tollgate::core::decision::Outcome;
use tollgate::core::few::Few;
use tollgate::core::policy::Role;
use tollgate::core::verdict::{Judged, RefundAnswer};
use tollgate::engine::together;
use tollgate::{Answer, Ask, Cost, Micros, Policy, Source, Verdict, Want, clock};

use super::dialect::Dialect;
use super::plan::{self, Measure, Planned, Verb};
use super::stats::{ErrorKind, Hits, Stats};
use super::{BadRequest, Code, Request, Response, Shown, Status, Unit, metadata};
use crate::engine::Engine;
use crate::facing::Facing;

/// How requests are answered. Travels with the policy.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of the original's, on or off")]
pub(crate) struct Settings {
    /// The limits of envoyproxy/ratelimit's YAML; without them the policy's own rules apply.
    pub(crate) dialect: Option<Arc<Dialect>>,
    pub(crate) taking: Taking,
    pub(crate) outage: Outage,
    /// The headers a client is told its limit by, if it is.
    pub(crate) headers: Option<HeaderNames>,
    /// Whether a refused cost leaves what it could not have; otherwise it uses that up.
    pub(crate) spares_the_rest: bool,
    /// Whether nobody is refused.
    pub(crate) is_shadow: bool,
    /// Whether every limit is a quota.
    pub(crate) is_quota: bool,
    /// Whether limits' metadata is told.
    pub(crate) has_metadata: bool,
    /// Whether it is also counted under envoyproxy/ratelimit's names.
    pub(crate) has_metrics: bool,
    /// The part of a limit above which hits are near it, in thousandths.
    pub(crate) near_limit_permille: u32,
}

/// Whether descriptors are charged alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Taking {
    /// Each by itself, whatever becomes of the others.
    #[default]
    Each,
    /// All of them, or none.
    Together,
}

/// What is answered while the store is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Outage {
    /// What `on_outage` says.
    #[default]
    Answer,
    /// That it is, as an error of the call, so that Envoy's failure mode answers.
    Error,
}

/// The names of the headers that tell a client its limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeaderNames {
    pub(crate) limit: Arc<str>,
    pub(crate) remaining: Arc<str>,
    pub(crate) reset: Arc<str>,
}

/// Why a request was not answered.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It cannot be understood, and nothing was spent.
    Bad(BadRequest),
    /// The store is away, and that is to be said.
    Away,
    /// A mistake on our side.
    Unfinished,
}

impl From<BadRequest> for Failure {
    fn from(bad: BadRequest) -> Failure {
        Failure::Bad(bad)
    }
}

/// Answers requests.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    engine: Engine,
    stats: Arc<Stats>,
}

/// One descriptor, decided.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) status: Status,
    /// What its limit said, whatever becomes of it.
    is_over: bool,
    pub(super) is_quota: bool,
    /// How much was asked for, what had been counted before and of how much.
    hits: Option<Hits>,
}

impl Service {
    /// A service that asks this engine, and counts there.
    pub(crate) fn new(engine: Engine, stats: Arc<Stats>) -> Service {
        Service { engine, stats }
    }

    /// Answers a request.
    ///
    /// hot path: one store round trip; for one descriptor the subject is allocated, and nothing else.
    pub(crate) async fn answer(&self, request: &Request<'_>) -> Result<Response, Failure> {
        // One snapshot to match with and to decide under: a reload in between cannot mix the two.
        let policy = self.engine.policy();
        let settings = &Facing::of(&policy).ok_or(Failure::Unfinished)?.rls;
        let started = settings.has_metrics.then(clock::instant);
        let answer = self.answer_under(&policy, settings, request).await;
        if let Some(started) = started {
            match &answer {
                Ok(_) => {}
                Err(Failure::Away) => self.stats.failed(ErrorKind::Redis),
                Err(Failure::Bad(_) | Failure::Unfinished) => self.stats.failed(ErrorKind::Service),
            }
            self.stats.answered(started.elapsed());
        }
        answer
    }

    async fn answer_under(
        &self,
        policy: &Arc<Policy>,
        settings: &Settings,
        request: &Request<'_>,
    ) -> Result<Response, Failure> {
        request.check()?;
        let planned = plan::of(settings.dialect.as_deref(), request);
        let decided = match &planned {
            Few::One(one) => Few::One(self.each(policy, settings, one, 0).await?),
            // Boxed: nearly every request has one descriptor, and should not make room for the others.
            Few::Many(many) => Few::Many(Box::pin(self.several(policy, settings, many)).await?),
        };
        if settings.has_metrics {
            self.count(settings, request, &planned, &decided);
        }
        Ok(response(settings, request, &planned, decided))
    }

    fn count(
        &self,
        settings: &Settings,
        request: &Request<'_>,
        planned: &[Planned<'_>],
        decided: &[Decided],
    ) {
        if settings.dialect.as_ref().is_some_and(|dialect| !dialect.has(&request.domain)) {
            self.stats.domain_not_found();
        }
        let near = settings.near_limit_permille;
        for ((planned, decided), asked) in planned.iter().zip(decided).zip(&request.descriptors) {
            let Some(hits) = decided.hits else { continue };
            match planned.limit {
                Some(limit) => self.stats.count(limit, &asked.entries, &request.domain, near, hits),
                None if asked.carried.is_some() => {
                    self.stats.count_carried(&asked.entries, &request.domain, near, hits);
                }
                None => {}
            }
        }
    }

    async fn several(
        &self,
        policy: &Arc<Policy>,
        settings: &Settings,
        planned: &[Planned<'_>],
    ) -> Result<Vec<Decided>, Failure> {
        if settings.taking == Taking::Together {
            return self.all(policy, settings, planned).await;
        }
        let each = planned.iter().enumerate();
        let all = together(each.map(|(at, one)| self.each(policy, settings, one, at))).await;
        all.into_iter().collect()
    }

    /// One descriptor by itself.
    async fn each(
        &self,
        policy: &Arc<Policy>,
        settings: &Settings,
        planned: &Planned<'_>,
        at: usize,
    ) -> Result<Decided, Failure> {
        self.each_as(planned.verb, policy, settings, planned, at).await
    }

    async fn each_as(
        &self,
        verb: Verb,
        policy: &Arc<Policy>,
        settings: &Settings,
        planned: &Planned<'_>,
        at: usize,
    ) -> Result<Decided, Failure> {
        let cost = match verb {
            Verb::Take(cost) | Verb::Refund(cost) => cost,
            Verb::Peek => Cost::ONE,
        };
        let Some(want) = planned.want(cost) else { return Ok(without_store(settings, planned)) };
        let ask = Ask { wants: &[want] };
        let verdict = match verb {
            Verb::Take(_) => self.engine.decide_under(Arc::clone(policy), &ask).await,
            Verb::Peek | Verb::Refund(_) => self.engine.peek_under(Arc::clone(policy), &ask).await,
        };
        check_verdict(settings, &verdict, |_| at)?;
        let mut decided = decided(settings, planned, &verdict, 0);
        match verb {
            Verb::Refund(_) => Box::pin(self.give_back(&ask, &verdict, &mut decided)).await,
            Verb::Take(_) if decided.is_over && !settings.spares_the_rest => {
                Box::pin(self.use_up(policy, planned, &mut decided)).await;
            }
            Verb::Take(_) | Verb::Peek => {}
        }
        Ok(decided)
    }

    /// All of them, or none. Limits that only watch are charged by themselves, once the others passed.
    async fn all(
        &self,
        policy: &Arc<Policy>,
        settings: &Settings,
        planned: &[Planned<'_>],
    ) -> Result<Vec<Decided>, Failure> {
        let shares = shares(planned);
        let wants: Vec<Want<'_>> =
            shares.iter().filter_map(|share| planned.get(share.first()?)?.want(share.cost)).collect();
        let has_nothing = planned.iter().any(|one| {
            is_enforced(one) && matches!((one.verb, &one.measure), (Verb::Take(_), Measure::Nothing { .. }))
        });
        let ask = Ask { wants: &wants };
        let verdict = if wants.is_empty() {
            None
        } else if has_nothing {
            // What admits nothing refuses the whole.
            Some(self.engine.peek_under(Arc::clone(policy), &ask).await)
        } else {
            Some(self.engine.decide_under(Arc::clone(policy), &ask).await)
        };
        if let Some(verdict) = &verdict {
            check_verdict(settings, verdict, |want| shares.get(want).and_then(Share::first).unwrap_or(0))?;
        }
        let passed = !has_nothing && verdict.as_ref().is_none_or(Verdict::is_allowed);
        let mut all = Vec::with_capacity(planned.len());
        for (at, one) in planned.iter().enumerate() {
            let want = shares.iter().position(|share| share.of.contains(&at));
            all.push(match (want, &verdict) {
                (Some(want), Some(verdict)) => decided(settings, one, verdict, want),
                // Only a request that passes is counted by what watches it.
                _ if !passed && matches!(one.verb, Verb::Take(_)) => {
                    self.each_as(Verb::Peek, policy, settings, one, at).await?
                }
                _ => self.each(policy, settings, one, at).await?,
            });
        }
        Ok(all)
    }

    /// A cost that does not fit uses up what is left, as in the original, where refused hits are counted:
    /// who reports what a call has cost, once it is over, must not be let off for costing too much.
    async fn use_up(&self, policy: &Arc<Policy>, planned: &Planned<'_>, decided: &mut Decided) {
        let Measure::Counted(_) = planned.measure else { return };
        let left = Cost::new(decided.status.remaining).and_then(|left| planned.want(left));
        if let Some(want) = left {
            self.engine.decide_under(Arc::clone(policy), &Ask { wants: &[want] }).await;
            decided.status.remaining = 0;
        }
    }

    /// Gives back hits that no take is named for: as if they had been taken just now.
    async fn give_back(&self, ask: &Ask<'_>, looked: &Verdict, decided: &mut Decided) {
        decided.status.code = Code::Ok;
        decided.is_over = false;
        let enforced = looked.checks.iter().filter(|judged| judged.role == Role::Enforced);
        let takes: Vec<_> = enforced.map(|judged| judged.decision.take).collect();
        if takes.is_empty() || looked.source != Source::Store {
            return;
        }
        let wants: Vec<_> = ask.wants.iter().map(|want| Want { takes: &takes, ..*want }).collect();
        if let RefundAnswer::Done(refunds) = self.engine.refund(&Ask { wants: &wants }).await
            && let Some(least) = refunds.iter().map(|refund| refund.remaining).min()
        {
            decided.status.remaining = least;
        }
    }
}

/// Whether requests should come here. A store that is away matters only if it is an error to ask then.
pub(crate) fn is_healthy(engine: &Engine) -> bool {
    let policy = engine.policy();
    let says_so = Facing::of(&policy).is_some_and(|facing| facing.rls.outage == Outage::Error);
    !says_so || engine.health().outage.is_none()
}

/// Descriptors that are charged together, as one want: two of one limit and one subject are one, of both costs.
struct Share {
    of: Vec<usize>,
    cost: Cost,
}

impl Share {
    fn first(&self) -> Option<usize> {
        self.of.first().copied()
    }
}

/// What is charged together: everything that takes and may refuse.
fn shares(planned: &[Planned<'_>]) -> Vec<Share> {
    let mut shares: Vec<Share> = Vec::new();
    for (at, one) in planned.iter().enumerate() {
        let Verb::Take(cost) = one.verb else { continue };
        if !is_enforced(one) || one.want(cost).is_none() {
            continue;
        }
        let is_same = |share: &&mut Share| {
            let first = share.of.first().and_then(|first| planned.get(*first));
            match (&one.measure, first.map(|first| &first.measure)) {
                (Measure::Counted(one), Some(Measure::Counted(other))) => {
                    one.subject == other.subject && one.inline.scope() == other.inline.scope()
                }
                _ => false,
            }
        };
        match shares.iter_mut().find(is_same) {
            Some(share) => {
                share.of.push(at);
                share.cost = Cost::new(share.cost.get().saturating_add(cost.get())).unwrap_or(cost);
            }
            None => shares.push(Share { of: vec![at], cost }),
        }
    }
    shares
}

fn is_enforced(planned: &Planned<'_>) -> bool {
    !planned.limit.is_some_and(|limit| limit.is_shadow)
}

fn check_verdict(
    settings: &Settings,
    verdict: &Verdict,
    descriptor: impl Fn(usize) -> usize,
) -> Result<(), Failure> {
    match (&verdict.answer, verdict.source) {
        (Answer::Invalid(problem), _) => {
            let at = descriptor(problem.place().0.unwrap_or(0));
            Err(BadRequest::new(format!("descriptors[{at}]"), problem.to_string()).into())
        }
        (_, Source::Fallback(_)) if settings.outage == Outage::Error => Err(Failure::Away),
        _ => Ok(()),
    }
}

/// What needs no store.
fn without_store(settings: &Settings, planned: &Planned<'_>) -> Decided {
    let passes = |remaining| Status { code: Code::Ok, limit: None, remaining, reset_after_secs: None };
    match &planned.measure {
        Measure::Unlimited => {
            // The original asks nobody about it, and counts nothing.
            Decided { status: passes(u32::MAX), is_over: false, is_quota: false, hits: None }
        }
        Measure::Nothing { shown, span } => {
            let is_over = !matches!(planned.verb, Verb::Refund(_));
            let status = Status {
                code: code(planned, is_over),
                limit: Some(shown.clone()),
                remaining: 0,
                reset_after_secs: Some(whole_secs(until_end(clock::wall(), *span))),
            };
            let hits = taken(planned, is_over, 0, 0);
            Decided { status, is_over, is_quota: is_quota(settings, planned), hits }
        }
        Measure::Free | Measure::Counted(_) | Measure::Rules(_) => {
            Decided { status: passes(0), is_over: false, is_quota: false, hits: None }
        }
    }
}

/// What the engine answered for the want at this place.
fn decided(settings: &Settings, planned: &Planned<'_>, verdict: &Verdict, want: usize) -> Decided {
    let mine = verdict.checks.iter().filter(|judged| judged.want == want && judged.role == Role::Enforced);
    let Some(judged) = mine.max_by_key(|judged| weight(judged)) else {
        let status = Status { code: Code::Ok, limit: None, remaining: 0, reset_after_secs: None };
        return Decided { status, is_over: false, is_quota: false, hits: None };
    };
    let is_over = judged.decision.outcome != Outcome::Allowed;
    let (shown, reset) = if let Measure::Counted(counted) = &planned.measure {
        let reset = match counted.fixed {
            // The original always says when the window ends, even if nothing was spent in it.
            Some(span) => until_end(judged.decision.take.at, span),
            None => judged.decision.reset_after,
        };
        (counted.shown.clone(), reset)
    } else {
        let shown = Shown {
            requests_per_unit: judged.decision.limit,
            unit: Unit::of_span(judged.window),
            name: verdict.policy.rule_of(judged.origin).map(|rule| rule.name().into()),
        };
        (shown, judged.decision.reset_after)
    };
    let spent = judged.decision.limit.saturating_sub(judged.decision.remaining);
    let hits = taken(planned, is_over, spent, judged.decision.limit);
    let status = Status {
        code: code(planned, is_over),
        limit: Some(shown),
        remaining: judged.decision.remaining,
        reset_after_secs: Some(whole_secs(reset)),
    };
    Decided { status, is_over, is_quota: is_quota(settings, planned), hits }
}

/// What is to be counted of a descriptor that takes; `spent` is what is spent of the limit now.
fn taken(planned: &Planned<'_>, is_over: bool, spent: u32, limit: u32) -> Option<Hits> {
    let Verb::Take(cost) = planned.verb else { return None };
    let before = if is_over { spent } else { spent.saturating_sub(cost.get()) };
    let is_shadow = planned.limit.is_some_and(|limit| limit.is_shadow);
    Some(Hits { cost: cost.get(), before, limit, is_over, is_shadow })
}

/// A limit that only watches says that everybody may pass.
fn code(planned: &Planned<'_>, is_over: bool) -> Code {
    let is_shadow = planned.limit.is_some_and(|limit| limit.is_shadow);
    if is_over && !is_shadow { Code::OverLimit } else { Code::Ok }
}

fn is_quota(settings: &Settings, planned: &Planned<'_>) -> bool {
    settings.is_quota || planned.limit.is_some_and(|limit| limit.is_quota)
}

/// Which of several limits speaks for a descriptor: as `Verdict::binding` has it for the whole ask.
fn weight(judged: &Judged) -> (u8, u64) {
    match judged.decision.outcome {
        Outcome::Never => (2, u64::MAX),
        Outcome::Denied { retry_after } => (1, retry_after.0),
        Outcome::Allowed => (0, u64::from(u32::MAX - judged.decision.remaining)),
    }
}

fn until_end(now: Micros, span: Micros) -> Micros {
    span - Micros(now.0.checked_rem(span.0).unwrap_or(0))
}

/// Rounded up: whoever waits that long has waited long enough.
fn whole_secs(span: Micros) -> u64 {
    span.0.div_ceil(1_000_000)
}

fn response(
    settings: &Settings,
    request: &Request<'_>,
    planned: &[Planned<'_>],
    decided: Few<Decided>,
) -> Response {
    let is_refused = decided.iter().any(|one| !one.is_quota && one.status.code == Code::OverLimit);
    let mut quotas = decided.iter().filter(|one| one.is_quota && one.status.limit.is_some()).peekable();
    let is_spent = quotas.peek().is_some() && quotas.all(|one| one.status.code == Code::OverLimit);
    let is_over = (is_refused || is_spent) && !settings.is_shadow;
    let headers = settings.headers.as_ref().map_or_else(Vec::new, |names| headers(names, &decided));
    let metadata = settings.has_metadata.then(|| metadata::of(request, planned, &decided));
    let statuses = match decided {
        Few::One(one) => Few::One(one.status),
        Few::Many(many) => Few::Many(many.into_iter().map(|one| one.status).collect()),
    };
    Response { code: if is_over { Code::OverLimit } else { Code::Ok }, statuses, headers, metadata }
}

/// The limit a client is told: the last that refuses it and is no quota, else the one with the least left.
fn headers(names: &HeaderNames, decided: &[Decided]) -> Vec<(Arc<str>, String)> {
    let limited = || decided.iter().filter(|one| one.status.limit.is_some());
    let failed = limited().rfind(|one| one.status.code == Code::OverLimit && !one.is_quota);
    let told = failed.or_else(|| limited().min_by_key(|one| one.status.remaining));
    let Some((status, limit)) = told.and_then(|one| Some((&one.status, one.status.limit.as_ref()?))) else {
        return Vec::new();
    };
    vec![
        (Arc::clone(&names.limit), limit.requests_per_unit.to_string()),
        (Arc::clone(&names.remaining), status.remaining.to_string()),
        (Arc::clone(&names.reset), status.reset_after_secs.unwrap_or(0).to_string()),
    ]
}
