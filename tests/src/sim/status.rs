//! Refusals, as `Status` objects with the real server's reasons.

use bytes::Bytes;
use serde_json::{Value, json};

use super::store::{Key, Resource};

/// A request that was refused, in the shape of the API's `Status`.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{code} {reason}: {message}")]
pub struct Refusal {
    /// The HTTP status code, such as 404.
    pub code: u16,
    /// The machine-readable reason, for example `NotFound`.
    pub reason: &'static str,
    /// The message, as kubectl prints it.
    pub message: String,
    /// `status.details`: name, group and kind (the plural, as the real server has it).
    pub details: Box<Value>,
    /// The seconds of the `Retry-After` header.
    pub retry_after: Option<u32>,
}

impl Refusal {
    /// Returns a refusal without details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Box::new(json!({})), retry_after: None }
    }

    /// Adds the time after which the client may try again.
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self.details["retryAfterSeconds"] = json!(seconds);
        self
    }

    /// Returns a 429: the server's queues are full.
    pub fn too_many_requests(retry_after: u32) -> Self {
        let message = "The apiserver is too busy. Please try again later.";
        Self::new(429, "TooManyRequests", message).retry_after(retry_after)
    }

    /// Returns a 500: an internal error.
    pub fn internal() -> Self {
        Self::new(500, "InternalError", "Internal error occurred: simulated")
    }

    /// Returns a 503: there is no server.
    pub fn unavailable(retry_after: u32) -> Self {
        Self::new(503, "ServiceUnavailable", "the server is currently unable to handle the request")
            .retry_after(retry_after)
    }

    pub(crate) fn not_found(key: &Key) -> Self {
        Self::new(404, "NotFound", format!("{} \"{}\" not found", key.resource, key.name)).about(key)
    }

    pub(crate) fn already_exists(key: &Key) -> Self {
        Self::new(409, "AlreadyExists", format!("{} \"{}\" already exists", key.resource, key.name)).about(key)
    }

    pub(crate) fn conflict(key: &Key, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{}\": {why}", key.resource, key.name);
        Self::new(409, "Conflict", message).about(key)
    }

    /// Returns the conflict of a write that is not based on the latest version.
    pub(crate) fn modified(key: &Key) -> Self {
        Self::conflict(
            key,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub(crate) fn invalid(key: &Key, what: &str) -> Self {
        Self::new(422, "Invalid", format!("{} \"{}\" is invalid: {what}", key.resource, key.name)).about(key)
    }

    /// Returns the refusal of a JSON Patch whose `test` fails or whose path does not exist. The real server does not
    /// name the cause.
    pub(crate) fn patch_failed() -> Self {
        Self::new(422, "Invalid", "the server rejected our request due to an error in our request")
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn unsupported(what: &str) -> Self {
        Self::new(501, "NotImplemented", format!("the simulated API server does not do {what}"))
    }

    pub(crate) fn expired(asked: &str, oldest: u64) -> Self {
        Self::new(410, "Expired", format!("too old resource version: {asked} ({oldest})"))
    }

    fn about(mut self, key: &Key) -> Self {
        let Resource { group, plural } = &key.resource;
        self.details = Box::new(json!({"name": key.name, "group": group, "kind": plural}));
        self
    }

    /// Returns the `Status` object.
    pub fn body(&self) -> Value {
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "details": self.details, "code": self.code,
        })
    }

    pub(crate) fn bytes(&self) -> Bytes {
        Bytes::from(self.body().to_string())
    }
}
