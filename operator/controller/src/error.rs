//! The errors of a reconcile, in four classes. The workqueue retries by class.

use std::{sync::Arc, time::Duration};

use signoff_api::conditions::{self, reason};
use signoff_executor::blobs::BlobError;
use signoff_expr::text;

/// The error of a reconcile.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody else wrote first: look again at once.
    #[error("{0} was changed meanwhile: looking again")]
    Conflict(String),
    /// The API server did not do what was asked, and may do it later.
    #[error("{what}: {}", plain(source))]
    Transient {
        /// What was asked of it, naming the object.
        what: String,
        /// Its answer, or that there was none. Several reconciles may share it.
        source: Arc<kube::Error>,
    },
    /// An object that this version does not understand.
    #[error(
        "{object} cannot be read by this version of the operator ({why}): use a version of the operator that reads it, or delete the Workflow and apply it again"
    )]
    Unreadable {
        /// Its kind and name.
        object: String,
        /// What is not understood.
        why: String,
    },
    /// A large value could not be stored or fetched.
    #[error("{object}: {source}")]
    Blob {
        /// The Workflow.
        object: String,
        /// What the store said.
        source: BlobError,
    },
    /// A large value that a journal names is not there.
    #[error(
        "{object}: its journal names the value {digest}, which is not in the Blob {blob:?} any more: restore the Blob from a backup, or delete the Workflow"
    )]
    ValueGone {
        /// The Workflow.
        object: String,
        /// The value's digest.
        digest: String,
        /// The name of its Blob.
        blob: String,
    },
    /// A part of a journal is not there, or is not a journal.
    #[error(
        "{object}: its journal cannot be read whole: {why}; restore the Workflow's status from a backup, or delete the Workflow"
    )]
    JournalTorn {
        /// The Workflow.
        object: String,
        /// What is wrong with it.
        why: String,
    },
    /// An object that stands where one of the operator's should, and is not the operator's.
    #[error("{object}: {name} exists and {why}: find out who made it, cancel this Workflow and apply it anew")]
    Foreign {
        /// The Workflow.
        object: String,
        /// The kind and name of what is in the way.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// The evaluation of an object's text has no result.
    #[error("{object}: {why}")]
    Stopped {
        /// The object.
        object: String,
        /// Why.
        why: signoff_executor::Stopped,
    },
    /// An internal error.
    #[error("{object}: {what}; internal error; report this as a bug")]
    Bug {
        /// The object.
        object: String,
        /// What should not be.
        what: String,
    },
}

impl Error {
    /// Names what was asked of the API server.
    pub(crate) fn of<E: Into<Arc<kube::Error>>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        let what = what.into();
        |error| Self::Transient { what, source: error.into() }
    }

    /// Returns what failed, without the answer: two failures of the same operation are one stall.
    pub(crate) fn operation(&self) -> &str {
        match self {
            Self::Transient { what, .. } => what,
            Self::Blob { .. } => "value",
            other => other.class(),
        }
    }

    /// Returns a reason of the condition `Stalled`; `None` where the status must stay as it is, because a part of the
    /// journal is not there.
    pub(crate) fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Transient { source, .. } => Some(reason_of(source)),
            Self::Blob { source: BlobError::Store { cause, .. }, .. } => {
                cause.downcast_ref::<kube::Error>().map(reason_of)
            }
            Self::Foreign { .. } => Some(reason::FOREIGN_OBJECT),
            Self::Bug { .. } => Some(reason::INTERNAL_ERROR),
            Self::Conflict(_)
            | Self::Blob { .. }
            | Self::Unreadable { .. }
            | Self::ValueGone { .. }
            | Self::JournalTorn { .. }
            | Self::Stopped { .. } => None,
        }
    }

    /// The condition and its reason that tell on the Workflow that the run cannot go on before an administrator acts.
    #[must_use]
    pub fn blocks(&self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::ValueGone { .. } => Some((conditions::VALUE_UNAVAILABLE, reason::VALUE_MISSING)),
            Self::Blob { source: BlobError::Mismatch { .. }, .. } => {
                Some((conditions::VALUE_UNAVAILABLE, reason::VALUE_DAMAGED))
            }
            Self::Blob { source: BlobError::NamesTaken { .. }, .. } => {
                Some((conditions::VALUE_UNAVAILABLE, reason::NAMES_TAKEN))
            }
            _ => None,
        }
    }

    /// A word for metrics.
    #[must_use]
    pub fn class(&self) -> &'static str {
        match self {
            Self::Conflict(_) => "conflict",
            _ if self.blocks().is_some() => "blocked",
            Self::Transient { .. } | Self::Blob { .. } => "transient",
            Self::Unreadable { .. } | Self::ValueGone { .. } | Self::JournalTorn { .. } | Self::Foreign { .. } => {
                "blocked"
            }
            Self::Stopped { .. } => "stopped",
            Self::Bug { .. } => "bug",
        }
    }

    /// How long to leave the object alone after so many failures in a row (from 1).
    #[must_use]
    pub fn pause(&self, failures: u32) -> Duration {
        let doubled = |first: u64, most: u64| {
            Duration::from_millis(first.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(most))
        };
        match self {
            // The first look again is at once; a contender that always wins must not be met by a loop.
            Self::Conflict(_) if failures <= 3 => Duration::ZERO,
            Self::Conflict(_) => doubled(1, 5_000),
            _ if self.blocks().is_some() => doubled(10_000, 600_000),
            Self::Transient { .. } | Self::Blob { .. } => doubled(100, 60_000),
            Self::Unreadable { .. }
            | Self::ValueGone { .. }
            | Self::JournalTorn { .. }
            | Self::Foreign { .. }
            | Self::Stopped { .. }
            | Self::Bug { .. } => doubled(10_000, 600_000),
        }
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

/// Returns a reason of the condition `Stalled` for an answer of the API server.
fn reason_of(error: &kube::Error) -> &'static str {
    match status_code(error) {
        None => reason::NO_ANSWER,
        Some(403) => reason::FORBIDDEN,
        Some(429) => reason::TOO_MANY_REQUESTS,
        Some(500..) => reason::SERVER_ERROR,
        Some(_) => reason::REFUSED,
    }
}

/// What the API server said, once: at most 1,000 characters, for it quotes what it refuses.
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
