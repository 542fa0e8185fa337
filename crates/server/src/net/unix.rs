//! A unix socket's file: made so that nobody unwanted gets in, never taken from somebody who listens,
//! and gone when we are.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

use super::bind::BACKLOG;

/// Who may connect: the user we run as, and its group.
const MODE: u32 = 0o660;

/// The file of a socket that we listen on; dropped, it is removed if it is still ours.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// A newer server may have put its own socket at our path.
    identity: Identity,
}

/// Device, inode and when it was made: a number that was free is soon given out again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    made: (i64, i64),
}

impl SocketFile {
    /// Listens at this path. A socket that nobody listens on is replaced; anything else is left alone.
    pub(crate) fn listen(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
        clear(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.bind(&SockAddr::unix(path)?)?;
        // Order: until it listens nobody can connect, whatever the file's mode was at first.
        fs::set_permissions(path, Permissions::from_mode(MODE))?;
        let file = SocketFile { path: path.to_owned(), identity: identity(path)? };
        socket.listen(BACKLOG)?;
        Ok((socket.into(), file))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|now| now == self.identity)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "the socket's file could not be removed");
        }
    }
}

fn identity(path: &Path) -> io::Result<Identity> {
    let file = fs::symlink_metadata(path)?;
    Ok(Identity { device: file.dev(), inode: file.ino(), made: (file.mtime(), file.mtime_nsec()) })
}

/// Removes what a server that ended without a word has left behind.
fn clear(path: &Path) -> io::Result<()> {
    let file = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    if !file.file_type().is_socket() {
        return Err(io::Error::other("there is a file that is not a socket"));
    }
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // A listener whose queue is full would have us wait; it listens all the same.
    probe.set_nonblocking(true)?;
    match probe.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Ok(()) => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn the_file_is_for_user_and_group_and_goes_with_the_listener() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("door.sock");
        let (listener, file) = SocketFile::listen(&path).unwrap();
        assert_eq!(mode(&path), 0o660);
        drop((listener, file));
        assert!(!path.exists());
    }

    #[test]
    fn a_socket_is_taken_over_only_when_nobody_listens() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("door.sock");
        let (listener, file) = SocketFile::listen(&path).unwrap();
        let taken = SocketFile::listen(&path).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);

        drop(listener);
        let (_listener, _newer) = SocketFile::listen(&path).unwrap();
        drop(file);
        assert!(path.exists(), "it is the newer one's now");
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("precious");
        fs::write(&path, "precious").unwrap();
        assert!(SocketFile::listen(&path).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }
}
