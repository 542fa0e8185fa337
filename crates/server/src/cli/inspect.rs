//! `tollgate inspect`: any bucket and any breaker, in words. State is binary; this is how people read it.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use tollgate::Micros;
use tollgate::core::algorithm::token_bucket::State;
use tollgate::core::key::KEY_ALONE;
use tollgate::store::redis::{Content, Inspected, InspectedBreaker, RedisStore};

use super::breaker;
use crate::config::{Config, Overrides};

const AFTER_HELP: &str = "\
Examples:
  tollgate inspect user_123 --redis redis://127.0.0.1:6379     every limit that user has spent from
  tollgate inspect 'tg:1p:{user_123}:login:0:sl'               one key, by its full name
  tollgate inspect user_123 --raw                              with the bytes, as Redis has them
  tollgate inspect payments                                    the fleet's breaker of that id, and its last changes

Reads only. Looking a subject up walks the whole database with SCAN.";

/// Shows what is remembered about a key: rule or inline limit, what is left, TTL, when it is whole. Or how a breaker
/// stands, why and since when.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Inspect {
    /// Whose limits, or which breaker: a key or an id as callers give it, or a full Redis key.
    #[arg(value_name = "KEY")]
    key: String,

    /// Where state is shared.
    #[arg(long, value_name = "URL", env = "TOLLGATE_REDIS", hide_env_values = true)]
    redis: Option<String>,

    /// The file the server runs with, for its Redis settings.
    #[arg(long, value_name = "FILE", env = "TOLLGATE_CONFIG")]
    config: Option<PathBuf>,

    /// Also show the stored bytes, in hexadecimal.
    #[arg(long)]
    raw: bool,

    /// Answer in JSON, one object a line.
    #[arg(long)]
    json: bool,
}

impl Inspect {
    /// Looks and tells.
    pub(super) fn run(self) -> Result<(), anyhow::Error> {
        let Inspect { key, redis, config, raw, json } = self;
        let (config, _) = Config::load(Overrides { file: config, redis, ..Overrides::default() })?;
        let Some(redis) = config.redis else {
            bail!("there is no Redis to look into: give --redis URL, or a file that names one");
        };
        let place = redis.url.to_string();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (found, breaker) = runtime
            .block_on(look(RedisStore::new(redis)?, &key))
            .with_context(|| format!("cannot read {place}"))?;
        if found.is_empty() && breaker.is_none() {
            bail!(
                "nothing is remembered about \"{key}\" in {place}: all its limits are whole, or it is another prefix's"
            );
        }
        let mut out = String::new();
        for inspected in &found {
            if json { in_json(inspected, raw, &mut out) } else { in_words(inspected, raw, &mut out) }
        }
        if let Some(found) = &breaker {
            if json { breaker::in_json(found, &mut out) } else { breaker::in_words(found, &mut out) }
        }
        io::stdout().write_all(out.as_bytes()).context("cannot write")
    }
}

/// Everything a subject has, and the breaker of that id.
async fn look(
    store: RedisStore,
    key: &str,
) -> Result<(Vec<Inspected>, Option<InspectedBreaker>), anyhow::Error> {
    if let Some(found) = store.inspect(key).await? {
        return Ok((vec![found], None));
    }
    if let Some(found) = store.inspect_breaker_key(key).await? {
        return Ok((Vec::new(), Some(found)));
    }
    let names = store.keys_of(key.as_bytes()).await?;
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        found.extend(store.inspect(&name).await?);
    }
    Ok((found, store.inspect_breaker(key.as_bytes()).await?))
}

fn in_words(inspected: &Inspected, raw: bool, out: &mut String) {
    let _ = write_words(inspected, raw, out); // writing to a String cannot fail
}

fn write_words(inspected: &Inspected, raw: bool, out: &mut String) -> std::fmt::Result {
    let Inspected { key, subject, rule, limit, kind, layout, expires_after, now, content, .. } = inspected;
    writeln!(out, "{}", shown(key))?;
    let whose = subject.as_deref().map_or_else(|| "a long subject, kept as a hash".to_owned(), shown);
    writeln!(out, "  subject      {whose}")?;
    match rule {
        Some(rule) => writeln!(out, "  rule         {} (limit {limit})", shown(rule))?,
        None if limit == KEY_ALONE => writeln!(out, "  inline       by its key alone (CL.THROTTLE, GCRA)")?,
        None => writeln!(out, "  inline       per {limit}")?,
    }
    writeln!(out, "  algorithm    {kind}, {} layout", layout.name())?;
    for (name, value) in facts(content, *now) {
        writeln!(out, "  {name:<12} {value}")?;
    }
    match expires_after {
        Some(after) => writeln!(out, "  expires      in {}", span(*after))?,
        None => writeln!(out, "  expires      never: somebody took its TTL away; the next spends set one")?,
    }
    if raw {
        for part in &inspected.raw {
            writeln!(out, "  raw          {}", hexadecimal(part))?;
        }
    }
    writeln!(out)
}

