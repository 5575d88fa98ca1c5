//! The problems of a request that keep it from being decided, one sentence each.
//!
//! Pure. Clients match on [`Problem`], and never on its sentence.

use signoff_api::Digest;

use crate::whole::WholeTextError;

/// The reason why a request is not verified. No decision is sent on a request that has a problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The digest of the request is not the digest of its content, so a decision would count for something else than
    /// what is shown.
    #[error(
        "the digest of this request ({0}) is not the digest of what it says: do not decide it, and tell the administrators of Signoff"
    )]
    Digest(Digest),
    /// A whole text does not have the digest that the request names.
    #[error("{0}")]
    OtherText(String),
    /// The request does not say where a whole text is.
    #[error("{0}")]
    NoText(String),
    /// A whole text was not read: it does not exist, or its reader cannot read it.
    #[error("{0}")]
    TextUnread(String),
    /// The name of the run is not the name of an object, so it would be another path of the API server.
    #[error(
        "the name of the run of this request is no name of an object: do not decide this request, and tell the administrators of Signoff"
    )]
    RunName,
    /// There is no such run.
    #[error(
        "the run {0} of this request does not exist, so a decision has no effect; ask its requester to start it again"
    )]
    RunMissing(String),
    /// The run of this name is not the run that asked: it was created again, or the request is of another operator.
    #[error(
        "the run {0} is not the run that asked (it has another uid): do not decide this request, and tell the administrators of Signoff"
    )]
    OtherRun(String),
    /// The run was not read, so it is unknown whether the admission policies are in force.
    #[error("whether decisions are honoured is not known, because the run {run} cannot be read: {why}")]
    RunUnread {
        /// The name of the run.
        run: String,
        /// The reason why the run was not read.
        why: String,
    },
    /// The admission policies are not in force, so a decision that is recorded now is void.
    #[error("decisions are not honoured now: {0}")]
    Unguarded(String),
}

impl Problem {
    /// Whether the request itself is wrong. Otherwise it can be decided later, or by another reader.
    #[must_use]
    pub fn is_of_request(&self) -> bool {
        match self {
            Self::Digest(_) | Self::OtherText(_) | Self::NoText(_) | Self::RunName | Self::OtherRun(_) => true,
            Self::TextUnread(_) | Self::RunMissing(_) | Self::RunUnread { .. } | Self::Unguarded(_) => false,
        }
    }

    /// Returns the heading above the sentence.
    #[must_use]
    pub fn heading(&self) -> &'static str {
        if self.is_of_request() { "Do not decide this request." } else { "This request cannot be decided now." }
    }
}

impl From<WholeTextError> for Problem {
    fn from(error: WholeTextError) -> Self {
        let sentence = error.to_string();
        match error {
            WholeTextError::Mismatch { .. } => Self::OtherText(sentence),
            WholeTextError::Nowhere | WholeTextError::NoRun { .. } => Self::NoText(sentence),
            WholeTextError::Unreadable { .. } => Self::TextUnread(sentence),
        }
    }
}
