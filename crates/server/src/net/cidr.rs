//! A network by its prefix: `10.0.0.0/8`, `2001:db8::/32`, or a single address.

use std::net::IpAddr;

/// A network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cidr {
    /// Its first address, as a number of its family's width.
    first: u128,
    family: Family,
    /// How many leading bits say which network it is.
    bits: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    fn width(self) -> u32 {
        match self {
            Family::V4 => 32,
            Family::V6 => 128,
        }
    }
}

impl Cidr {
    /// Reads a network. Bits behind the prefix must be zero: what was meant by `10.1.2.3/8` is a guess.
    pub(crate) fn parse(text: &str) -> Result<Cidr, String> {
        let wrong = || {
            let shown: String = text.chars().filter(|c| !c.is_control()).take(64).collect();
            format!("\"{shown}\" is not a network: use 10.0.0.0/8, 2001:db8::/32 or a single address")
        };
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let (first, family) = number(address);
        let bits = match length {
            None => family.width(),
            Some(length) if length.bytes().all(|byte| byte.is_ascii_digit()) => {
                length.parse().ok().filter(|bits| *bits <= family.width()).ok_or_else(wrong)?
            }
            Some(_) => return Err(wrong()),
        };
        let network = Cidr { first, family, bits };
        if network.prefix(first) != first {
            return Err(format!("{address}/{bits} has bits set behind its prefix of {bits}"));
        }
        Ok(network)
    }

    /// Whether the address is in it. An IPv4 address in IPv6 clothes is an IPv4 address.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let (number, family) = number(address.to_canonical());
        family == self.family && self.prefix(number) == self.first
    }

    fn prefix(&self, number: u128) -> u128 {
        let behind = self.family.width() - self.bits;
        number.checked_shr(behind).unwrap_or(0).checked_shl(behind).unwrap_or(0)
    }
}

fn number(address: IpAddr) -> (u128, Family) {
    match address {
        IpAddr::V4(v4) => (u128::from(u32::from(v4)), Family::V4),
        IpAddr::V6(v6) => (u128::from(v6), Family::V6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_contains_its_own_and_nobody_else() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.255.255", "11.0.0.0"),
            ("192.0.2.4/30", "192.0.2.7", "192.0.2.8"),
            ("192.0.2.4", "192.0.2.4", "192.0.2.5"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("::/0", "2001:db8::1", "10.0.0.1"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("10.0.0.0/8", "::ffff:10.1.2.3", "::a01:203"),
        ] {
            let network = Cidr::parse(network).unwrap();
            assert!(network.contains(inside.parse().unwrap()), "{network:?} {inside}");
            assert!(!network.contains(outside.parse().unwrap()), "{network:?} {outside}");
        }
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in
            ["", "/", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/+8", "::/129", "10.0.0/8", "host/8", "10.1.2.3/8"]
        {
            assert!(Cidr::parse(text).is_err(), "{text}");
        }
    }
}
