//! `breakers`: which there are and how they behave, from a tree to a policy that can be trusted, and back.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use tollgate::breaker::{Behaviour, ID_BYTES_MAX};
use tollgate::core::breaker::{
    Breaker, CALLS_MAX, PROBES_MAX, Permille, RAMP_MAX, SPAN_MAX, Settings, Window,
};
use tollgate::core::policy::TextPattern;
use tollgate::{Micros, Rule};

use super::policy::quoted;
use super::problems::Place;
use super::section::{At, Section, clip, parse_span};
use crate::breakers::{BreakerPolicy, KINDS_MAX, Kind};

/// How long the outcome of a call is waited for, unless a breaker says otherwise.
const REPORT_WITHIN: Duration = Duration::from_mins(1);

/// What turns a rule off.
const OFF: &str = "off";

/// Reads `breakers`: the first that an id matches is the one that is meant.
pub(super) fn check(root: &mut Section<'_>) -> Arc<BreakerPolicy> {
    let place = root.place_of("breakers").unwrap_or(root.place());
    let trees = root.list("breakers").unwrap_or_default();
    if trees.len() > KINDS_MAX {
        root.problems().add(place, "breakers", format!("are {}: at most {KINDS_MAX}", trees.len()));
        return Arc::default();
    }
    let mut kinds: Vec<Kind> = Vec::new();
    let (mut names, mut patterns) = (HashMap::new(), HashMap::new());
    let mut all_at = None;
    for (at, tree) in trees.into_iter().enumerate() {
        let path = format!("breakers[{at}]");
        if !tree.is_map() {
            let what = format!("must be a mapping with a name or a match, and is {}", tree.kind());
            root.problems().add(tree.place, &path, what);
            continue;
        }
        let mut section = Section::open(&path, tree, root.problems());
        let Some((name, ids)) = called(&mut section) else {
            let _ = kind(&mut section, "unnamed", TextPattern::new("*"));
            section.close();
            continue;
        };
        if let Some(first) = names.insert(name.value.clone(), at) {
            let what = format!("\"{}\" is what breakers[{first}] is called too", clip(&name.value));
            section.problems().add(name.place, &name.path, what);
        } else if let Some(first) = patterns.insert(ids.value.clone(), at).or(all_at) {
            // Whoever wrote it believes that it is in force.
            let what = format!("is for nothing that breakers[{first}] before it is not for");
            section.problems().add(ids.place, &ids.path, what);
        }
        if ids.value == "*" {
            all_at = all_at.or(Some(at));
        }
        kinds.extend(kind(&mut section, &name.value, TextPattern::new(&ids.value)));
        section.close();
    }
    Arc::new(BreakerPolicy::new(kinds))
}

/// What it is called, and what ids it is for: a name is an id, too, unless there is a pattern.
fn called(section: &mut Section<'_>) -> Option<(At<String>, At<String>)> {
    let (name, ids) = (section.text("name"), section.text("match"));
    let is_wrong = |field: &str, is_read: bool| section.was_there(field) && !is_read;
    if is_wrong("name", name.is_some()) || is_wrong("match", ids.is_some()) {
        return None;
    }
    if let Some(ids) = &ids
        && !(1..=ID_BYTES_MAX).contains(&ids.value.len())
    {
        section.problems().add(ids.place, &ids.path, format!("must have 1 to {ID_BYTES_MAX} bytes"));
        return None;
    }
    if let Some(name) = &name {
        section.problems().keep(name.place, &name.path, Rule::check_name(&name.value))?;
    }
    match (name, ids) {
        (None, None) => {
            section.missing(
                "name",
                "is missing: give the id of a breaker, or a match such as \"payments-*\" for many",
            );
            None
        }
        (Some(name), None) => Some((name.clone(), name)),
        (Some(name), Some(ids)) => Some((name, ids)),
        (None, Some(ids)) => {
            let is_short = ids.value.len() <= 64 && !ids.value.chars().any(char::is_control);
            if !is_short {
                section.missing("name", "is missing: so long a match needs a name, for metrics");
            }
            is_short.then(|| (ids.clone(), ids))
        }
    }
}

fn kind(section: &mut Section<'_>, name: &str, ids: TextPattern) -> Option<Kind> {
    let before = section.problems().count();
    let settings = settings(section);
    let span = Duration::from_millis(1)..=SPAN_MAX.to_duration();
    let report_within = section.span("report_within", span).map_or(REPORT_WITHIN, |at| at.value);
    // Only settings that are right by themselves can be wrong together.
    if section.problems().count() != before {
        return None;
    }
    match Breaker::try_new(settings) {
        Ok(breaker) => {
            let behaviour = Arc::new(Behaviour::new(name, breaker));
            Some(Kind { ids, behaviour, report_within })
        }
        Err(problems) => {
            for problem in problems {
                let place = section.place_of(problem.field).unwrap_or(section.place());
                let path = section.path_of(problem.field);
                section.problems().add(place, &path, problem.what);
            }
            None
        }
    }
}

