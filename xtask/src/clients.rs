//! What the real clients of the RESP door's tests need, from each one's own registry, into the target
//! directory: the first time, and again when what they ask for has changed. And envoyproxy/ratelimit, which a
//! test asks the same as Tollgate. And the peers that `cargo xtask bench redis` measures.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, bail};

use crate::command;
use crate::install::INSTALLS_NOTHING;

/// Where sources are, and the folder of the target directory that they are installed into.
#[derive(Clone, Copy)]
struct Shelf {
    sources: &'static str,
    into: &'static str,
    who: &'static str,
}

const TESTED: Shelf =
    Shelf { sources: "crates/server/tests/clients", into: "clients", who: "tests of the doors start it" };
const MEASURED: Shelf =
    Shelf { sources: "crates/bench/peers", into: "peers", who: "the benchmark measures it" };

/// One language's client.
struct Client {
    name: &'static str,
    /// The files of its folder that say what it needs.
    asks: &'static [&'static str],
    install: fn(sources: &Path, into: &Path) -> Result<Vec<Command>>,
}

const CLIENTS: &[Client] = &[
    Client { name: "python", asks: &["requirements.txt"], install: python },
    Client { name: "node", asks: &["package.json", "package-lock.json"], install: node },
    Client { name: "go", asks: &["go.mod", "go.sum", "main.go"], install: go },
    Client { name: "java", asks: &["pom.xml"], install: java },
    Client { name: RATELIMIT, asks: &["go.mod", "go.sum", "main.go"], install: ratelimit },
];

/// envoyproxy/ratelimit is both: a test asks it, and the benchmark measures it.
const RATELIMIT: &str = "ratelimit";

const PEERS: &[Client] = &[
    Client { name: "python", asks: &["requirements.txt"], install: python },
    Client { name: "node", asks: &["package.json", "package-lock.json"], install: node },
    Client { name: "go", asks: &["go.mod", "go.sum", "main.go"], install: peer_in_go },
];

/// Installs what is not there yet, all at once: they wait for different servers.
pub(crate) fn install() -> Result<()> {
    all(CLIENTS.iter().map(|client| (client, TESTED))).into_iter().collect()
}

/// Installs the peers of the benchmark. One that cannot be had is named and left out of it.
pub(crate) fn install_peers() {
    let ratelimit = CLIENTS.iter().filter(|client| client.name == RATELIMIT).map(|client| (client, TESTED));
    for result in all(PEERS.iter().map(|client| (client, MEASURED)).chain(ratelimit)) {
        if let Err(error) = result {
            println!("a peer is missing: {error:#}");
        }
    }
}

fn all(clients: impl Iterator<Item = (&'static Client, Shelf)>) -> Vec<Result<()>> {
    thread::scope(|scope| {
        let running: Vec<_> =
            clients.map(|(client, shelf)| scope.spawn(move || one(client, shelf))).collect();
        running.into_iter().map(|one| one.join().expect("installing does not panic")).collect()
    })
}

fn one(client: &Client, shelf: Shelf) -> Result<()> {
    let Client { name, asks, install } = client;
    let sources = command::root()?.join(shelf.sources).join(name);
    let into = command::target_dir()?.join(shelf.into).join(name);
    let mut wanted = Vec::new();
    for file in *asks {
        wanted.extend(fs::read(sources.join(file)).with_context(|| format!("{name}: {file}"))?);
    }
    // Written last, so that what was begun and not finished is begun again.
    let stamp = into.join("installed");
    if fs::read(&stamp).is_ok_and(|found| found == wanted) {
        println!("  {name:<14} found ({})", shelf.who);
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
    built_in_go(sources, into, "ratelimit")
}

fn peer_in_go(sources: &Path, into: &Path) -> Result<Vec<Command>> {
    built_in_go(sources, into, "peer")
}

fn built_in_go(sources: &Path, into: &Path, name: &str) -> Result<Vec<Command>> {
    let of = |words: &[&str]| -> Result<Command> {
        let mut go = program("go", sources)?;
        go.env("GOMODCACHE", into.join("mod")).env("GOCACHE", into.join("cache")).env("CGO_ENABLED", "0");
        go.env("GOFLAGS", "-mod=readonly").args(words);
        Ok(go)
    };
    let mut build = of(&["build", "-o"])?;
    build.arg(into.join(name)).arg(".");
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
