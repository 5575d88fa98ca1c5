//! The addresses that calls of a run may reach. The URL is checked before sending, the resolved address at connecting.
//!
//! Judges only: `resolve` resolves names, and the HTTP client opens connections. Refused by default are the addresses
//! that lead back into the machine or to a cloud's metadata service, in every notation that reaches them, and the
//! addresses that the operator protects.

mod cidr;
mod protected;
pub mod ranges;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use signoff_api::hosts;
use url::{Host, Url};

pub use cidr::Cidr;
use cidr::v4;
use protected::Found;
pub use protected::ProtectedSet;
use ranges::{Range, RangeVerdict, range_of};

/// One entry of the operator's setting `--allow-address`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// Every address of a network, on one port or on all.
    Network {
        /// The network; a single address is a network too.
        network: Cidr,
        /// The only port allowed; `None` for all.
        port: Option<u16>,
    },
    /// Every address that a name resolves to, on one port. The DNS of the name is then trusted.
    Name {
        /// The name, in lower case, without a final dot.
        host: String,
        /// The only port allowed.
        port: u16,
    },
}

/// The addresses allowed beyond the default. The default refuses every special address.
#[derive(Clone, Debug, Default)]
pub struct AddressSettings {
    /// Exceptions, by network or by name and port.
    pub allow: Vec<Allowed>,
    /// The addresses around the operator, as far as they were reported.
    pub protected: ProtectedSet,
    /// Whether no exception opens a metadata service, a link-local address or another spelling of an IPv4 address.
    pub is_metadata_closed: bool,
}

/// The error of an address, URL or setting. Every message names the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A special address, as a literal or behind a name.
    #[error("{place} is {kind}: calls to it are refused unless the setting --allow-address {remedy} allows it")]
    Special {
        /// The address, and the name that led to it.
        place: String,
        /// The class of the address, as in "a loopback address".
        kind: &'static str,
        /// The value that would allow it.
        remedy: String,
    },
    /// An address that may be protected, because not all protected addresses are known.
    #[error(
        "{place} may be {kind}, which the operator cannot find out ({why}): correct that, or let the setting \
         --allow-address {remedy} allow it"
    )]
    Unknown {
        /// The address, and the name that led to it.
        place: String,
        /// The kind of address that it may be.
        kind: &'static str,
        /// The error of the API server, or that it has not answered yet.
        why: String,
        /// The value that would allow it.
        remedy: String,
    },
    /// An address that no setting opens here.
    #[error("{place} is {kind}: calls to it are always refused; use another address")]
    Closed {
        /// The address, and the name that led to it.
        place: String,
        /// The class of the address, as in "a cloud metadata address".
        kind: &'static str,
    },
    /// A scheme other than http and https.
    #[error("the URL's scheme is {0}: use http or https")]
    Scheme(String),
    /// A URL with a user name or password in it.
    #[error("the URL has a user name or a password: leave them out, and send a key by `secretHeaders`")]
    Credentials,
    /// A URL without a host.
    #[error("the URL names no host")]
    NoHost,
    /// Text that is not a URL.
    #[error("not a URL: {0}")]
    NotAUrl(url::ParseError),
    /// Text that is not an entry of `--allow-address`.
    #[error(
        "{0:?} is not an address to allow: write a network (127.0.0.0/8), an address (127.0.0.1), \
         an address and port (127.0.0.1:8080, [::1]:8080) or a name and port (models.internal:443)"
    )]
    Setting(String),
}

impl FromStr for Allowed {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if let Ok(network) = text.parse() {
            return Ok(Self::Network { network, port: None });
        }
        if let Ok(socket) = text.parse::<SocketAddr>() {
            return Ok(Self::Network { network: Cidr::single(socket.ip()), port: Some(socket.port()) });
        }
        let wrong = || Error::Setting(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        match Host::parse(host) {
            Ok(Host::Domain(host)) if !host.contains('*') => {
                Ok(Self::Name { host: without_final_dot(&host).to_owned(), port: port.parse().map_err(|_| wrong())? })
            }
            _ => Err(wrong()),
        }
    }
}

impl AddressSettings {
    /// Allows the addresses of this machine, for local models of a run on a person's own machine.
    #[must_use]
    pub fn with_loopback(mut self) -> Self {
        for network in [v4([127, 0, 0, 0], 8), Cidr::single(Ipv6Addr::LOCALHOST.into())] {
            self.allow.push(Allowed::Network { network, port: None });
        }
        self
    }

