//! What this door understands, for programs: an OpenAPI document, with the rules of the policy in force.

use serde_json::{Value, json};
use tollgate::{Policy, Rule, calendar};

/// Names of rules beyond so many are not listed: the document is for reading.
const RULES_MAX: usize = 1000;

/// The document under a policy.
pub(super) fn document(policy: &Policy) -> String {
    let Ok(mut document) = serde_json::from_str::<Value>(include_str!("openapi.json")) else {
        return String::new(); // a test reads it
    };
    document["info"]["version"] = json!(env!("CARGO_PKG_VERSION"));
    let names: Vec<&str> = policy.rules().iter().map(Rule::name).collect();
    let schemas = &mut document["components"]["schemas"];
    if names.is_empty() || names.len() > RULES_MAX {
        let name = &mut schemas["RuleName"];
        name["pattern"] = json!("^[A-Za-z0-9._-]{1,64}$");
        name.as_object_mut().map(|name| name.remove("enum"));
    } else {
        schemas["RuleName"]["enum"] = json!(names);
    }
    schemas["TimeZone"]["enum"] = json!(calendar::zones());
    document.to_string()
}
