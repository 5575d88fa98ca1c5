//! Tests of the table against a second list of the registries, and of the check with every range in every spelling. No
//! connection is made.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::*;
use crate::address::{AddressSettings, Error};

/// The networks of the IANA special-purpose registries (IPv4 2025-10-09, IPv6 2025-10-09) that calls may reach.
const REGISTERED_ALLOWED: &str = "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7";
/// All other networks of the registries, and the deprecated and multicast blocks of the other registries.
const REGISTERED_REFUSED: &str = "0.0.0.0/8 0.0.0.0/32 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 192.0.0.0/24 192.0.0.0/29 \
    192.0.0.8/32 192.0.0.9/32 192.0.0.10/32 192.0.0.170/32 192.0.0.171/32 192.0.2.0/24 192.31.196.0/24 192.52.193.0/24 \
    192.88.99.0/24 192.88.99.2/32 192.175.48.0/24 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 240.0.0.0/4 \
    255.255.255.255/32 224.0.0.0/4 \
    ::1/128 ::/128 ::ffff:0:0/96 64:ff9b:1::/48 100::/64 100:0:0:1::/64 2001::/23 2001::/32 2001:1::1/128 2001:1::2/128 \
    2001:1::3/128 2001:2::/48 2001:3::/32 2001:4:112::/48 2001:10::/28 2001:20::/28 2001:30::/28 2001:db8::/32 2002::/16 \
    2620:4f:8000::/48 3fff::/20 5f00::/16 fe80::/10 ::/96 ::ffff:0:0:0/96 fec0::/10 ff00::/8";
/// The addresses at which clouds provide credentials.
const METADATA_ADDRESSES: &str = "169.254.169.254 169.254.169.252 169.254.170.2 169.254.170.23 169.254.0.23 169.254.42.42 \
    168.63.129.16 100.100.100.200 192.0.0.192 fd00:ec2::254 fd00:ec2::23 fd00:ec2:0:ffff::1 fd20:ce::254 fd00:42::42 \
    fd00:c1::a9fe:a9fe fd00:a9fe:a9fe::1 fd00:100::100:200 fe80::a9fe:a9fe";

/// Renders a host as in a URL.
fn host(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

fn check(host: &str) -> Result<(), Error> {
    AddressSettings::default().check_url(&format!("http://{host}/")).map(drop)
}

#[track_caller]
fn assert_refused(host: &str) {
    assert!(matches!(check(host), Err(Error::Special { .. })), "{host}: {:?}", check(host));
}

#[track_caller]
fn assert_allowed(host: &str) {
    assert_eq!(check(host), Ok(()), "{host}");
}

fn rows() -> impl Iterator<Item = &'static Range> {
    IPV4.iter().chain(IPV6)
}

#[test]
fn every_registered_range_is_a_row_with_the_verdict_it_needs() {
    let verdict = |network: &str| {
        let network: Cidr = network.parse().unwrap();
        let rows = rows().filter(|range| range.network == network);
        let verdicts: Vec<_> = rows.map(|range| range.class.verdict).collect();
        assert_eq!(verdicts.len(), 1, "{network} is a row, and one only");
        verdicts[0]
    };
    for network in REGISTERED_ALLOWED.split_whitespace() {
        assert_eq!(verdict(network), RangeVerdict::Allowed, "{network}");
    }
    for network in REGISTERED_REFUSED.split_whitespace() {
        assert_eq!(verdict(network), RangeVerdict::Refused, "{network}");
    }
    assert_eq!(verdict("64:ff9b::/96"), RangeVerdict::Inner);
}

#[test]
fn the_check_refuses_both_ends_of_every_registered_range() {
    for network in REGISTERED_REFUSED.split_whitespace() {
        for end in network.parse::<Cidr>().unwrap().ends() {
            assert_refused(&host(end));
        }
    }
    for network in REGISTERED_ALLOWED.split_whitespace() {
        for end in network.parse::<Cidr>().unwrap().ends() {
            assert_allowed(&host(end));
        }
    }
}

