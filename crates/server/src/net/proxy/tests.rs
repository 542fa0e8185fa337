//! Every shape a header can have, right and wrong; nothing panics.

use super::*;

fn block_of(command: u8, family: u8, said: &[u8]) -> Vec<u8> {
    let length = u16::try_from(said.len()).unwrap().to_be_bytes();
    [BLOCK_START, &[command, family], &length, said].concat()
}

/// `192.0.2.7:1025` to `198.51.100.1:443`.
fn tcp4() -> Vec<u8> {
    [&[192, 0, 2, 7, 198, 51, 100, 1][..], &1025_u16.to_be_bytes(), &443_u16.to_be_bytes()].concat()
}

/// `[2001:db8::7]:1025` to `[2001:db8::1]:443`.
fn tcp6() -> Vec<u8> {
    let address = |text: &str| text.parse::<Ipv6Addr>().unwrap().octets();
    [&address("2001:db8::7")[..], &address("2001:db8::1"), &1025_u16.to_be_bytes(), &443_u16.to_be_bytes()]
        .concat()
}

fn good() -> Vec<(Vec<u8>, Source)> {
    let client = |text: &str| Source::Client(text.parse().unwrap());
    let line = |text: &str| text.as_bytes().to_vec();
    let longest = format!("PROXY UNKNOWN {}\r\n", "f".repeat(LINE_BYTES_MAX - 16));
    let tlvs = [tcp4(), vec![4, 0, 3, 1, 2, 3], vec![0xea; 500]].concat();
    let most = [tcp4(), vec![4; BLOCK_BYTES_MAX - BLOCK_FIXED_BYTES - 12]].concat();
    vec![
        (line("PROXY TCP4 192.0.2.7 198.51.100.1 1025 443\r\n"), client("192.0.2.7:1025")),
        (line("PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n"), client("255.255.255.255:65535")),
        (line("PROXY TCP6 2001:db8::7 2001:db8::1 1025 0\r\n"), client("[2001:db8::7]:1025")),
        (line("PROXY UNKNOWN\r\n"), Source::Somebody),
        (line("PROXY UNKNOWN ffff:f:f ffff:f 65535 65535\r\n"), Source::Somebody),
        (longest.into_bytes(), Source::Somebody),
        (block_of(0x21, 0x11, &tcp4()), client("192.0.2.7:1025")),
        (block_of(0x21, 0x11, &tlvs), client("192.0.2.7:1025")),
        (block_of(0x21, 0x11, &most), client("192.0.2.7:1025")),
        (block_of(0x21, 0x21, &tcp6()), client("[2001:db8::7]:1025")),
        (block_of(0x21, 0x31, &[b'/'; 216]), Source::Somebody),
        (block_of(0x21, 0x00, &[]), Source::Somebody),
        (block_of(0x21, 0x00, &[9; 40]), Source::Somebody),
        (block_of(0x20, 0x00, &[]), Source::Proxy),
        (block_of(0x20, 0x11, &tcp4()), Source::Proxy),
        (block_of(0x20, 0x11, &[1, 2]), Source::Proxy),
    ]
}

#[test]
fn a_header_says_whom_the_connection_is_from_and_where_it_ends() {
    for (header, source) in good() {
        let whole = Ok(Parsed::Whole { source, length: header.len() });
        assert_eq!(parse(&header), whole, "{header:?}");
        for behind in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\r\n", b"PROXY UNKNOWN\r\n", &[0xff; 5000]] {
            assert_eq!(parse(&[&header[..], behind].concat()), whole, "{header:?}");
        }
    }
}

#[test]
fn a_header_cut_anywhere_is_incomplete() {
    for (header, _) in good() {
        for end in 0..header.len() {
            assert_eq!(parse(&header[..end]), Ok(Parsed::Incomplete), "{:?}", &header[..end]);
        }
    }
}

