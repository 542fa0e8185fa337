//! Running other programs from the workspace's root, so that no task depends on where it was called.

use std::env;
use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// What `cargo run` says about *this* crate to the program it starts. A nested cargo must not inherit
/// it: build scripts that watch these names (ring's does) would be rebuilt in every part, and again by
/// the next plain `cargo build`.
const NOT_FOR_CHILDREN: &[&str] = &["CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_BIN_NAME", "CARGO_CRATE_NAME"];

/// The workspace's root folder.
pub(crate) fn root() -> Result<PathBuf> {
    let xtask = env::var_os("CARGO_MANIFEST_DIR").context("start this as `cargo xtask`")?;
    let root = Path::new(&xtask).parent().context("xtask lies inside the workspace")?;
    Ok(root.to_path_buf())
}

/// Where cargo puts what it builds, and where the tools fetched by this program go.
pub(crate) fn target_dir() -> Result<PathBuf> {
    let root = root()?;
    Ok(env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir)))
}

/// A cargo of the toolchain that runs this program, with the arguments given.
pub(crate) fn cargo(args: &[impl AsRef<OsStr>]) -> Result<Command> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = program(cargo)?;
    command.args(args);
    Ok(command)
}

/// A program started in the workspace's root.
pub(crate) fn program(name: impl AsRef<OsStr>) -> Result<Command> {
    let mut command = Command::new(name);
    command.current_dir(root()?);
    for (name, _) in env::vars_os() {
        let inherited = name.to_string_lossy();
        if NOT_FOR_CHILDREN.iter().any(|prefix| inherited.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    // Cargo looks at its own stderr; the summaries CI counts are on stdout, which may be a file.
    if env::var_os("CARGO_TERM_COLOR").is_none() {
        command.env("CARGO_TERM_COLOR", if io::stdout().is_terminal() { "always" } else { "never" });
    }
    Ok(command)
}

/// Runs to the end with this program's own stdout and stderr; any exit but zero is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    let status = command.status().with_context(|| format!("could not start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` ended with {status}");
    }
    Ok(())
}

/// What a program prints, trimmed; `None` if it is missing or fails.
pub(crate) fn answer(name: &str, args: &[&str]) -> Option<String> {
    let output = program(name).ok()?.args(args).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Where Debian keeps servers, which an ordinary user's PATH does not name.
const SERVERS: &[&str] = &["/usr/local/sbin", "/usr/sbin"];

/// Whether a program of this name is on the PATH, or where Debian keeps servers.
pub(crate) fn on_path(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders = env::split_paths(&path).chain(SERVERS.iter().map(PathBuf::from));
    folders.any(|folder| folder.join(name).is_file())
}

/// Whether the environment sets this name to `1`.
pub(crate) fn is_set(name: &str) -> bool {
    env::var_os(name).is_some_and(|value| value == "1")
}

/// The command as a reader would type it.
pub(crate) fn show(command: &Command) -> String {
    let name = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(name).chain(command.get_args());
    words.map(|word| quoted(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

/// The result of some work, and how long it took.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    #[expect(clippy::disallowed_methods, reason = "reports how long a tool ran; decides nothing")]
    let start = Instant::now();
    let done = work();
    (done, start.elapsed())
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("'{word}'") }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::show;

    #[test]
    fn a_command_is_shown_as_it_would_be_typed() {
        let mut command = Command::new("cargo");
        command.args(["test", "-p", "tollgate-core", "--test", "*"]);
        assert_eq!(show(&command), "cargo test -p tollgate-core --test '*'");
    }
}
