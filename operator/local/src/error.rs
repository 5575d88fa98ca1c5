//! The errors of a local run: it cannot begin, or it cannot continue.
//!
//! **Invariant:** a message holds no secret, prompt or answer, because messages end on terminals and in logs.

use std::{io, path::PathBuf};

use signoff_api::{Digest, conditions::reason, workflow::WorkflowPhase};
use signoff_engine::FieldError;

use signoff_executor::{Stopped, blobs::BlobError};

/// The error of a local run that cannot begin or continue. The session is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The Workflow is invalid: all of its errors.
    #[error("{}", join_errors(.0))]
    Invalid(Vec<FieldError>),
    /// The Workflow can run only on a cluster.
    #[error(
        "step {step} is a container, which runs as a Pod: nothing was started. Run it on a cluster: `kubectl apply -f FILE`, or `cargo xtask demo --pods` where there is none"
    )]
    NeedsCluster {
        /// The first step that is a container.
        step: String,
    },
    /// The command of a server cannot be started.
    #[error("the command of the server {server} cannot be started, and nothing was: {why}")]
    Command {
        /// The name of the server in the Workflow.
        server: String,
        /// The problem, as a clause without a full stop.
        why: String,
    },
    /// The command of a server is not confirmed.
    #[error(
        "the command of the server {server} was not confirmed, and nothing was started: `signoff run --allow-commands` asks for it"
    )]
    Unconfirmed {
        /// The name of the server in the Workflow.
        server: String,
    },
    /// No session has that id.
    #[error("there is no session {id} in {root}: `signoff sessions list` lists the sessions")]
    Missing {
        /// The id that no session has.
        id: String,
        /// The folder of the sessions.
        root: PathBuf,
    },
    /// Another process has the lock of the session.
    #[error("session {id} is in use by {by}: wait until it has ended, or stop it")]
    Busy {
        /// The id of the session.
        id: String,
        /// The process with the lock, such as `process 4711`.
        by: String,
    },
    /// The run is over.
    #[error("session {id} has ended ({}): `signoff sessions show {id}` shows its result", .phase.name())]
    Over {
        /// The id of the session.
        id: String,
        /// The phase in which the run ended.
        phase: WorkflowPhase,
    },
    /// A file was changed or is incomplete.
    #[error(
        "{file} is not as this program wrote it ({why}): it was torn or edited, and is not used. Restore it, or run the Workflow again"
    )]
    Damaged {
        /// The file that was changed or is incomplete.
        file: PathBuf,
        /// The problem, as a clause without a full stop.
        why: String,
    },
    /// The spec in the session is not the accepted one.
    #[error(
        "the spec of session {id} was changed while it was paused (its digest was {was} and is {is}): a run keeps the spec it began with; run the changed Workflow again"
    )]
    SpecChanged {
        /// The id of the session.
        id: String,
        /// The digest of the spec that was accepted.
        was: Digest,
        /// The digest of the current spec.
        is: Digest,
    },
    /// A later version wrote the session.
    #[error(
        "session {id} was written by a later version of this program (its journal has version {version}, and this program reads up to {most}): use that one"
    )]
    TooNew {
        /// The id of the session.
        id: String,
        /// The version of the session's journal.
        version: i32,
        /// The latest version that this program can read.
        most: i32,
    },
    /// The run was accepted under other rules.
    #[error(
        "session {id} was accepted under rules {rules}, and this program has rules {own}, by which the same Workflow may come to something else: delete the session (`signoff sessions delete {id}`) and run the Workflow again"
    )]
    OtherRules {
        /// The id of the session.
        id: String,
        /// The number of the rules under which the run was accepted.
        rules: i32,
        /// The number of the rules of this program.
        own: i32,
    },
    /// A large value of the run is missing.
    #[error("session {id}: the value {digest} is not in its blobs any more: restore it, or run the Workflow again")]
    ValueGone {
        /// The id of the session.
        id: String,
        /// The digest of the missing value.
        digest: Digest,
    },
    /// A large value could not be stored or is damaged.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// An error of the file system.
    #[error("{what} {}: {cause}", file.display())]
    File {
        /// The failed operation, such as `cannot read`.
        what: &'static str,
        /// The file or folder of the failed operation.
        file: PathBuf,
        /// The error of the operating system.
        #[source]
        cause: io::Error,
    },
    /// The text of the Workflow, or of an answer, cannot be evaluated.
    #[error(
        "session {id}: {why}; simplify the Workflow's templates, conditions, schemas and patterns and run it again, or simplify the answer and resume it"
    )]
    Evaluation {
        /// The id of the session.
        id: String,
        /// The reason why the evaluation was stopped.
        why: Stopped,
    },
    /// A request to pause stopped an evaluation.
    #[error("session {id} was interrupted")]
    Interrupted {
        /// The id of the session.
        id: String,
    },
    /// A bug of this program.
    #[error("session {id}: {what}")]
    Bug {
        /// The id of the session.
        id: String,
        /// The problem, as a clause without a full stop.
        what: String,
    },
}

impl Error {
    /// Returns a function that makes an error about a file from an error of the file system.
    pub(super) fn file(what: &'static str, file: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let file = file.into();
        move |cause| Self::File { what, file, cause }
    }

    /// Returns one error of a Workflow.
    pub(super) fn invalid(field: &str, message: impl Into<String>) -> Self {
        Self::Invalid(vec![FieldError { field: field.to_owned(), message: message.into(), reason: reason::INVALID }])
    }
}

fn join_errors(errors: &[FieldError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
