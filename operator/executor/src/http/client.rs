//! The one HTTP client of the process, which limits the addresses that it connects to and the bytes that it reads. Long
//! answers take turns, piece by piece, so that hundreds of them at once do not block the threads of the runtime.
//!
//! **Invariant:** the client follows no redirects, keeps no cookies, reads no proxy settings from the environment,
//! repeats no request, and reuses no connection. A reused connection that the server closes at that moment would leave
//! the outcome of a POST unknown.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use reqwest::dns::Resolve;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use signoff_api::Span;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::{Http, HttpReply, HttpRequest, Scrubber, parse_headers, parse_method, place};
use crate::address::{AddressSettings, Error as AddressError};
use crate::error::{CallError, ErrorClass};
use crate::redact::excerpt;
use crate::resolve::{Checked, PORT, System, find_refusal};
use crate::room::HTTP_ANSWER_BYTES;
use crate::tls::is_tls;

/// The maximum number of bytes of an answer with an unexpected status that are read for the message.
pub(crate) const ERROR_BODY_LIMIT: usize = 16 * 1024;

/// The size above which an answer takes turns, in bytes.
const SHORT_ANSWER: usize = 64 * 1024;

/// The step by which the memory of a whole body grows, in bytes.
const PIECE: usize = 256 * 1024;

/// The maximum wait that a server can demand by `Retry-After`.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// The wait above which the error mentions it, because few steps are repeated after it.
const LONG_RETRY_AFTER: Duration = Duration::from_secs(5 * 60);

/// The settings of an [`HttpClient`].
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// The special addresses that may be reached.
    pub addresses: AddressSettings,
    /// The maximum size of an answer, in bytes.
    pub max_response: usize,
    /// The time for resolving, connecting and the TLS handshake. A call that fails in this time was not sent.
    pub connect_timeout: Duration,
}

/// The one HTTP client of the process; cheap to clone.
#[derive(Clone, Debug)]
pub struct HttpClient {
    client: reqwest::Client,
    addresses: Arc<AddressSettings>,
    max_response: usize,
    /// The semaphore of long answers; first come, first served.
    long_answers: Arc<Semaphore>,
}

/// An answer of any status, without the expected body.
pub struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) retry_after: Option<Duration>,
    headers: HeaderMap,
    /// The beginning of the body of an unexpected status, for the message.
    pub(crate) beginning: Vec<u8>,
}

/// The reader of the body of an answer while it is received.
pub trait AnswerBody: Send {
    /// Returns the maximum number of bytes.
    fn limit(&self) -> usize;

    /// Reads the next piece.
    ///
    /// # Errors
    /// The reason why the body is not read further.
    fn add(&mut self, piece: &[u8]) -> Result<(), BodyRefused>;

    /// Whether the reader needs no more bytes, so that the connection can be closed.
    fn is_complete(&self) -> bool {
        false
    }
}

/// The reason why a body is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyRefused {
    /// The body has more bytes than this limit.
    TooLarge(usize),
    /// There is no memory for the body.
    NoRoom,
    /// The body does not have the expected form.
    Unreadable,
}

/// The whole body of an answer, of at most `limit` bytes.
struct WholeBody {
    bytes: Vec<u8>,
    limit: usize,
}

impl AnswerBody for WholeBody {
    fn limit(&self) -> usize {
        self.limit
    }

    fn add(&mut self, piece: &[u8]) -> Result<(), BodyRefused> {
        let needed = self.bytes.len() + piece.len();
        if needed > self.limit {
            return Err(BodyRefused::TooLarge(self.limit));
        }
        // Exact growth: a vector that doubles would take twice as much.
        if needed > self.bytes.capacity() {
            let capacity = needed.next_multiple_of(PIECE).min(self.limit);
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }
}

impl Default for HttpSettings {
    /// Returns settings without special addresses, with [`HTTP_ANSWER_BYTES`] and 10 seconds.
    fn default() -> Self {
        Self {
            addresses: AddressSettings::default(),
            max_response: HTTP_ANSWER_BYTES,
            connect_timeout: Duration::from_secs(10),
        }
    }
}

impl HttpClient {
    /// Returns a client that resolves names with the system's resolver.
    ///
    /// # Errors
    /// TLS cannot be set up, usually because the machine or image has no CA certificates.
    pub fn new(settings: HttpSettings) -> Result<Self, CallError> {
        Self::with_resolver(settings, Arc::new(System))
    }

