//! The file as text: read within bounds, and known again by its digest.

use std::fmt;
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::{ConfigError, DEFAULT};
use crate::file;

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
        let read = file::read(path, FILE_BYTES_MAX).map_err(|error| error.to_string());
        let text = read.and_then(|bytes| String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned()));
        match text {
            Ok(text) => Ok(Source { name, text }),
            Err(why) => Err(ConfigError::Unreadable { path: name, why }),
        }
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
