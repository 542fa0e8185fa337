//! Everything that is wrong with a configuration, each with its place, its path and what is allowed.
//!
//! A file that is refused one mistake at a time is corrected one restart at a time; so checking
//! never stops at the first.

use std::fmt;
use std::sync::Arc;

/// Where something stands: in the file by line and column, on the command line or in the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// In the file, counted from 1.
    File { line: u64, column: u64 },
    /// A flag, or the environment variable that stands for it.
    Flag(&'static str),
}

impl Place {
    /// As it is printed: `policy.yaml:4:12`, or the flag.
    pub(crate) fn in_file(self, file: &str) -> String {
        match self {
            Place::File { line, column } => format!("{file}:{line}:{column}"),
            Place::Flag(flag) => flag.to_owned(),
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The file it stands in, if it is another than the rest.
    file: Option<Arc<str>>,
    pub(crate) place: Place,
    /// `rules[2].limit`; empty for the whole file.
    pub(crate) path: String,
    /// What is wrong, and what is allowed.
    pub(crate) what: String,
}

/// All that is wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Problems {
    file: String,
    /// The file being read, if it is another.
    inside: Option<Arc<str>>,
    found: Vec<Problem>,
}

impl Problems {
    /// No problems yet, in the file of that name.
    pub(crate) fn in_file(file: &str) -> Problems {
        Problems { file: file.to_owned(), inside: None, found: Vec::new() }
    }

    /// What comes now stands in another file.
    pub(crate) fn enter(&mut self, file: &str) {
        self.inside = Some(file.into());
    }

    /// What comes now stands in the first file again.
    pub(crate) fn leave(&mut self) {
        self.inside = None;
    }

    /// How many there are so far.
    pub(crate) fn count(&self) -> usize {
        self.found.len()
    }

    /// Records a problem.
    pub(crate) fn add(&mut self, place: Place, path: &str, what: impl Into<String>) {
        let file = self.inside.clone();
        self.found.push(Problem { file, place, path: path.to_owned(), what: what.into() });
    }

    /// Records the error, if it is one, and yields the value, if there is one.
    pub(crate) fn keep<T, E: fmt::Display>(
        &mut self,
        place: Place,
        path: &str,
        result: Result<T, E>,
    ) -> Option<T> {
        result.map_err(|error| self.add(place, path, error.to_string())).ok()
    }

    /// Each of them, in the order of their places.
    pub(crate) fn each(&self) -> &[Problem] {
        &self.found
    }

    /// Where one of them stands, in words: `policy.yaml:4:12`, or the flag.
    pub(crate) fn place_of(&self, problem: &Problem) -> String {
        problem.place.in_file(problem.file.as_deref().unwrap_or(&self.file))
    }

    /// The value, if nothing was wrong with it or anything else.
    pub(crate) fn into_result<T>(mut self, value: Option<T>) -> Result<T, Problems> {
        match value {
            Some(value) if self.found.is_empty() => Ok(value),
            _ => {
                self.found.sort_by(|one, other| (&one.file, one.place).cmp(&(&other.file, other.place)));
                Err(self)
            }
        }
    }
}

impl fmt::Display for Problems {
    /// One line per problem: `policy.yaml:4:12: rules[0].limit: …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.found.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            let Problem { file: _, place: _, path, what } = problem;
            write!(f, "{}: ", self.place_of(problem))?;
            if !path.is_empty() {
                write!(f, "{path}: ")?;
            }
            f.write_str(what)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
