//! HTTP calls: the allowed content of a request, and the content of an answer. `http/client.rs` sends them.
//!
//! **Invariant:** no step sets a header that belongs to the connection. No error and no `Debug` output shows a query, a
//! header's value or a body, because they may hold secrets.

mod client;
mod header_secret;
mod scrub;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, StatusCode};
use url::Url;

use crate::error::CallError;
use crate::redact::excerpt;

pub(crate) use client::ERROR_BODY_LIMIT;
pub use client::{Answer, AnswerBody, BodyRefused, HttpClient, HttpSettings};
pub use header_secret::HeaderSecret;
pub use scrub::Scrubber;

/// The methods that a step may use. CONNECT and TRACE are excluded: a tunnel is not a call, and TRACE returns
/// credentials.
const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// The headers that belong to the connection or are computed. `accept-encoding` is among them because answers are not
/// decompressed, so that a small compressed answer cannot become a large text.
const OWN_HEADERS: &[&str] = &[
    "host",
    "content-length",
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "expect",
    "accept-encoding",
];

/// One call, as it is sent: with the values of Secrets, a deadline, and headers that can repeat. Steps, tools, models,
/// MCP servers and notices send it. Its `Debug` shows neither the query, nor header values, nor the body, because they
/// may hold secrets.
#[derive(Clone)]
pub struct HttpRequest {
    /// `GET`, `HEAD`, `POST`, `PUT`, `PATCH`, `DELETE` or `OPTIONS`, in upper case.
    pub method: String,
    /// An absolute http or https URL.
    pub url: String,
    /// The names and values of the headers; a name can occur several times.
    pub headers: Vec<(String, String)>,
    /// The headers whose values come from Secrets. Other headers have other names. The values are removed from answers
    /// and errors.
    pub secret_headers: Vec<HeaderSecret>,
    /// The body; sent as `text/plain; charset=utf-8` unless a `content-type` header says otherwise.
    pub body: Option<String>,
    /// The status codes of a success; empty for 200 to 299.
    pub expect_status: Vec<u16>,
    /// The time for the whole call, from name resolution to the answer's last byte.
    pub timeout: Duration,
}

/// An answer with an expected status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpReply {
    /// The HTTP status, which the request expects.
    pub status: u16,
    /// The body as text. Bytes that are not UTF-8 are replaced by U+FFFD, because the call has had its effect and a
    /// failure would not undo it.
    pub body: String,
    /// Whether bytes were replaced in `body`.
    pub replaced: bool,
}

/// The interface for HTTP calls of steps.
#[async_trait]
pub trait Http: Send + Sync {
    /// Makes one call, once.
    ///
    /// # Errors
    /// Everything but a complete answer with an expected status. See [`CallError`] for the calls that may be repeated.
    async fn call(&self, request: HttpRequest) -> Result<HttpReply, CallError>;
}

impl HttpRequest {
    /// Returns the URL for people: without its query, which may hold secrets.
    #[must_use]
    pub fn place(&self) -> String {
        Self::place_of(&self.url)
    }

    /// Returns a URL for people: without its query.
    pub(crate) fn place_of(url: &str) -> String {
        url.parse().map_or_else(|_| "a text that is not a URL".to_owned(), |url| place(&url))
    }

    fn expects(&self, status: StatusCode) -> bool {
        if self.expect_status.is_empty() { status.is_success() } else { self.expect_status.contains(&status.as_u16()) }
    }
}

impl fmt::Debug for HttpRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpRequest")
            .field("method", &self.method)
            .field("url", &self.place())
            .field("headers", &self.headers.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .field("secret_headers", &self.secret_headers.iter().map(HeaderSecret::name).collect::<Vec<_>>())
            .field("body_bytes", &self.body.as_ref().map(String::len))
            .field("expect_status", &self.expect_status)
            .field("timeout", &self.timeout)
            .finish()
    }
}

fn parse_method(text: &str) -> Result<Method, CallError> {
    let known = METHODS.contains(&text);
    known.then(|| Method::from_bytes(text.as_bytes()).ok()).flatten().ok_or_else(|| {
        CallError::invalid(format!("{:?} is not a method: use one of {}", excerpt(text, []), METHODS.join(", ")))
    })
}

/// Parses the request's headers. Values never appear in errors, because they may be secrets.
fn parse_headers(request: &HttpRequest) -> Result<HeaderMap, CallError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &request.headers {
        let (name, value) = parse_header(name, value)?;
        headers.append(name, value);
    }
    for secret in &request.secret_headers {
        let (name, value) = parse_header(secret.name(), &secret.text())?;
        if headers.contains_key(&name) {
            return Err(CallError::invalid(format!("two headers are named {name}: leave one of them out")));
        }
        headers.append(name, value);
    }
    if request.body.is_some() && !headers.contains_key(CONTENT_TYPE) {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    }
    Ok(headers)
}

/// Parses a header of a request.
fn parse_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), CallError> {
    let shown = excerpt(name, []);
    let name = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| CallError::invalid(format!("{shown:?} is not a header name")))?;
    if OWN_HEADERS.contains(&name.as_str()) {
        return Err(CallError::invalid(format!("the header {name} is set by the client: remove it from the step")));
    }
    let mut value = HeaderValue::from_str(value).map_err(|_| {
        CallError::invalid(format!("the value of header {name} holds a line break or another control character"))
    })?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// Renders a URL on one short line, without its query.
fn place(url: &Url) -> String {
    excerpt(&format!("{}{}", url.origin().ascii_serialization(), url.path()), [])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_query_header_value_or_body() {
        let request = HttpRequest {
            method: "POST".into(),
            url: "https://example.com/hook?token=SECRET".into(),
            headers: vec![("authorization".into(), "Bearer SECRET".into())],
            secret_headers: vec![],
            body: Some("SECRET".into()),
            expect_status: vec![],
            timeout: Duration::from_secs(1),
        };
        let shown = format!("{request:?}");
        assert!(!shown.contains("SECRET"), "{shown}");
        assert!(shown.contains("https://example.com/hook") && shown.contains("authorization"), "{shown}");
    }
}
