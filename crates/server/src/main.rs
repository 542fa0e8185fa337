//! The server and the command line of Tollgate.
//!
//! In reading order: `cli` reads flags, `config` checks them and the file, `run` puts everything
//! together; `doors` and `admin` answer, on what `net` gives them; `reload` puts another policy in force
//! and `overrides` other limits for single keys; `telemetry` shows what happened; `shutdown` and `worker`
//! are the life of the process and of its threads. `file` reads what they name.

mod admin;
mod breakers;
mod cli;
mod config;
mod doors;
mod engine;
mod facing;
mod file;
mod inline;
mod limit;
mod net;
mod overrides;
mod reload;
mod rls;
mod run;
mod shutdown;
mod takes;
mod telemetry;
mod told;
mod welcome;
mod worker;

use std::io::{self, Write as _};
use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::main() {
        Ok(()) => cli::Exit::Ok.into(),
        Err(error) => {
            // Nobody is left to tell if standard error is gone.
            let _ = writeln!(io::stderr(), "tollgate: {error:#}");
            cli::exit_of(&error).into()
        }
    }
}
