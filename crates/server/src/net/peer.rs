//! Who is at the other end of a connection, as far as the connection itself can tell.

use std::net::{IpAddr, SocketAddr};

/// The facts of a connection, the same for each of its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Where it is, behind a believed PROXY header if there was one; `None` on a unix socket. Never an
    /// IPv4 address in IPv6 clothes.
    pub(crate) address: Option<IpAddr>,
    /// Its port there; 0 on a unix socket.
    pub(crate) port: u16,
    /// Whether it is surely on this machine: over loopback or a unix socket, and not on behalf of
    /// somebody else.
    pub(crate) is_local: bool,
    /// Whether it speaks TLS to us.
    pub(crate) is_tls: bool,
    /// Whether it showed a certificate that our authority vouches for.
    pub(crate) client_certificate: bool,
}

impl Peer {
    /// Somebody at this address.
    pub(crate) fn at(address: SocketAddr) -> Peer {
        let ip = address.ip().to_canonical();
        Peer {
            address: Some(ip),
            port: address.port(),
            is_local: ip.is_loopback(),
            is_tls: false,
            client_certificate: false,
        }
    }

    /// Somebody on a unix socket: whoever the file's permissions let in.
    pub(crate) fn on_unix_socket() -> Peer {
        Peer { address: None, port: 0, is_local: true, is_tls: false, client_certificate: false }
    }

    /// The one this peer speaks for, where it does not say who that is.
    pub(crate) fn for_somebody(self) -> Peer {
        Peer { is_local: false, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_peer_of_an_ipv6_listener_is_an_ipv4_peer() {
        let mapped = Peer::at("[::ffff:192.0.2.7]:443".parse().unwrap());
        assert_eq!(mapped, Peer::at("192.0.2.7:443".parse().unwrap()));
        assert!(!mapped.is_local);
        assert!(Peer::at("[::ffff:127.0.0.1]:1".parse().unwrap()).is_local);
        assert!(Peer::at("[::1]:1".parse().unwrap()).is_local);
    }

    #[test]
    fn who_speaks_for_somebody_is_not_local_for_that() {
        assert!(Peer::on_unix_socket().is_local);
        let proxy = Peer::at("127.0.0.1:9".parse().unwrap());
        assert_eq!(proxy.for_somebody(), Peer { is_local: false, ..proxy });
    }
}