    /// Checks that calls may reach `address`. `name` is the host in the URL, unless the host is a literal.
    ///
    /// `port` is `None` if it is unknown; entries for one port then do not apply. An entry for a range allows neither a
    /// protected address nor a metadata service that is only a part of the range.
    ///
    /// # Errors
    /// A refused address, with the reason and the setting that would allow it.
    pub fn check_address(&self, address: IpAddr, port: Option<u16>, name: Option<&str>) -> Result<(), Error> {
        let reached = reached_address(address);
        let refusing = refusing_range(reached);
        let allows = |entry: &&Allowed| entry.covers(address, port, name) && entry.is_meant_for(address, refusing);
        let mut covering = self.allow.iter().filter(allows).peekable();
        let place = || match name {
            Some(name) => format!("{address} (to which {name} resolves)"),
            None => address.to_string(),
        };
        if let Some(range) = range_of(reached).filter(|range| self.is_metadata_closed && range.is_closed()) {
            return Err(Error::Closed { place: place(), kind: range.class.what });
        }
        let remedy = || port.map_or_else(|| address.to_string(), |port| SocketAddr::new(address, port).to_string());
        if let Some(range) = refusing
            && covering.peek().is_none()
        {
            return Err(Error::Special { place: place(), kind: range.class.what, remedy: remedy() });
        }
        match self.protected.find(reached) {
            Found::Nothing => Ok(()),
            _ if covering.any(|entry| entry.names(address)) => Ok(()),
            Found::Here(kind) => Err(Error::Special { place: place(), kind, remedy: remedy() }),
            Found::Perhaps(kind, why) => Err(Error::Unknown { place: place(), kind, why, remedy: remedy() }),
        }
    }

    /// Parses and checks a URL before anything is resolved or sent.
    ///
    /// # Errors
    /// Another scheme than http and https, credentials in the URL, no host, `localhost` and special literals that the
    /// settings do not allow.
    pub fn check_url(&self, text: &str) -> Result<Url, Error> {
        let url = Url::parse(text).map_err(Error::NotAUrl)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Error::Scheme(url.scheme().to_owned()));
        }
        if hosts::has_credentials(&url) {
            return Err(Error::Credentials);
        }
        let port = url.port_or_known_default();
        match url.host().ok_or(Error::NoHost)? {
            Host::Ipv4(address) => self.check_address(address.into(), port, None)?,
            Host::Ipv6(address) => self.check_address(address.into(), port, None)?,
            // The addresses of a name are checked after it is resolved. This name means loopback in any case.
            Host::Domain(name) if is_localhost(name) => {
                let own = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
                if !own.iter().any(|address| self.check_address(*address, port, Some(name)).is_ok()) {
                    self.check_address(own[0], port, Some(name))?;
                }
            }
            Host::Domain(_) => {}
        }
        Ok(url)
    }
}

impl Allowed {
    fn covers(&self, address: IpAddr, port: Option<u16>, name: Option<&str>) -> bool {
        match self {
            Self::Network { network, port: only } => network.contains(address) && (only.is_none() || *only == port),
            Self::Name { host, port: only } => {
                port == Some(*only) && name.is_some_and(|name| without_final_dot(name).eq_ignore_ascii_case(host))
            }
        }
    }

    /// Whether an entry that covers the address is specific enough for the range that refuses it: a metadata service is
    /// allowed only by its own address, its name, or a part of its own range.
    fn is_meant_for(&self, address: IpAddr, refused: Option<&Range>) -> bool {
        match (self, refused) {
            (Self::Network { network, .. }, Some(range)) if range.class.verdict == RangeVerdict::Metadata => {
                network.is_within(&range.network) || self.names(address)
            }
            _ => true,
        }
    }

    /// Whether an entry that covers the address names this address itself or its host, and not a larger range.
    fn names(&self, address: IpAddr) -> bool {
        match self {
            Self::Network { network, .. } => *network == Cidr::single(address),
            Self::Name { .. } => true,
        }
    }
}

/// Returns the address that a connection reaches in the end: the IPv4 address in a translated IPv6 address.
fn reached_address(address: IpAddr) -> IpAddr {
    match (address, range_of(address)) {
        (IpAddr::V6(v6), Some(range)) if range.class.verdict == RangeVerdict::Inner => {
            let [.., a, b, c, d] = v6.octets();
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        }
        _ => address,
    }
}

/// Returns the range that refuses an address, or `None`.
fn refusing_range(address: IpAddr) -> Option<&'static Range> {
    range_of(address).filter(|range| matches!(range.class.verdict, RangeVerdict::Refused | RangeVerdict::Metadata))
}

