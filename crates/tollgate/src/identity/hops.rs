//! The client behind proxies: the forwarding header, read from the right.
//!
//! Each proxy adds at the right whom it was called by, so only what stands to the right of the first hop
//! that is not trusted was written by somebody trusted. All to the left of it may be invented, and is not
//! even read: a parser that began at the left could be made to swallow the true hops with one open quote.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::HeaderMap;
use http::header::{FORWARDED, HeaderName};
use tollgate_core::address::fold;

use super::Forwarding;

/// The most hops that are read. More proxies than that stand in no honest chain.
pub const HOPS_MAX: usize = 32;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The client that a trusted peer speaks for: the first address from the right that is not trusted, or the
/// last one that could be read.
pub(super) fn client(
    peer: Option<IpAddr>,
    forwarding: Forwarding,
    headers: &HeaderMap,
    is_trusted: impl Fn(IpAddr) -> bool,
) -> Option<IpAddr> {
    let (name, split, read): (_, Split, Read) = match forwarding {
        Forwarding::None => return peer,
        Forwarding::XForwardedFor => (X_FORWARDED_FOR, split_plain, |hop| node(text(hop)?)),
        Forwarding::Forwarded => (FORWARDED, split_quoted, forwarded_for),
    };
    let mut client = peer;
    let mut hops_left = HOPS_MAX;
    // Several lines are one list, in the order they came.
    for line in headers.get_all(name).iter().rev() {
        let mut rest = Some(line.as_bytes());
        while let Some(list) = rest {
            let hop;
            (rest, hop) = split(list);
            if hops_left == 0 {
                return client;
            }
            hops_left -= 1;
            if hop.is_empty() {
                continue; // RFC 9110, 5.6.1: an empty element of a list means nothing.
            }
            // Hidden, unknown or garbage: whoever wrote it is the last one known.
            let Some(address) = read(hop) else { return client };
            client = Some(address);
            if !is_trusted(address) {
                return client;
            }
        }
    }
    client
}

/// Takes the last element off a list: what is before its comma, if there is one, and the element.
type Split = fn(&[u8]) -> (Option<&[u8]>, &[u8]);

/// The address an element names.
type Read = fn(&[u8]) -> Option<IpAddr>;

fn split_plain(list: &[u8]) -> (Option<&[u8]>, &[u8]) {
    split_at(list, list.iter().rposition(|&byte| byte == b','))
}

/// As [`split_plain`], but a comma between quotes is none.
///
/// Read from the right, the end of the list is outside quotes, whatever a client put at its beginning.
fn split_quoted(list: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let mut is_quoted = false;
    for (at, &byte) in list.iter().enumerate().rev() {
        match byte {
            b'"' if !(is_quoted && is_escaped(list, at)) => is_quoted = !is_quoted,
            b',' if !is_quoted => return split_at(list, Some(at)),
            _ => {}
        }
    }
    (None, trimmed(list))
}

fn split_at(list: &[u8], comma: Option<usize>) -> (Option<&[u8]>, &[u8]) {
    match comma {
        None => (None, trimmed(list)),
        Some(at) => {
            let (rest, element) = list.split_at(at);
            (Some(rest), trimmed(element.get(1..).unwrap_or_default()))
        }
    }
}

/// Whether an odd number of backslashes stands before a byte.
fn is_escaped(list: &[u8], at: usize) -> bool {
    let before = list.get(..at).unwrap_or_default();
    before.iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1
}

/// The `for` of one element: `for="[2001:db8::1]:80";proto=https`. Anything odd about the element makes
/// all of it garbage: half of an element may be the inside of somebody's quotes.
fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let mut found = None;
    let mut rest = text(element)?;
    loop {
        let (name, after) = rest.split_once('=')?;
        let name = name.trim();
        if name.is_empty() || !name.bytes().all(is_token) {
            return None;
        }
        let (value, after) = if let Some(quoted) = after.strip_prefix('"') {
            let is_end = |at: usize, byte: u8| byte == b'"' && !is_escaped(quoted.as_bytes(), at);
            let end = quoted.bytes().enumerate().position(|(at, byte)| is_end(at, byte))?;
            (quoted.get(..end)?, quoted.get(end + 1..)?.trim_start())
        } else {
            // Brackets and colons belong in quotes, and are often sent without.
            let end = after.find(';').unwrap_or(after.len());
            let value = after.get(..end)?.trim_end();
            if value.contains(['"', '\\']) {
                return None;
            }
            (value, after.get(end..)?)
        };
        if name.eq_ignore_ascii_case("for") && found.replace(node(value)?).is_some() {
            return None;
        }
        match after.strip_prefix(';') {
            Some(next) => rest = next,
            None if after.is_empty() => return found,
            None => return None,
        }
    }
}

/// One hop: an address, in brackets if it is v6 and has a port, and perhaps a port.
fn node(hop: &str) -> Option<IpAddr> {
    if let Ok(address) = hop.parse::<IpAddr>() {
        return Some(fold(address));
    }
    if let Some(bracketed) = hop.strip_prefix('[') {
        let (address, after) = bracketed.split_once(']')?;
        let is_good = after.is_empty() || after.strip_prefix(':').is_some_and(is_port);
        let address: Ipv6Addr = address.parse().ok()?;
        return is_good.then(|| fold(address.into()));
    }
    let (address, port) = hop.split_once(':')?;
    let address: Ipv4Addr = address.parse().ok()?;
    is_port(port).then(|| address.into())
}

/// A number, or a port that the proxy hides (`_x`, RFC 7239, 6.3).
fn is_port(port: &str) -> bool {
    let is_hidden = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    (1..=5).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit())
        || port.strip_prefix('_').is_some_and(is_hidden)
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn trimmed(bytes: &[u8]) -> &[u8] {
    bytes.trim_ascii()
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests;
