//! The file as text: read within bounds, and known again by its digest.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::{ConfigError, DEFAULT};

/// The largest file we read.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// A configuration before anything of it is believed.
#[derive(Debug)]
pub(crate) struct Source {
    /// What problems call it.
    pub(crate) name: String,
    pub(crate) text: String,
}

/// The SHA-256 of a text, as `sha256sum FILE` says it: by it, people compare what instances run with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Digest([u8; 32]);

impl Source {
    /// Reads the file, or gives the one that is built in.
    pub(crate) fn read(file: Option<&Path>) -> Result<Source, ConfigError> {
        let Some(path) = file else {
            return Ok(Source { name: "built-in".to_owned(), text: DEFAULT.to_owned() });
        };
        let name = path.display().to_string();
        let mut text = String::new();
        // The bound is on what is read and not on what the file says of its size, which may change.
        let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text));
        let why = match read {
            Ok(bytes) if bytes as u64 <= FILE_BYTES_MAX => return Ok(Source { name, text }),
            Ok(_) => format!("it has more than {FILE_BYTES_MAX} bytes"),
            Err(error) => error.to_string(),
        };
        Err(ConfigError::Unreadable { path: name, why })
    }

    /// What it is known again by.
    pub(crate) fn digest(&self) -> Digest {
        Digest(Sha256::digest(self.text.as_bytes()).into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
