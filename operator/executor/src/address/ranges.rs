//! The table of address ranges: every entry of the IANA special-purpose registries of both families, the IPv6 address
//! space, and the metadata services of clouds, each refused or allowed.
//!
//! Data only. The most specific row that contains an address applies to it. The page `docs/security/addresses.md` is
//! generated from this table.

use std::{fmt::Write as _, net::IpAddr};

use super::cidr::{Cidr, v4, v6};

/// The path of the page below the repository.
pub const PAGE: &str = "docs/security/addresses.md";

/// One range: its name, its source, and the rule for its addresses.
#[derive(Debug)]
pub struct Range {
    /// The network that the row is about, without the more specific rows within it.
    pub network: Cidr,
    /// The name in the registry, or the cloud and its service.
    pub name: &'static str,
    /// The RFC, or the cloud's documentation.
    pub source: &'static str,
    /// The rule for the addresses of the network, with its reason.
    pub class: &'static Class,
}

/// The rule of a range of addresses, and its reason.
#[derive(Debug)]
pub struct Class {
    /// Whether calls may reach such an address.
    pub verdict: RangeVerdict,
    /// Completes "`<address>` is …".
    pub what: &'static str,
    /// The reason of the rule, as the page shows it in the column "because".
    pub reason: &'static str,
}

/// Whether calls may reach an address of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeVerdict {
    /// Allowed, unless it is a protected address.
    Allowed,
    /// Refused, unless an entry of `--allow-address` covers it.
    Refused,
    /// Refused, unless an entry of `--allow-address` names the address, its name, or a part of this very range. A
    /// larger range does not allow it.
    Metadata,
    /// The IPv4 address in the last 32 bits is checked instead.
    Inner,
}

/// Returns a class of refused addresses.
const fn refused(what: &'static str, reason: &'static str) -> Class {
    Class { verdict: RangeVerdict::Refused, what, reason }
}

/// Returns a class of allowed addresses.
const fn allowed(what: &'static str, reason: &'static str) -> Class {
    Class { verdict: RangeVerdict::Allowed, what, reason }
}

/// The reason of the rules for all other spellings of IPv4 addresses.
const SPELLING: &str = "leads to an IPv4 address past the rows for IPv4; the IPv4 address itself can be called";

/// Returns a class of addresses that lead to an IPv4 address by another spelling or a relay.
const fn spelling(what: &'static str) -> Class {
    refused(what, SPELLING)
}

static PUBLIC: Class = allowed("a public address", "public hosts");
static PRIVATE: Class = allowed("a private address", "Services and pods of clusters have such addresses");
static TRANSLATED: Class = Class {
    verdict: RangeVerdict::Inner,
    what: "a translated IPv4 address",
    reason: "on a cluster with IPv6 only, every IPv4 host has such an address: the IPv4 address in it decides",
};
static METADATA: Class = Class {
    verdict: RangeVerdict::Metadata,
    what: "a cloud metadata address",
    reason: "hands out credentials to the machine or pod that asks",
};
static UNSPECIFIED: Class = refused("an unspecified address", "leads to the calling machine itself");
static LOOPBACK: Class = refused("a loopback address", "the calling machine itself");
static LINK_LOCAL: Class =
    refused("a link-local address (cloud metadata)", "hosts on the same link, and most metadata services of clouds");
static SITE_LOCAL: Class = refused("a site-local address", "deprecated; where routed, the inside of a network");
static SHARED: Class =
    refused("a shared address (inside of a carrier or cloud)", "the inside of a carrier or a cloud, with its services");
static PROTOCOL: Class =
    refused("a protocol-assignment address (cloud metadata)", "for protocols of the network; clouds put services here");
static ANYCAST: Class = refused("an infrastructure address", "relays and name servers, often of the own network");
static DOCUMENTATION: Class =
    refused("a documentation address", "no public host; where routed, the inside of a network");
static BENCHMARKING: Class =
    refused("a benchmarking address", "laboratories; proxies and VPNs use it inside of networks");
static IDENTIFIER: Class = refused("an identifier that is no host's address", "where routed, the inside of a network");
static DISCARD: Class = refused("a discard or dummy address", "no host; where routed, the inside of a network");
static MULTICAST: Class = refused("a multicast address", "many hosts of the own network at once");
static RESERVED: Class = refused("a reserved address", "no public host; where routed, the inside of a network");
static BROADCAST: Class = refused("a reserved or broadcast address", "no public host; where routed, the own network");
static COMPATIBLE: Class = spelling("an IPv4-compatible address");
static MAPPED: Class = spelling("an IPv4-mapped address");
static IPV4_TRANSLATED: Class = spelling("an IPv4-translated address");
static LOCALLY_TRANSLATED: Class = spelling("a locally translated IPv4 address");
static SIX_TO_FOUR: Class = spelling("a 6to4 address");
static TEREDO: Class = spelling("a Teredo address");

