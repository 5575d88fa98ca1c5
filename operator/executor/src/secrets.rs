//! Secret values, and the hosts to which each may be sent.
//!
//! The controller fetches Secrets over the Kubernetes API when the call is made. A missing or ambiguous value is
//! refused.
//! **Invariant:** no value is logged or kept.

use async_trait::async_trait;
pub use secrecy::{ExposeSecret, SecretString as SecretText};
use signoff_api::hosts;
use url::Url;

use crate::error::CallError;
use crate::redact::excerpt;

/// The annotation of a Secret with the hosts to which it may be sent, separated by commas.
pub const ALLOWED_HOSTS: &str = "signoff.dev/allowed-hosts";

/// The use of a Secret's value: its target, and its role in the request.
#[derive(Clone, Copy, Debug)]
pub enum SecretUse<'u> {
    /// The key of the model provider at this URL.
    ProviderKey(&'u Url),
    /// A header of a request to this URL. Without TLS the header is sent only if the Secret lists `http://host:port`.
    Header(&'u Url),
}

impl<'u> SecretUse<'u> {
    /// Returns the URL to which the value is sent.
    #[must_use]
    pub fn url(self) -> &'u Url {
        match self {
            Self::ProviderKey(url) | Self::Header(url) => url,
        }
    }

    /// Whether a list of hosts allows this use.
    pub fn is_listed<'a>(self, entries: impl IntoIterator<Item = &'a str> + Clone) -> bool {
        let needs_tls = matches!(self, Self::Header(url) if url.scheme() != "https");
        (!needs_tls && hosts::lists(entries.clone(), self.url())) || hosts::lists_without_tls(entries, self.url())
    }

    /// Returns the entry that would allow this use in a list of hosts; empty if the URL has no host.
    #[must_use]
    pub fn entry(self) -> String {
        let host = self.url().host_str().unwrap_or_default();
        match self {
            Self::Header(url) if url.scheme() == "http" => {
                format!("http://{host}:{}", url.port_or_known_default().unwrap_or_default())
            }
            Self::ProviderKey(_) | Self::Header(_) => host.to_owned(),
        }
    }
}

/// A value of a Secret.
#[derive(Debug)]
pub struct FoundSecret {
    /// The text under the requested key.
    pub value: SecretText,
    /// The object that the value was read from, such as `uid 1c0b…, version 4711`; `None` outside of a cluster.
    pub version: Option<String>,
}

/// The interface that returns Secret values for calls.
#[async_trait]
pub trait Secrets: Send + Sync {
    /// Returns the text under `key` of the Secret `namespace/name`, if the Secret allows the use `wanted`.
    ///
    /// # Errors
    /// `Refused` if [`host_allowed`] refuses the use; `Invalid` if the Secret or the key is missing or not text;
    /// `Unreachable` if the API server does not answer. No error contains the value.
    async fn read(
        &self,
        namespace: &str,
        name: &str,
        key: &str,
        wanted: SecretUse<'_>,
    ) -> Result<FoundSecret, CallError>;

    /// Returns the key of the model provider at a URL.
    ///
    /// # Errors
    /// As [`Secrets::read`].
    async fn get(&self, namespace: &str, name: &str, key: &str, for_host: &Url) -> Result<SecretText, CallError> {
        Ok(self.read(namespace, name, key, SecretUse::ProviderKey(for_host)).await?.value)
    }
}

