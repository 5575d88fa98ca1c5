//! Lists of hosts in the annotation of a Secret and in approval policies: a name or an address, optionally with a port,
//! or `*.` and a suffix.
//!
//! Names are not resolved and paths are not compared. An entry that cannot be parsed matches nothing.

use url::{Host, Url};

/// A parsed entry of a list of hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    host: Host<String>,
    /// Whether `host` is a suffix.
    under: bool,
    port: Option<u16>,
}

impl HostPattern {
    /// Parses one entry, or returns `None` if it is not a host. Names are lower-cased and converted to ASCII as in a
    /// URL.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (under, text) = text.strip_prefix("*.").map_or((false, text), |suffix| (true, suffix));
        // The last colon ends the host, unless it is inside the brackets of an IPv6 address.
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port.parse().ok()?)),
            _ => (text, None),
        };
        let host = Host::parse(bare(host)).ok()?;
        let wildcard_inside = matches!(&host, Host::Domain(name) if name.contains('*') || name.is_empty());
        let suffix_of_an_address = under && !matches!(host, Host::Domain(_));
        (!wildcard_inside && !suffix_of_an_address).then_some(Self { host, under, port })
    }

    /// Whether the entry matches the host and port of a URL. User, path and scheme are ignored.
    #[must_use]
    pub fn covers(&self, url: &Url) -> bool {
        let same_host = match (&self.host, url.host()) {
            (Host::Domain(listed), Some(Host::Domain(asked))) => {
                // Both sides were lower-cased and punycoded when they were parsed.
                let asked = bare(asked);
                if self.under {
                    asked.strip_suffix(listed.as_str()).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
                } else {
                    asked == listed
                }
            }
            (Host::Ipv4(listed), Some(Host::Ipv4(asked))) => *listed == asked,
            (Host::Ipv6(listed), Some(Host::Ipv6(asked))) => *listed == asked,
            _ => false,
        };
        same_host && (self.port.is_none() || self.port == url.port_or_known_default())
    }
}

/// Whether any entry of a list matches the host and port of a URL.
pub fn lists<'a>(entries: impl IntoIterator<Item = &'a str>, url: &Url) -> bool {
    entries.into_iter().filter_map(HostPattern::parse).any(|entry| entry.covers(url))
}

/// Whether an entry of a list is `http://host:port` with the host and the port of a URL without TLS.
pub fn lists_without_tls<'a>(entries: impl IntoIterator<Item = &'a str>, url: &Url) -> bool {
    let patterns = entries.into_iter().filter_map(|entry| HostPattern::parse(entry.trim().strip_prefix("http://")?));
    url.scheme() == "http"
        && patterns.filter(|entry| !entry.under && entry.port.is_some()).any(|entry| entry.covers(url))
}

/// Whether a URL has a user name or a password.
#[must_use]
pub fn has_credentials(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

/// Returns a host name without a trailing dot.
fn bare(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[track_caller]
    fn allowed(list: &str, url: &str) -> bool {
        lists(list.split(','), &url.parse().unwrap())
    }

    #[test]
    fn a_url_never_matches_a_host_that_is_not_listed() {
        let listed = "api.example.com,*.models.example.com";
        for url in [
            "https://api.example.com@evil.org/",
            "https://api.example.com:x@evil.org",
            r"https://evil.org\@api.example.com/",
            "https://evil.org/api.example.com",
            "https://evil.org?api.example.com",
            "https://evil.org#@api.example.com",
            "https://api.example.com.evil.org",
            "https://evilapi.example.com",
            "https://models.example.com",
            "https://evilmodels.example.com",
            "https://[::1]/",
            "https://аpi.example.com/",
        ] {
            assert!(!allowed(listed, url), "{url}");
        }
        for url in [
            "https://API.Example.COM./v1",
            "https://user:password@api.example.com:8443/",
            "https://a.b.models.example.com",
            "http:\\\\api.example.com\\x",
            "https://api%2eexample%2ecom/",
        ] {
            assert!(allowed(listed, url), "{url}");
        }
    }

    #[test]
    fn addresses_are_compared_as_numbers_and_names_in_one_spelling() {
        assert!(allowed("10.0.0.1", "http://167772161/"));
        assert!(allowed("10.0.0.1", "http://0xa.0.0.1:80/"));
        assert!(allowed("[2001:DB8::1]", "http://[2001:db8:0:0::1]:9000/"));
        assert!(!allowed("10.0.0.1", "http://10.0.0.11/"));
        assert!(!allowed("*.0.0.1", "http://10.0.0.1/"));
        assert!(allowed("bücher.example", "https://xn--bcher-kva.example/"));
        assert!(allowed("xn--bcher-kva.example", "https://BÜCHER.example/"));
    }

    #[test]
    fn an_entry_with_a_port_matches_only_that_port() {
        assert!(allowed("api.example.com:443", "https://api.example.com/"));
        assert!(!allowed("api.example.com:443", "http://api.example.com/"));
        assert!(!allowed("api.example.com:443", "https://api.example.com:8443/"));
        assert!(allowed("[::1]:80", "http://[::1]/"));
        assert!(!allowed("[::1]:80", "http://[::1]:81/"));
    }

    #[test]
    fn a_url_without_tls_is_listed_with_scheme_host_and_port() {
        let listed = |entry: &str, url: &str| lists_without_tls([entry], &url.parse().unwrap());
        assert!(listed("http://letters.svc:8080", "http://letters.svc:8080/send"));
        assert!(listed(" http://127.0.0.1:80 ", "http://127.1/"));
        assert!(listed("http://[::1]:80", "http://[0::1]/"));
        for (entry, url) in [
            ("letters.svc:8080", "http://letters.svc:8080/"),
            ("http://letters.svc", "http://letters.svc/"),
            ("http://letters.svc:8080", "https://letters.svc:8080/"),
            ("http://letters.svc:8080", "http://letters.svc:8081/"),
            ("http://*.svc:8080", "http://letters.svc:8080/"),
            ("http://letters.svc:8080/send", "http://letters.svc:8080/send"),
            ("https://letters.svc:8080", "http://letters.svc:8080/"),
        ] {
            assert!(!listed(entry, url), "{entry} {url}");
        }
    }

    #[test]
    fn an_invalid_entry_matches_nothing() {
        for entry in ["", "*", "*.", "*.*.example.com", "a.*.com", "https://api.example.com", "api.example.com:", "a b"]
        {
            assert!(!allowed(entry, "https://api.example.com/"), "{entry}");
        }
    }
}
