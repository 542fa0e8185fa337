//! Chains of hops, honest and not.

use http::HeaderValue;
use proptest::prelude::*;
use tollgate_core::address::Cidr;

use super::super::{Identity, Peer};
use super::*;

const XFF: &str = "x-forwarded-for";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn headers(name: &'static str, lines: &[&str]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines {
        headers.append(name, HeaderValue::from_bytes(line.as_bytes()).unwrap());
    }
    headers
}

/// Trusts 10.0.0.0/8 and 2001:db8:ffff::/48.
fn identity(forwarding: Forwarding) -> Identity {
    Identity::builder()
        .trust(Cidr::parse("10.0.0.0/8").unwrap())
        .trust(Cidr::parse("2001:db8:ffff::/48").unwrap())
        .forwarding(forwarding)
        .build()
}

fn client_by(forwarding: Forwarding, name: &'static str, peer: &str, lines: &[&str]) -> Option<IpAddr> {
    identity(forwarding).address(Peer::Address(ip(peer)), &headers(name, lines))
}

#[test]
fn the_first_hop_that_is_not_trusted_is_the_client() {
    for (peer, lines, client) in [
        // Nobody in between.
        ("203.0.113.9", &[][..], "203.0.113.9"),
        ("10.0.0.1", &[], "10.0.0.1"),
        ("10.0.0.1", &["203.0.113.9"], "203.0.113.9"),
        ("10.0.0.1", &["203.0.113.9, 10.0.0.2"], "203.0.113.9"),
        // What a client wrote stands to the left of its own address.
        ("10.0.0.1", &["6.6.6.6, 203.0.113.9, 10.0.0.2"], "203.0.113.9"),
        // Lines are one list.
        ("10.0.0.1", &["6.6.6.6", "203.0.113.9", "10.0.0.2"], "203.0.113.9"),
        ("10.0.0.1", &["203.0.113.9", "10.0.0.3 ,\t10.0.0.2"], "203.0.113.9"),
        // Everybody trusted: the farthest.
        ("10.0.0.1", &["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        // Ports, brackets, v4 in v6.
        ("10.0.0.1", &["203.0.113.9:4711"], "203.0.113.9"),
        ("10.0.0.1", &["[2001:db8::7]:4711"], "2001:db8::7"),
        ("10.0.0.1", &["[2001:db8::7]"], "2001:db8::7"),
        ("10.0.0.1", &["2001:db8::7"], "2001:db8::7"),
        ("::ffff:10.0.0.1", &["::ffff:203.0.113.9"], "203.0.113.9"),
        ("10.0.0.1", &["203.0.113.9, [::ffff:10.0.0.2]:80"], "203.0.113.9"),
        ("2001:db8:ffff::1", &["2001:db8::7"], "2001:db8::7"),
        // Empty elements mean nothing.
        ("10.0.0.1", &["203.0.113.9, , 10.0.0.2,", ""], "203.0.113.9"),
    ] {
        assert_eq!(client_by(Forwarding::XForwardedFor, XFF, peer, lines), Some(ip(client)), "{lines:?}");
    }
}

#[test]
fn what_cannot_be_read_ends_the_chain_at_the_last_good_hop() {
    for garbage in [
        "unknown",
        "_hidden",
        "203.0.113.9:",
        "203.0.113.9:http",
        "203.0.113.9:123456",
        "203.0.113.009",
        "[2001:db8::7",
        "[2001:db8::7]x",
        "[203.0.113.9]",
        "2001:db8::7%eth0",
        "203.0.113.9 6.6.6.6",
        "\"203.0.113.9\"",
        "\u{661}.2.3.4",
    ] {
        let line = format!("6.6.6.6, {garbage}, 10.0.0.2");
        let client = client_by(Forwarding::XForwardedFor, XFF, "10.0.0.1", &[&line]);
        assert_eq!(client, Some(ip("10.0.0.2")), "{garbage}");
        let client = client_by(Forwarding::XForwardedFor, XFF, "10.0.0.1", &["6.6.6.6", garbage]);
        assert_eq!(client, Some(ip("10.0.0.1")), "{garbage}");
    }
}

#[test]
fn forwarded_elements_are_read_from_the_right() {
    for (lines, client) in [
        (&["for=203.0.113.9"][..], "203.0.113.9"),
        (&["For=\"203.0.113.9:4711\";proto=https;by=10.0.0.1"], "203.0.113.9"),
        (&["proto=https; for=\"[2001:db8::7]:4711\""], "2001:db8::7"),
        (&["for=\"[2001:db8::7]:_port\""], "2001:db8::7"),
        (&["for=[2001:db8::7]"], "2001:db8::7"),
        (&["for=6.6.6.6, for=203.0.113.9, for=10.0.0.2"], "203.0.113.9"),
        (&["for=6.6.6.6", "for=203.0.113.9", "for=10.0.0.2"], "203.0.113.9"),
        // A comma between quotes ends nothing.
        (&["for=203.0.113.9;host=\"a,b;c=\\\"d\"", "for=10.0.0.2"], "203.0.113.9"),
        // An open quote of the client's swallows no true hop.
        (&["for=\"6.6.6.6, for=203.0.113.9"], "203.0.113.9"),
        (&["for=\"x\\\", for=203.0.113.9, for=10.0.0.2"], "203.0.113.9"),
        // What a proxy quotes cannot pass for an element.
        (&["for=203.0.113.9;host=\"x, for=6.6.6.6\""], "203.0.113.9"),
        (&["for=203.0.113.9;host=\"x, for=6.6.6.6;y=\\\"z\""], "203.0.113.9"),
    ] {
        let found = client_by(Forwarding::Forwarded, "forwarded", "10.0.0.1", lines);
        assert_eq!(found, Some(ip(client)), "{lines:?}");
    }
}

#[test]
fn an_odd_forwarded_element_ends_the_chain() {
    for garbage in [
        "for=unknown",
        "for=_hidden",
        "proto=https",
        "for=6.6.6.6;for=7.7.7.7",
        "for=6.6.6.6;",
        "for=6.6.6.6;x",
        "for=6.6.6.6;=x",
        "for=6.6.6.6;x=a\"b\"",
        "for=\"6.6.6.6",
        "for=\"6.6.6.6\"x",
        "for=\"6.6.\\6.6\"",
        "for 6.6.6.6",
        "6.6.6.6",
        "for=",
        "f\u{f6}r=6.6.6.6",
        "x y=1;for=6.6.6.6",
    ] {
        let lines = ["for=9.9.9.9", garbage, "for=10.0.0.2"];
        let found = client_by(Forwarding::Forwarded, "forwarded", "10.0.0.1", &lines);
        assert_eq!(found, Some(ip("10.0.0.2")), "{garbage}");
    }
}

#[test]
fn only_the_chosen_header_is_read() {
    let mut both = headers(XFF, &["6.6.6.6"]);
    both.insert("forwarded", HeaderValue::from_static("for=7.7.7.7"));
    let peer = Peer::Address(ip("10.0.0.1"));
    assert_eq!(identity(Forwarding::XForwardedFor).address(peer, &both), Some(ip("6.6.6.6")));
    assert_eq!(identity(Forwarding::Forwarded).address(peer, &both), Some(ip("7.7.7.7")));
    assert_eq!(identity(Forwarding::None).address(peer, &both), Some(ip("10.0.0.1")));
}

#[test]
fn a_unix_socket_is_a_proxy_only_if_that_was_said() {
    let lines = headers(XFF, &["203.0.113.9"]);
    assert_eq!(identity(Forwarding::XForwardedFor).address(Peer::Unix, &lines), None);
    let trusting = Identity::builder().trust_unix().build();
    assert_eq!(trusting.address(Peer::Unix, &lines), Some(ip("203.0.113.9")));
    assert_eq!(trusting.address(Peer::Unix, &HeaderMap::new()), None);
    assert_eq!(trusting.address(Peer::Unix, &headers(XFF, &["unknown"])), None);
}

#[test]
fn a_chain_is_read_only_so_far() {
    let chain = |trusted: usize| {
        let mut hops = vec!["203.0.113.9".to_owned()];
        hops.extend((0..trusted).map(|at| format!("10.1.{}.{}", at / 250, at % 250)));
        hops.join(",")
    };
    let client = |line: &str| client_by(Forwarding::XForwardedFor, XFF, "10.0.0.1", &[line]);
    assert_eq!(client(&chain(HOPS_MAX - 1)), Some(ip("203.0.113.9")));
    // The farthest that was read: a trusted one, and not what a client put before it.
    assert_eq!(client(&chain(HOPS_MAX)), Some(ip("10.1.0.0")));
    assert_eq!(client(&chain(2000)), Some(ip(&format!("10.1.7.{}", 2000 - 32 - 1750))));
    // Commas are hops too: nobody makes us read a megabyte of them.
    assert_eq!(client(&format!("203.0.113.9{}", ",".repeat(2000))), Some(ip("10.0.0.1")));
}

/// Pieces of which headers are made, and headers are broken.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b",".to_vec()),
        Just(b"for=".to_vec()),
        Just(b"\"".to_vec()),
        Just(b"\\".to_vec()),
        Just(b";".to_vec()),
        Just(b"=".to_vec()),
        Just(b"10.0.0.2".to_vec()),
        Just(b"6.6.6.6".to_vec()),
        Just(b"[2001:db8::7]:80".to_vec()),
        Just(b" ".to_vec()),
        "[ -~]{1,6}".prop_map(String::into_bytes),
        proptest::collection::vec(0x80_u8..=0xff, 1..3),
    ];
    proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

fn lines_of(name: &'static str, lines: &[Vec<u8>]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines {
        headers.append(name, HeaderValue::from_bytes(line).unwrap());
    }
    headers
}