    /// Returns a client that resolves names with `resolver`. Its results are checked like those of the system.
    ///
    /// # Errors
    /// As [`HttpClient::new`].
    pub fn with_resolver(settings: HttpSettings, resolver: Arc<dyn Resolve>) -> Result<Self, CallError> {
        let addresses = Arc::new(settings.addresses);
        let client = reqwest::Client::builder()
            .user_agent(concat!("signoff/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .referer(false)
            .pool_max_idle_per_host(0)
            .connect_timeout(settings.connect_timeout)
            .dns_resolver(Checked { inner: resolver, settings: Arc::clone(&addresses) })
            .build()
            .map_err(|error| {
                let cause = innermost_cause(&error);
                CallError::invalid(format!(
                    "TLS cannot be set up ({cause}): install the system's CA certificates or name a file of them in SSL_CERT_FILE"
                ))
            })?;
        let long_answers = Arc::new(Semaphore::new(1));
        Ok(Self { client, addresses, max_response: settings.max_response, long_answers })
    }

    /// Returns the maximum size of an answer in bytes, if the caller has no limit of its own.
    #[must_use]
    pub fn max_response(&self) -> usize {
        self.max_response
    }

    /// Sends a request and returns the answer with any status. `body` reads the body if the status is expected. The
    /// body is taken out of `request`.
    ///
    /// # Errors
    /// Everything but an answer with a status, whose body was read as far as `body` needed it.
    pub async fn exchange(&self, request: &mut HttpRequest, body: &mut dyn AnswerBody) -> Result<Answer, CallError> {
        if request.timeout.is_zero() {
            return Err(CallError::invalid("the call's timeout is zero: give a longer one"));
        }
        let method = parse_method(&request.method)?;
        let headers = parse_headers(request)?;
        let deadline = Instant::now()
            .checked_add(request.timeout)
            .ok_or_else(|| CallError::invalid("the call's timeout is too long: give a shorter one"))?;
        self.wait_for_protected(request, deadline).await?;
        let url = self.addresses.check_url(&request.url).map_err(|error| url_error(&error))?;
        let target = format!("{method} {}", place(&url));
        let port = url.port_or_known_default();

        let mut builder = self.client.request(method, url).headers(headers);
        if let Some(body) = request.body.take() {
            builder = builder.body(body);
        }
        let sending = PORT.scope(port, builder.send());
        let Ok(response) = timeout_at(deadline, sending).await else {
            return Err(timeout_error(&target, request.timeout));
        };
        let mut response = response.map_err(|error| send_error(&target, &error))?;
        let (status, retry_after) = (response.status(), parse_retry_after(response.headers(), Timestamp::now()));
        let headers = std::mem::take(response.headers_mut());
        tracing::debug!(target = %target, status = status.as_u16(), "call answered");

        let mut beginning = Vec::new();
        if request.expects(status) {
            match timeout_at(deadline, self.read_body(&mut response, body)).await {
                Ok(read) => read.map_err(|broken| broken.into_error(&target, status))?,
                Err(_) => return Err(timeout_error(&target, request.timeout)),
            }
        } else {
            beginning = read_beginning(&mut response, deadline).await;
        }
        Ok(Answer { status, retry_after, headers, beginning })
    }

    /// Waits until the protected addresses have been read, which takes a moment after a start.
    ///
    /// # Errors
    /// `Unreachable`, if they have not been read before the deadline.
    async fn wait_for_protected(&self, request: &HttpRequest, deadline: Instant) -> Result<(), CallError> {
        if timeout_at(deadline, self.addresses.protected.settled()).await.is_ok() {
            return Ok(());
        }
        let why = "the protected addresses, such as those of the cluster's nodes, have not been read yet";
        Err(CallError::new(ErrorClass::Unreachable, false, format!("{} was not sent: {why}", request.place())))
    }

    /// Reads the body up to its end, or until the reader needs no more. A long body is read in turns with others.
    async fn read_body(&self, response: &mut Response, body: &mut dyn AnswerBody) -> Result<(), Broken> {
        let limit = body.limit();
        if response.content_length().is_some_and(|length| length > limit as u64) {
            return Err(Broken::Refused(BodyRefused::TooLarge(limit)));
        }
        let mut received = 0;
        while !body.is_complete()
            && let Some(piece) = response.chunk().await.map_err(|error| Broken::Connection(innermost_cause(&error)))?
        {
            received += piece.len();
            // The semaphore is never closed. The permit is held while this piece is read, without an await.
            let _turn = if received > SHORT_ANSWER { self.long_answers.acquire().await.ok() } else { None };
            body.add(&piece).map_err(Broken::Refused)?;
        }
        Ok(())
    }
}

#[async_trait]
impl Http for HttpClient {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpReply, CallError> {
        let mut body = WholeBody { bytes: Vec::new(), limit: self.max_response };
        let answer = self.exchange(&mut request, &mut body).await?;
        let scrubber = Scrubber::of_headers(&request.secret_headers);
        if !request.expects(answer.status) {
            let text = scrubber.scrub_beginning(String::from_utf8_lossy(&answer.beginning).into_owned());
            let reason = excerpt(&text, request.headers.iter().map(|(_, value)| value.as_str()));
            return Err(answer.unexpected(&format!("{} {}", request.method, request.place()), &reason));
        }
        let status = answer.status.as_u16();
        let (body, replaced) = match String::from_utf8(body.bytes) {
            Ok(body) => (body, false),
            Err(bytes) => (String::from_utf8_lossy(bytes.as_bytes()).into_owned(), true),
        };
        Ok(HttpReply { status, body: scrubber.scrub(body), replaced })
    }
}

impl Answer {
    /// Returns the HTTP status.
    #[must_use]
    pub fn code(&self) -> u16 {
        self.status.as_u16()
    }

    /// Returns the value of a header that occurs once, if it consists of visible ASCII characters.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next()?;
        if values.next().is_some() { None } else { value.to_str().ok() }
    }

    /// Returns the beginning of the body of an unexpected status, at most 16 KiB.
    #[must_use]
    pub fn beginning(&self) -> &[u8] {
        &self.beginning
    }

    /// Returns the error of an unexpected status. `reason` is the server's reason on one line, without
    /// secrets; empty without one.
    #[must_use]
    pub fn unexpected(&self, target: &str, reason: &str) -> CallError {
        let hint = if self.status.is_redirection() { " (redirects are not followed: name the final URL)" } else { "" };
        let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        let wait = self.retry_after.filter(|wait| *wait > LONG_RETRY_AFTER);
        let wait = wait.map(|wait| format!("; it asks to wait {} (Retry-After)", Span::from(wait))).unwrap_or_default();
        CallError {
            retry_after: self.retry_after,
            ..CallError::new(
                ErrorClass::of_status(self.status.as_u16()),
                true,
                format!("{target} answered {}{hint}{reason}{wait}", self.status),
            )
        }
    }
}

/// The reason why an answer's body was not read to its end.
enum Broken {
    Refused(BodyRefused),
    Connection(String),
}

impl Broken {
    /// Returns the error of the call. `status` was answered.
    fn into_error(self, target: &str, status: StatusCode) -> CallError {
        match self {
            Self::Refused(BodyRefused::NoRoom) => CallError::new(
                ErrorClass::NoRoom,
                true,
                format!(
                    "{target} answered {status} with more bytes than the operator has free memory for: the turn is repeated when there is room for the longest answer"
                ),
            ),
            Self::Refused(BodyRefused::TooLarge(limit)) => CallError::new(
                ErrorClass::TooLarge,
                true,
                format!("{target} answered {status} with more than the limit of {limit} bytes"),
            ),
            Self::Refused(BodyRefused::Unreadable) => CallError::new(
                ErrorClass::Protocol,
                true,
                format!("{target} answered {status} with what cannot be read"),
            ),
            Self::Connection(cause) => CallError::new(
                ErrorClass::Protocol,
                true,
                format!("{target} answered {status}, but the connection broke before the answer's end ({cause})"),
            ),
        }
    }
}

/// Reads the beginning of an unexpected answer for the message. The status is already known, so a failure here is not
/// an error.
async fn read_beginning(response: &mut Response, deadline: Instant) -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < ERROR_BODY_LIMIT {
        match timeout_at(deadline, response.chunk()).await {
            Ok(Ok(Some(chunk))) => body.extend_from_slice(&chunk),
            _ => break,
        }
    }
    body.truncate(ERROR_BODY_LIMIT);
    body
}

/// Returns the error of a URL that is invalid or must not be called.
fn url_error(error: &AddressError) -> CallError {
    let class = match error {
        AddressError::Special { .. } | AddressError::Unknown { .. } | AddressError::Closed { .. } => {
            ErrorClass::Refused
        }
        _ => ErrorClass::Invalid,
    };
    CallError { class, ..CallError::invalid(error.to_string()) }
}

fn timeout_error(target: &str, timeout: Duration) -> CallError {
    // The time can have passed while connecting. Only a connect timeout, which is shorter, proves that.
    CallError::new(ErrorClass::Timeout, true, format!("{target} gave no complete answer within {timeout:?}"))
}

/// Returns the error of a request without an answer. Nothing was sent if the address is refused or does not connect.
fn send_error(target: &str, error: &reqwest::Error) -> CallError {
    if let Some(refused) = find_refusal(error) {
        return CallError::refused(format!("{target} was not sent: {refused}"));
    }
    let cause = innermost_cause(error);
    if error.is_builder() {
        CallError::invalid(format!("{target} could not be built: {cause}"))
    } else if error.is_connect() {
        let cause = if error.is_timeout() { "the connection timed out".to_owned() } else { cause };
        let why = format!("{target} was not sent, no connection: {cause}");
        CallError { tls: is_tls(error), ..CallError::new(ErrorClass::Unreachable, false, why) }
    } else {
        CallError::new(ErrorClass::Protocol, true, format!("{target}: the connection broke before an answer ({cause})"))
    }
}

/// Returns the innermost cause on one line, because people can act on that cause.
fn innermost_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    excerpt(&innermost.to_string(), [])
}

