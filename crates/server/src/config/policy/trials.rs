//! A file's own `tests`: an ask, the rules it must match, and the verdict it must get.
//!
//! Each runs on a memory of its own at a time of its own, so that no test can spend what another counts
//! on. `after` moves that time between asks.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tollgate::clock::Clock;
use tollgate::core::attributes::Known;
use tollgate::core::decision::Outcome as Decided;
use tollgate::core::policy::Role;
use tollgate::{Answer, Ask, By, Cost, Engine, MemoryStore, Micros, Policy, Rule, Verdict, Want};

use super::super::problems::Place;
use super::super::section::{Section, clip};
use super::attribute;

/// When tests happen: a moment at the beginning of a minute, of an hour and of a day.
const START: Micros = Micros(1_800_057_600_000_000);

/// The most asks of one test.
const TIMES_MAX: u64 = 100_000;

/// One test of a file.
#[derive(Debug, Clone)]
pub(crate) struct Trial {
    pub(crate) name: String,
    pub(crate) place: Place,
    rule: Option<String>,
    key: String,
    cost: Cost,
    known: Known,
    times: u64,
    after: Duration,
    rules: Option<Vec<String>>,
    outcome: Option<Outcome>,
    remaining: Option<u64>,
    retry_after: Option<Duration>,
    subject: Option<String>,
    would_refuse: Option<Vec<String>>,
}

/// What a test expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Allowed,
    Refused,
}

impl Outcome {
    fn parse(name: &str) -> Option<Outcome> {
        match name {
            "allowed" => Some(Outcome::Allowed),
            "refused" => Some(Outcome::Refused),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Outcome::Allowed => "allowed",
            Outcome::Refused => "refused",
        }
    }
}

/// Reads `tests`.
pub(super) fn check(root: &mut Section<'_>) -> Vec<Trial> {
    let trees = root.list("tests").unwrap_or_default();
    let mut trials = Vec::new();
    for (at, tree) in trees.into_iter().enumerate() {
        let mut section = Section::open(&format!("tests[{at}]"), tree, root.problems());
        trials.push(trial(&mut section, at));
        section.close();
    }
    trials
}

fn trial(section: &mut Section<'_>, at: usize) -> Trial {
    const DAY: Duration = Duration::from_hours(24);
    let place = section.place();
    let name = section.text("name").map_or_else(|| format!("tests[{at}]"), |at| at.value);
    let times = section.whole("times", 1..=TIMES_MAX).map_or(1, |at| at.value);
    let after = section.span("after", Duration::ZERO..=366 * DAY).map_or(Duration::ZERO, |at| at.value);
    let rules = section.texts("rules").map(|texts| texts.into_iter().map(|at| at.value).collect());
    let outcome = section.word("verdict", "allowed or refused", Outcome::parse).map(|at| at.value);
    let remaining = section.whole("remaining", 0..=u64::from(u32::MAX)).map(|at| at.value);
    let retry_after = section.span("retry_after", Duration::ZERO..=366 * DAY).map(|at| at.value);
    let subject = section.text("subject").map(|at| at.value);
    let would_refuse =
        section.texts("would_refuse").map(|texts| texts.into_iter().map(|at| at.value).collect());
    let says_nothing = rules.is_none()
        && outcome.is_none()
        && remaining.is_none()
        && retry_after.is_none()
        && subject.is_none()
        && would_refuse.is_none();
    if says_nothing && !section.was_there("verdict") {
        section.missing("verdict", "is missing: say what must come of it: verdict, rules, remaining, retry_after, subject or would_refuse");
    }
    if !section.has("ask") {
        section.missing(
            "ask",
            "is missing: say what is known of the call, such as {path: /login, address: 203.0.113.9}",
        );
    }

    let mut ask = section.section("ask");
    let rule = ask.text("rule").map(|at| at.value);
    let key = ask.text("key");
    let cost = ask.whole("cost", 1..=u64::from(u32::MAX));
    let cost = cost.and_then(|at| Cost::new(u32::try_from(at.value).ok()?)).unwrap_or(Cost::ONE);
    if rule.is_some() && key.is_none() {
        ask.missing("key", "is missing: a rule that is asked for by name needs the key it is asked for");
    }
    if let (None, Some(key)) = (&rule, &key) {
        ask.problems().add(
            key.place,
            &key.path,
            "belongs to a rule: name it, or leave the key to the rules that apply",
        );
    }
    let mut known = Known::default();
    for (field, texts) in ask.texts_by_name() {
        let path = ask.path_of(&field.name);
        let Some(attribute) = ask.problems().keep(field.place, &path, attribute::read(&field.name)) else {
            continue;
        };
        let [text] = texts.as_slice() else {
            ask.problems().add(field.place, &path, "is one text: a call has one of each");
            continue;
        };
        if let Some(more) = known.clone().with(attribute, &text.value) {
            known = more;
        } else {
            let what = format!("\"{}\" is no address", clip(&text.value));
            ask.problems().add(text.place, &path, what);
        }
    }
    ask.close();
    let key = key.map(|at| at.value).unwrap_or_default();
    Trial {
        name,
        place,
        rule,
        key,
        cost,
        known,
        times,
        after,
        rules,
        outcome,
        remaining,
        retry_after,
        subject,
        would_refuse,
    }
}