/// In the order in which they are documented, which is also that of the list of known fields.
fn settings(section: &mut Section<'_>) -> Settings {
    let default = Settings::default();
    let failures = or_off(section, "failures", default.failures, failures);
    let failure_ratio = or_off(section, "failure_ratio", default.failure_ratio, |text| share(text, 1));
    let slow_ratio = or_off(section, "slow_ratio", default.slow_ratio, |text| share(text, 1));
    let slow_after = time(section, "slow_after", default.slow_after);
    let window = section.text("window").and_then(|at| keep(section, &at, window(&at.value)));
    let window = window.unwrap_or(default.window);
    // A window by few calls is not to be written twice.
    let usual = match window {
        Window::Calls(calls) => default.minimum_calls.min(calls),
        Window::Time(_) => default.minimum_calls,
    };
    let minimum_calls = number(section, "minimum_calls", CALLS_MAX, usual);
    let quorum = shared(section, "quorum", default.quorum);
    let open_for = time(section, "open_for", default.open_for);
    let open_max = time(section, "open_max", default.open_max.max(open_for));
    let jitter = shared(section, "jitter", default.jitter);
    let decay_every = time(section, "decay_every", default.decay_every);
    let hint_max = or_off(section, "hint_max", Some(default.hint_max), hint).unwrap_or(Micros::ZERO);
    let probes = number(section, "probes", PROBES_MAX, default.probes);
    let probe_for = time(section, "probe_for", default.probe_for);
    let successes_to_close = number(section, "successes_to_close", CALLS_MAX, default.successes_to_close);
    let ramp = ramp(section).unwrap_or(default.ramp);
    let ramp_step = time(section, "ramp_step", default.ramp_step);
    Settings {
        failures,
        failure_ratio,
        slow_ratio,
        slow_after,
        window,
        minimum_calls,
        quorum,
        open_for,
        open_max,
        jitter,
        decay_every,
        hint_max,
        probes,
        probe_for,
        successes_to_close,
        ramp,
        ramp_step,
    }
}

fn time(section: &mut Section<'_>, name: &'static str, default: Micros) -> Micros {
    let bounds = Micros(1).to_duration()..=SPAN_MAX.to_duration();
    section.span(name, bounds).map_or(default, |at| Micros::from(at.value))
}

fn number(section: &mut Section<'_>, name: &'static str, most: u32, default: u32) -> u32 {
    let at = section.whole(name, 1..=u64::from(most));
    at.map_or(default, |at| u32::try_from(at.value).unwrap_or(default))
}

fn keep<T>(section: &mut Section<'_>, at: &At<String>, read: Result<T, String>) -> Option<T> {
    section.problems().keep(at.place, &at.path, read)
}

/// A setting that can be turned off.
fn or_off<T>(
    section: &mut Section<'_>,
    name: &'static str,
    default: Option<T>,
    read: impl Fn(&str) -> Result<T, String>,
) -> Option<T> {
    match section.scalar(name) {
        None => default,
        Some(at) if at.value == OFF => None,
        Some(at) => keep(section, &at, read(&at.value)),
    }
}

fn shared(section: &mut Section<'_>, name: &'static str, default: Permille) -> Permille {
    let at = section.scalar(name);
    at.and_then(|at| keep(section, &at, share(&at.value, 0))).unwrap_or(default)
}

fn failures(text: &str) -> Result<u32, String> {
    let number = text.parse::<u32>().ok().filter(|number| (1..=CALLS_MAX).contains(number));
    number.ok_or_else(|| format!("must be a whole number from 1 to {CALLS_MAX}, or off"))
}

fn hint(text: &str) -> Result<Micros, String> {
    parse_span(text, &(Duration::ZERO..=SPAN_MAX.to_duration())).map(Micros::from)
}

