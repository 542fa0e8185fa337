//! The files the checks look at, read once: all that git tracks or would offer to track.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::command;

/// Folders that hold nothing of ours, for when there is no git to say so.
const SKIPPED: &[&str] = &[".git", "target"];

#[derive(Debug, Default)]
pub(crate) struct Tree {
    files: Vec<File>,
}

/// A text file. What is not UTF-8 is not text, and no rule speaks of it.
#[derive(Debug)]
pub(crate) struct File {
    /// From the workspace's root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Tree {
    pub(crate) fn load() -> Result<Tree> {
        let root = command::root()?;
        // A checkout may belong to another user than the one who tests it, as in a container.
        let listing =
            ["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let mut paths: Vec<String> = match command::answer("git", &listing) {
            Some(names) => names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect(),
            None => walk(&root, "")?,
        };
        paths.sort();
        paths.dedup();
        // A file that cannot be read as text is binary, or was deleted and is still in git's index.
        let read = |path: String| Some(File { text: fs::read_to_string(root.join(&path)).ok()?, path });
        Ok(Tree { files: paths.into_iter().filter_map(read).collect() })
    }

    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Tree {
        let file = |&(path, text): &(&str, &str)| File { path: path.to_owned(), text: text.to_owned() };
        Tree { files: files.iter().map(file).collect() }
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &File> {
        self.files.iter()
    }

    pub(crate) fn rust(&self) -> impl Iterator<Item = &File> {
        self.with_ending("rs")
    }

    pub(crate) fn lua(&self) -> impl Iterator<Item = &File> {
        self.with_ending("lua")
    }

    fn with_ending(&self, ending: &str) -> impl Iterator<Item = &File> {
        self.files().filter(move |file| Path::new(&file.path).extension().is_some_and(|it| it == ending))
    }

    /// The files directly in a folder that end so, by their name without the ending.
    pub(crate) fn stems(&self, folder: &str, ending: &str) -> BTreeSet<&str> {
        let inside = self.files().filter_map(|file| file.path.strip_prefix(folder)?.strip_prefix('/'));
        inside.filter_map(|name| name.strip_suffix(ending)).filter(|name| !name.contains('/')).collect()
    }

    /// The folders directly in a folder.
    pub(crate) fn folders(&self, folder: &str) -> BTreeSet<&str> {
        let inside = self.files().filter_map(|file| file.path.strip_prefix(folder)?.strip_prefix('/'));
        inside.filter_map(|name| name.split_once('/')).map(|(first, _)| first).collect()
    }

    /// What cargo makes a test binary of: `tests/<name>.rs` and `tests/<name>/main.rs`.
    pub(crate) fn test_binaries(&self, krate: &str) -> Vec<String> {
        let tests = format!("crates/{krate}/tests");
        let mut names: BTreeSet<&str> = self.stems(&tests, ".rs");
        names.extend(self.folders(&tests).into_iter().filter(|name| {
            let main = format!("{tests}/{name}/main.rs");
            self.files().any(|file| file.path == main)
        }));
        names.into_iter().map(str::to_owned).collect()
    }
}

fn walk(root: &Path, folder: &str) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        let kind = entry.file_type()?;
        if kind.is_dir() && !SKIPPED.contains(&name.as_str()) {
            paths.extend(walk(root, &path)?);
        } else if kind.is_file() {
            paths.push(path);
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::Tree;

    #[test]
    fn test_binaries_are_what_cargo_takes_them_to_be() {
        let tree = Tree::of(&[
            ("crates/core/tests/algorithms.rs", ""),
            ("crates/core/tests/models/mod.rs", ""),
            ("crates/core/tests/whole/main.rs", ""),
            ("crates/corelet/tests/other.rs", ""),
        ]);
        assert_eq!(tree.test_binaries("core"), ["algorithms", "whole"]);
        assert!(tree.test_binaries("missing").is_empty());
    }
}