const fn row(network: Cidr, name: &'static str, source: &'static str, class: &'static Class) -> Range {
    Range { network, name, source, class }
}

impl Range {
    /// Whether the range has metadata services, is link-local, or spells IPv4 addresses in another way.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        let is_metadata = self.class.verdict == RangeVerdict::Metadata;
        is_metadata || std::ptr::eq(self.class, &LINK_LOCAL) || self.class.reason == SPELLING
    }
}

/// The ranges of IPv4. The first row contains every address, so each address has a row.
pub static IPV4: &[Range] = &[
    row(v4([0, 0, 0, 0], 0), "everything else", "RFC 791", &PUBLIC),
    row(v4([0, 0, 0, 0], 8), "This network", "RFC 791", &UNSPECIFIED),
    row(v4([0, 0, 0, 0], 32), "This host on this network", "RFC 1122", &UNSPECIFIED),
    row(v4([10, 0, 0, 0], 8), "Private-Use", "RFC 1918", &PRIVATE),
    row(v4([100, 64, 0, 0], 10), "Shared Address Space", "RFC 6598", &SHARED),
    row(v4([100, 100, 100, 200], 32), "Alibaba Cloud: metadata", "Alibaba Cloud", &METADATA),
    row(v4([127, 0, 0, 0], 8), "Loopback", "RFC 1122", &LOOPBACK),
    row(v4([168, 63, 129, 16], 32), "Azure: WireServer, DNS", "Azure", &METADATA),
    row(v4([169, 254, 0, 0], 16), "Link Local", "RFC 3927", &LINK_LOCAL),
    row(v4([169, 254, 0, 23], 32), "Tencent Cloud: metadata", "Tencent Cloud", &METADATA),
    row(v4([169, 254, 42, 42], 32), "Scaleway: metadata", "Scaleway", &METADATA),
    row(v4([169, 254, 169, 0], 24), "AWS, Azure, Google, OpenStack and others: metadata", "clouds", &METADATA),
    row(v4([169, 254, 170, 0], 24), "AWS: credentials of ECS tasks, EKS Pod Identity", "AWS", &METADATA),
    row(v4([172, 16, 0, 0], 12), "Private-Use", "RFC 1918", &PRIVATE),
    row(v4([192, 0, 0, 0], 24), "IETF Protocol Assignments", "RFC 6890", &PROTOCOL),
    row(v4([192, 0, 0, 0], 29), "IPv4 Service Continuity Prefix", "RFC 7335", &PROTOCOL),
    row(v4([192, 0, 0, 8], 32), "IPv4 dummy address", "RFC 7600", &PROTOCOL),
    row(v4([192, 0, 0, 9], 32), "Port Control Protocol Anycast", "RFC 7723", &PROTOCOL),
    row(v4([192, 0, 0, 10], 32), "Traversal Using Relays around NAT Anycast", "RFC 8155", &PROTOCOL),
    row(v4([192, 0, 0, 170], 32), "NAT64/DNS64 Discovery", "RFC 8880", &PROTOCOL),
    row(v4([192, 0, 0, 171], 32), "NAT64/DNS64 Discovery", "RFC 8880", &PROTOCOL),
    row(v4([192, 0, 0, 192], 32), "Oracle Cloud Classic: metadata", "Oracle Cloud", &METADATA),
    row(v4([192, 0, 2, 0], 24), "Documentation (TEST-NET-1)", "RFC 5737", &DOCUMENTATION),
    row(v4([192, 31, 196, 0], 24), "AS112-v4", "RFC 7535", &ANYCAST),
    row(v4([192, 52, 193, 0], 24), "AMT", "RFC 7450", &ANYCAST),
    row(v4([192, 88, 99, 0], 24), "Deprecated (6to4 Relay Anycast)", "RFC 7526", &ANYCAST),
    row(v4([192, 88, 99, 2], 32), "6a44-relay anycast address", "RFC 6751", &ANYCAST),
    row(v4([192, 168, 0, 0], 16), "Private-Use", "RFC 1918", &PRIVATE),
    row(v4([192, 175, 48, 0], 24), "Direct Delegation AS112 Service", "RFC 7534", &ANYCAST),
    row(v4([198, 18, 0, 0], 15), "Benchmarking", "RFC 2544", &BENCHMARKING),
    row(v4([198, 51, 100, 0], 24), "Documentation (TEST-NET-2)", "RFC 5737", &DOCUMENTATION),
    row(v4([203, 0, 113, 0], 24), "Documentation (TEST-NET-3)", "RFC 5737", &DOCUMENTATION),
    row(v4([224, 0, 0, 0], 4), "Multicast", "RFC 5771", &MULTICAST),
    row(v4([240, 0, 0, 0], 4), "Reserved", "RFC 1112", &BROADCAST),
    row(v4([255, 255, 255, 255], 32), "Limited Broadcast", "RFC 8190", &BROADCAST),
];

