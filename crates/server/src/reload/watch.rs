//! Notices that the file is another, by looking at it twice a second.
//!
//! Looked at, and not announced by inotify. A look follows every symbolic link, so the swap that Kubernetes
//! makes of a directory is seen like a rewrite or a rename, and on network and overlay file systems, which
//! announce nothing, all the same. It costs one `stat` for each file, twice a second, and no dependency; what it
//! costs besides is up to half a second, which no editor of rules will miss.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::Signal;
use tokio::task::{JoinError, JoinHandle};

use super::{Reloader, Seen, Trigger};
use crate::config::{Overrides, Source, files_of};

/// How often the file is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long a changed file must hold still: who writes it piece by piece is not interrupted.
const SETTLE: Duration = Duration::from_millis(100);

/// Reloads on SIGHUP and when the file is another, for ever.
pub(crate) async fn watch(reloader: Arc<Reloader>, mut hangup: Signal) {
    let Overrides { file, envoy_config, .. } = &reloader.flags;
    let is_watched = file.is_some() || envoy_config.is_some();
    let mut watched = is_watched.then(|| Watched::new(file.clone(), envoy_config.clone()));
    let mut looking = None;
    let mut pause = LOOK_EVERY;
    loop {
        tokio::select! {
            Some(()) = hangup.recv() => {
                reloader.reload(Trigger::Signal).await;
            }
            () = tokio::time::sleep(pause), if looking.is_none() => {
                let Some(mut watched) = watched.take() else { continue };
                let tried = reloader.tried.lock().await.clone();
                // The disk may be slow, or gone, and heartbeats and SIGHUP share this thread.
                looking = Some(tokio::task::spawn_blocking(move || (watched.look(&tried), watched)));
            }
            Some(looked) = ended(&mut looking) => {
                looking = None;
                let Ok((look, looked)) = looked else { continue };
                watched = Some(looked);
                pause = if look == Look::Stirring { SETTLE } else { LOOK_EVERY };
                if look == Look::Settled {
                    reloader.reload(Trigger::File).await;
                }
            }
        }
    }
}

/// Waits for a look that is under way, if one is.
async fn ended<T>(looking: &mut Option<JoinHandle<T>>) -> Option<Result<T, JoinError>> {
    match looking {
        Some(looking) => Some(looking.await),
        None => None,
    }
}

/// Files that are looked at now and then.
#[derive(Debug)]
struct Watched {
    file: Option<PathBuf>,
    /// A directory of which every file is meant.
    folder: Option<PathBuf>,
    /// What the last look saw from outside.
    stamp: Option<Vec<Stamp>>,
    /// Whether the text was read when the stamp had already stood for one look. Before that, two writes
    /// within one tick of the file system's clock could share a stamp.
    is_read: bool,
    /// What was found and is not yet believed.
    stirring: Option<Seen>,
}

/// What a look found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// What was tried last.
    Quiet,
    /// Something else, just now.
    Stirring,
    /// Something else, and it held still.
    Settled,
}

/// A file from outside: another one, or another text, has another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Option<Stamp> {
        let about = fs::metadata(path).ok()?;
        Some(Stamp {
            file: (about.dev(), about.ino()),
            bytes: about.size(),
            modified: (about.mtime(), about.mtime_nsec()),
            changed: (about.ctime(), about.ctime_nsec()),
        })
    }
}

impl Watched {
    fn new(file: Option<PathBuf>, folder: Option<PathBuf>) -> Watched {
        Watched { file, folder, stamp: None, is_read: false, stirring: None }
    }

    /// All of them from outside; `None` if one is not there.
    fn stamp(&self) -> Option<Vec<Stamp>> {
        let inside = self.folder.as_deref().map(files_of).transpose().ok()?.unwrap_or_default();
        self.file.iter().chain(&inside).map(|path| Stamp::of(path)).collect()
    }

    fn seen(&self) -> Seen {
        let source = Source::read(self.file.as_deref(), self.folder.as_deref());
        source.map(|source| source.digest()).map_err(|error| error.to_string())
    }

