//! The PROXY protocol, versions 1 and 2: the line or block by which a load balancer says whom a
//! connection is really from. Pure: bytes in, what they say out.
//!
//! Spec: <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>. Whom to believe is not decided
//! here. TLVs are skipped within a bound, checksums included: who may send this header may lie anyway.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The longest version 1 line, its end included; the spec's own number.
const LINE_BYTES_MAX: usize = 107;

/// The longest version 2 block: fixed part, addresses and more TLVs than anybody is known to send.
pub(crate) const BLOCK_BYTES_MAX: usize = 4096;

const LINE_START: &[u8] = b"PROXY ";
const BLOCK_START: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, version and command, family, length.
const BLOCK_FIXED_BYTES: usize = 16;

/// Whom a connection is from, by its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The proxy itself, as when it looks whether we are well.
    Proxy,
    /// Somebody whose address the proxy does not say, or not in a family we know.
    Somebody,
    /// A client at this address.
    Client(SocketAddr),
}

/// What bytes are, so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// The beginning of a header.
    Incomplete,
    /// A whole header: what it says, and how many bytes it is long.
    Whole { source: Source, length: usize },
}

/// These bytes are no header, and no more bytes make them one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no PROXY header: {0}")]
pub(crate) struct Malformed(&'static str);

/// Reads a header at the beginning of what has come so far.
pub(crate) fn parse(bytes: &[u8]) -> Result<Parsed, Malformed> {
    if begins(bytes, LINE_START) {
        line(bytes)
    } else if begins(bytes, BLOCK_START) {
        block(bytes)
    } else {
        Err(Malformed("it begins like neither version"))
    }
}

/// Whether one is the beginning of the other.
fn begins(bytes: &[u8], start: &[u8]) -> bool {
    bytes.iter().zip(start).all(|(byte, expected)| byte == expected)
}

fn line(bytes: &[u8]) -> Result<Parsed, Malformed> {
    let within = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let Some(end) = within.windows(2).position(|pair| pair == b"\r\n") else {
        // A line that is not UTF-8 needs no end to be refused.
        if !within.is_ascii() {
            return Err(Malformed("the line is not ASCII"));
        }
        return if bytes.len() < LINE_BYTES_MAX {
            Ok(Parsed::Incomplete)
        } else {
            Err(Malformed("the line is longer than 107 bytes"))
        };
    };
    let text = within
        .get(LINE_START.len()..end)
        .filter(|text| text.is_ascii())
        .and_then(|text| std::str::from_utf8(text).ok())
        .ok_or(Malformed("the line is not ASCII"))?;
    let source = if text == "UNKNOWN" || text.starts_with("UNKNOWN ") {
        Source::Somebody
    } else {
        Source::Client(line_source(text)?)
    };
    Ok(Parsed::Whole { source, length: end + 2 })
}

fn line_source(text: &str) -> Result<SocketAddr, Malformed> {
    let fields: Vec<&str> = text.split(' ').collect();
    let [family, source, destination, source_port, destination_port] = fields[..] else {
        return Err(Malformed("the line does not have family, two addresses and two ports"));
    };
    let address = |text: &str| -> Result<IpAddr, Malformed> {
        let address: IpAddr = text.parse().map_err(|_| Malformed("an address is none"))?;
        match (family, address) {
            ("TCP4", IpAddr::V4(_)) | ("TCP6", IpAddr::V6(_)) => Ok(address),
            ("TCP4" | "TCP6", _) => Err(Malformed("an address is of the other family")),
            _ => Err(Malformed("the family is none of TCP4, TCP6 and UNKNOWN")),
        }
    };
    let port = |text: &str| -> Result<u16, Malformed> {
        let is_plain =
            text.bytes().all(|byte| byte.is_ascii_digit()) && (!text.starts_with('0') || text == "0");
        text.parse().ok().filter(|_| is_plain).ok_or(Malformed("a port is none"))
    };
    let client = SocketAddr::new(address(source)?, port(source_port)?);
    // What we were reached under is of no use to us, and must be right all the same.
    address(destination)?;
    port(destination_port)?;
    Ok(client)
}

fn block(bytes: &[u8]) -> Result<Parsed, Malformed> {
    let Some((fixed, rest)) = bytes.split_at_checked(BLOCK_FIXED_BYTES) else {
        return Ok(Parsed::Incomplete);
    };
    let length = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if BLOCK_FIXED_BYTES + length > BLOCK_BYTES_MAX {
        return Err(Malformed("the block is longer than 4096 bytes"));
    }
    let is_local = match fixed[12] {
        0x20 => true,
        0x21 => false,
        0x22..=0x2f => return Err(Malformed("the command is neither LOCAL nor PROXY")),
        _ => return Err(Malformed("the version of the block is not 2")),
    };
    let family = fixed[13];
    if !matches!(family >> 4, 0..=3) || !matches!(family & 0xf, 0..=2) {
        return Err(Malformed("the family or the transport is unknown"));
    }
    let Some(said) = rest.get(..length) else { return Ok(Parsed::Incomplete) };
    let source = if is_local {
        Source::Proxy
    } else {
        match family {
            // TCP over IPv4 and over IPv6.
            0x11 => Source::Client(block_source::<4>(said)?),
            0x21 => Source::Client(block_source::<16>(said)?),
            0x12 | 0x22 | 0x32 => return Err(Malformed("datagrams do not come over a stream")),
            _ => Source::Somebody,
        }
    };
    Ok(Parsed::Whole { source, length: BLOCK_FIXED_BYTES + length })
}

/// The source of an address block whose addresses are `N` bytes each: source, destination, two ports.
fn block_source<const N: usize>(said: &[u8]) -> Result<SocketAddr, Malformed>
where
    IpAddr: FromBytes<N>,
{
    let short = Malformed("the block is too short for its addresses");
    let (source, rest) = said.split_first_chunk::<N>().ok_or(short)?;
    let ports = rest.get(N..N + 4).ok_or(short)?;
    Ok(SocketAddr::new(IpAddr::from_bytes(*source), u16::from_be_bytes([ports[0], ports[1]])))
}

/// An address from its bytes in network order.
trait FromBytes<const N: usize> {
    fn from_bytes(bytes: [u8; N]) -> Self;
}

impl FromBytes<4> for IpAddr {
    fn from_bytes(bytes: [u8; 4]) -> IpAddr {
        Ipv4Addr::from(bytes).into()
    }
}

impl FromBytes<16> for IpAddr {
    fn from_bytes(bytes: [u8; 16]) -> IpAddr {
        Ipv6Addr::from(bytes).into()
    }
}

#[cfg(test)]
mod tests;
