//! The errors of pages and forms, which a page shows to its reader.
//!
//! Each text ends with what the reader can do next.

use http::StatusCode;
use signoff_api::Code;
use signoff_cluster::error::plain;
use signoff_expr::text;
use signoff_review::answer::{self, missing_role, sentence};

/// The reason why a page cannot be shown, or why a form had no effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// There is no session, or its token is not accepted any more.
    #[error("your session has ended: sign in again, and go on where you were")]
    SignIn,
    /// The API server refused.
    #[error("{0}")]
    Refused(String),
    /// An object does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The request or the form is invalid.
    #[error("{0}")]
    Bad(String),
    /// The object was changed since it was shown.
    #[error("{0}")]
    Changed(String),
    /// A long value does not have the digest that its run names.
    #[error("{0}")]
    Mismatch(String),
    /// Too many requests.
    #[error("{0}")]
    TooMany(String),
    /// The API server, or the issuer, cannot be reached.
    #[error("{0}")]
    Away(String),
    /// No answer came to a decision that was sent.
    #[error("{0}")]
    Unknown(String),
    /// An object does not fit the types of this version.
    #[error("{0}")]
    Unreadable(String),
    /// A defect of this page.
    #[error("{0}")]
    Internal(String),
}

impl PageError {
    /// Returns the status of the response.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::SignIn => StatusCode::UNAUTHORIZED,
            Self::Refused(_) => StatusCode::FORBIDDEN,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Bad(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Changed(_) => StatusCode::CONFLICT,
            Self::Mismatch(_) | Self::Unreadable(_) => StatusCode::BAD_GATEWAY,
            Self::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Away(_) | Self::Unknown(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns the heading of the page that shows the error.
    #[must_use]
    pub fn title(&self) -> &'static str {
        match self {
            Self::SignIn => "Sign in again",
            Self::Refused(_) => "Not allowed",
            Self::NotFound(_) => "Not found",
            Self::Bad(_) => "Not understood",
            Self::Changed(_) => "Changed meanwhile",
            Self::Mismatch(_) => "Not what was recorded",
            Self::TooMany(_) => "Too many requests",
            Self::Away(_) => "Cannot be reached",
            Self::Unknown(_) => "Not known",
            Self::Unreadable(_) => "Cannot be read",
            Self::Internal(_) => "A defect of this page",
        }
    }
}

impl From<kube::Error> for PageError {
    fn from(error: kube::Error) -> Self {
        if let kube::Error::SerdeError(why) = &error {
            return Self::Unreadable(format!(
                "this version of the page cannot read the object: {}",
                text::display(&why.to_string(), 300)
            ));
        }
        let kube::Error::Api(status) = &error else {
            return Self::Away(format!("the API server cannot be reached: {}", plain(&error)));
        };
        let said = sentence(status);
        let code = Code::bracketed(answer::code(status));
        match status.code {
            401 => Self::SignIn,
            404 => Self::NotFound(said),
            409 => Self::Changed(said),
            429 => Self::TooMany(format!("the API server has too many requests: {said}; try again in a moment")),
            403 => Self::Refused(said + &missing_role(&status.message) + &code),
            400..500 => Self::Refused(said + &code),
            _ => Self::Away(format!("the API server cannot answer now: {said}")),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn error(code: u16, message: &str) -> PageError {
        let status = json!({"code": code, "message": message, "status": "Failure"});
        PageError::from(kube::Error::Api(Box::new(serde_json::from_value(status).unwrap())))
    }

    #[test]
    fn a_refusal_is_the_policys_own_sentence_or_names_the_role_of_the_person() {
        let policy = "x is forbidden: ValidatingAdmissionPolicy 'signoff-p' with binding 'signoff-p' denied request: bob is not asked";
        assert_eq!(error(422, policy), PageError::Refused("bob is not asked".to_owned()));
        let late = "x is forbidden: ValidatingAdmissionPolicy 'signoff-p' with binding 'signoff-p' denied request: too late: this gate was already decided";
        assert_eq!(error(403, late).to_string(), "too late: this gate was already decided [SO0010]");
        let rbac = "approvals.signoff.dev is forbidden: User \"bob\" cannot list resource \"approvals\" in API group \"signoff.dev\" in the namespace \"a\"";
        let said = error(403, rbac).to_string();
        assert!(said.ends_with("; the ClusterRole signoff-viewer, bound in that namespace, allows it"), "{said}");
    }

    #[test]
    fn each_status_of_the_api_server_has_its_own_error() {
        assert_eq!(error(401, "Unauthorized"), PageError::SignIn);
        assert_eq!(error(404, "gone").status(), StatusCode::NOT_FOUND);
        assert_eq!(error(409, "changed").status(), StatusCode::CONFLICT);
        assert_eq!(error(500, "etcd").status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(error(429, "busy").status(), StatusCode::TOO_MANY_REQUESTS);
    }
}
