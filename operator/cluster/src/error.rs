//! The errors of requests to the API server, and what its answers mean.

use std::sync::Arc;

use signoff_expr::text;

/// The error of a request for an object.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The object was changed by another client since it was read: reconcile again at once.
    #[error("{0} was changed meanwhile: reconciling again")]
    Conflict(String),
    /// The API server did not do what was requested, and may do it later.
    #[error("{what}: {}", plain(source))]
    Transient {
        /// The operation, with the object.
        what: String,
        /// The answer, or that there was none. Several reconciles may share it.
        source: Arc<kube::Error>,
    },
    /// An object that this version cannot decode.
    #[error(
        "{object} cannot be read by this version of the operator ({why}): use a version of the operator that reads it, or delete the Workflow and apply it again"
    )]
    Unreadable {
        /// Its kind and name.
        object: String,
        /// The error of the decoder.
        why: String,
    },
    /// A status that the API server refuses: always a bug.
    #[error("{object}: the API server refuses its status: {why}; internal error; report this as a bug")]
    StatusRefused {
        /// Its kind and name.
        object: String,
        /// The answer.
        why: String,
    },
}

impl Error {
    /// Returns a function that makes a `Transient` error of this operation.
    pub fn of<E: Into<Arc<kube::Error>>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        let what = what.into();
        |error| Self::Transient { what, source: error.into() }
    }
}

/// The HTTP status that the API server answered with, if it answered.
#[must_use]
pub fn status_code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// Returns the message of the API server, cut to 1,000 characters because it quotes what it refuses.
#[must_use]
pub fn plain(error: &kube::Error) -> String {
    let said = match error {
        kube::Error::Api(status) => status.message.clone(),
        kube::Error::Service(cause) => cause.to_string(),
        other => other.to_string(),
    };
    text::display(&said, 1000)
}

/// Whether a webhook or an admission policy refused a request. The API server gives no other sign of it than its words;
/// the code is that of an invalid object (422) or whatever the webhook says.
#[must_use]
pub fn is_denied(error: &kube::Error) -> bool {
    let denied = |message: &str| message.contains("denied request") || message.contains("denied the request");
    matches!(error, kube::Error::Api(status) if denied(&status.message))
}

/// Whether the server may have done what was asked although no answer said so.
#[must_use]
pub fn is_ambiguous(error: &kube::Error) -> bool {
    status_code(error).is_none_or(|code| code >= 500)
}
