//! Listeners, several on one port: one per worker, so that a connection stays on the thread that
//! accepted it. Those of a unix socket share one queue instead, which does the same.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, UnixListener};

use super::peer::Peer;
use super::stream;
use super::unix::SocketFile;

/// Connections the kernel may keep for us between two looks.
pub(super) const BACKLOG: i32 = 1024;

/// Where a door is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// At an address.
    Tcp(SocketAddr),
    /// At a path.
    Unix(PathBuf),
}

impl Endpoint {
    /// Whether only this machine reaches it. A unix socket counts: its file's permissions guard it.
    pub(crate) fn is_local(&self) -> bool {
        match self {
            Endpoint::Tcp(address) => address.ip().is_loopback(),
            Endpoint::Unix(_) => true,
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp(address) => address.fmt(f),
            Endpoint::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A door that is bound, and not served yet.
#[derive(Debug)]
pub(crate) struct Bound {
    /// Where it really is.
    pub(crate) endpoint: Endpoint,
    /// One for each worker.
    pub(crate) listeners: Vec<Unserved>,
    /// The socket's file, which goes when this is dropped.
    pub(crate) file: Option<SocketFile>,
}

/// A listener that no runtime knows yet.
#[derive(Debug)]
pub(crate) enum Unserved {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

/// A listener on the runtime it was made on.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Why a door could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("{door} door: cannot listen on {endpoint}: {}", in_words(error))]
pub(crate) struct BindError {
    /// Which door.
    door: &'static str,
    /// Where it should have been.
    endpoint: Endpoint,
    /// What the system said.
    error: io::Error,
}

/// Binds `count` listeners to one place; port 0 is one free port for all of them.
pub(crate) fn listeners(
    door: &'static str,
    endpoint: &Endpoint,
    count: NonZeroUsize,
) -> Result<Bound, BindError> {
    let bound = match endpoint {
        Endpoint::Tcp(address) => tcp(*address, count),
        Endpoint::Unix(path) => unix(path.clone(), count),
    };
    bound.map_err(|error| BindError { door, endpoint: endpoint.clone(), error })
}

fn tcp(address: SocketAddr, count: NonZeroUsize) -> io::Result<Bound> {
    // Two servers of one user could share a port by SO_REUSEPORT without noticing, and each would
    // see half of the connections. A socket without it cannot bind while another is there.
    if address.port() != 0 {
        socket(address, Sharing::Alone)?;
    }
    let first = socket(address, Sharing::Shared).and_then(listen)?;
    let bound = first.local_addr()?;
    let mut listeners = vec![Unserved::Tcp(first)];
    for _ in 1..count.get() {
        listeners.push(Unserved::Tcp(socket(bound, Sharing::Shared).and_then(listen)?));
    }
    Ok(Bound { endpoint: Endpoint::Tcp(bound), listeners, file: None })
}

fn unix(path: PathBuf, count: NonZeroUsize) -> io::Result<Bound> {
    let (first, file) = SocketFile::listen(&path)?;
    let mut listeners = Vec::with_capacity(count.get());
    for _ in 1..count.get() {
        listeners.push(Unserved::Unix(first.try_clone()?));
    }
    listeners.push(Unserved::Unix(first));
    Ok(Bound { endpoint: Endpoint::Unix(path), listeners, file: Some(file) })
}

impl Unserved {
    /// The listener on the runtime we are on.
    pub(crate) fn serve(self) -> io::Result<Listener> {
        Ok(match self {
            Unserved::Tcp(listener) => Listener::Tcp(TcpListener::from_std(listener)?),
            Unserved::Unix(listener) => Listener::Unix(UnixListener::from_std(listener)?),
        })
    }
}

impl Listener {
    /// The next connection, and whom it is from.
    pub(crate) async fn accept(&self) -> io::Result<(stream::Socket, Peer)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // An answer is one small write; waiting for more of it would only delay it.
                let _ = stream.set_nodelay(true);
                Ok((stream::Socket::Tcp(stream), Peer::at(address)))
            }
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok((stream::Socket::Unix(stream), Peer::on_unix_socket()))
            }
        }
    }
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

fn listen(socket: Socket) -> io::Result<std::net::TcpListener> {
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
