//! `TG.INSPECT`: what is remembered about a key, in words.

use std::fmt::Write as _;
use std::sync::Arc;

use tollgate::core::policy::Role;
use tollgate::{Answer, Ask, By, Cost, Policy, Source, Want};

use crate::engine::Engine;
use crate::limit::rate_in_words;

/// The most rules that are looked at for one key.
const RULES_MAX: usize = 256;

/// Every limit of every rule that the key has spent from, a line each. Spends nothing.
pub(super) async fn in_words(engine: &Engine, policy: &Arc<Policy>, key: &[u8]) -> Result<String, Answer> {
    let mut text = String::new();
    for rule in policy.rules().iter().take(RULES_MAX) {
        let wants = [Want { by: By::Rule(rule.name()), key, cost: Cost::ONE, takes: &[] }];
        let ask = Ask { wants: &wants };
        let verdict = engine.peek_under(Arc::clone(policy), &ask).await;
        if let Answer::Invalid(_) = verdict.answer {
            return Err(verdict.answer);
        }
        let name = rule.name();
        if verdict.source == Source::DenyList {
            let _ = writeln!(text, "{name}: blocked"); // to a String, here and below: cannot fail
            continue;
        }
        let Ok(matched) = policy.matched(&ask) else { continue };
        let entries = matched.enforced.iter().chain(&matched.advisory);
        for (judged, entry) in verdict.checks.iter().zip(entries) {
            let decision = &judged.decision;
            if decision.reset_after.0 == 0 {
                continue;
            }
            let (words, kind) = (rate_in_words(entry.algorithm), entry.algorithm.kind());
            let (remaining, limit) = (decision.remaining, decision.limit);
            let whole_in = decision.reset_after.as_millis_ceil();
            let _ =
                write!(text, "{name}: {words} ({kind}): {remaining} of {limit} left, whole in {whole_in} ms");
            if judged.role != Role::Enforced {
                let _ = write!(text, ", {}", judged.role.name());
            }
            if let Source::Fallback(choice) = verdict.source {
                let _ = write!(text, ", by on_outage: {choice}");
            }
            text.push('\n');
        }
    }
    if text.is_empty() {
        text.push_str("every rule's limit is whole for this key\n");
    }
    Ok(text)
}
