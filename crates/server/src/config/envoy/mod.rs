//! The `envoy` section: how Envoy's rate-limit service answers; and envoyproxy/ratelimit's own files and
//! environment.

mod dialect;
pub(crate) mod environment;
mod spelling;

use std::sync::Arc;

use hyper::header::HeaderName;

use super::section::{Section, clip};
use crate::rls::{HeaderNames, Outage, Settings, Taking};
use dialect::Domains;

/// The headers of envoyproxy/ratelimit.
const HEADERS: [(&str, &str); 3] = [
    ("limit_header", "RateLimit-Limit"),
    ("remaining_header", "RateLimit-Remaining"),
    ("reset_header", "RateLimit-Reset"),
];

/// The part of a limit above which hits are near it, in thousandths.
const NEAR_LIMIT_PERMILLE: u64 = 800;

/// Reads the section, and the files of the dialect if there are any. With it comes what should be known.
pub(super) fn check(
    mut section: Section<'_>,
    files: Option<&[(String, String)]>,
    log_max: u32,
) -> (Settings, Vec<String>) {
    let taking = section.word("take", "each or together", |word| match word {
        "each" => Some(Taking::Each),
        "together" => Some(Taking::Together),
        _ => None,
    });
    let outage = section.word("on_outage", "answer or error", |word| match word {
        "answer" => Some(Outage::Answer),
        "error" => Some(Outage::Error),
        _ => None,
    });
    let spares = section.word("refused_hits", "counted or ignored", |word| match word {
        "counted" => Some(false),
        "ignored" => Some(true),
        _ => None,
    });
    let has_headers = section.truth("response_headers").is_some_and(|at| at.value);
    let [limit, remaining, reset] = HEADERS.map(|(field, usual)| header(&mut section, field, usual));
    let mut truth = |name| section.truth(name).is_some_and(|at| at.value);
    let (is_shadow, is_quota) = (truth("shadow_mode"), truth("quota_mode"));
    let (has_metadata, has_metrics) = (truth("dynamic_metadata"), truth("metrics"));
    let domains = if truth("merge_domains") { Domains::Merged } else { Domains::Apart };
    let near = section.whole("near_limit_permille", 0..=1000).map_or(NEAR_LIMIT_PERMILLE, |at| at.value);
    let mut warnings = Vec::new();
    let dialect = files.map(|files| {
        let (dialect, found) = dialect::read(files, domains, log_max, section.problems());
        warnings = found;
        if dialect.limits().is_empty() {
            warnings.push("the directory of --envoy-config holds no limit: every request passes".to_owned());
        }
        Arc::new(dialect)
    });
    section.close();
    let settings = Settings {
        dialect,
        taking: taking.map(|at| at.value).unwrap_or_default(),
        outage: outage.map(|at| at.value).unwrap_or_default(),
        headers: has_headers.then_some(HeaderNames { limit, remaining, reset }),
        spares_the_rest: spares.is_some_and(|at| at.value),
        is_shadow,
        is_quota,
        has_metadata,
        has_metrics,
        near_limit_permille: u32::try_from(near).unwrap_or(1000),
    };
    (settings, warnings)
}

fn header(section: &mut Section<'_>, field: &'static str, usual: &str) -> Arc<str> {
    let Some(written) = section.text(field) else { return usual.into() };
    if HeaderName::from_bytes(written.value.as_bytes()).is_err() {
        let what = format!("\"{}\" is no name of a header", clip(&written.value));
        section.problems().add(written.place, &written.path, what);
    }
    written.value.into()
}

#[cfg(test)]
mod tests;
