//! Real clients, as their users install them, throttled by the RESP door; one of them asks breakers, too.
//!
//! The programs are in `clients/`; `cargo xtask test install` fetches what they need into the target
//! directory. What is missing fails here, with the command that brings it.
#![allow(clippy::unwrap_used, reason = "what a test cannot arrange, it cannot go on without")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::Server;

const TOKEN: &str = "0123456789abcdef-t0ken";

/// Where the clients' own packages are.
fn installed(what: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it lies in the target directory");
    let path = target.join("clients").join(what);
    assert!(path.exists(), "{} is missing: run `cargo xtask test install`", path.display());
    path
}

/// Runs a client's program against a server of its own; it says `ok` when it was throttled as expected.
async fn throttled(folder: &str, client: &mut Command) {
    let file = "{rules: [{name: api, limit: 2/h}], breakers: [{match: '*', failures: 2, ramp: off}]}";
    let server = Server::configured(file, &["--token", TOKEN]).await;
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(folder);
    client.current_dir(sources).args([&server.resp.port().to_string(), TOKEN]);
    let output = client.output().unwrap_or_else(|error| {
        panic!("{} does not start ({error}): run `cargo xtask test install`", client.get_program().display())
    });
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.trim_end().ends_with("ok"), "{said}\n{errors}");
}

#[tokio::test]
async fn redis_py_is_throttled() {
    let python = installed("python/bin/python");
    throttled("python", Command::new(python).arg("throttle.py")).await;
}

#[tokio::test]
async fn ioredis_is_throttled() {
    let modules = installed("node/node_modules");
    throttled("node", Command::new("node").env("NODE_PATH", modules).arg("throttle.js")).await;
}

#[tokio::test]
async fn go_redis_is_throttled() {
    // Offline: what was installed must do.
    let (modules, cache) = (installed("go/mod"), installed("go/cache"));
    let mut client = Command::new("go");
    client.env("GOMODCACHE", modules).env("GOCACHE", cache).env("GOPROXY", "off").env("CGO_ENABLED", "0");
    throttled("go", client.env("GOFLAGS", "-mod=readonly").args(["run", "."])).await;
}

#[tokio::test]
async fn jedis_is_throttled() {
    let jars = installed("java").join("*");
    throttled("java", Command::new("java").arg("-cp").arg(jars).arg("Throttle.java")).await;
}
