//! Secret values, and the hosts each may be sent to.
//!
//! It must not read Secrets, log them or keep them: the controller fetches them over the Kubernetes
//! API as the call is made, and what is missing or unclear is refused.

use async_trait::async_trait;
pub use secrecy::{ExposeSecret, SecretString as SecretText};
use signoff_api::hosts;
use url::Url;

use crate::error::CallError;
use crate::redact::excerpt;

/// The annotation of a Secret that names, separated by commas, the hosts it may be sent to.
pub const ALLOWED_HOSTS: &str = "signoff.dev/allowed-hosts";

/// Gives out Secret values for calls.
#[async_trait]
pub trait Secrets: Send + Sync {
    /// The text under `key` of the Secret `namespace/name`, if it may be sent to `for_host`, the
    /// call's URL.
    ///
    /// # Errors `Refused` when [`host_allowed`] says no; `Invalid` when Secret or key are missing
    /// or not text; `Unreachable` when the API server gave no answer. The value is in none of
    /// them.
    async fn get(&self, namespace: &str, name: &str, key: &str, for_host: &Url) -> Result<SecretText, CallError>;
}

/// Whether a Secret with this annotation may be sent to the host of `url`.
///
/// An entry is a host (any port), a host and port, or `*.` and a suffix, which covers every name
/// under the suffix but not the suffix itself. Entries that are nothing of this kind match
/// nothing. `secret` is `namespace/name`, for the message.
///
/// # Errors
/// `Refused`, naming the Secret and the annotation that would allow it.
pub fn host_allowed(secret: &str, annotation: Option<&str>, url: &Url) -> Result<(), CallError> {
    let Some(host) = url.host() else {
        return Err(CallError::invalid(format!("Secret {secret} cannot be sent: {} names no host", url.scheme())));
    };
    let listed = annotation.unwrap_or_default();
    if hosts::lists(listed.split(','), url) {
        return Ok(());
    }
    let remedy = match listed.trim() {
        "" => format!("it has no annotation {ALLOWED_HOSTS}; if it belongs there, set {ALLOWED_HOSTS}: \"{host}\""),
        others => format!(
            "its annotation {ALLOWED_HOSTS} lists other hosts ({}); if it belongs there, add {host}",
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
        host_allowed("team/models", Some(annotation), &url.parse().unwrap()).is_ok()
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
    fn a_suffix_covers_what_is_under_it_but_not_itself() {
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
    fn what_is_missing_or_not_understood_allows_nothing() {
        let url: Url = "https://api.example.com".parse().unwrap();
        assert!(host_allowed("team/models", None, &url).is_err());
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
        let missing = host_allowed("team/models", None, &url).unwrap_err();
        assert_eq!(missing.class, ErrorClass::Refused);
        assert!(missing.message.contains("Secret team/models must not be sent to api.example.com"), "{missing}");
        assert!(missing.message.contains("set signoff.dev/allowed-hosts: \"api.example.com\""), "{missing}");
        let other = host_allowed("team/models", Some("a.org"), &url).unwrap_err();
        assert!(
            other.message.ends_with("lists other hosts (a.org); if it belongs there, add api.example.com"),
            "{other}"
        );
    }

    #[test]
    fn debug_of_a_secret_shows_nothing() {
        assert!(!format!("{:?}", SecretText::from("hunter22")).contains("hunter22"));
    }
}