/// What a key says, as names and values.
fn facts(content: &Content, now: Micros) -> Vec<(&'static str, String)> {
    match content {
        Content::Bucket(state) => bucket_facts(state, now),
        Content::Log(instants) => {
            let last = instants.last().map_or("-".to_owned(), |at| when(*at, now));
            vec![("entries", instants.len().to_string()), ("last", last)]
        }
        Content::SlidingWindow { start, current, previous } => vec![
            ("window", format!("began {}", when(*start, now))),
            ("counted", format!("{current}, and {previous} in the window before")),
        ],
        Content::FixedWindow { start, count } => {
            vec![("window", format!("began {}", when(*start, now))), ("counted", count.to_string())]
        }
        Content::Malformed { redis_type } => {
            vec![("malformed", format!("a {redis_type} that is not ours: the next take finds a whole limit"))]
        }
    }
}

fn bucket_facts(state: &State, now: Micros) -> Vec<(&'static str, String)> {
    let State { units, last_refill, under } = state;
    let poured = (now - *last_refill).0.saturating_mul(u64::from(under.pour()));
    let present = units.saturating_add(poured).min(under.full());
    let missing = under.full() - present;
    let full_in = missing.div_ceil(u64::from(under.pour()));
    let per_token = Micros(under.unit().div_ceil(u64::from(under.pour())));
    vec![
        ("limit", format!("{} tokens, one every {}", under.capacity(), span(per_token))),
        (
            "tokens",
            format!(
                "{} now, {} when last refilled",
                tokens(present, under.unit()),
                tokens(*units, under.unit())
            ),
        ),
        ("last refill", when(*last_refill, now)),
        ("full", if missing == 0 { "now".to_owned() } else { format!("in {}", span(Micros(full_in))) }),
    ]
}

/// Tokens with three decimals, rounded down.
fn tokens(units: u64, unit: u64) -> String {
    let thousandths = u128::from(units) * 1000 / u128::from(unit);
    format!("{}.{:03}", thousandths / 1000, thousandths % 1000)
}

/// An instant, and how long ago that is.
pub(super) fn when(at: Micros, now: Micros) -> String {
    let seconds = at.0 / 1_000_000;
    let relative =
        if at > now { format!("in {}", span(at - now)) } else { format!("{} ago", span(now - at)) };
    format!("{relative} (Redis' clock: {seconds}.{:06})", at.0 % 1_000_000)
}

/// A span in two units at most: `1h 3min`, `4.2s`, `17ms`.
pub(super) fn span(span: Micros) -> String {
    let micros = span.0;
    let (seconds, millis) = (micros / 1_000_000, micros / 1_000);
    match seconds {
        86_400.. => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3_600),
        3_600.. => format!("{}h {}min", seconds / 3_600, seconds % 3_600 / 60),
        60.. => format!("{}min {}s", seconds / 60, seconds % 60),
        1.. => format!("{seconds}.{}s", millis % 1_000 / 100),
        0 if millis > 0 => format!("{millis}ms"),
        0 => format!("{micros}us"),
    }
}

fn in_json(inspected: &Inspected, raw: bool, out: &mut String) {
    let Inspected { key, subject, rule, limit, kind, layout, expires_after, now, content, .. } = inspected;
    let mut object = serde_json::json!({
        "key": key,
        "subject": subject,
        "rule": rule,
        "limit": limit,
        "algorithm": kind.name(),
        "layout": layout.name(),
        "expires_after_ms": expires_after.map(Micros::as_millis_ceil),
        "now_us": now.0,
    });
    let content = match content {
        Content::Bucket(State { units, last_refill, under }) => serde_json::json!({
            "units": units, "units_per_token": under.unit(), "units_per_us": under.pour(),
            "capacity": under.capacity(), "last_refill_us": last_refill.0,
        }),
        Content::Log(instants) => {
            serde_json::json!({ "entries_us": instants.iter().map(|at| at.0).collect::<Vec<_>>() })
        }
        Content::SlidingWindow { start, current, previous } => {
            serde_json::json!({ "window_us": start.0, "count": current, "previous": previous })
        }
        Content::FixedWindow { start, count } => serde_json::json!({ "window_us": start.0, "count": count }),
        Content::Malformed { redis_type } => serde_json::json!({ "malformed": redis_type }),
    };
    object["state"] = content;
    if raw {
        object["raw"] = inspected.raw.iter().map(|part| hexadecimal(part)).collect();
    }
    let _ = writeln!(out, "{object}"); // writing to a String cannot fail
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
        text
    })
}

/// What came from a caller, made safe for a terminal.
pub(super) fn shown(text: &str) -> String {
    text.chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect::<Vec<_>>() } else { vec![c] })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_as_people_say_them() {
        for (micros, said) in [
            (7, "7us"),
            (17_400, "17ms"),
            (4_250_000, "4.2s"),
            (63_000_000, "1min 3s"),
            (3_780_000_000, "1h 3min"),
            (90_000_000_000, "1d 1h"),
        ] {
            assert_eq!(span(Micros(micros)), said);
        }
    }

    #[test]
    fn nothing_a_caller_wrote_reaches_the_terminal_raw() {
        assert_eq!(shown("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
    }
}
