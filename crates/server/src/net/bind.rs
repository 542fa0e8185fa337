//! Listeners, several on one port: one per worker, so that a connection stays on the thread that
//! accepted it.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;

use socket2::{Domain, Protocol, Socket, Type};

/// Connections the kernel may keep for us between two looks.
const BACKLOG: i32 = 1024;

/// Why a door could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("{door} door: cannot listen on {address}: {}", in_words(error))]
pub(crate) struct BindError {
    /// Which door.
    door: &'static str,
    /// Where it should have been.
    address: SocketAddr,
    /// What the system said.
    error: io::Error,
}

/// Binds `count` listeners to one address; port 0 is one free port for all of them.
pub(crate) fn listeners(
    door: &'static str,
    address: SocketAddr,
    count: NonZeroUsize,
) -> Result<(SocketAddr, Vec<TcpListener>), BindError> {
    let failed = |error| BindError { door, address, error };
    // Two servers of one user could share a port by SO_REUSEPORT without noticing, and each would
    // see half of the connections. A socket without it cannot bind while another is there.
    if address.port() != 0 {
        socket(address, Sharing::Alone).map_err(failed)?;
    }
    let first = socket(address, Sharing::Shared).and_then(listen).map_err(failed)?;
    let bound = first.local_addr().map_err(failed)?;
    let mut all = vec![first];
    for _ in 1..count.get() {
        all.push(socket(bound, Sharing::Shared).and_then(listen).map_err(failed)?);
    }
    Ok((bound, all))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharing {
    Alone,
    Shared,
}

fn socket(address: SocketAddr, sharing: Sharing) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if sharing == Sharing::Shared {
        socket.set_reuse_port(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn listen(socket: Socket) -> io::Result<TcpListener> {
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn in_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "the address is in use (is another tollgate running?)".to_owned(),
        io::ErrorKind::AddrNotAvailable => "this machine has no such address".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied (ports below 1024 need a privilege)".to_owned(),
        _ => error.to_string(),
    }
}