#[test]
fn what_can_never_become_a_header_is_malformed() {
    let long = format!("PROXY UNKNOWN {}\r\n", "f".repeat(LINE_BYTES_MAX - 15));
    for (name, bytes) in [
        ("http", &b"GET / HTTP/1.1\r\n\r\n"[..]),
        ("TLS", &[0x16, 3, 1, 2, 0]),
        ("lower case", b"proxy TCP4 192.0.2.7 198.51.100.1 1 2\r\n"),
        ("no blank", b"PROXYTCP4"),
        ("two blanks", b"PROXY  TCP4 192.0.2.7 198.51.100.1 1 2\r\n"),
        ("no family", b"PROXY \r\n"),
        ("bad family", b"PROXY UDP4 192.0.2.7 198.51.100.1 1 2\r\n"),
        ("another bad family", b"PROXY UNKNOWNS\r\n"),
        ("too few fields", b"PROXY TCP4 192.0.2.7 198.51.100.1 1\r\n"),
        ("too many fields", b"PROXY TCP4 192.0.2.7 198.51.100.1 1 2 3\r\n"),
        ("a blank at the end", b"PROXY TCP4 192.0.2.7 198.51.100.1 1 2 \r\n"),
        ("a tab", b"PROXY TCP4\t192.0.2.7 198.51.100.1 1 2\r\n"),
        ("a name", b"PROXY TCP4 localhost 198.51.100.1 1 2\r\n"),
        ("leading zeros", b"PROXY TCP4 192.0.02.7 198.51.100.1 1 2\r\n"),
        ("bad destination", b"PROXY TCP4 192.0.2.7 198.51.100 1 2\r\n"),
        ("families mixed", b"PROXY TCP4 192.0.2.7 2001:db8::1 1 2\r\n"),
        ("the other family", b"PROXY TCP6 192.0.2.7 198.51.100.1 1 2\r\n"),
        ("a zone", b"PROXY TCP6 fe80::1%eth0 2001:db8::1 1 2\r\n"),
        ("port too large", b"PROXY TCP4 192.0.2.7 198.51.100.1 65536 2\r\n"),
        ("negative port", b"PROXY TCP4 192.0.2.7 198.51.100.1 -1 2\r\n"),
        ("signed port", b"PROXY TCP4 192.0.2.7 198.51.100.1 +1 2\r\n"),
        ("padded port", b"PROXY TCP4 192.0.2.7 198.51.100.1 01 2\r\n"),
        ("bad second port", b"PROXY TCP4 192.0.2.7 198.51.100.1 1 x\r\n"),
        ("not ASCII", "PROXY TCP4 192.0.2.7 198.51.100.1 1 ２\r\n".as_bytes()),
        ("not even text", b"PROXY \xff\xfe"),
        ("not text, with an end", b"PROXY UNKNOWN \xff\r\n"),
        ("108 bytes", long.as_bytes()),
        ("107 bytes without an end", &[b"PROXY UNKNOWN ", &[b'x'; 93][..]].concat()),
        ("an end in two pieces, too late", &[b"PROXY UNKNOWN ", &[b'x'; 92][..], b"\r"].concat()),
        ("a line feed alone", &[b"PROXY UNKNOWN\n", &[b'x'; 93][..]].concat()),
        ("the signature of nobody", b"\r\n\r\n\0\r\nQUIX"),
        ("version 1 as a block", &block_of(0x11, 0x11, &tcp4())),
        ("version 3", &block_of(0x31, 0x11, &tcp4())),
        ("unknown command", &block_of(0x22, 0x11, &tcp4())),
        ("unknown family", &block_of(0x21, 0x41, &tcp4())),
        ("unknown family of the proxy itself", &block_of(0x20, 0x41, &[])),
        ("unknown transport", &block_of(0x21, 0x13, &tcp4())),
        ("datagrams", &block_of(0x21, 0x12, &tcp4())),
        ("no addresses", &block_of(0x21, 0x11, &[])),
        ("addresses cut", &block_of(0x21, 0x11, &tcp4()[..11])),
        ("addresses of the other family", &block_of(0x21, 0x21, &tcp4())),
        ("a block too long", &block_of(0x21, 0x11, &[0; BLOCK_BYTES_MAX - BLOCK_FIXED_BYTES + 1])),
        ("a block far too long", &block_of(0x21, 0x11, &vec![0; 65_535])),
    ] {
        assert!(parse(bytes).is_err(), "{name}: {:?}", parse(bytes));
    }
}

#[test]
fn a_block_that_will_be_too_long_is_refused_before_it_has_come() {
    assert!(parse(&block_of(0x21, 0x11, &vec![0; 65_535])[..BLOCK_FIXED_BYTES]).is_err());
}

#[test]
fn any_byte_changed_anywhere_is_never_a_panic() {
    for (header, _) in good() {
        for at in 0..header.len().min(300) {
            for byte in 0..=u8::MAX {
                let mut changed = header.clone();
                changed[at] = byte;
                if let Ok(Parsed::Whole { length, .. }) = parse(&changed) {
                    assert!(length <= changed.len());
                }
            }
        }
    }
}