impl Trial {
    /// Runs it. What came otherwise is said in words.
    pub(crate) async fn run(&self, policy: &Policy) -> Result<(), Vec<String>> {
        let (clock, hand) = Clock::manual(START);
        let store = MemoryStore::builder().max_keys(10_000).clock(clock).build();
        // What a file says of its rules it says of each call: nothing is taken ahead.
        let engine = Engine::builder(store).policy(policy.clone()).without_leases().build();
        let mut verdict = None;
        for _ in 0..self.times {
            if verdict.is_some() {
                hand.fetch_add(Micros::from(self.after).0, Ordering::SeqCst);
            }
            let by = match &self.rule {
                Some(rule) => By::RuleFor(rule, &self.known),
                None => By::Attributes(&self.known),
            };
            let want = Want { by, key: self.key.as_bytes(), cost: self.cost, takes: &[] };
            verdict = Some(engine.decide(&Ask { wants: &[want] }).await);
        }
        let wrong = verdict.map(|verdict| self.compare(&verdict)).unwrap_or_default();
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }

    fn compare(&self, verdict: &Verdict) -> Vec<String> {
        let mut wrong = Vec::new();
        if let Answer::Invalid(problem) = &verdict.answer {
            return vec![format!("the ask {problem}")];
        }
        let names = |wanted: &dyn Fn(&tollgate::core::verdict::Judged) -> bool| {
            let judged = verdict.checks.iter().filter(|judged| wanted(judged));
            let mut names: Vec<&str> =
                judged.filter_map(|judged| verdict.policy.rule_of(judged.origin)).map(Rule::name).collect();
            names.dedup();
            names.sort_unstable();
            names.dedup();
            names
        };
        let mut expect = |what: &str, expected: String, found: String| {
            if expected != found {
                wrong.push(format!("{what}: expected {expected}, found {found}"));
            }
        };
        let listed = |names: &[&str]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        if let Some(rules) = &self.rules {
            let mut expected: Vec<&str> = rules.iter().map(String::as_str).collect();
            expected.sort_unstable();
            expect("rules", listed(&expected), listed(&names(&|judged| judged.role != Role::Candidate)));
        }
        if let Some(outcome) = self.outcome {
            let found = if verdict.is_allowed() { Outcome::Allowed } else { Outcome::Refused };
            let by = verdict.rule().map_or(String::new(), |rule| format!(" by {}", rule.name()));
            let found =
                if found == outcome { outcome.name().to_owned() } else { format!("{}{by}", found.name()) };
            expect("verdict", outcome.name().to_owned(), found);
        }
        let binding = verdict.binding();
        if let Some(remaining) = self.remaining {
            let found = binding.map_or("no limit".to_owned(), |judged| judged.decision.remaining.to_string());
            expect("remaining", remaining.to_string(), found);
        }
        if let Some(retry_after) = self.retry_after {
            let found =
                verdict.retry_after().map_or("nothing to wait for".to_owned(), |wait| wait.to_string());
            expect("retry_after", Micros::from(retry_after).to_string(), found);
        }
        if let Some(subject) = &self.subject {
            let judged = binding.or_else(|| verdict.checks.first());
            expect(
                "subject",
                subject.clone(),
                judged.map_or("nobody", |judged| judged.subject.name()).to_owned(),
            );
        }
        if let Some(would_refuse) = &self.would_refuse {
            let mut expected: Vec<&str> = would_refuse.iter().map(String::as_str).collect();
            expected.sort_unstable();
            let found =
                names(&|judged| judged.role != Role::Enforced && judged.decision.outcome != Decided::Allowed);
            expect("would_refuse", listed(&expected), listed(&found));
        }
        wrong
    }
}
