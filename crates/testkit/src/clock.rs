//! The wall clock of one process, in the hands of a test.
//!
//! A limiter on Redis believes Redis' clock, so tests must step it back, jump it forward and hold it
//! still. Setting the machine's clock would do that to every process at once, and needs root; a time
//! namespace shifts only the monotonic clocks. So a small library (`clock.c`) is preloaded into the
//! one process, and reads the time to show from a file that this module writes.
//!
//! What Redis 7.0 does with that clock, as far as a test can see it:
//!
//! - `TIME` reads it on every call, also inside a script: a step takes effect at once.
//! - A step between two commands is seen by expiry at once. Inside a script, expiry is judged by the
//!   time the *script* began, however long it runs, while `TIME` and `PX` already see the step.
//! - `PX` and `PTTL` count from the same clock. A key lives *through* its last millisecond: at
//!   exactly its expiry `PTTL` is 0, and one millisecond later the key is gone.
//! - Its event loop, and with it the background expiry of unread keys, is scheduled on the monotonic
//!   clock, and so is the limit for slow scripts. A frozen Redis stays responsive.
//! - What compares dates stands still with a frozen clock, until it is stepped: `CLIENT PAUSE` and the
//!   timeouts of blocking commands (tried by hand); `appendfsync everysec` and the timeouts of
//!   replication should, too (not tried).
//!
//! Proved by: `tests/clock.rs`, except where it says otherwise.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, ErrorKind},
    os::unix::fs::FileExt,
    path::PathBuf,
    process::Command,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use tempfile::{NamedTempFile, TempDir};

const SOURCE: &str = include_str!("clock.c");

/// Position of the two integers in the file, as `struct clock_file` in `clock.c` has them.
const OFFSET_AT: u64 = 0;
const FROZEN_AT: u64 = 8;

/// The value of the frozen time that stands for "not frozen".
const RUNNING: i64 = 0;

/// Controls the wall clock of every process started with its [environment](ClockShim::environment).
#[derive(Debug)]
pub struct ClockShim {
    library: Arc<Library>,
    file: NamedTempFile,
    shown: Mutex<Shown>,
}

/// What the file says.
#[derive(Debug)]
struct Shown {
    offset_us: i64,
    frozen_us: i64,
}

/// The compiled `clock.c`.
#[derive(Debug)]
struct Library {
    directory: TempDir,
}

impl ClockShim {
    /// Prepares a clock that shows the real time. Compiles the library with gcc unless another shim
    /// of this process holds it already.
    #[expect(clippy::new_without_default, reason = "compiles and writes files: not what Default promises")]
    pub fn new() -> ClockShim {
        let file = NamedTempFile::with_prefix("testkit-clock-").expect("the temporary directory is writable");
        let shim = ClockShim {
            library: Library::shared(),
            file,
            shown: Mutex::new(Shown { offset_us: 0, frozen_us: RUNNING }),
        };
        shim.set_offset_us(0);
        shim.thaw();
        shim
    }

    /// The environment variables that put a process on this clock.
    pub fn environment(&self) -> [(&'static str, OsString); 2] {
        [("LD_PRELOAD", self.library.path().into()), ("TESTKIT_CLOCK", self.file.path().into())]
    }

    /// Jumps forward, from the frozen time if the clock is frozen.
    pub fn step(&self, forward: Duration) {
        self.step_us(micros(forward));
    }

    /// Jumps back, from the frozen time if the clock is frozen.
    pub fn step_back(&self, back: Duration) {
        self.step_us(-micros(back));
    }

    /// Sets the distance to the real time, in microseconds. Seen only while the clock runs.
    pub fn set_offset_us(&self, offset_us: i64) {
        self.change(|shown| shown.offset_us = offset_us);
    }

    /// Stops the clock at a time, in microseconds since 1970.
    pub fn freeze_at_us(&self, frozen_us: i64) {
        assert!(frozen_us > 0, "cannot freeze at {frozen_us} us: the time must be after 1970");
        self.change(|shown| shown.frozen_us = frozen_us);
    }

    /// Lets the clock run again, at the real time plus the offset it had before it was frozen.
    pub fn thaw(&self) {
        self.change(|shown| shown.frozen_us = RUNNING);
    }

    fn step_us(&self, step_us: i64) {
        self.change(|shown| match shown.frozen_us {
            RUNNING => shown.offset_us += step_us,
            frozen_us => {
                assert!(frozen_us + step_us > 0, "a frozen clock cannot be stepped back beyond 1970");
                shown.frozen_us += step_us;
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut Shown)) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut shown);
        let Shown { offset_us, frozen_us } = *shown;
        let file: &File = self.file.as_file();
        // Two writes, each of one aligned word: the process sees old or new, never half of one. No
        // change touches both words, so it never sees a mixture either.
        let written = file
            .write_all_at(&offset_us.to_ne_bytes(), OFFSET_AT)
            .and_then(|()| file.write_all_at(&frozen_us.to_ne_bytes(), FROZEN_AT));
        written.expect("an open temporary file is writable");
    }
}

impl Library {
    /// The library of this process. Held weakly: the last shim removes it, since nothing would
    /// remove the directory of a static.
    fn shared() -> Arc<Library> {
        static SHARED: Mutex<Weak<Library>> = Mutex::new(Weak::new());

        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let library = Arc::new(Library::compile());
            *shared = Arc::downgrade(&library);
            library
        })
    }

    fn compile() -> Library {
        let directory = TempDir::with_prefix("testkit-shim-").expect("the temporary directory is writable");
        let library = Library { directory };
        let source = library.directory.path().join("clock.c");
        fs::write(&source, SOURCE).expect("a directory just made is writable");

        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-Wall", "-shared", "-fPIC", "-o"]).arg(library.path()).arg(&source);
        let output = gcc.output().unwrap_or_else(|error| panic!("{}", cannot_compile(&error)));
        assert!(
            output.status.success(),
            "gcc refused the clock shim:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        library
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("clock.so")
    }
}

fn cannot_compile(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => {
            "the clock shim needs a C compiler; install one with: apt-get install gcc libc6-dev".to_owned()
        }
        _ => format!("cannot run gcc: {error}"),
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).expect("no test steps a clock by 292 000 years")
}
