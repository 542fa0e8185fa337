//! Reload now, and say what came of it.

use hyper::StatusCode;
use serde_json::{Value, json};

use super::{Admin, text};
use crate::config::ConfigError;
use crate::net::Answer;
use crate::net::problem::Problem;
use crate::reload::{InForce, Outcome, Trigger};

/// Reloads, and answers with the version that is in force, or with everything that is wrong.
pub(super) async fn now(admin: &Admin) -> Answer {
    match admin.reloader.reload(Trigger::Admin).await {
        Outcome::Reloaded(in_force) => super::json(&done("reloaded", &in_force)),
        Outcome::Unchanged(in_force) => super::json(&done("unchanged", &in_force)),
        Outcome::Refused(why) => refused(&why, admin.engine.policy().version()),
        Outcome::NoFile => {
            let title = "there is no file to reload";
            let detail = "the built-in policy is in force; start with --config FILE";
            Problem::new(StatusCode::CONFLICT, "no-file", title, detail).answer()
        }
    }
}

fn done(result: &str, in_force: &InForce) -> Value {
    let InForce { version, digest, loaded: _, restart_needed, forgets } = in_force;
    json!({
        "result": result,
        "version": version,
        "sha256": digest.to_string(),
        "restart_needed": restart_needed,
        "forgets": forgets,
    })
}

/// A problem document with every problem of the file in it.
fn refused(why: &ConfigError, version: u64) -> Answer {
    let document = json!({
        "type": "urn:tollgate:problem:refused",
        "title": "the file is refused; nothing was changed",
        "status": 422,
        "detail": format!("policy version {version} stays in force"),
        "problems": problems(why),
    });
    text(StatusCode::UNPROCESSABLE_ENTITY, "application/problem+json", document.to_string() + "\n")
}

/// Everything that is wrong with a configuration, each with its place.
pub(super) fn problems(why: &ConfigError) -> Vec<Value> {
    match why {
        ConfigError::Refused(problems) => problems
            .each()
            .iter()
            .map(|problem| {
                json!({ "at": problems.place_of(problem), "field": problem.path, "what": problem.what })
            })
            .collect(),
        ConfigError::Unreadable { path, why } => {
            vec![json!({ "at": path, "field": "", "what": format!("cannot be read: {why}") })]
        }
        ConfigError::NoPolicy(error) => vec![json!({ "at": "", "field": "rules", "what": error.to_string() })],
    }
}
