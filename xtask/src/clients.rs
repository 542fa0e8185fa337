//! What the real clients of the RESP door's tests need, from each one's own registry, into the target
//! directory: the first time, and again when what they ask for has changed. And envoyproxy/ratelimit, which a
//! test asks the same as Tollgate.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, bail};

use crate::command;
use crate::install::INSTALLS_NOTHING;

/// One language's client.
struct Client {
    name: &'static str,
    /// The files of `crates/server/tests/clients/NAME` that say what it needs.
    asks: &'static [&'static str],
    install: fn(sources: &Path, into: &Path) -> Result<Vec<Command>>,
}

const CLIENTS: &[Client] = &[
    Client { name: "python", asks: &["requirements.txt"], install: python },
    Client { name: "node", asks: &["package.json", "package-lock.json"], install: node },
    Client { name: "go", asks: &["go.mod", "go.sum", "main.go"], install: go },
    Client { name: "java", asks: &["pom.xml"], install: java },
    Client { name: "ratelimit", asks: &["go.mod", "go.sum", "main.go"], install: ratelimit },
];

/// Installs what is not there yet, all at once: they wait for different servers.
pub(crate) fn install() -> Result<()> {
    let results: Vec<Result<()>> = thread::scope(|scope| {
        let running: Vec<_> = CLIENTS.iter().map(|client| scope.spawn(|| one(client))).collect();
        running.into_iter().map(|one| one.join().expect("installing does not panic")).collect()
    });
    results.into_iter().collect()
}

fn one(client: &Client) -> Result<()> {
    let Client { name, asks, install } = client;
    let sources = command::root()?.join("crates/server/tests/clients").join(name);
    let into = command::target_dir()?.join("clients").join(name);
    let mut wanted = Vec::new();
    for file in *asks {
        wanted.extend(fs::read(sources.join(file)).with_context(|| format!("{name}: {file}"))?);
    }
    // Written last, so that what was begun and not finished is begun again.
    let stamp = into.join("installed");
    if fs::read(&stamp).is_ok_and(|found| found == wanted) {
        println!("  {name:<14} found (tests of the doors start it)");
        return Ok(());
    }
    let commands = install(&sources, &into)?;
    let shown: Vec<String> = commands.iter().map(command::show).collect();
    if command::is_set(INSTALLS_NOTHING) {
        bail!("{name} is missing: run `{}` in {}", shown.join(" && "), sources.display());
    }
    println!("  {name:<14} installing");
    for mut one in commands {
        let output = one.output().with_context(|| format!("could not start `{}`", command::show(&one)))?;
        if !output.status.success() {
            let said = [output.stdout, output.stderr].concat();
            bail!("`{}` failed:\n{}", command::show(&one), String::from_utf8_lossy(&said));
        }
    }
    fs::write(stamp, wanted).with_context(|| format!("{name}: cannot write"))
}

fn python(sources: &Path, into: &Path) -> Result<Vec<Command>> {
    let mut environment = program("python3", sources)?;
    environment.args(["-m", "venv"]).arg(into);
    let mut install = program(into.join("bin/pip"), sources)?;
    install.args(["install", "--quiet", "--disable-pip-version-check", "-r", "requirements.txt"]);
    Ok(vec![environment, install])
}

fn node(sources: &Path, into: &Path) -> Result<Vec<Command>> {
    // npm works where its files are, and leaves node_modules there.
    let mut copy = program("cp", sources)?;
    copy.args(["package.json", "package-lock.json"]).arg(into);
    fs::create_dir_all(into)?;
    let mut install = program("npm", into)?;
    install.args(["ci", "--silent", "--no-audit", "--no-fund"]);
    Ok(vec![copy, install])
}

fn go(sources: &Path, into: &Path) -> Result<Vec<Command>> {
    // Built once, so that the test finds the standard library compiled.
    let mut build = program("go", sources)?;
    build.env("GOMODCACHE", into.join("mod")).env("GOCACHE", into.join("cache")).env("CGO_ENABLED", "0");
    build.env("GOFLAGS", "-mod=readonly").args(["build", "-o"]).arg(into.join("throttle")).arg(".");
    Ok(vec![build])
}

fn ratelimit(sources: &Path, into: &Path) -> Result<Vec<Command>> {
    let of = |words: &[&str]| -> Result<Command> {
        let mut go = program("go", sources)?;
        go.env("GOMODCACHE", into.join("mod")).env("GOCACHE", into.join("cache")).env("CGO_ENABLED", "0");
        go.env("GOFLAGS", "-mod=readonly").args(words);
        Ok(go)
    };
    let mut build = of(&["build", "-o"])?;
    build.arg(into.join("ratelimit")).arg(".");
    // Only the program is wanted: what it is built from is half a gigabyte.
    Ok(vec![build, of(&["clean", "-modcache", "-cache"])?])
}

fn java(sources: &Path, into: &Path) -> Result<Vec<Command>> {
    let mut copy = program("mvn", sources)?;
    copy.args(["--quiet", "--batch-mode", "dependency:copy-dependencies", "-DincludeScope=runtime"]);
    copy.arg(format!("-DoutputDirectory={}", into.display()));
    Ok(vec![copy])
}

fn program(name: impl Into<PathBuf>, folder: &Path) -> Result<Command> {
    let mut command = command::program(name.into())?;
    command.current_dir(folder);
    Ok(command)
}
