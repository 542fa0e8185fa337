//! Claims of JSON Web Tokens, on both ways in: only those of a token that was verified.
#![allow(clippy::unwrap_used, reason = "what a test cannot arrange, it cannot go on without")]

mod common;

use common::{Client, Server, config, refused};
use serde_json::json;

// Signed with HS256 by another implementation: {"sub":"ann","plan":"premium","exp":…}.
const SECRET: &str = "a-secret-of-at-least-32-bytes-long!!";
/// Good until 2100.
const GOOD: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhbm4iLCJwbGFuIjoicHJlbWl1bSIsImV4cCI6NDEwMjQ0NDgwMH0.WTzM8FGYy6JbBf8YeMIGh-rG89DYZlK9UZSNUoCgZKc";
/// Expired in 2001.
const EXPIRED: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhbm4iLCJwbGFuIjoicHJlbWl1bSIsImV4cCI6MTAwMDAwMDAwMH0.PnXmN1zzToiLtAqVeJy-Sa_QgaZk8wIeRFVzOJWBNQw";
/// Signed with another secret.
const FORGED: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhbm4iLCJwbGFuIjoicHJlbWl1bSIsImV4cCI6NDEwMjQ0NDgwMH0.GPFV16U5nFI4_Gl0YzHLEaI4VIhBhnjcN4nuv_6lUBs";

fn file(secret: &str) -> String {
    format!(
        r#"
identity: {{ jwt: {{ algorithm: HS256, secret_file: {secret} }} }}
plans: {{ free: {{ limit: 10/h }}, premium: {{ limit: 100/h }} }}
rules:
  - name: api
    key: "{{claim.sub|address}}"
    plan: {{ by: claim.plan, default: free }}
"#
    )
}

#[tokio::test]
async fn only_a_verified_token_has_claims() {
    let secret = config(&format!("{SECRET}\n"));
    let file = config(&file(secret.path().to_str().unwrap()));
    let server = Server::start_with(&["--config", file.path().to_str().unwrap()]).await;
    for (token, limit, subject) in [
        (GOOD, 100, "claim"),
        (EXPIRED, 10, "address"),
        (FORGED, 10, "address"),
        ("x.y.z", 10, "address"),
        ("", 10, "address"),
    ] {
        let attributes =
            json!({ "address": "203.0.113.9", "header.authorization": format!("Bearer {token}") });
        let answer = server.check(&json!({ "attributes": attributes }).to_string()).await;
        assert_eq!(
            (answer["limit"].as_u64(), answer["subject"].as_str()),
            (Some(limit), Some(subject)),
            "{token}"
        );
        let headers = format!(
            "x-forwarded-method: GET\r\nx-forwarded-uri: /\r\nx-forwarded-for: 203.0.113.9\r\nauthorization: Bearer {token}\r\n"
        );
        let answer = Client::connect(server.http).await.send("GET", "/v1/forward-auth", &headers, b"").await;
        let policy = answer.header("ratelimit-policy").unwrap_or_default();
        assert!(policy.starts_with(&format!("\"api\";q={limit};")), "{token}: {policy}");
    }
    // Both ways in spent from one bucket, and it can be asked for by its name.
    let attributes = json!({ "header.authorization": format!("Bearer {GOOD}") });
    let ask = json!({ "rule": "api", "key": "claim.sub/ann", "attributes": attributes });
    assert_eq!(server.peek(&ask.to_string()).await["remaining"], 98);
}

#[tokio::test]
async fn keys_that_cannot_be_used_are_refused_at_start() {
    for (jwt, place) in [
        ("{algorithm: HS256}", "identity.jwt: give one of public_key_file"),
        ("{secret_file: /nowhere/secret}", "identity.jwt.algorithm: is missing"),
        (
            "{algorithm: none, secret_file: /nowhere/secret}",
            "identity.jwt.algorithm: \"none\" is not known: use HS256",
        ),
        (
            "{algorithm: HS256, secret_file: /nowhere/secret}",
            "identity.jwt.secret_file: cannot read /nowhere/secret",
        ),
        (
            "{algorithm: RS256, public_key_file: /dev/null}",
            "identity.jwt.public_key_file: cannot read /dev/null: it is no regular file",
        ),
        ("{algorithm: RS256, jwks_file: a, secret_file: b}", "identity.jwt: give one of"),
    ] {
        let file = config(&format!("rules: []\nidentity: {{jwt: {jwt}}}"));
        let (code, output) = refused(&["--config", file.path().to_str().unwrap()]).await;
        assert_eq!(code, 2);
        assert!(output.contains(place), "{place}\n{output}");
    }
}
