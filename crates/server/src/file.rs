//! Reading a file that somebody names: a regular one, within bounds, and without waiting for a writer.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// The bytes of a file that has at most so many.
///
/// A pipe nobody writes to would be waited for until the end of time, and a device has no end at all: what
/// is no regular file is an error.
pub(crate) fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let how = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, how, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut bytes = Vec::new();
    // The bound is on what is read and not on what the file says of its size, which may change.
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("it has more than {bytes_max} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_regular_file_within_bounds_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("file"), "12345").unwrap();
        assert_eq!(read(&at("file"), 5).unwrap(), b"12345");
        assert!(read(&at("file"), 4).unwrap_err().to_string().contains("more than 4 bytes"));

        let made = std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap();
        assert!(made.success());
        for path in [&at("pipe"), directory.path(), Path::new("/dev/zero")] {
            let why = read(path, 5).unwrap_err().to_string();
            assert!(why.contains("no regular file"), "{}: {why}", path.display());
        }
    }
}
