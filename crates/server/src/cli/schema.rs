//! `tollgate schema`.

use std::io::{self, Write as _};

use clap::Args;

use crate::config::schema;

const AFTER_HELP: &str = "\
Save it and name it in the first line of the file, and editors complete and check as you type:

  tollgate schema > tollgate.schema.json
  # yaml-language-server: $schema=tollgate.schema.json";

/// Prints the JSON Schema of the file of rules and settings, for editors.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Schema {}

impl Schema {
    /// Prints it.
    #[expect(clippy::unused_self, reason = "every command runs as itself")]
    pub(super) fn run(self) -> Result<(), anyhow::Error> {
        io::stdout().lock().write_all(schema::text().as_bytes())?;
        Ok(())
    }
}
