//! Addresses: ranges of them, and how many of them count as one client.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::HashSet;
use std::fmt;

/// A range of addresses: `10.0.0.0/8`, `2001:db8::/32`, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cidr {
    network: IpAddr,
    prefix: u8,
}

/// Why a text is no range of addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CidrError {
    /// Neither an address nor a range.
    #[error("\"{text}\" is no range of addresses: write 10.0.0.0/8, 2001:db8::/32, or one address")]
    Unreadable {
        /// What was written, clipped.
        text: String,
    },
    /// Bits are set beyond the prefix, so that what is meant is unclear.
    #[error("\"{text}\" has bits beyond its prefix: did you mean {meant}?")]
    Loose {
        /// What was written, clipped.
        text: String,
        /// The range it is in.
        meant: Cidr,
    },
}

impl Cidr {
    /// Reads a range. A v4 address written as a v6 one is folded.
    pub fn parse(text: &str) -> Result<Cidr, CidrError> {
        let clipped = || text.chars().take(64).collect::<String>();
        let unreadable = || CidrError::Unreadable { text: clipped() };
        let (address, prefix) = match text.split_once('/') {
            None => (text, None),
            Some((address, prefix)) => {
                // `+8` and `08` parse as numbers and are no prefixes.
                let is_number = prefix == "0"
                    || (!prefix.starts_with('0') && prefix.bytes().all(|byte| byte.is_ascii_digit()));
                let prefix = prefix.parse::<u8>().ok().filter(|_| is_number).ok_or_else(unreadable)?;
                (address, Some(prefix))
            }
        };
        let written: IpAddr = address.parse().map_err(|_| unreadable())?;
        let folded = fold(written);
        let prefix = match (prefix, written.is_ipv6() && folded.is_ipv4()) {
            (None, _) => width(folded),
            (Some(prefix), false) => prefix,
            (Some(prefix), true) => prefix.checked_sub(96).ok_or_else(unreadable)?,
        };
        if prefix > width(folded) {
            return Err(unreadable());
        }
        let cidr = Cidr { network: mask(folded, prefix), prefix };
        if cidr.network == folded { Ok(cidr) } else { Err(CidrError::Loose { text: clipped(), meant: cidr }) }
    }

    /// The range of that length around an address, which must be a folded one.
    pub(crate) fn around(address: IpAddr, prefix: u8) -> Cidr {
        Cidr { network: mask(address, prefix), prefix }
    }

    /// Whether it is of v4 addresses, and its length.
    pub(crate) fn kind(&self) -> (bool, u8) {
        (self.network.is_ipv4(), self.prefix)
    }

    /// Whether an address is in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = fold(address);
        address.is_ipv4() == self.network.is_ipv4() && mask(address, self.prefix) == self.network
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

/// A set of ranges, one look-up per length of prefix that occurs in it, however many ranges there are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressSet {
    lengths_v4: Vec<u8>,
    lengths_v6: Vec<u8>,
    ranges: HashSet<Cidr>,
}

impl AddressSet {
    /// Whether an address is in one of the ranges.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = fold(address);
        let lengths = if address.is_ipv4() { &self.lengths_v4 } else { &self.lengths_v6 };
        lengths.iter().any(|&prefix| self.ranges.contains(&Cidr::around(address, prefix)))
    }

    /// Whether no address is in it.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

impl FromIterator<Cidr> for AddressSet {
    fn from_iter<I: IntoIterator<Item = Cidr>>(ranges: I) -> AddressSet {
        let mut set = AddressSet { ranges: ranges.into_iter().collect(), ..AddressSet::default() };
        for Cidr { network, prefix } in &set.ranges {
            let lengths = if network.is_ipv4() { &mut set.lengths_v4 } else { &mut set.lengths_v6 };
            if !lengths.contains(prefix) {
                lengths.push(*prefix);
            }
        }
        set
    }
}

/// How many addresses count as one client. A v6 client owns a /64 at least, and could otherwise be
/// a new one with every call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grouping {
    /// Bits of a v4 address that tell clients apart.
    pub v4: u8,
    /// Bits of a v6 address that tell clients apart.
    pub v6: u8,
}

impl Default for Grouping {
    fn default() -> Grouping {
        Grouping { v4: 32, v6: 64 }
    }
}

impl Grouping {
    /// The range an address counts under. One v4 address stands for itself: `203.0.113.9`; every other
    /// range says how long it is: `2001:db8::/64`.
    pub fn write(&self, address: IpAddr, out: &mut String) {
        use fmt::Write as _;
        let address = fold(address);
        let prefix = if address.is_ipv4() { self.v4.min(32) } else { self.v6.min(128) };
        let network = mask(address, prefix);
        // Writing to a String cannot fail.
        let _ = if network.is_ipv4() && prefix == 32 {
            write!(out, "{network}")
        } else {
            write!(out, "{network}/{prefix}")
        };
    }
}

/// A v4 address that came dressed as a v6 one is the v4 address.
pub fn fold(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn mask(address: IpAddr, prefix: u8) -> IpAddr {
    let prefix = u32::from(prefix);
    match address {
        IpAddr::V4(v4) => {
            let bits = u32::MAX.checked_shl(32_u32.saturating_sub(prefix)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & bits))
        }
        IpAddr::V6(v6) => {
            let bits = u128::MAX.checked_shl(128_u32.saturating_sub(prefix)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & bits))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> Cidr {
        Cidr::parse(text).unwrap()
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn ranges_hold_what_they_say() {
        for (range, inside, outside) in [
            ("10.0.0.0/8", "10.255.1.2", "11.0.0.0"),
            ("0.0.0.0/0", "203.0.113.9", "::1"),
            ("::/0", "2001:db8::1", "10.0.0.1"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.8"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("::ffff:10.0.0.0/104", "10.1.2.3", "11.0.0.1"),
            ("10.0.0.0/8", "::ffff:10.1.2.3", "::ffff:11.1.2.3"),
        ] {
            let set: AddressSet = [cidr(range), cidr("198.51.100.0/31")].into_iter().collect();
            assert!(
                cidr(range).contains(address(inside)) && set.contains(address(inside)),
                "{range} {inside}"
            );
            assert!(!cidr(range).contains(address(outside)), "{range} {outside}");
            assert!(!set.contains(address(outside)), "{range} {outside}");
        }
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for text in [
            "",
            "10.0.0.0/33",
            "::/129",
            "10.0.0/8",
            "a",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0.0/08",
            "::ffff:10.0.0.0/95",
            "10.0.0.0/8/8",
            " 10.0.0.1",
        ] {
            assert!(matches!(Cidr::parse(text), Err(CidrError::Unreadable { .. })), "{text}");
        }
        let loose = Cidr::parse("10.1.0.0/8").unwrap_err();
        assert!(loose.to_string().ends_with("did you mean 10.0.0.0/8?"), "{loose}");
    }

    #[test]
    fn one_client_has_a_whole_network() {
        let written = |grouping: Grouping, text: &str| {
            let mut out = String::new();
            grouping.write(address(text), &mut out);
            out
        };
        let usual = Grouping::default();
        assert_eq!(written(usual, "203.0.113.9"), "203.0.113.9");
        assert_eq!(written(usual, "::ffff:203.0.113.9"), "203.0.113.9");
        assert_eq!(written(usual, "2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
        assert_eq!(written(Grouping { v4: 24, v6: 128 }, "203.0.113.9"), "203.0.113.0/24");
        assert_eq!(written(Grouping { v4: 24, v6: 128 }, "2001:db8::1"), "2001:db8::1/128");
    }
}
