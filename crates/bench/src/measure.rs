//! What every benchmark of a door does alike: start the server, run a client, divide and compare.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use testkit::Child;

const PATIENCE: Duration = Duration::from_secs(30);

/// Starts the server that was built beside this program, every door closed but those named; says what
/// stands on the line of `door`.
pub(crate) async fn serve(door: &str, arguments: &[&str]) -> Result<(Child, String)> {
    let this = std::env::current_exe().context("this program's own path")?;
    let server = this.with_file_name("tollgate");
    ensure!(server.exists(), "{} is missing: start this as `cargo xtask bench NAME`", server.display());
    let mut command = Command::new(server);
    command.env_clear().arg("serve");
    for other in ["http", "grpc", "resp", "admin"] {
        command.arg(format!("--{other}")).arg(if other == door { "127.0.0.1:0" } else { "off" });
    }
    let child = Child::spawn(command.args(arguments));
    let prefix = format!("  {door}  ");
    let line = child.wait_for_line(|line| line.starts_with(&prefix), PATIENCE).await;
    let place = line.split_whitespace().nth(1).context("no address was printed")?.to_owned();
    child.wait_for_line(|line| line.starts_with("  policy"), PATIENCE).await;
    Ok((child, place))
}

/// What a program that must succeed printed.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}; is it installed?"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Microseconds for each of so many.
#[expect(clippy::cast_precision_loss, reason = "counts of requests are far below 2^52")]
pub(crate) fn micros_each(time: Duration, requests: u64) -> f64 {
    time.as_secs_f64() * 1e6 / requests as f64
}

/// The middle one.
pub(crate) fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_unstable_by(f64::total_cmp);
    figures[figures.len() / 2]
}