/// The ranges of IPv6. The blocks of the address space leave no gap, so each address has a row.
pub static IPV6: &[Range] = &[
    row(v6([0, 0, 0, 0, 0, 0, 0, 0], 8), "Reserved by IETF", "RFC 4291", &RESERVED),
    row(v6([0, 0, 0, 0, 0, 0, 0, 0], 96), "IPv4-compatible Address", "RFC 4291", &COMPATIBLE),
    row(v6([0, 0, 0, 0, 0, 0, 0, 0], 128), "Unspecified Address", "RFC 4291", &UNSPECIFIED),
    row(v6([0, 0, 0, 0, 0, 0, 0, 1], 128), "Loopback Address", "RFC 4291", &LOOPBACK),
    row(v6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96), "IPv4-mapped Address", "RFC 4291", &MAPPED),
    row(v6([0, 0, 0, 0, 0xffff, 0, 0, 0], 96), "IPv4-translated Address", "RFC 2765", &IPV4_TRANSLATED),
    row(v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96), "IPv4-IPv6 Translat. (NAT64)", "RFC 6052", &TRANSLATED),
    row(v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), "IPv4-IPv6 Translat.", "RFC 8215", &LOCALLY_TRANSLATED),
    row(v6([0x100, 0, 0, 0, 0, 0, 0, 0], 8), "Reserved by IETF", "RFC 4291", &RESERVED),
    row(v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64), "Discard-Only Address Block", "RFC 6666", &DISCARD),
    row(v6([0x100, 0, 0, 1, 0, 0, 0, 0], 64), "Dummy IPv6 Prefix", "RFC 9780", &DISCARD),
    row(v6([0x200, 0, 0, 0, 0, 0, 0, 0], 7), "Reserved by IETF (NSAP)", "RFC 4048", &RESERVED),
    row(v6([0x400, 0, 0, 0, 0, 0, 0, 0], 6), "Reserved by IETF", "RFC 4291", &RESERVED),
    row(v6([0x800, 0, 0, 0, 0, 0, 0, 0], 5), "Reserved by IETF", "RFC 4291", &RESERVED),
    row(v6([0x1000, 0, 0, 0, 0, 0, 0, 0], 4), "Reserved by IETF", "RFC 4291", &RESERVED),
    row(v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3), "Global Unicast", "RFC 4291", &PUBLIC),
    row(v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), "IETF Protocol Assignments", "RFC 2928", &PROTOCOL),
    row(v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32), "TEREDO", "RFC 4380", &TEREDO),
    row(v6([0x2001, 1, 0, 0, 0, 0, 0, 1], 128), "Port Control Protocol Anycast", "RFC 7723", &PROTOCOL),
    row(v6([0x2001, 1, 0, 0, 0, 0, 0, 2], 128), "Traversal Using Relays around NAT Anycast", "RFC 8155", &PROTOCOL),
    row(v6([0x2001, 1, 0, 0, 0, 0, 0, 3], 128), "DNS-SD Service Registration Protocol Anycast", "RFC 9665", &PROTOCOL),
    row(v6([0x2001, 2, 0, 0, 0, 0, 0, 0], 48), "Benchmarking", "RFC 5180", &BENCHMARKING),
    row(v6([0x2001, 3, 0, 0, 0, 0, 0, 0], 32), "AMT", "RFC 7450", &ANYCAST),
    row(v6([0x2001, 4, 0x112, 0, 0, 0, 0, 0], 48), "AS112-v6", "RFC 7535", &ANYCAST),
    row(v6([0x2001, 0x10, 0, 0, 0, 0, 0, 0], 28), "Deprecated (previously ORCHID)", "RFC 4843", &IDENTIFIER),
    row(v6([0x2001, 0x20, 0, 0, 0, 0, 0, 0], 28), "ORCHIDv2", "RFC 7343", &IDENTIFIER),
    row(v6([0x2001, 0x30, 0, 0, 0, 0, 0, 0], 28), "Drone Remote ID Entity Tags", "RFC 9374", &IDENTIFIER),
    row(v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), "Documentation", "RFC 3849", &DOCUMENTATION),
    row(v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16), "6to4", "RFC 3056", &SIX_TO_FOUR),
    row(v6([0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0], 48), "Direct Delegation AS112 Service", "RFC 7534", &ANYCAST),
    row(v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), "Documentation", "RFC 9637", &DOCUMENTATION),
    row(v6([0x4000, 0, 0, 0, 0, 0, 0, 0], 3), "Reserved by IETF", "RFC 4291", &RESERVED),
    row(v6([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16), "Segment Routing (SRv6) SIDs", "RFC 9602", &IDENTIFIER),
    row(v6([0x6000, 0, 0, 0, 0, 0, 0, 0], 3), "Reserved by IETF", "RFC 4291", &RESERVED),
    row(v6([0x8000, 0, 0, 0, 0, 0, 0, 0], 3), "Reserved by IETF", "RFC 4291", &RESERVED),
    row(v6([0xa000, 0, 0, 0, 0, 0, 0, 0], 3), "Reserved by IETF", "RFC 4291", &RESERVED),
    row(v6([0xc000, 0, 0, 0, 0, 0, 0, 0], 3), "Reserved by IETF", "RFC 4291", &RESERVED),
    row(v6([0xe000, 0, 0, 0, 0, 0, 0, 0], 4), "Reserved by IETF", "RFC 4291", &RESERVED),
    row(v6([0xf000, 0, 0, 0, 0, 0, 0, 0], 5), "Reserved by IETF", "RFC 4291", &RESERVED),
    row(v6([0xf800, 0, 0, 0, 0, 0, 0, 0], 6), "Reserved by IETF", "RFC 4291", &RESERVED),
    row(v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7), "Unique-Local", "RFC 4193", &PRIVATE),
    row(v6([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42], 128), "Scaleway: metadata", "Scaleway", &METADATA),
    row(v6([0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe], 128), "Oracle Cloud: metadata", "Oracle Cloud", &METADATA),
    row(v6([0xfd00, 0x100, 0, 0, 0, 0, 0x100, 0x200], 128), "Alibaba Cloud: metadata", "Alibaba Cloud", &METADATA),
    row(v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0], 32), "AWS: metadata, EKS Pod Identity, DNS, NTP", "AWS", &METADATA),
    row(v6([0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 0], 64), "Akamai (Linode): metadata", "Akamai", &METADATA),
    row(v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0], 64), "Google Cloud: metadata", "Google Cloud", &METADATA),
    row(v6([0xfe00, 0, 0, 0, 0, 0, 0, 0], 9), "Reserved by IETF", "RFC 4291", &RESERVED),
    row(v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), "Link-Local Unicast", "RFC 4291", &LINK_LOCAL),
    row(v6([0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe], 128), "OpenStack, Akamai: metadata", "OpenStack", &METADATA),
    row(v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), "Deprecated (Site-Local)", "RFC 3879", &SITE_LOCAL),
    row(v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), "Multicast", "RFC 4291", &MULTICAST),
];