/// Reads `50%` and `2.5%`. A bare number is refused: nobody agrees on what it is a share of.
fn share(text: &str, least: u16) -> Result<Permille, String> {
    let bad = || {
        let least = Permille(least);
        format!("\"{}\" is not a share: write 50% or 2.5%, from {} to 100%", clip(text), in_percent(least))
    };
    let number = text.strip_suffix('%').ok_or_else(bad)?;
    let (whole, tenth) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str, most: usize| {
        let is_good = (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        is_good.then(|| text.parse::<u16>().ok()).flatten().ok_or_else(bad)
    };
    let permille = digits(whole, 3)? * 10 + digits(tenth, 1)?;
    if (least..=1000).contains(&permille) { Ok(Permille(permille)) } else { Err(bad()) }
}

fn in_percent(Permille(share): Permille) -> String {
    match (share / 10, share % 10) {
        (whole, 0) => format!("{whole}%"),
        (whole, tenth) => format!("{whole}.{tenth}%"),
    }
}

/// Reads `10s`, or `100 calls`.
fn window(text: &str) -> Result<Window, String> {
    let most = CALLS_MAX;
    if let Some(number) = text.strip_suffix("calls").map(str::trim_end) {
        let calls = number.parse::<u32>().ok().filter(|calls| (1..=most).contains(calls));
        return calls.map(Window::Calls).ok_or_else(|| format!("must be 1 to {most} calls"));
    }
    let bounds: RangeInclusive<Duration> = Duration::from_millis(1)..=SPAN_MAX.to_duration();
    let span = parse_span(text, &bounds).map_err(|why| format!("{why}; or a number of calls: 100 calls"))?;
    Ok(Window::Time(Micros::from(span)))
}

fn ramp(section: &mut Section<'_>) -> Option<Vec<Permille>> {
    let place = section.place_of("ramp").unwrap_or(section.place());
    let texts = section.texts("ramp")?;
    if let [at] = texts.as_slice()
        && at.value == OFF
    {
        return Some(Vec::new());
    }
    let count = texts.len();
    let steps: Vec<Permille> = texts.iter().filter_map(|at| keep(section, at, share(&at.value, 1))).collect();
    let wrong = |section: &mut Section<'_>, place: Place, what: String| {
        let path = section.path_of("ramp");
        section.problems().add(place, &path, what);
    };
    if count > RAMP_MAX {
        wrong(section, place, format!("has {count} steps: at most {RAMP_MAX}"));
    } else if steps.len() == count && !steps.is_sorted() {
        wrong(section, place, "climbs: no share is smaller than the one before".to_owned());
    }
    (steps.len() == count).then_some(steps)
}

/// Writes them as a file that says the same, defaults spelled out.
pub(crate) fn print(policy: &BreakerPolicy) -> String {
    let mut out = String::new();
    if policy.kinds().is_empty() {
        return out;
    }
    out.push_str("breakers:\n");
    for kind in policy.kinds() {
        for (at, (name, value)) in fields(kind).into_iter().enumerate() {
            let lead = if at == 0 { "  - " } else { "    " };
            let _ = writeln!(out, "{lead}{name}: {value}"); // writing to a String cannot fail
        }
    }
    out
}

fn fields(kind: &Kind) -> Vec<(&'static str, String)> {
    let Kind { ids, behaviour, report_within } = kind;
    let settings = behaviour.breaker().settings();
    let (name, ids) = (behaviour.name(), ids.to_string());
    let or_off = |value: Option<String>| value.unwrap_or_else(|| OFF.to_owned());
    let mut fields = Vec::new();
    // A pattern that is its own name has no other.
    if Rule::check_name(name).is_ok() {
        fields.push(("name", quoted(name)));
    }
    if ids != name || fields.is_empty() {
        fields.push(("match", quoted(&ids)));
    }
    let ramp: Vec<String> = settings.ramp.iter().map(|share| in_percent(*share)).collect();
    fields.extend([
        ("failures", or_off(settings.failures.map(|failures| failures.to_string()))),
        ("failure_ratio", or_off(settings.failure_ratio.map(in_percent))),
        ("slow_ratio", or_off(settings.slow_ratio.map(in_percent))),
        ("slow_after", settings.slow_after.to_string()),
        (
            "window",
            match settings.window {
                Window::Time(span) => span.to_string(),
                Window::Calls(calls) => format!("{calls} calls"),
            },
        ),
        ("minimum_calls", settings.minimum_calls.to_string()),
        ("quorum", in_percent(settings.quorum)),
        ("open_for", settings.open_for.to_string()),
        ("open_max", settings.open_max.to_string()),
        ("jitter", in_percent(settings.jitter)),
        ("decay_every", settings.decay_every.to_string()),
        ("hint_max", or_off((settings.hint_max > Micros::ZERO).then(|| settings.hint_max.to_string()))),
        ("probes", settings.probes.to_string()),
        ("probe_for", settings.probe_for.to_string()),
        ("successes_to_close", settings.successes_to_close.to_string()),
        ("ramp", format!("[{}]", ramp.join(", "))),
        ("ramp_step", settings.ramp_step.to_string()),
        ("report_within", Micros::from(*report_within).to_string()),
    ]);
    fields
}

#[cfg(test)]
mod tests;
