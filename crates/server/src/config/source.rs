//! The file as text: read within bounds, and known again by its digest.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::{ConfigError, DEFAULT};
use crate::file;

/// The largest file we read.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// The most files of a directory, and how deep they may lie in it.
const FILES_MAX: usize = 10_000;
const DEPTH_MAX: usize = 8;

/// A configuration before anything of it is believed.
#[derive(Debug)]
pub(crate) struct Source {
    /// What problems call it.
    pub(crate) name: String,
    pub(crate) text: String,
    /// The files of the directory of Envoy's dialect, by name and text, if there is one.
    pub(crate) envoy: Option<Vec<(String, String)>>,
}

/// The SHA-256 of a text, as `sha256sum FILE` says it: by it, people compare what instances run with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Digest([u8; 32]);

impl Source {
    /// Reads the file, or gives the one that is built in; and the directory, if there is one.
    pub(crate) fn read(file: Option<&Path>, envoy: Option<&Path>) -> Result<Source, ConfigError> {
        let (name, text) = match file {
            None => ("built-in".to_owned(), DEFAULT.to_owned()),
            Some(path) => (path.display().to_string(), text_of(path)?),
        };
        let read = |path: PathBuf| Ok((path.display().to_string(), text_of(&path)?));
        let files = |folder| files_of(folder)?.into_iter().map(read).collect::<Result<_, _>>();
        Ok(Source { name, text, envoy: envoy.map(files).transpose()? })
    }

    /// What it is known again by.
    pub(crate) fn digest(&self) -> Digest {
        let Some(files) = &self.envoy else { return Digest(Sha256::digest(self.text.as_bytes()).into()) };
        let mut all = Sha256::new_with_prefix(self.text.as_bytes());
        for (name, text) in files {
            // Lengths first: no text can be taken for a name and another text.
            all.update((name.len() as u64).to_be_bytes());
            all.update((text.len() as u64).to_be_bytes());
            all.update(name.as_bytes());
            all.update(text.as_bytes());
        }
        Digest(all.finalize().into())
    }
}

fn text_of(path: &Path) -> Result<String, ConfigError> {
    let read = file::read(path, FILE_BYTES_MAX).map_err(|error| error.to_string());
    let text = read.and_then(|bytes| String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned()));
    text.map_err(|why| ConfigError::Unreadable { path: path.display().to_string(), why })
}

/// Every file of a directory and of those in it, in the order of their names, through every link. What begins
/// with a dot is passed over: so begin the directories that Kubernetes swaps, and what editors leave behind.
pub(crate) fn files_of(folder: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let mut files = Vec::new();
    walk(folder, 0, &mut files).map_err(|why| {
        let why = why.to_string();
        ConfigError::Unreadable { path: folder.display().to_string(), why }
    })?;
    files.sort();
    Ok(files)
}

fn walk(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if depth > DEPTH_MAX {
        return Err(std::io::Error::other(format!("it is nested deeper than {DEPTH_MAX}")));
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")) {
            continue;
        }
        if fs::metadata(&path)?.is_dir() {
            walk(&path, depth + 1, files)?;
        } else {
            files.push(path);
        }
        if files.len() > FILES_MAX {
            return Err(std::io::Error::other(format!("it has more than {FILES_MAX} files")));
        }
    }
    Ok(())
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