/// Returns the most specific range that contains an address. Both tables cover their family; a test checks it.
pub(super) fn range_of(address: IpAddr) -> Option<&'static Range> {
    let table = if address.is_ipv4() { IPV4 } else { IPV6 };
    table.iter().filter(|range| range.network.contains(address)).max_by_key(|range| range.network.prefix())
}

/// Renders the page of the documentation that shows both tables, as Markdown.
#[must_use]
pub fn page() -> String {
    let mut page = include_str!("ranges.md").to_owned();
    for (family, table) in [("IPv4", IPV4), ("IPv6", IPV6)] {
        // Writing to a String cannot fail.
        let _ = writeln!(page, "\n## {family}\n\n| range | name | source | calls | because |\n|---|---|---|---|---|");
        for Range { network, name, source, class } in table {
            let calls = match class.verdict {
                RangeVerdict::Allowed => "allowed",
                RangeVerdict::Refused => "refused",
                RangeVerdict::Metadata => "refused, also inside an allowed range",
                RangeVerdict::Inner => "as the IPv4 address in it",
            };
            let _ = writeln!(page, "| `{network}` | {name} | {source} | {calls} | {} |", class.reason);
        }
    }
    page
}

#[cfg(test)]
#[path = "ranges/tests.rs"]
mod tests;
