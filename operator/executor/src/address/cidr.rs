//! Networks written as an address and a prefix length.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::Error;

/// A network: an address and the number of its significant leading bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    base: IpAddr,
    prefix: u8,
}

/// Returns an IPv4 network of the tables. A test checks that no bit is set beyond the prefix.
pub(super) const fn v4(octets: [u8; 4], prefix: u8) -> Cidr {
    let [a, b, c, d] = octets;
    Cidr { base: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), prefix }
}

/// Returns an IPv6 network of the tables. A test checks that no bit is set beyond the prefix.
pub(super) const fn v6(segments: [u16; 8], prefix: u8) -> Cidr {
    let [a, b, c, d, e, f, g, h] = segments;
    Cidr { base: IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h)), prefix }
}

impl Cidr {
    /// Returns a network of `prefix` leading bits, or `None` if the address has fewer bits or bits beyond the prefix
    /// are set.
    #[must_use]
    pub fn new(base: IpAddr, prefix: u8) -> Option<Self> {
        let cidr = Self { base, prefix };
        cidr.is_canonical().then_some(cidr)
    }

    /// Returns the network of one address.
    #[must_use]
    pub fn single(address: IpAddr) -> Self {
        Self { base: address, prefix: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// Whether the network contains the address. An IPv6 network contains no IPv4 address, and vice versa.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.base.is_ipv4() == address.is_ipv4() && bits(address) & self.mask() == bits(self.base)
    }

    /// Whether `other` contains every address of the network.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        self.prefix >= other.prefix && other.contains(self.base)
    }

    /// Returns the number of significant leading bits.
    #[must_use]
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Whether the prefix fits the address and no bit is set beyond it.
    fn is_canonical(&self) -> bool {
        let width = if self.base.is_ipv4() { 32 } else { 128 };
        self.prefix <= width && bits(self.base) & !self.mask() == 0
    }

    /// Returns the first and the last address.
    #[cfg(test)]
    pub(super) fn ends(&self) -> [IpAddr; 2] {
        let last = bits(self.base) | !self.mask();
        let last = match self.base {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits((last >> 96) as u32)),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(last)),
        };
        [self.base, last]
    }

    /// Returns a mask of the leading bits, in the top of 128 for both families.
    fn mask(&self) -> u128 {
        u128::MAX.checked_shl(128_u32.saturating_sub(self.prefix.into())).unwrap_or(0)
    }
}

/// Returns the bits of an address in the top of 128, so that both families share one mask.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

impl FromStr for Cidr {
    type Err = Error;

    /// Parses `10.0.0.0/8`, `::1/128`, or a bare address.
    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::Setting(text.to_owned());
        match text.split_once('/') {
            Some((base, prefix)) => {
                let base = base.parse().map_err(|_| wrong())?;
                Self::new(base, prefix.parse().map_err(|_| wrong())?).ok_or_else(wrong)
            }
            None => text.parse().map(Self::single).map_err(|_| wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn holds(network: &str, address: &str) -> bool {
        network.parse::<Cidr>().unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn a_network_contains_the_addresses_with_its_leading_bits() {
        assert!(holds("10.128.0.0/9", "10.255.1.2") && !holds("10.128.0.0/9", "10.127.255.255"));
        assert!(holds("fe80::/10", "febf::1") && !holds("fe80::/10", "fec0::1"));
        assert!(holds("192.0.2.7", "192.0.2.7") && !holds("192.0.2.7", "192.0.2.6"));
    }

    #[test]
    fn a_network_without_a_prefix_contains_one_family_only() {
        assert!(holds("0.0.0.0/0", "255.255.255.255") && !holds("0.0.0.0/0", "::1"));
        assert!(holds("::/0", "ffff::1") && !holds("::/0", "1.2.3.4"));
    }

    #[test]
    fn a_network_with_bits_beyond_its_prefix_is_refused() {
        for text in ["10.0.0.1/8", "127.0.0.1/33", "::1/127", "::/129", "10.0.0.0/-1", "10.0.0.0/", "/8", "x/8"] {
            assert!(text.parse::<Cidr>().is_err(), "{text}");
        }
    }
}
