//! The failure of a call to the outside world, and whether another attempt makes sense.
//!
//! **Invariant:** a message holds no prompt, key or raw answer, because messages end in a Workflow's status and in
//! logs.

use std::time::Duration;

/// The class of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// The request itself is invalid (URL, method, header, configuration). Nothing was sent.
    Invalid,
    /// A policy refuses the request: a forbidden address, a Secret for another host, a provider's content filter.
    Refused,
    /// The connection failed: name resolution, TCP or TLS. Nothing was sent.
    Unreachable,
    /// The time for the whole call has passed.
    Timeout,
    /// The answer is longer than the limit, which the message names.
    TooLarge,
    /// There is no memory for the answer. Only calls that may be repeated fail with this class.
    NoRoom,
    /// The server refused the credentials, with this status (401 or 403).
    Auth(u16),
    /// The server asks to slow down (429).
    RateLimited,
    /// Any other unexpected status.
    Status(u16),
    /// The connection broke, or the answer violates the protocol.
    Protocol,
}

impl ErrorClass {
    /// Returns the class of an unexpected HTTP status.
    #[must_use]
    pub fn of_status(status: u16) -> Self {
        match status {
            401 | 403 => Self::Auth(status),
            429 => Self::RateLimited,
            other => Self::Status(other),
        }
    }
}

/// A failed call.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    /// The class of the failure. With `sent` it determines whether another call is safe.
    pub class: ErrorClass,
    /// One line for people: the call, the problem, and the remedy if there is one.
    pub message: String,
    /// The wait that the server asked for, at most a day.
    pub retry_after: Option<Duration>,
    /// Whether any byte of the request *may* have reached the server.
    pub sent: bool,
    /// Whether TLS failed, such as for a certificate that is not trusted.
    pub tls: bool,
}

impl CallError {
    /// Returns the error of an invalid request; nothing was sent.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Invalid, false, message)
    }

    /// Returns the error of a request that a policy refuses; nothing was sent.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Refused, false, message)
    }

    /// Returns a failure of `class`. `sent` says whether the server may have received the request.
    pub fn new(class: ErrorClass, sent: bool, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), retry_after: None, sent, tls: false }
    }

    /// Whether the same call may be repeated without a decision of people.
    ///
    /// An idempotent call may be repeated unless repeating is useless: an invalid or refused request, an answer over
    /// the limit, and every 4xx but 408 and 429. Any other call may be repeated only if the server certainly did
    /// nothing: never reached, 429, or 503 with `Retry-After`.
    #[must_use]
    pub fn retryable(&self, idempotent: bool) -> bool {
        match self.class {
            ErrorClass::Invalid | ErrorClass::Refused | ErrorClass::TooLarge | ErrorClass::Auth(_) => false,
            ErrorClass::RateLimited => true,
            ErrorClass::NoRoom => idempotent,
            ErrorClass::Status(503) => idempotent || self.retry_after.is_some(),
            ErrorClass::Status(status) => idempotent && (status == 408 || !(400..500).contains(&status)),
            ErrorClass::Unreachable | ErrorClass::Timeout | ErrorClass::Protocol => idempotent || !self.sent,
        }
    }

    /// Whether it is certain that the call had its effect or had none.
    ///
    /// False if the call broke or timed out after it may have been sent, and if a gateway lost the server behind it
    /// (502, 504, 520 to 528, 530, 599). A 503 without `Retry-After` is uncertain too: a service mesh sends it after a
    /// broken connection. A call with effects must then not be repeated automatically.
    #[must_use]
    pub fn outcome_known(&self) -> bool {
        match self.class {
            ErrorClass::Timeout | ErrorClass::Protocol | ErrorClass::Status(502 | 504 | 520..=528 | 530 | 599) => {
                !self.sent
            }
            ErrorClass::Status(503) => !self.sent || self.retry_after.is_some(),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_sending(class: ErrorClass) -> CallError {
        CallError::new(class, true, "x")
    }

    fn before_sending(class: ErrorClass) -> CallError {
        CallError::new(class, false, "x")
    }

    #[test]
    fn an_idempotent_call_is_retryable_after_a_temporary_error() {
        for class in [
            ErrorClass::Timeout,
            ErrorClass::Protocol,
            ErrorClass::RateLimited,
            ErrorClass::Status(408),
            ErrorClass::Status(500),
            ErrorClass::Status(502),
            ErrorClass::Status(503),
        ] {
            assert!(after_sending(class).retryable(true), "{class:?}");
        }
        assert!(before_sending(ErrorClass::Unreachable).retryable(true));
    }

    #[test]
    fn no_call_is_retryable_after_a_permanent_error() {
        for class in [
            ErrorClass::Invalid,
            ErrorClass::Refused,
            ErrorClass::TooLarge,
            ErrorClass::Auth(403),
            ErrorClass::Status(400),
            ErrorClass::Status(404),
            ErrorClass::Status(422),
        ] {
            assert!(!after_sending(class).retryable(true), "{class:?}");
            assert!(!before_sending(class).retryable(true), "{class:?}");
        }
    }

    #[test]
    fn a_call_with_effects_is_retryable_if_nothing_was_done() {
        for class in [ErrorClass::Timeout, ErrorClass::Protocol] {
            assert!(!after_sending(class).retryable(false), "{class:?}");
            assert!(before_sending(class).retryable(false), "{class:?}");
        }
        for status in [408, 500, 502, 503, 504, 524] {
            assert!(!after_sending(ErrorClass::Status(status)).retryable(false), "{status}");
        }
        assert!(before_sending(ErrorClass::Unreachable).retryable(false));
        assert!(after_sending(ErrorClass::RateLimited).retryable(false));
        let busy = CallError { retry_after: Some(Duration::from_secs(1)), ..after_sending(ErrorClass::Status(503)) };
        assert!(busy.retryable(false) && busy.outcome_known());
    }

    #[test]
    fn the_outcome_is_unknown_once_a_sent_call_lost_its_answer() {
        let gateway = [502, 503, 504, 520, 524, 530, 599].map(ErrorClass::Status);
        for class in [ErrorClass::Timeout, ErrorClass::Protocol].into_iter().chain(gateway) {
            assert!(!after_sending(class).outcome_known(), "{class:?}");
        }
        for class in [ErrorClass::Auth(401), ErrorClass::RateLimited, ErrorClass::Status(500), ErrorClass::TooLarge] {
            assert!(after_sending(class).outcome_known(), "{class:?}");
        }
        assert!(before_sending(ErrorClass::Timeout).outcome_known());
        assert!(before_sending(ErrorClass::Unreachable).outcome_known());
    }
}