#[test]
fn the_neighbours_of_refused_ranges_are_allowed() {
    for neighbour in [
        "1.0.0.0",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "168.63.129.15",
        "168.63.129.17",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "191.255.255.255",
        "192.0.1.0",
        "192.0.1.255",
        "192.0.3.0",
        "192.31.195.255",
        "192.31.197.0",
        "192.88.98.255",
        "192.88.100.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "198.51.99.255",
        "198.51.101.0",
        "203.0.112.255",
        "203.0.114.0",
        "223.255.255.255",
        "[2001:200::]",
        "[2001:db7:ffff::]",
        "[2001:db9::]",
        "[2003::]",
        "[2620:4f:7fff::1]",
        "[2620:4f:8001::]",
        "[3fff:1000::]",
        "[2a00::1]",
        "[fd00:ec1:ffff::1]",
        "[fd00:ec3::1]",
        "[fd20:ce:0:1::254]",
        "[fd00:42::43]",
        "[fc00::1]",
        "[fdff::1]",
    ] {
        assert_allowed(neighbour);
    }
}

#[test]
fn every_address_is_judged_by_a_row_of_its_family() {
    for range in rows() {
        assert_eq!(range.network.to_string().parse::<Cidr>(), Ok(range.network), "no bits beyond the prefix");
        let name = range.name;
        assert!(rows().filter(|other| other.network == range.network).count() == 1, "{name} is one row only");
        for end in range.network.ends() {
            assert!(
                range_of(end).unwrap().network.is_within(&range.network),
                "{end} is judged by {name} or a part of it"
            );
        }
    }
    // The blocks of the address space leave no gap: each begins where the last one ended.
    let mut next = 0_u128;
    while let Some(row) = IPV6
        .iter()
        .filter(|row| row.network.ends()[0] == IpAddr::V6(Ipv6Addr::from_bits(next)))
        .min_by_key(|row| row.network.prefix())
    {
        let IpAddr::V6(last) = row.network.ends()[1] else { panic!("{row:?}") };
        match last.to_bits().checked_add(1) {
            Some(following) => next = following,
            None => return,
        }
    }
    panic!("no row begins at {}", Ipv6Addr::from_bits(next));
}

#[test]
fn a_metadata_service_is_refused_by_address_and_behind_a_name() {
    for address in METADATA_ADDRESSES.split_whitespace().map(|text| text.parse::<IpAddr>().unwrap()) {
        assert_refused(&host(address));
        let behind = AddressSettings::default().check_address(address, Some(80), Some("innocent.example.com"));
        let problem = behind.unwrap_err().to_string();
        assert!(problem.contains("is a cloud metadata address"), "{problem}");
    }
}

#[test]
fn a_range_that_is_allowed_does_not_open_the_metadata_service_in_it() {
    let check = |entries: &[&str], address: &str| {
        let allow = entries.iter().map(|entry| entry.parse().unwrap()).collect();
        let settings = AddressSettings { allow, ..AddressSettings::default() };
        settings.check_address(address.parse().unwrap(), Some(80), Some("inside.example.com"))
    };
    for (range, inside, service) in [
        ("100.64.0.0/10", "100.64.0.1", "100.100.100.200"),
        ("169.254.0.0/16", "169.254.20.10", "169.254.169.254"),
        ("192.0.0.0/24", "192.0.0.1", "192.0.0.192"),
        ("fc00::/7", "fd00::1", "fd00:ec2::23"),
        ("fe80::/10", "fe80::1", "fe80::a9fe:a9fe"),
        ("0.0.0.0/0", "127.0.0.1", "169.254.170.2"),
    ] {
        assert!(check(&[range], inside).is_ok(), "{range} {inside}");
        assert!(check(&[range], service).is_err(), "{range} {service}");
        let socket = std::net::SocketAddr::new(service.parse().unwrap(), 80).to_string();
        for entry in [service, socket.as_str(), "inside.example.com:80"] {
            assert!(check(&[entry], service).is_ok(), "{entry} {service}");
        }
        assert!(check(&["inside.example.com:81"], service).is_err());
    }
    assert!(check(&["fd00:ec2::/64"], "fd00:ec2::254").is_ok(), "a part of the service's own range");
}