/// Parses `Retry-After` in seconds or as a date, from `now`, at most a day. An unreadable value is ignored.
fn parse_retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let until = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
            Duration::try_from(until.duration_since(now)).unwrap_or_default()
        }
    };
    Some(wait.min(LONGEST_RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use reqwest::header::HeaderValue;

    use super::*;

    fn retry_after_of(value: &str) -> Option<Duration> {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_str(value).unwrap())]);
        parse_retry_after(&headers, "2026-11-22T00:00:00Z".parse().unwrap())
    }

    #[test]
    fn retry_after_is_read_as_seconds_and_as_a_date() {
        assert_eq!(retry_after_of("7"), Some(Duration::from_secs(7)));
        assert_eq!(retry_after_of(" 0 "), Some(Duration::ZERO));
        assert_eq!(retry_after_of("Sun, 22 Nov 2026 00:01:30 GMT"), Some(Duration::from_secs(90)));
    }

    #[test]
    fn a_date_in_the_past_means_now_and_a_distant_date_a_day() {
        assert_eq!(retry_after_of("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        assert_eq!(retry_after_of("Thu, 31 Dec 2099 00:00:00 GMT"), Some(LONGEST_RETRY_AFTER));
        assert_eq!(retry_after_of(&u64::MAX.to_string()), Some(LONGEST_RETRY_AFTER));
    }

    #[test]
    fn a_retry_after_that_cannot_be_read_is_ignored() {
        for value in ["", "soon", "-5", "1.5", "99999999999999999999999"] {
            assert_eq!(retry_after_of(value), None, "{value}");
        }
    }

    #[test]
    fn a_body_takes_no_more_memory_than_its_limit() {
        let mut body = WholeBody { bytes: Vec::new(), limit: HTTP_ANSWER_BYTES };
        for _ in 0..HTTP_ANSWER_BYTES / 1024 {
            body.add(&[b'x'; 1024]).unwrap();
        }
        assert_eq!((body.bytes.len(), body.bytes.capacity()), (HTTP_ANSWER_BYTES, HTTP_ANSWER_BYTES));
        assert_eq!(body.add(b"x"), Err(BodyRefused::TooLarge(HTTP_ANSWER_BYTES)));
    }
}
