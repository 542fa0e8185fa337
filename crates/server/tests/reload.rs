//! Another policy while the server runs: however the file is replaced, whole or not at all, and without
//! giving anything away.
#![allow(clippy::unwrap_used, reason = "what a test cannot arrange, it cannot go on without")]

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use common::{Answer, Client, PATIENCE, Server};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A server, and the directory its file is in.
struct Stand {
    server: Server,
    directory: TempDir,
    file: PathBuf,
}

/// One rule with that limit.
fn rules(limit: &str) -> String {
    format!("rules: [{{ name: api, limit: {limit} }}]\n")
}

impl Stand {
    async fn start(text: &str) -> Stand {
        Stand::start_with(text, &[]).await
    }

    async fn start_with(text: &str, more: &[&str]) -> Stand {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("policy.yaml");
        fs::write(&file, text).unwrap();
        Stand { server: serve(&file, more).await, directory, file }
    }

    /// Waits until a version is in force, and gives the policy as it is shown.
    async fn version(&self, version: u64) -> Value {
        version_of(&self.server, version).await
    }

    async fn reload(&self) -> Answer {
        Client::connect(self.server.admin).await.send("POST", "/v1/reload", "", b"").await
    }

    async fn reloads(&self, result: &str) -> Option<f64> {
        self.server.metric(&format!("tollgate_policy_reloads_total{{result=\"{result}\"}}")).await
    }

    /// Waits until health has what `is_it` looks for.
    async fn health(&self, is_it: impl Fn(&Value) -> bool) -> Value {
        let asking = async {
            loop {
                let health = self.server.admin("/health", "").await.json();
                if is_it(&health) {
                    return health;
                }
            }
        };
        tokio::time::timeout(PATIENCE, asking).await.expect("health comes to say so")
    }
}

async fn serve(file: &Path, more: &[&str]) -> Server {
    let mut arguments = vec!["--config", file.to_str().unwrap()];
    arguments.extend(more);
    Server::start_with(&arguments).await
}

async fn version_of(server: &Server, version: u64) -> Value {
    let asking = async {
        loop {
            let policy = server.admin("/v1/policy", "").await.json();
            if policy["version"] == version {
                return policy;
            }
            assert!(policy["version"].as_u64() < Some(version), "past {version}: {policy}");
        }
    };
    tokio::time::timeout(PATIENCE, asking).await.expect("the version comes into force")
}

fn limit_of(policy: &Value) -> &Value {
    &policy["rules"][0]["limits"][0]["limit"]
}

#[tokio::test]
async fn a_file_that_is_rewritten_or_renamed_over_is_in_force_without_being_asked() {
    let stand = Stand::start(&rules("5/h")).await;
    let first = stand.version(1).await;
    assert_eq!(limit_of(&first), "5/h");
    assert_eq!(first["file"], stand.file.to_str().unwrap());

    fs::write(&stand.file, rules("6/h")).unwrap();
    let second = stand.version(2).await;
    assert_eq!(limit_of(&second), "6/h");
    assert_ne!(first["sha256"], second["sha256"]);

    let beside = stand.directory.path().join(".policy.yaml.swp");
    fs::write(&beside, rules("7/h")).unwrap();
    fs::rename(&beside, &stand.file).unwrap();
    assert_eq!(limit_of(&stand.version(3).await), "7/h");
    let answer = stand.server.check(r#"{"rule":"api","key":"ann"}"#).await;
    assert_eq!((&answer["policy_version"], &answer["limit"]), (&json!(3), &json!(7)), "{answer}");
    assert_eq!(stand.reloads("reloaded").await, Some(2.0));
    assert_eq!(stand.server.metric("tollgate_policy_version").await, Some(3.0));
}

/// As Kubernetes replaces a ConfigMap: the file is a link into a directory that is a link.
#[tokio::test]
async fn a_directory_that_is_swapped_under_its_link_is_in_force() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for (version, limit) in [("..one", "5/h"), ("..two", "6/h")] {
        fs::create_dir(at(version)).unwrap();
        fs::write(at(version).join("policy.yaml"), rules(limit)).unwrap();
    }
    symlink("..one", at("..data")).unwrap();
    symlink("..data/policy.yaml", at("policy.yaml")).unwrap();
    let server = serve(&at("policy.yaml"), &[]).await;
    assert_eq!(limit_of(&version_of(&server, 1).await), "5/h");
    symlink("..two", at("..data_tmp")).unwrap();
    fs::rename(at("..data_tmp"), at("..data")).unwrap();
    assert_eq!(limit_of(&version_of(&server, 2).await), "6/h");
}

