//! One POST request of a channel, sent with the executor's HTTP client. The client checks every address before it
//! connects, and follows no redirect.
//!
//! **Invariant:** no error contains a message of the HTTP client, because such a message contains the URL, and the URL
//! of a webhook is a secret.

use std::time::Duration;

use signoff_executor::{CallError, ErrorClass, Http, HttpReply, HttpRequest};

use crate::channel::SendError;

/// The longest time of a request with its answer.
const TIMEOUT: Duration = Duration::from_secs(15);

/// A POST request of a channel.
pub(crate) struct Post {
    /// The name of the receiver, for error messages.
    pub(crate) service: &'static str,
    pub(crate) url: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Post {
    /// Sends the request, and returns the answer if its status is 200 to 299.
    ///
    /// # Errors
    /// The request failed, or the receiver refused it.
    pub(crate) async fn send(self, http: &dyn Http) -> Result<HttpReply, SendError> {
        let service = self.service;
        http.call(self.request()).await.map_err(|error| send_error(service, &error))
    }

    /// Sends the request, and ignores the body of the answer. An answer that is too long counts as delivered: the
    /// client reads long bodies only if the status is 200 to 299.
    ///
    /// # Errors
    /// The request failed, or the receiver refused it.
    pub(crate) async fn deliver(self, http: &dyn Http) -> Result<(), SendError> {
        let service = self.service;
        match http.call(self.request()).await {
            Ok(_) => Ok(()),
            Err(error) if error.class == ErrorClass::TooLarge => Ok(()),
            Err(error) => Err(send_error(service, &error)),
        }
    }

    fn request(self) -> HttpRequest {
        HttpRequest {
            method: "POST".to_owned(),
            url: self.url,
            headers: self.headers,
            secret_headers: Vec::new(),
            body: Some(self.body),
            expect_status: Vec::new(),
            timeout: TIMEOUT,
        }
    }
}

/// Returns the error of a failed request. Only an answer of the receiver is final, because an administrator can correct
/// any other cause.
fn send_error(service: &str, error: &CallError) -> SendError {
    let later = |why: &str| SendError::Later { why: format!("{service}: {why}"), after: error.retry_after };
    let dead = |why: &str| SendError::Dead { why: format!("{service}: {why}") };
    match error.class {
        ErrorClass::Invalid => later("the URL or a header is not valid; correct the files of the channel"),
        ErrorClass::Refused => later(
            "its address is refused; add it to notifications.allowedAddresses if it is meant (no entry opens a metadata service)",
        ),
        ErrorClass::Unreachable if error.tls => {
            later("TLS failed; its certificate must be of a trusted issuer and for its name")
        }
        ErrorClass::Unreachable => later("no connection; its name does not resolve, or its address does not answer"),
        ErrorClass::Timeout => later("no complete answer in time"),
        ErrorClass::TooLarge => later("its answer is too long"),
        ErrorClass::NoRoom => later("no memory for its answer now"),
        ErrorClass::Protocol => later("the connection broke before the end of its answer"),
        ErrorClass::Auth(status) => dead(&format!("it answered {status}: it refuses the credentials or the URL")),
        ErrorClass::RateLimited => later("it answered 429: too many requests"),
        ErrorClass::Status(408) => later("it answered 408"),
        ErrorClass::Status(status @ 300..=399) => {
            later(&format!("it answered {status}; redirects are not followed, so name the final URL"))
        }
        ErrorClass::Status(status @ 400..=499) => dead(&format!("it answered {status}")),
        ErrorClass::Status(status) => later(&format!("it answered {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refusal_of_the_receiver_is_final_and_no_message_has_the_url() {
        let secret = "https://hooks.example.com/T1/SECRET";
        let dead = [ErrorClass::Auth(401), ErrorClass::Auth(403), ErrorClass::Status(400), ErrorClass::Status(410)];
        let later = [
            ErrorClass::Invalid,
            ErrorClass::Refused,
            ErrorClass::Unreachable,
            ErrorClass::Timeout,
            ErrorClass::TooLarge,
            ErrorClass::NoRoom,
            ErrorClass::RateLimited,
            ErrorClass::Protocol,
            ErrorClass::Status(302),
            ErrorClass::Status(408),
            ErrorClass::Status(500),
            ErrorClass::Status(503),
        ];
        for (classes, is_dead) in [(&dead[..], true), (&later[..], false)] {
            for class in classes {
                let wait = Some(Duration::from_secs(7));
                let error = CallError { retry_after: wait, ..CallError::new(*class, true, format!("POST {secret}")) };
                let error = send_error("webhook", &error);
                assert!(!format!("{error:?}").contains("SECRET") && !format!("{error:?}").contains("://"), "{error:?}");
                match error {
                    SendError::Dead { .. } => assert!(is_dead, "{class:?}"),
                    SendError::Later { after, .. } => assert!(!is_dead && after == wait, "{class:?}"),
                }
            }
        }
    }
}
