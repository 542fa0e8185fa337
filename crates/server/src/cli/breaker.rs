//! The fleet's record of a breaker, in words and in JSON, for `tollgate inspect`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};
use tollgate::Micros;
use tollgate::store::redis::InspectedBreaker;

use super::inspect::{shown, span, when};

/// In words.
pub(super) fn in_words(breaker: &InspectedBreaker, out: &mut String) {
    let _ = write_words(breaker, out); // writing to a String cannot fail
}

fn write_words(breaker: &InspectedBreaker, out: &mut String) -> std::fmt::Result {
    let InspectedBreaker { stem, id, now, expires_after, .. } = breaker;
    writeln!(out, "{}", shown(stem))?;
    let id = id.as_deref().map_or_else(|| "a long id, kept as a hash".to_owned(), shown);
    writeln!(out, "  breaker      {id}")?;
    for (name, value) in facts(breaker) {
        writeln!(out, "  {name:<12} {value}")?;
    }
    match expires_after {
        Some(after) => writeln!(out, "  expires      in {}", span(*after))?,
        None => writeln!(out, "  expires      never: somebody took its TTL away; the next change sets one")?,
    }
    match &breaker.changes {
        None => writeln!(out, "  changes      not readable by this user: grant +xrevrange")?,
        Some(changes) => {
            for (at, fields) in changes {
                writeln!(out, "  changed      {}", change(*at, *now, fields))?;
            }
        }
    }
    writeln!(out)
}

fn facts(breaker: &InspectedBreaker) -> Vec<(&'static str, String)> {
    let InspectedBreaker { state, numbers, now, .. } = breaker;
    let Some(state) = state else {
        return vec![("malformed", "not a record of ours: the next event begins a new one".to_owned())];
    };
    let number = |name: &str| numbers.get(name).copied().unwrap_or(0);
    let at = |name: &str| when(Micros(number(name)), *now);
    let since = number("since");
    let ramping = if state == "half-open" && since > 0 { ", ramping" } else { "" };
    let mut facts = vec![("state", format!("{}{ramping}", shown(state)))];
    match state.as_str() {
        "open" => facts.extend([("opened", at("opened_at")), ("until", at("until"))]),
        _ if since > 0 => facts.push(("since", at("since"))),
        _ => {}
    }
    facts.extend([
        (
            "failures",
            format!("{} in the window, {} calls ever counted", number("failures"), number("counted")),
        ),
        ("successes", format!("{} of probes", number("successes"))),
        ("trips", number("trips").to_string()),
        ("epoch", number("epoch").to_string()),
        ("reporters", format!("{}, of which {} in trouble", breaker.reporters.len(), breaker.troubled)),
    ]);
    for (token, ends) in &breaker.leases {
        facts.push(("probe", format!("{}, its lease ends {}", shown(token), when(*ends, *now))));
    }
    if let Some((mode, until, reason, who)) = &breaker.overridden {
        let who = if who.is_empty() { "somebody".to_owned() } else { shown(who) };
        let said = format!("{} by {who}: {}; ends {}", mode.name(), shown(reason), when(*until, *now));
        facts.push(("override", said));
    }
    facts
}

fn change(at: Micros, now: Micros, fields: &BTreeMap<String, String>) -> String {
    let field = |name: &str| fields.get(name).map_or_else(String::new, |value| shown(value));
    let mut said =
        format!("{} ago: {} -> {}, {}", span(now - at), field("from"), field("to"), field("cause"));
    let _ = write!(
        said,
        " ({} ok, {} failed, {} slow; {} of {} in trouble)",
        field("ok"),
        field("failed"),
        field("slow"),
        field("troubled"),
        field("reporters")
    ); // writing to a String cannot fail
    said
}

/// In JSON, on one line.
pub(super) fn in_json(breaker: &InspectedBreaker, out: &mut String) {
    let InspectedBreaker { stem, id, state, numbers, overridden, now, .. } = breaker;
    let leases: BTreeMap<&String, u64> = breaker.leases.iter().map(|(token, ends)| (token, ends.0)).collect();
    let overridden = overridden.as_ref().map(|(mode, until, reason, who)| {
        json!({ "mode": mode.name(), "until_us": until.0, "reason": reason, "who": who })
    });
    let changes: Option<Vec<Value>> = breaker.changes.as_ref().map(|changes| {
        changes.iter().map(|(at, fields)| json!({ "at_us": at.0, "fields": fields })).collect()
    });
    let object = json!({
        "key": stem,
        "breaker": id,
        "state": state,
        "record": numbers,
        "leases_us": leases,
        "reporters": breaker.reporters.len(),
        "troubled": breaker.troubled,
        "override": overridden,
        "expires_after_ms": breaker.expires_after.map(Micros::as_millis_ceil),
        "now_us": now.0,
        "changes": changes,
    });
    let _ = writeln!(out, "{object}"); // writing to a String cannot fail
}