/// Returns a host name without the final dot that marks it as complete.
pub(crate) fn without_final_dot(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

fn is_localhost(name: &str) -> bool {
    let name = without_final_dot(name);
    name.rsplit('.').next().is_some_and(|last| last.eq_ignore_ascii_case("localhost"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn settings_with(entries: &[&str]) -> AddressSettings {
        AddressSettings {
            allow: entries.iter().map(|entry| entry.parse().unwrap()).collect(),
            ..AddressSettings::default()
        }
    }

    #[test]
    fn every_notation_of_a_special_address_is_refused() {
        for url in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f.0.0.1/",
            "http://0177.0.0.1/",
            "http://127.0.0.1./",
            "http://①②⑦.0.0.1/",
            "http://0.0.0.0/",
            "http://0/",
            "http://169.254.169.254/latest/meta-data",
            "http://100.100.100.200/",
            "http://168.63.129.16/",
            "http://192.0.0.192/",
            "http://224.0.0.1/",
            "http://255.255.255.255/",
            "http://[::]/",
            "http://[::1]/",
            "http://[fe80::1]/",
            "http://[fd00:ec2::254]/",
            "http://[ff02::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:10.0.0.1]/",
            "http://[::127.0.0.1]/",
            "http://[::ffff:0:127.0.0.1]/",
            "http://[64:ff9b::169.254.169.254]/",
            "http://[64:ff9b:1::7f00:1]/",
            "http://[2002:7f00:1::]/",
            "http://[2001:0:1::1]/",
            "https://localhost/",
            "https://LOCALHOST./",
            "http://db.localhost:5432/",
        ] {
            let refused = AddressSettings::default().check_url(url).unwrap_err();
            assert!(matches!(refused, Error::Special { .. }), "{url}: {refused}");
        }
    }

    #[test]
    fn ordinary_and_private_addresses_are_allowed() {
        for url in [
            "https://models.example.com/v1",
            "http://letters.finance.svc/send",
            "http://10.96.0.10:8080/",
            "http://192.168.1.1/",
            "http://172.16.0.1/",
            "http://[fd12::1]/",
            "http://[2a00::1]/",
            "http://[64:ff9b::8.8.8.8]/",
            "http://localhost.example.com/",
        ] {
            assert!(AddressSettings::default().check_url(url).is_ok(), "{url}");
        }
    }

    #[test]
    fn a_url_of_another_scheme_or_with_credentials_is_refused() {
        let check = |url| AddressSettings::default().check_url(url).unwrap_err();
        assert_eq!(check("file:///etc/passwd"), Error::Scheme("file".into()));
        assert_eq!(check("unix:///run/x.sock"), Error::Scheme("unix".into()));
        assert_eq!(check("http://user@example.com/"), Error::Credentials);
        assert_eq!(check("http://:pw@example.com/"), Error::Credentials);
        assert!(matches!(check("http://"), Error::NotAUrl(_)));
        assert!(matches!(check("/relative"), Error::NotAUrl(_)));
    }

    #[test]
    fn a_refusal_names_the_address_and_the_setting_that_would_allow_it() {
        let refused = AddressSettings::default().check_url("http://127.0.0.1:8080/x").unwrap_err();
        assert_eq!(
            refused.to_string(),
            "127.0.0.1 is a loopback address: calls to it are refused unless the setting --allow-address 127.0.0.1:8080 allows it"
        );
        let v6 = AddressSettings::default().check_url("http://[::1]:8080/").unwrap_err().to_string();
        assert!(v6.contains("--allow-address [::1]:8080"), "{v6}");
        // The value that the message proposes is accepted, and allows the address.
        assert!(settings_with(&["[::1]:8080"]).check_url("http://[::1]:8080/").is_ok());
    }

    #[test]
    fn a_setting_allows_only_its_own_addresses_ports_and_names() {
        let network = settings_with(&["127.0.0.0/8"]);
        assert!(network.check_url("http://127.9.9.9:1/").is_ok());
        assert!(network.check_url("http://localhost:1/").is_ok());
        assert!(network.check_url("http://[::1]/").is_err());
        assert!(network.check_url("http://[::ffff:127.0.0.1]/").is_err());
        assert!(network.check_url("http://169.254.169.254/").is_err());

        let one_port = settings_with(&["127.0.0.1:8080"]);
        assert!(one_port.check_url("http://127.0.0.1:8080/").is_ok());
        assert!(one_port.check_url("http://127.0.0.1:8081/").is_err());
        assert!(one_port.check_url("http://127.0.0.1/").is_err());
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert!(one_port.check_address(loopback, None, Some("x")).is_err(), "an unknown port is no allowed port");

        let name = settings_with(&["models.internal:443"]);
        assert!(name.check_address(loopback, Some(443), Some("Models.Internal.")).is_ok());
        assert!(name.check_address(loopback, Some(80), Some("models.internal")).is_err());
        assert!(name.check_address(loopback, Some(443), Some("other.internal")).is_err());
        assert!(name.check_address(loopback, Some(443), None).is_err());
        assert!(settings_with(&["localhost:80"]).check_url("http://localhost/").is_ok());
        assert!(AddressSettings::default().with_loopback().check_url("http://[::1]:11434/v1").is_ok());
    }

    #[test]
    fn a_protected_address_is_allowed_only_by_its_own_entry() {
        let check = |entries: &[&str], url: &str| {
            let settings = settings_with(entries);
            let nodes = ["10.0.0.7", "127.0.0.2", "8.8.4.4"].map(|ip| ip.parse().unwrap());
            settings.protected.set_addresses("a node of the cluster", nodes.into());
            settings.check_url(url).map_err(|error| error.to_string())
        };
        let refused = check(&[], "http://10.0.0.7:8080/").unwrap_err();
        assert_eq!(
            refused,
            "10.0.0.7 is a node of the cluster: calls to it are refused unless the setting --allow-address 10.0.0.7:8080 allows it"
        );
        for inside in ["http://8.8.4.4/", "http://[64:ff9b::10.0.0.7]/", "http://0xa.0.0.7/"] {
            assert!(check(&[], inside).unwrap_err().contains("a node of the cluster"), "{inside}");
        }
        assert!(check(&["10.0.0.0/8"], "http://10.0.0.7/").is_err(), "a range did not mean the node");
        assert!(check(&["127.0.0.0/8"], "http://127.0.0.2/").is_err());
        assert!(check(&["127.0.0.0/8"], "http://127.0.0.3/").is_ok());
        for entry in ["10.0.0.7", "10.0.0.7/32", "10.0.0.7:80"] {
            assert!(check(&[entry], "http://10.0.0.7/").is_ok(), "{entry}");
        }
        let named = settings_with(&["models.internal:443"]);
        named.protected.set_addresses("a node of the cluster", ["10.0.0.7".parse().unwrap()].into());
        let node = "10.0.0.7".parse().unwrap();
        assert!(named.check_address(node, Some(443), Some("models.internal")).is_ok());
        assert!(named.check_address(node, Some(443), Some("other.internal")).is_err());
    }

    #[test]
    fn a_private_address_is_refused_while_the_nodes_are_unknown() {
        let settings = settings_with(&["192.168.0.9:80"]);
        settings.protected.set_unreadable("a node of the cluster", "nodes is forbidden");
        let refused = settings.check_url("http://10.1.1.1/").unwrap_err().to_string();
        assert_eq!(
            refused,
            "10.1.1.1 may be a node of the cluster, which the operator cannot find out (nodes is forbidden): correct that, or let the setting --allow-address 10.1.1.1:80 allow it"
        );
        assert!(settings.check_url("http://192.168.0.9/").is_ok());
        assert!(settings.check_url("https://models.example.com/").is_ok());
    }

    #[test]
    fn a_closed_metadata_service_is_refused_under_every_setting() {
        let services = [
            "169.254.169.254",
            "169.254.170.2",
            "169.254.1.1",
            "168.63.129.16",
            "100.100.100.200",
            "192.0.0.192",
            "fd00:ec2::254",
            "fd20:ce::254",
            "fe80::1",
            "fe80::a9fe:a9fe",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "::ffff:0:169.254.169.254",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::169.254.169.254",
            "2002:a9fe:a9fe::1",
            "2001:0:a9fe:a9fe::1",
            "2001:0:808:808::5601:5601",
        ];
        let relays = ["10.0.0.25", "127.0.0.1", "::1", "100.64.0.1", "64:ff9b::10.0.0.25"];
        for address in services.into_iter().chain(relays) {
            let ip: IpAddr = address.parse().unwrap();
            let socket = SocketAddr::new(ip, 465).to_string();
            for entry in
                [address, socket.as_str(), "relay.example.com:465", if ip.is_ipv4() { "0.0.0.0/0" } else { "::/0" }]
            {
                let settings = AddressSettings { is_metadata_closed: true, ..settings_with(&[entry]) };
                let checked = settings.check_address(ip, Some(465), Some("relay.example.com"));
                let is_closed = matches!(checked, Err(Error::Closed { .. }));
                assert_eq!(
                    (is_closed, checked.is_ok()),
                    (services.contains(&address), relays.contains(&address)),
                    "{entry}"
                );
                let url = settings.check_url(&format!("http://{socket}/"));
                assert!(!is_closed || url.is_err(), "{entry} {address}");
            }
        }
        let open = settings_with(&["relay.example.com:465"]);
        let metadata = "169.254.169.254".parse().unwrap();
        assert!(open.check_address(metadata, Some(465), Some("relay.example.com")).is_ok(), "a name opens it to runs");
    }

    #[test]
    fn an_invalid_setting_is_refused_with_examples() {
        for text in ["", "127.0.0.1/33", "10.0.0.1/8", "::/129", "localhost", "host:", "host:70000", "*:80", "a b:80"] {
            let wrong = text.parse::<Allowed>().unwrap_err().to_string();
            assert!(wrong.contains("127.0.0.1:8080"), "{text}: {wrong}");
        }
    }
}
