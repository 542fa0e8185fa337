//! What happens on a connection before its first request: a PROXY header, a TLS handshake, and a look
//! at which HTTP is spoken.
//!
//! Each step only reads ahead what it needs to see, so that the next finds its own bytes untouched.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncRead;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::peer::Peer;
use super::proxy::{self, Parsed, Source};
use super::stream::{Ahead, Socket, Stream};
use super::tls::{H2, HTTP1, Tls};
use tollgate::core::address::Cidr;

/// How every HTTP/2 connection begins; nothing in HTTP/1 does.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Read at once to see which HTTP it is; a request that fits is not read twice.
const FIRST_READ_BYTES: usize = 1024;

/// How a door's connections begin.
#[derive(Debug, Clone, Default)]
pub(crate) struct Opening {
    /// Whose PROXY header is believed, and expected.
    pub(crate) proxies: Arc<Proxies>,
    /// The certificate shown, if the door speaks TLS.
    pub(crate) tls: Option<Arc<Tls>>,
    /// How long a PROXY header and a handshake may take together.
    pub(crate) timeout: Duration,
}

/// Whose PROXY header is believed, and expected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Proxies {
    /// Those on the network.
    pub(crate) networks: Vec<Cidr>,
    /// Whether those on a unix socket are meant, too.
    pub(crate) unix: bool,
}

impl Proxies {
    fn include(&self, peer: &Peer) -> bool {
        match peer.address {
            Some(address) => self.networks.iter().any(|network| network.contains(address)),
            None => self.unix,
        }
    }
}

/// Which HTTP a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    Http1,
    Http2,
}

/// A connection that is ready for requests.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) stream: Stream,
    pub(crate) peer: Peer,
    pub(crate) version: Version,
}

impl Opening {
    /// Opens a connection that speaks HTTP. An error is the end of it: there is nobody to explain anything to.
    pub(crate) async fn open(&self, socket: Socket, peer: Peer) -> io::Result<Opened> {
        let (mut stream, peer, agreed) = self.greet(socket, peer).await?;
        let version = match (agreed, &mut stream) {
            (Some(version), _) => version,
            (None, Stream::Plain(stream)) => version(stream).await?,
            (None, Stream::Tls(stream)) => version(stream).await?,
        };
        Ok(Opened { stream, peer, version })
    }

    /// A PROXY header and a TLS handshake, where there are any, and which HTTP the handshake agreed on.
    pub(crate) async fn greet(
        &self,
        socket: Socket,
        mut peer: Peer,
    ) -> io::Result<(Stream, Peer, Option<Version>)> {
        let mut socket = Ahead::new(socket);
        let has_header = self.proxies.include(&peer);
        if !has_header && self.tls.is_none() {
            return Ok((Stream::Plain(socket), peer, None));
        }
        let greeted = timeout(self.timeout, async {
            if has_header {
                peer = behind(&mut socket, peer).await?;
            }
            match &self.tls {
                None => Ok((Stream::Plain(socket), None)),
                Some(tls) => secure(tls, socket, &mut peer).await,
            }
        });
        let (stream, agreed) = greeted.await??;
        Ok((stream, peer, agreed))
    }
}

/// The peer a PROXY header names. Without one the connection is not served: somebody else got hold of
/// the proxy's address, or the proxy is set up otherwise than it is here.
async fn behind<S: AsyncRead + Unpin>(stream: &mut Ahead<S>, proxy: Peer) -> io::Result<Peer> {
    loop {
        match proxy::parse(stream.bytes()).map_err(io::Error::other)? {
            Parsed::Incomplete => stream.read_on(proxy::BLOCK_BYTES_MAX).await?,
            Parsed::Whole { source, length } => {
                stream.forget(length);
                return Ok(match source {
                    Source::Proxy => proxy,
                    Source::Somebody => proxy.for_somebody(),
                    // Whoever it is, the proxy says so: it is not surely on this machine.
                    Source::Client(address) => Peer::at(address).for_somebody(),
                });
            }
        }
    }
}

/// The TLS handshake, and which HTTP it agreed on, if it did.
async fn secure(tls: &Tls, socket: Ahead<Socket>, peer: &mut Peer) -> io::Result<(Stream, Option<Version>)> {
    let stream = TlsAcceptor::from(tls.current()).accept(socket).await?;
    let (_, session) = stream.get_ref();
    peer.is_tls = true;
    // One that was shown and not vouched for would have failed the handshake.
    peer.client_certificate = session.peer_certificates().is_some_and(|chain| !chain.is_empty());
    let agreed = match session.alpn_protocol() {
        Some(H2) => Some(Version::Http2),
        Some(HTTP1) => Some(Version::Http1),
        _ => None,
    };
    Ok((Stream::Tls(Box::new(Ahead::new(stream))), agreed))
}

/// Which HTTP the first bytes are: HTTP/2 if they are its preface, byte by byte, and else HTTP/1.
async fn version<S: AsyncRead + Unpin>(stream: &mut Ahead<S>) -> io::Result<Version> {
    loop {
        let first = &stream.bytes()[..stream.bytes().len().min(PREFACE.len())];
        if first == PREFACE {
            return Ok(Version::Http2);
        }
        if !PREFACE.starts_with(first) {
            return Ok(Version::Http1);
        }
        stream.read_on(FIRST_READ_BYTES).await?;
    }
}

#[cfg(test)]
mod tests;
