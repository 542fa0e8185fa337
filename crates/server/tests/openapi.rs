//! The HTTP door does what its own description says, and nothing else: schemathesis asks it thousands of
//! questions, good and bad, and compares every answer.
#![allow(clippy::unwrap_used, reason = "what a test cannot arrange, it cannot go on without")]

mod common;

use std::path::Path;
use std::process::Command;

use common::{Client, Server, config};

const FILE: &str = r#"
identity: { trusted_proxies: [127.0.0.1] }
rules:
  - { name: login, when: { path: /login }, key: "{address}", limit: 5/min, algorithm: sliding_log }
  - { name: api, key: "{token|address}", limit: 100/s, burst: 200 }
  - { name: trying, key: "{address}", limit: 1000/s, candidate: { limit: 5/s }, mode: enforce }
breakers:
  - { match: "*", ramp: off, successes_to_close: 1, open_for: 1ms, open_max: 2ms }
"#;

/// Where `cargo xtask test install` puts it.
fn program() -> std::path::PathBuf {
    let target = Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().and_then(Path::parent).unwrap();
    let folder = target.join("tools/schemathesis");
    assert!(
        folder.join("bin/schemathesis").is_file(),
        "schemathesis is missing; run `cargo xtask test install`, or \
         `pip3 install --target {} schemathesis==4.32.5`",
        folder.display()
    );
    folder
}

#[tokio::test]
async fn nothing_is_found_against_the_description() {
    let folder = program();
    let file = config(FILE);
    let server = Server::start_with(&["--config", file.path().to_str().unwrap()]).await;
    let mut run = Command::new(folder.join("bin/schemathesis"));
    run.env("PYTHONPATH", &folder)
        .args(["run", &format!("http://{}/openapi.json", server.http)])
        .args(["--checks", "all", "--max-examples", "30", "--seed", "20270116", "--no-color"])
        // It keeps what it found for the next run; each of ours begins anew.
        .current_dir(tempfile::tempdir().unwrap().keep());
    let output = tokio::task::spawn_blocking(move || run.output().unwrap()).await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    // That it asked at all.
    let generated = said.lines().find_map(|line| line.trim().split_once(" generated")?.0.parse::<u32>().ok());
    assert!(generated.is_some_and(|count| count > 500), "{said}");
}

#[tokio::test]
async fn the_description_names_the_rules_in_force() {
    let file = config(FILE);
    let server = Server::start_with(&["--config", file.path().to_str().unwrap()]).await;
    let answer = Client::connect(server.http).await.send("GET", "/openapi.json", "", b"").await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    let document = answer.json();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(
        document["components"]["schemas"]["RuleName"]["enum"],
        serde_json::json!(["login", "api", "trying"])
    );
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
}