/// Checks that a Secret allows a use. `annotation` is the value of its annotation [`ALLOWED_HOSTS`].
///
/// An entry is a host (any port), a host and port, or `*.` and a suffix, which covers every name under the suffix but
/// not the suffix itself. `http://host:port` allows a header without TLS. Other entries match nothing. `secret` is
/// `namespace/name`, for the message.
///
/// # Errors
/// `Refused`, with the Secret and the annotation that would allow the use.
pub fn host_allowed(secret: &str, annotation: Option<&str>, wanted: SecretUse<'_>) -> Result<(), CallError> {
    let Some(host) = wanted.url().host() else {
        let scheme = wanted.url().scheme();
        return Err(CallError::invalid(format!("Secret {secret} cannot be sent: {scheme} names no host")));
    };
    let (listed, entry) = (annotation.unwrap_or_default(), wanted.entry());
    if wanted.is_listed(listed.split(',')) {
        return Ok(());
    }
    let remedy = match listed.trim() {
        "" => format!("it has no annotation {ALLOWED_HOSTS}; if it belongs there, set {ALLOWED_HOSTS}: \"{entry}\""),
        others => format!(
            "its annotation {ALLOWED_HOSTS} lists other hosts ({}); if it belongs there, add {entry}",
            excerpt(others, [])
        ),
    };
    Err(CallError::refused(format!("Secret {secret} must not be sent to {host}: {remedy}")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::error::ErrorClass;

    fn allowed(annotation: &str, url: &str) -> bool {
        host_allowed("team/models", Some(annotation), SecretUse::ProviderKey(&url.parse().unwrap())).is_ok()
    }

    #[test]
    fn an_exact_host_is_allowed_on_every_port_and_nothing_else_is() {
        let listed = " api.example.com , models.svc ";
        assert!(allowed(listed, "https://api.example.com/v1"));
        assert!(allowed(listed, "https://API.EXAMPLE.COM.:8443/v1"));
        assert!(allowed(listed, "http://models.svc"));
        for url in [
            "https://example.com",
            "https://x.api.example.com",
            "https://api.example.com.evil.org",
            "https://evilapi.example.com",
        ] {
            assert!(!allowed(listed, url), "{url}");
        }
    }

    #[test]
    fn a_suffix_covers_the_names_under_it_but_not_itself() {
        assert!(allowed("*.example.com", "https://a.example.com"));
        assert!(allowed("*.example.com", "https://a.b.example.com"));
        for url in ["https://example.com", "https://evilexample.com", "https://example.com.evil.org"] {
            assert!(!allowed("*.example.com", url), "{url}");
        }
    }

    #[test]
    fn an_entry_with_a_port_is_for_that_port() {
        assert!(allowed("models.svc:8080", "http://models.svc:8080/v1"));
        assert!(allowed("api.example.com:443", "https://api.example.com/"));
        assert!(!allowed("models.svc:8080", "http://models.svc/v1"));
        assert!(!allowed("api.example.com:443", "http://api.example.com/"));
        assert!(allowed("*.svc:80", "http://models.svc/"));
    }

    #[test]
    fn addresses_match_as_addresses() {
        assert!(allowed("127.0.0.1:8080", "http://127.1:8080"));
        assert!(allowed("[::1]:8080", "http://[0:0::1]:8080"));
        assert!(allowed("[::1]", "http://[::1]:9"));
        assert!(!allowed("*.0.0.1", "http://127.0.0.1"));
    }

    #[test]
    fn a_missing_or_invalid_annotation_allows_nothing() {
        let url: Url = "https://api.example.com".parse().unwrap();
        assert!(host_allowed("team/models", None, SecretUse::ProviderKey(&url)).is_err());
        for annotation in [
            "",
            " ",
            ",",
            "*",
            "*.",
            "**.example.com",
            "*.*.com",
            "*api.example.com",
            "api.*.com",
            "api.example.com:x",
            "api.example.com:",
            "https://api.example.com",
            "api.example.com/v1",
        ] {
            assert!(!allowed(annotation, "https://api.example.com"), "{annotation}");
        }
    }

    #[test]
    fn a_refusal_names_the_secret_the_host_and_the_remedy() {
        let url: Url = "https://api.example.com/v1?x=1".parse().unwrap();
        let missing = host_allowed("team/models", None, SecretUse::ProviderKey(&url)).unwrap_err();
        assert_eq!(missing.class, ErrorClass::Refused);
        assert!(missing.message.contains("Secret team/models must not be sent to api.example.com"), "{missing}");
        assert!(missing.message.contains("set signoff.dev/allowed-hosts: \"api.example.com\""), "{missing}");
        let other = host_allowed("team/models", Some("a.org"), SecretUse::ProviderKey(&url)).unwrap_err();
        assert!(
            other.message.ends_with("lists other hosts (a.org); if it belongs there, add api.example.com"),
            "{other}"
        );
    }

    #[test]
    fn a_header_is_sent_without_tls_only_if_the_secret_lists_it() {
        let check = |annotation: &str, url: &str| {
            let url: Url = url.parse().unwrap();
            host_allowed("team/letters", Some(annotation), SecretUse::Header(&url)).map_err(|error| error.message)
        };
        assert_eq!(check("letters.svc", "https://letters.svc/send"), Ok(()));
        assert_eq!(check("a.org, http://letters.svc:8080", "http://letters.svc:8080/send"), Ok(()));
        for annotation in ["letters.svc", "letters.svc:8080", "http://letters.svc", "http://letters.svc:80", "*.svc"] {
            let refused = check(annotation, "http://letters.svc:8080/send").unwrap_err();
            assert!(refused.ends_with("if it belongs there, add http://letters.svc:8080"), "{refused}");
        }
        assert!(check("http://letters.svc:443", "https://letters.svc/").is_err());
        // For a provider without TLS both forms of an entry work.
        assert!(allowed("models.svc", "http://models.svc:8000"));
        assert!(allowed("http://models.svc:8000", "http://models.svc:8000"));
    }

    #[test]
    fn debug_of_a_secret_shows_nothing() {
        assert!(!format!("{:?}", SecretText::from("hunter22")).contains("hunter22"));
    }
}
