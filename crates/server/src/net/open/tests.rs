//! Who a connection is from and what it speaks, by its first bytes.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::*;

const REQUEST: &[u8] = b"POST /v1/check HTTP/1.1\r\n\r\n";

/// Opens a connection of `peer` on which these pieces come one after the other, and says what is left
/// to be read by whoever speaks HTTP.
async fn opened(proxies: &[&str], peer: Peer, pieces: &[&[u8]]) -> io::Result<(Peer, Version, Vec<u8>)> {
    let opening = Opening {
        proxies: Arc::new(Proxies {
            networks: proxies.iter().filter_map(|network| Cidr::parse(network).ok()).collect(),
            unix: proxies.contains(&"unix"),
        }),
        tls: None,
        timeout: Duration::from_secs(30),
    };
    let (mut client, server) = UnixStream::pair().unwrap();
    let write = async {
        for piece in pieces {
            // Whoever is not served has closed its end already.
            let _ = client.write_all(piece).await;
            tokio::task::yield_now().await;
        }
        let _ = client.shutdown().await;
    };
    let read = async {
        let Opened { mut stream, peer, version } = opening.open(Socket::Unix(server), peer).await?;
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await?;
        Ok((peer, version, rest))
    };
    tokio::join!(read, write).0
}

fn at(address: &str) -> Peer {
    Peer::at(address.parse().unwrap())
}

#[tokio::test]
async fn the_preface_is_http2_and_all_else_http1_and_nothing_is_lost() {
    let peer = at("192.0.2.1:7");
    for (bytes, version) in [
        (&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], Version::Http2),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", Version::Http2),
        (b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", Version::Http1),
        (b"PRIZE / HTTP/1.1\r\n\r\n", Version::Http1),
        (b"PUT / HTTP/1.1\r\n\r\n", Version::Http1),
        (REQUEST, Version::Http1),
        (&[0xff; 5000], Version::Http1),
    ] {
        let expected = (peer, version, bytes.to_vec());
        assert_eq!(opened(&[], peer, &[bytes]).await.unwrap(), expected);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(opened(&[], peer, &single).await.unwrap(), expected);
    }
    assert!(opened(&[], peer, &[b"PRI * HT"]).await.is_err(), "neither, and nothing more comes");
}

#[tokio::test]
async fn a_believed_header_says_who_it_is() {
    let header = b"PROXY TCP4 198.51.100.9 192.0.2.1 4711 80\r\n";
    for (proxies, proxy) in [
        (&["10.0.0.0/8"][..], at("10.1.2.3:9")),
        (&["192.0.2.0/24", "10.0.0.0/8"], at("[::ffff:10.1.2.3]:9")),
        (&["unix"], Peer::on_unix_socket()),
    ] {
        let (peer, version, rest) = opened(proxies, proxy, &[header, REQUEST]).await.unwrap();
        assert_eq!((peer, version), (at("198.51.100.9:4711"), Version::Http1));
        assert_eq!(rest, REQUEST);
        // In one piece, and byte by byte.
        let whole = [&header[..], REQUEST].concat();
        let single: Vec<&[u8]> = whole.chunks(1).collect();
        for pieces in [&[whole.as_slice()][..], &single] {
            let (peer, _, rest) = opened(proxies, proxy, pieces).await.unwrap();
            assert_eq!((peer, rest.as_slice()), (at("198.51.100.9:4711"), REQUEST));
        }
    }
}

#[tokio::test]
async fn a_header_that_names_nobody_keeps_the_peer() {
    let proxy = at("127.0.0.1:9");
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    let (peer, ..) = opened(&["127.0.0.1"], proxy, &[local, REQUEST]).await.unwrap();
    assert_eq!(peer, proxy, "the proxy asks for itself");
    for unknown in [&b"PROXY UNKNOWN\r\n"[..], b"\r\n\r\n\0\r\nQUIT\n\x21\0\0\0"] {
        let (peer, ..) = opened(&["127.0.0.1"], proxy, &[unknown, REQUEST]).await.unwrap();
        assert_eq!(peer, proxy.for_somebody());
    }
}

#[tokio::test]
async fn whoever_must_send_a_header_and_does_not_is_not_served() {
    for bytes in [REQUEST, b"PROXY TCP4 nonsense\r\n", b"PROXY TCP4 198.51"] {
        assert!(opened(&["10.0.0.0/8"], at("10.0.0.1:9"), &[bytes]).await.is_err());
    }
}

#[tokio::test]
async fn whoever_need_not_send_a_header_is_not_believed() {
    let forged = [b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n", REQUEST].concat();
    for (proxies, peer) in [
        (&[][..], at("10.0.0.1:9")),
        (&["10.0.0.0/8"], at("11.0.0.1:9")),
        (&["10.0.0.0/8"], Peer::on_unix_socket()),
        (&["unix"], at("10.0.0.1:9")),
    ] {
        let (seen, version, rest) = opened(proxies, peer, &[&forged]).await.unwrap();
        assert_eq!(
            (seen, version, rest),
            (peer, Version::Http1, forged.clone()),
            "read as HTTP, and refused"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_header_that_never_ends_is_not_waited_for() {
    let opening = Opening {
        proxies: Arc::new(Proxies { networks: Vec::new(), unix: true }),
        tls: None,
        timeout: Duration::from_secs(10),
    };
    let (mut client, server) = UnixStream::pair().unwrap();
    client.write_all(b"PROXY TCP4 ").await.unwrap();
    let began = tokio::time::Instant::now();
    let error = opening.open(Socket::Unix(server), Peer::on_unix_socket()).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert_eq!(began.elapsed(), opening.timeout);
}