/// Returns all spellings that the URL standard or an operating system reads as the IPv4 address.
fn spellings(address: Ipv4Addr) -> Vec<String> {
    let [a, b, c, d] = address.octets();
    let wide: String = address.to_string().chars().map(|c| c.to_digit(10).map_or(c, wide_digit)).collect();
    vec![
        format!("{address}."),
        format!("{}", address.to_bits()),
        format!("0x{:x}", address.to_bits()),
        format!("0X{:X}", address.to_bits()),
        format!("0{:o}", address.to_bits()),
        format!("0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}"),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("{a}.{}", address.to_bits() & 0xff_ffff),
        format!("{a}.{b}.{}", u16::from_be_bytes([c, d])),
        format!("{a}.0x{b:x}.0{c:o}.{d}"),
        format!("000{a:o}.{b}.{c}.{d}"),
        format!("{a}%2e{b}%2E{c}.{d}"),
        format!("%3{}{}", a.to_string().remove(0), &address.to_string()[1..]),
        format!("{a}。{b}．{c}.{d}"),
        wide,
    ]
}

fn wide_digit(digit: u32) -> char {
    char::from_u32('０' as u32 + digit).unwrap()
}

/// Returns all IPv6 addresses that lead to the IPv4 address without a translator of the network.
fn embeddings(address: Ipv4Addr) -> Vec<Ipv6Addr> {
    let low = u128::from(address.to_bits());
    let embed = |prefix: &str, shift: u32, low: u128| {
        Ipv6Addr::from_bits(prefix.parse::<Ipv6Addr>().unwrap().to_bits() | low << shift)
    };
    vec![
        embed("::ffff:0:0", 0, low),
        embed("::", 0, low),
        embed("::ffff:0:0:0", 0, low),
        embed("64:ff9b:1::", 0, low),
        embed("64:ff9b:1:fffe::", 0, low),
        embed("2002::", 80, low),
        // Teredo: the server, and the client with its bits inverted.
        embed("2001::", 64, low),
        embed("2001:0:808:808::", 0, u128::from(!address.to_bits())),
    ]
}

#[test]
fn no_spelling_of_a_refused_ipv4_address_is_allowed() {
    for address in rows()
        .filter(|row| matches!(row.class.verdict, RangeVerdict::Refused | RangeVerdict::Metadata))
        .flat_map(|row| row.network.ends())
    {
        let IpAddr::V4(address) = address else { continue };
        for spelling in spellings(address) {
            assert_refused(&spelling);
        }
        for embedded in embeddings(address) {
            assert_refused(&format!("[{embedded}]"));
        }
        assert_refused(&format!("[64:ff9b::{address}]"));
        assert_refused(&format!("[::ffff:{address}]"));
    }
}

#[test]
fn every_spelling_of_an_allowed_ipv4_address_is_allowed_and_its_embeddings_are_not() {
    for address in [Ipv4Addr::new(8, 8, 4, 4), Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 168, 255, 255)] {
        for spelling in spellings(address) {
            assert_allowed(&spelling);
        }
        assert_allowed(&format!("[64:ff9b::{address}]"));
        for embedded in embeddings(address) {
            assert_refused(&format!("[{embedded}]"));
        }
    }
}

#[test]
fn every_spelling_of_an_ipv6_address_is_judged_alike() {
    for refused in ["[fd00:ec2::254]", "[FD00:0EC2:0:0:0:0:0:0254]", "[fd00:ec2:0::0:254]", "[fd00:ec2::0.0.2.84]"] {
        assert_refused(refused);
    }
    for allowed in ["[fd12::254]", "[FD12:0:0:0:0:0:0:0254]", "[fd12::0.0.2.84]"] {
        assert_allowed(allowed);
    }
}

#[test]
fn a_host_with_a_zone_id_or_without_brackets_is_refused() {
    for host in [
        "[fe80::1%25eth0]",
        "[fe80::1%eth0]",
        "[fd12::1%25lo]",
        "[::1",
        "::1",
        "fd00:ec2::254",
        "[[::1]]",
        "[127.0.0.1]",
    ] {
        assert!(matches!(check(host), Err(Error::NotAUrl(_))), "{host}: {:?}", check(host));
    }
}

#[test]
fn the_committed_page_equals_the_page_of_the_tables() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE);
    assert!(std::fs::read_to_string(path).unwrap_or_default() == page(), "run `cargo xtask codegen`");
}
