//! `cargo deny`: licences, duplicates and sources, as `deny.toml` says.
//!
//! Advisories are left out: their database is a git clone, out of reach for a machine that is offline. The
//! prebuilt wheel (0.14.2) is no way to get the tool: it panics on what today's `cargo metadata` prints.
//! Building it takes 90 seconds on one core, once per target directory.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::command;
use crate::install::INSTALLS_NOTHING;

/// The version `deny.toml` is written for. Another one found on the PATH is used as it is.
const VERSION: &str = "0.20.2";

const CHECKS: &[&str] = &["--locked", "check", "bans", "licenses", "sources"];

pub(crate) fn run() -> Result<()> {
    let tool = if command::on_path("cargo-deny") { "cargo-deny".into() } else { fetched()? };
    command::run(command::program(tool)?.args(CHECKS))
}

/// The tool in the target directory, built there first if need be.
fn fetched() -> Result<PathBuf> {
    let tools = command::target_dir()?.join("tools");
    let tool = tools.join("bin").join("cargo-deny");
    if tool.is_file() {
        return Ok(tool);
    }
    let install = ["install", "cargo-deny", "--version", VERSION, "--locked"];
    if command::is_set(INSTALLS_NOTHING) {
        bail!("cargo-deny is missing: run `cargo {}`", install.join(" "));
    }
    println!("cargo-deny {VERSION} is not here yet: building it into target/tools, a minute or two, once");
    let build = tools.join("build");
    // `--profile dev`: an unoptimised build checks this workspace in a second and is ready in half the time.
    let mut install = command::cargo(&install)?;
    install.args(["--profile", "dev", "--quiet"]).arg("--root").arg(&tools);
    install.env("CARGO_TARGET_DIR", &build);
    command::run(&mut install).context("cargo-deny could not be built")?;
    // The program stays; what it was built from is most of a gigabyte and of no further use.
    let _ = std::fs::remove_dir_all(&build);
    Ok(tool)
}
