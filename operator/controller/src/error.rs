//! The errors of a reconcile, with their classes for metrics and the pauses before a retry.

use std::{sync::Arc, time::Duration};

use signoff_api::conditions::{self, reason};
use signoff_cluster::{
    Error as Cluster,
    error::{Plain, status_code},
};
use signoff_executor::blobs::BlobError;

/// The error of a reconcile.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request to the API server failed.
    #[error(transparent)]
    Cluster(#[from] signoff_cluster::Error),
    /// A large value could not be stored or fetched.
    #[error("{object}: {source}")]
    Blob {
        /// The kind, namespace and name of the Workflow, as in `Workflow n/w`.
        object: String,
        /// The error of the store.
        source: BlobError,
    },
    /// A large value that a journal names does not exist.
    #[error(
        "{object}: its journal names the value {digest}, which is not in the Blob {blob:?} any more, and no user or backup tool can write a Blob, so the run cannot continue: check what it has done, run it again (`kubectl approve rerun`), and delete the Workflow"
    )]
    ValueGone {
        /// The kind, namespace and name of the Workflow, as in `Workflow n/w`.
        object: String,
        /// The value's digest.
        digest: String,
        /// The name of its Blob.
        blob: String,
    },
    /// A part of a journal is missing or invalid.
    #[error(
        "{object}: its journal is incomplete: {why}; no user or backup tool can write a journal, so the run cannot continue: check what it has done, run it again (`kubectl approve rerun`), and delete the Workflow"
    )]
    JournalTorn {
        /// The kind, namespace and name of the Workflow, as in `Workflow n/w`.
        object: String,
        /// The missing or invalid part.
        why: String,
    },
    /// Another user's object has the name of an object that the operator would create.
    #[error("{object}: {name} exists and {why}: find out who created it, cancel this Workflow and create it again")]
    Foreign {
        /// The kind, namespace and name of the Workflow, as in `Workflow n/w`.
        object: String,
        /// The kind and name of the other object.
        name: String,
        /// The difference from an object of the operator.
        why: String,
    },
    /// The evaluation of an object's text was stopped.
    #[error("{object}: {why}")]
    Stopped {
        /// The kind, namespace and name of the object.
        object: String,
        /// The reason for the stop, such as an exceeded limit.
        why: signoff_executor::Stopped,
    },
    /// An internal error.
    #[error("{object}: {what}; internal error; report this as a bug")]
    Bug {
        /// The kind, namespace and name of the object.
        object: String,
        /// The state that should be impossible.
        what: String,
    },
}

impl Error {
    /// Returns a function that makes a `Transient` error of the operation `what`.
    pub(crate) fn of<E: Into<Arc<kube::Error>>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        |error| Self::Cluster(Cluster::of(what)(error))
    }

    /// Returns the error of an object that another client changed.
    pub(crate) fn conflict(object: String) -> Self {
        Self::Cluster(Cluster::Conflict(object))
    }

    /// Whether another client changed the object.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Cluster(Cluster::Conflict(_)))
    }

    /// Returns the failed operation without the answer. Repeated failures of one operation are one stall.
    pub(crate) fn operation(&self) -> &str {
        match self {
            Self::Cluster(Cluster::Transient { what, .. }) => what,
            Self::Blob { .. } => "value",
            other => other.class(),
        }
    }

    /// Returns the reason of the condition `Stalled`, or `None` if the condition is not set for this error.
    pub(crate) fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Cluster(Cluster::Transient { source, .. }) => Some(reason_of(source)),
            Self::Blob { source: BlobError::Store { cause, .. }, .. } => {
                cause.downcast_ref::<Plain>().map(|Plain(error)| reason_of(error))
            }
            Self::Foreign { .. } => Some(reason::FOREIGN_OBJECT),
            Self::Bug { .. } | Self::Cluster(Cluster::StatusRefused { .. }) => Some(reason::INTERNAL_ERROR),
            Self::Cluster(Cluster::Conflict(_) | Cluster::Unreadable { .. })
            | Self::Blob { .. }
            | Self::ValueGone { .. }
            | Self::JournalTorn { .. }
            | Self::Stopped { .. } => None,
        }
    }

    /// Whether the same operation can succeed later without a change by a user.
    pub(crate) fn passes_by_itself(&self) -> bool {
        match self {
            Self::Cluster(Cluster::Conflict(_) | Cluster::Transient { .. })
            | Self::Blob { .. }
            | Self::Stopped { .. } => true,
            Self::Cluster(Cluster::Unreadable { .. } | Cluster::StatusRefused { .. })
            | Self::ValueGone { .. }
            | Self::JournalTorn { .. }
            | Self::Foreign { .. }
            | Self::Bug { .. } => false,
        }
    }

    /// Returns the condition and the reason for the Workflow if the run cannot continue before an administrator acts.
    #[must_use]
    pub fn blocking_condition(&self) -> Option<(&'static str, &'static str)> {
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

    /// Returns the class of the error for metrics.
    #[must_use]
    pub fn class(&self) -> &'static str {
        match self {
            Self::Cluster(Cluster::Conflict(_)) => "conflict",
            _ if self.blocking_condition().is_some() => "blocked",
            Self::Cluster(Cluster::Transient { .. }) | Self::Blob { .. } => "transient",
            Self::Cluster(Cluster::Unreadable { .. })
            | Self::ValueGone { .. }
            | Self::JournalTorn { .. }
            | Self::Foreign { .. } => "blocked",
            Self::Stopped { .. } => "stopped",
            Self::Bug { .. } | Self::Cluster(Cluster::StatusRefused { .. }) => "bug",
        }
    }

    /// Returns the pause before the next reconcile after `failures` failures in a row (from 1).
    #[must_use]
    pub fn pause(&self, failures: u32) -> Duration {
        let doubled = |first_ms: u64, max_ms: u64| {
            Duration::from_millis(first_ms.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(max_ms))
        };
        match self {
            // The first retries are at once. The later pauses prevent a busy loop against a client that always writes
            // first.
            Self::Cluster(Cluster::Conflict(_)) if failures <= 3 => Duration::ZERO,
            Self::Cluster(Cluster::Conflict(_)) => doubled(1, 5_000),
            _ if self.blocking_condition().is_some() => doubled(10_000, 600_000),
            Self::Cluster(Cluster::Transient { .. }) | Self::Blob { .. } => doubled(100, 60_000),
            Self::Cluster(Cluster::Unreadable { .. } | Cluster::StatusRefused { .. })
            | Self::ValueGone { .. }
            | Self::JournalTorn { .. }
            | Self::Foreign { .. }
            | Self::Stopped { .. }
            | Self::Bug { .. } => doubled(10_000, 600_000),
        }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_quota_that_refuses_a_value_is_reported_verbatim() {
        let quota =
            "blobs.signoff.dev \"b\" is forbidden: exceeded quota: values, requested: count/blobs.signoff.dev=1";
        let status = json!({"status": "Failure", "reason": "Forbidden", "code": 403, "message": quota});
        let answer = Plain(kube::Error::Api(serde_json::from_value(status).unwrap()));
        let source = BlobError::Store { digest: "sha256:ab".to_owned(), cause: answer.into() };
        let error = Error::Blob { object: "Workflow n/w".to_owned(), source };
        assert_eq!(error.to_string(), format!("Workflow n/w: blob sha256:ab: {quota}"));
        assert_eq!(error.reason(), Some(reason::FORBIDDEN));
    }
}