fn forwardings() -> impl Strategy<Value = (Forwarding, &'static str, &'static str)> {
    prop_oneof![
        Just((Forwarding::XForwardedFor, XFF, "")),
        Just((Forwarding::Forwarded, "forwarded", "for=")),
    ]
}

proptest! {
    /// Whatever is in the headers, a peer that is not trusted is the client.
    #[test]
    fn a_header_from_an_untrusted_peer_changes_nothing(
        (forwarding, name, _) in forwardings(),
        lines in proptest::collection::vec(pieces(), 0..4),
        peer in any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
    ) {
        let identity = identity(forwarding);
        prop_assume!(!identity.trusts(Peer::Address(peer)));
        prop_assert_eq!(identity.address(Peer::Address(peer), &lines_of(name, &lines)), Some(peer));
    }

    /// Whatever a client sends, a proxy that adds the client's address behind it finds the client: on the
    /// same line, on a line of its own, and behind further proxies.
    #[test]
    fn a_client_cannot_hide_from_an_honest_proxy(
        (forwarding, name, prefix) in forwardings(),
        mut lines in proptest::collection::vec(pieces(), 0..4),
        is_joined in any::<bool>(),
        proxies in 0_usize..4,
    ) {
        let mut honest = vec![format!("{prefix}203.0.113.9")];
        honest.extend((0..proxies).map(|at| format!("{prefix}10.0.0.{at}")));
        let honest = honest.join(", ");
        match lines.last_mut() {
            Some(last) if is_joined => last.extend_from_slice(format!(", {honest}").as_bytes()),
            _ => lines.push(honest.into_bytes()),
        }
        let found = identity(forwarding).address(Peer::Address(ip("10.0.0.1")), &lines_of(name, &lines));
        prop_assert_eq!(found, Some(ip("203.0.113.9")));
    }

    /// From a trusted peer any bytes give some address, and none of them a panic.
    #[test]
    fn no_header_is_too_odd(
        (forwarding, name, _) in forwardings(),
        lines in proptest::collection::vec(pieces(), 0..6),
    ) {
        let found = identity(forwarding).address(Peer::Address(ip("10.0.0.1")), &lines_of(name, &lines));
        prop_assert!(found.is_some());
    }
}