    /// Looks once. Blocks.
    fn look(&mut self, tried: &Seen) -> Look {
        let stamp = self.stamp();
        let has_held = stamp.is_some() && stamp == self.stamp;
        if has_held && self.is_read && self.stirring.is_none() {
            return Look::Quiet;
        }
        (self.stamp, self.is_read) = (stamp, has_held);
        let seen = self.seen();
        if seen == *tried {
            self.stirring = None;
            return Look::Quiet;
        }
        if self.stirring.as_ref() == Some(&seen) {
            self.stirring = None;
            return Look::Settled;
        }
        self.stirring = Some(seen);
        Look::Stirring
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct File {
        directory: tempfile::TempDir,
        path: PathBuf,
        watched: Watched,
        tried: Seen,
    }

    impl File {
        fn new(text: &str) -> File {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("policy.yaml");
            fs::write(&path, text).unwrap();
            let watched = Watched::new(Some(path.clone()), None);
            File { directory, path, tried: watched.seen(), watched }
        }

        fn write(&self, text: &str) {
            fs::write(&self.path, text).unwrap();
        }

        fn look(&mut self) -> Look {
            let look = self.watched.look(&self.tried);
            if look == Look::Settled {
                self.tried = self.watched.seen();
            }
            look
        }
    }

    #[test]
    fn what_holds_still_is_reported_once() {
        let mut file = File::new("a: 1");
        assert_eq!([file.look(), file.look(), file.look()], [Look::Quiet; 3]);
        file.write("a: 2");
        assert_eq!([file.look(), file.look(), file.look()], [Look::Stirring, Look::Settled, Look::Quiet]);
    }

    #[test]
    fn what_is_still_being_written_is_waited_for() {
        let mut file = File::new("a: 1");
        for half in ["b", "b:", "b: 2"] {
            file.write(half);
            assert_eq!(file.look(), Look::Stirring, "{half}");
        }
        assert_eq!(file.look(), Look::Settled);
        file.write("c");
        assert_eq!(file.look(), Look::Stirring);
        file.write("b: 2");
        assert_eq!([file.look(), file.look()], [Look::Quiet; 2], "it is the one that was tried");
    }

    #[test]
    fn renames_links_and_removals_are_changes() {
        let mut file = File::new("a: 1");
        let path = file.path.clone();
        let other = file.directory.path().join("other");
        fs::write(&other, "a: 2").unwrap();
        fs::rename(&other, &path).unwrap();
        assert_eq!([file.look(), file.look()], [Look::Stirring, Look::Settled]);

        // As Kubernetes does it: the file is a link into a directory that is a link.
        for version in ["one", "two"] {
            fs::create_dir(file.directory.path().join(version)).unwrap();
            fs::write(file.directory.path().join(version).join("policy.yaml"), version).unwrap();
        }
        let (data, fresh) = (file.directory.path().join("data"), file.directory.path().join("fresh"));
        std::os::unix::fs::symlink("one", &data).unwrap();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("data/policy.yaml", &path).unwrap();
        assert_eq!([file.look(), file.look(), file.look()], [Look::Stirring, Look::Settled, Look::Quiet]);
        std::os::unix::fs::symlink("two", &fresh).unwrap();
        fs::rename(&fresh, &data).unwrap();
        assert_eq!([file.look(), file.look(), file.look()], [Look::Stirring, Look::Settled, Look::Quiet]);

        fs::remove_file(&path).unwrap();
        assert_eq!([file.look(), file.look(), file.look()], [Look::Stirring, Look::Settled, Look::Quiet]);
    }

    /// Two texts of one length, written so close together that the file system may not tell them apart.
    #[test]
    fn a_quick_second_write_is_not_lost() {
        for round in 0..50 {
            let mut file = File::new("a: 0");
            file.write("a: 1");
            file.look();
            file.write("a: 2");
            let looks = [file.look(), file.look(), file.look()];
            assert!(looks.contains(&Look::Settled), "round {round}: {looks:?}");
            assert_eq!(file.tried, file.watched.seen());
        }
    }

    /// As envoyproxy/ratelimit is deployed: the directory lies behind a link that is swapped.
    #[test]
    fn a_directory_is_looked_at_through_every_link() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        for (version, text) in [("one", "a"), ("two", "b")] {
            fs::create_dir_all(path(version).join("config/below")).unwrap();
            fs::write(path(version).join("config/x.yaml"), text).unwrap();
        }
        std::os::unix::fs::symlink("one", path("current")).unwrap();
        let mut watched = Watched::new(None, Some(path("current/config")));
        let mut tried = watched.seen();
        let mut changes = |change: &dyn Fn()| {
            change();
            let looks = [watched.look(&tried), watched.look(&tried), watched.look(&tried)];
            tried = watched.seen();
            looks.contains(&Look::Settled)
        };
        assert!(!changes(&|| {}));
        assert!(changes(&|| {
            std::os::unix::fs::symlink("two", path("fresh")).unwrap();
            fs::rename(path("fresh"), path("current")).unwrap();
        }));
        assert!(changes(&|| fs::write(path("two/config/y.yaml"), "c").unwrap()));
        assert!(changes(&|| fs::write(path("two/config/below/z.yaml"), "d").unwrap()));
        assert!(changes(&|| fs::rename(path("two/config/y.yaml"), path("two/config/w.yaml")).unwrap()));
        assert!(!changes(&|| fs::write(path("two/config/.hidden"), "e").unwrap()));
        assert!(changes(&|| fs::remove_file(path("two/config/x.yaml")).unwrap()));
    }
}