#[tokio::test]
async fn sighup_reloads_and_ends_nothing() {
    let stand = Stand::start(&rules("5/h")).await;
    stand.server.child.hangup();
    let same = |line: &str| line.contains("SIGHUP") && line.contains("the policy in force is the file's");
    stand.server.child.wait_for_line(same, PATIENCE).await;
    assert_eq!(stand.reloads("unchanged").await, Some(1.0));
    stand.version(1).await;

    fs::write(&stand.file, rules("6/h")).unwrap();
    stand.server.child.hangup();
    assert_eq!(limit_of(&stand.version(2).await), "6/h");

    // Without a file there is nothing to read, and still nothing to end for.
    let server = Server::start().await;
    server.child.hangup();
    server.child.wait_for_line(|line| line.contains("the built-in policy has no file"), PATIENCE).await;
    assert_eq!(server.admin("/ready", "").await.status, 200);
    let answer = Client::connect(server.admin).await.send("POST", "/v1/reload", "", b"").await;
    assert_eq!((answer.status, answer.json()["type"].as_str()), (409, Some("urn:tollgate:problem:no-file")));
}

#[tokio::test]
async fn a_bad_file_changes_nothing_and_is_shown_until_a_good_one_comes() {
    let stand = Stand::start(&rules("5/h")).await;
    fs::write(&stand.file, "rules: [{ name: api, limit: 5 }]\ncolour: blue\n").unwrap();
    let health = stand.health(|health| health["status"] == "degraded").await;
    let shown = stand.file.to_str().unwrap();
    let reason = health["reasons"][0].as_str().unwrap();
    assert!(reason.contains("version 1 stays in force") && reason.contains(shown), "{reason}");
    let refused = &health["refused_file"];
    assert_eq!((&refused["file"], refused["problems"].as_array().unwrap().len()), (&json!(shown), 2));
    assert_eq!(refused["problems"][0]["at"], format!("{shown}:1:29"), "{refused}");
    assert_eq!(refused["problems"][0]["field"], "rules[0].limit");
    assert_eq!(refused["problems"][1]["at"], format!("{shown}:2:1"), "{refused}");

    assert_eq!(stand.server.check(r#"{"rule":"api","key":"ann"}"#).await["policy_version"], 1);
    assert_eq!(stand.server.admin("/ready", "").await.status, 200, "it still answers");
    assert_eq!(stand.reloads("refused").await, Some(1.0));
    assert_eq!(stand.server.metric("tollgate_policy_reload_failed").await, Some(1.0));

    // The one it had, and then another: both end it, and only the other is a new version.
    fs::write(&stand.file, rules("5/h")).unwrap();
    stand.health(|health| health["status"] == "ok").await;
    assert_eq!(stand.server.metric("tollgate_policy_reload_failed").await, Some(0.0));
    fs::write(&stand.file, rules("6/h")).unwrap();
    stand.version(2).await;

    fs::remove_file(&stand.file).unwrap();
    let health = stand.health(|health| health["status"] == "degraded").await;
    assert!(health["reasons"][0].as_str().unwrap().contains("cannot read"), "{health}");
    fs::write(&stand.file, rules("6/h")).unwrap();
    stand.health(|health| health["status"] == "ok").await;
    stand.server.child.wait_for_line(|line| line.contains("cannot read"), PATIENCE).await;
    let logged = stand.server.child.output();
    assert_eq!(logged.matches("reload refused").count(), 2, "once for each: {logged}");
    assert_eq!(logged.matches("policy.yaml:2:1: colour").count(), 1, "{logged}");
}

#[tokio::test]
async fn a_file_that_was_cut_short_lifts_no_limit() {
    let stand = Stand::start(&rules("5/h")).await;
    for text in ["", "# my rules\n", "rules:\n"] {
        fs::write(&stand.file, text).unwrap();
        let answer = stand.reload().await;
        assert_eq!(answer.status, 422, "{text:?}: {}", answer.text());
        assert!(answer.text().contains("rules: []"), "{}", answer.text());
    }
    stand.version(1).await;

    // Whoever means it is believed, and the log says what that means.
    fs::write(&stand.file, "rules: []\n").unwrap();
    assert_eq!(stand.reload().await.json()["version"], 2);
    let says = |line: &str| line.contains("WARN") && line.contains("nothing is limited");
    stand.server.child.wait_for_line(says, PATIENCE).await;
}

#[tokio::test]
async fn a_pipe_in_place_of_the_file_is_refused_and_holds_nobody_up() {
    let mut stand = Stand::start(&rules("5/h")).await;
    let pipe = stand.directory.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    fs::rename(&pipe, &stand.file).unwrap();
    stand.health(|health| health["status"] == "degraded").await;
    let answer = stand.reload().await;
    assert_eq!(answer.status, 422);
    assert!(answer.text().contains("no regular file"), "{}", answer.text());
    stand.server.child.terminate();
    let ended = tokio::time::timeout(PATIENCE, stand.server.child.wait()).await;
    assert!(ended.is_ok_and(|status| status.success()), "{}", stand.server.child.output());
}

#[tokio::test]
async fn reload_now_answers_what_came_of_it() {
    let stand = Stand::start(&rules("5/h")).await;
    let answer = stand.reload().await;
    assert_eq!((answer.status, &answer.json()["result"]), (200, &json!("unchanged")));
    assert_eq!(answer.json()["version"], 1);

    fs::write(&stand.file, "rules: 7\n").unwrap();
    let answer = stand.reload().await;
    assert_eq!((answer.status, answer.header("content-type")), (422, Some("application/problem+json")));
    let problem = answer.json();
    let at = format!("{}:1:8", stand.file.display());
    assert_eq!(
        (&problem["problems"][0]["at"], &problem["problems"][0]["field"]),
        (&json!(at), &json!("rules"))
    );
    assert!(problem["detail"].as_str().unwrap().contains("version 1 stays"), "{problem}");

    fs::write(&stand.file, rules("6/h") + "listen: { http: '127.0.0.1:1' }\nmemory: { max_keys: 7 }\n")
        .unwrap();
    let answer = stand.reload().await.json();
    assert_eq!((&answer["result"], &answer["version"]), (&json!("reloaded"), &json!(2)), "{answer}");
    // The HTTP door is where the flag said, and flags win over the file: only the memory is another.
    assert_eq!(answer["restart_needed"], json!(["memory"]), "{answer}");
    let policy = stand.version(2).await;
    assert_eq!(policy["restart_needed"], json!(["memory"]));
    assert_eq!(answer["sha256"], policy["sha256"]);
    stand.server.child.wait_for_line(|line| line.contains("need a restart"), PATIENCE).await;

    // What was just read is not read again because it is new to the watch.
    let other = stand.reload().await.json();
    assert_eq!((&other["result"], &other["version"]), (&json!("unchanged"), &json!(2)), "{other}");
    let mut client = Client::connect(stand.server.admin).await;
    assert_eq!(client.send("GET", "/v1/reload", "", b"").await.header("allow"), Some("POST"));
    let origin = "origin: http://example.com\r\n";
    assert_eq!(client.send("POST", "/v1/reload", origin, b"").await.status, 403);
}

#[tokio::test]
async fn no_bucket_is_refilled_by_a_reload() {
    let stand = Stand::start(&rules("10/h")).await;
    let spent = stand.server.check(r#"{"rule":"api","key":"ann","cost":10}"#).await;
    assert_eq!((&spent["allowed"], &spent["remaining"]), (&json!(true), &json!(0)));
    let half = stand.server.check(r#"{"rule":"api","key":"bob","cost":5}"#).await;
    assert_eq!(half["remaining"], 5);

    for (version, text) in [
        (2, rules("10/h") + "# a comment\n"),
        (3, "rules: [{ name: first, limit: 1/s }, { name: api, limit: 20/h, on_outage: deny }]\n".to_owned()),
        (4, rules("20/h")),
    ] {
        fs::write(&stand.file, text).unwrap();
        assert_eq!(stand.reload().await.json()["version"], version);
        let refused = stand.server.check(r#"{"rule":"api","key":"ann"}"#).await;
        assert_eq!((&refused["allowed"], &refused["policy_version"]), (&json!(false), &json!(version)));
    }
    // A changed limit keeps the share that was left: half of ten is half of twenty.
    assert_eq!(stand.server.peek(r#"{"rule":"api","key":"bob"}"#).await["remaining"], 10);
}

#[tokio::test]
async fn what_a_reload_forgets_is_said() {
    let two = |first: &str, key: &str| {
        format!(
            "rules: [{{ name: api, key: '{key}', limits: [{{ limit: 5/h, algorithm: {first} }}, {{ limit: 9/d }}] }}]\n"
        )
    };
    let stand = Stand::start(&two("token_bucket", "{address}")).await;
    for (text, says) in [
        (
            two("sliding_log", "{address}"),
            vec!["rule \"api\": limits[0] counts by another algorithm (sliding_log, not token_bucket)"],
        ),
        (
            two("sliding_log", "{token|address}"),
            vec!["rule \"api\": it counts by {token|address}, not {address}"],
        ),
        (
            two("sliding_log", "{token|address}") + "identity: { ipv6_prefix: 48 }\n",
            vec!["rule \"api\": addresses are grouped otherwise"],
        ),
        (
            "rules: [{ name: api, key: '{token|address}', limit: 5/h }]\nidentity: { ipv6_prefix: 48 }\n"
                .to_owned(),
            vec![
                "limits[0] counts by another algorithm (token_bucket, not sliding_log)",
                "limits[1] is gone",
            ],
        ),
        ("rules: [{ name: other, limit: 5/h, algorithm: sliding_log }]\n".to_owned(), vec![]),
    ] {
        fs::write(&stand.file, &text).unwrap();
        let answer = stand.reload().await.json();
        let forgets = answer["forgets"].as_array().unwrap();
        assert_eq!(forgets.len(), says.len(), "{text}: {answer}");
        for (forgotten, says) in forgets.iter().zip(says) {
            let forgotten = forgotten.as_str().unwrap();
            assert!(forgotten.contains(says) && forgotten.ends_with("is forgotten"), "{forgotten}");
            let logged = |line: &str| line.contains("WARN") && line.contains(forgotten);
            stand.server.child.wait_for_line(logged, PATIENCE).await;
        }
        assert_eq!(stand.server.admin("/health", "").await.json()["forgets"], answer["forgets"]);
    }
}

#[tokio::test]
async fn a_rule_that_is_gone_takes_its_series_along() {
    let stand = Stand::start("rules: [{ name: old, limit: 5/h }, { name: kept, limit: 5/h }]\n").await;
    for _ in 0..2 {
        stand.server.check(r#"{"checks":[{"rule":"old","key":"ann","cost":5}]}"#).await;
        stand.server.check(r#"{"rule":"kept","key":"ann"}"#).await;
        stand.server.peek(r#"{"rule":"old","key":"ann"}"#).await;
    }
    let series = |text: &str, rule: &str| text.matches(&format!("rule=\"{rule}\"")).count();
    let before = stand.server.admin("/metrics", "").await.text();
    assert_eq!((series(&before, "old"), series(&before, "new")), (3, 0), "{before}");

    fs::write(&stand.file, "rules: [{ name: kept, limit: 6/h }, { name: new, limit: 5/h }]\n").unwrap();
    stand.reload().await;
    let after = stand.server.admin("/metrics", "").await.text();
    assert_eq!((series(&after, "old"), series(&after, "new")), (0, 2), "{after}");
    let kept = r#"tollgate_verdicts_total{rule="kept",outcome="allowed",source="store",on_outage="none"}"#;
    assert_eq!(stand.server.metric(kept).await, Some(2.0), "what stays counts on");
}
