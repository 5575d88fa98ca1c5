//! What a page says when it cannot be shown, or when something was not done.
//!
//! It must not leave a person without the next thing to do.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use signoff_cluster::error::{plain, status_code};

use crate::page;

/// Why a page cannot be shown, or why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// There is no session, or its token is not accepted any more.
    #[error("sign in to go on")]
    SignIn,
    /// The API server refused.
    #[error("{0}")]
    Refused(String),
    /// An object is not there.
    #[error("{0}")]
    NotFound(String),
    /// What was sent cannot be used.
    #[error("{0}")]
    Bad(String),
    /// Somebody changed it meanwhile.
    #[error("{0}")]
    Changed(String),
    /// A long value is not the one that its run names.
    #[error("{0}")]
    Mismatch(String),
    /// Too many requests.
    #[error("{0}")]
    TooMany(String),
    /// The API server, or the issuer, cannot be reached.
    #[error("{0}")]
    Away(String),
    /// A defect of this page.
    #[error("{0}")]
    Internal(String),
}

impl PageError {
    /// The status of the response.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::SignIn => StatusCode::UNAUTHORIZED,
            Self::Refused(_) => StatusCode::FORBIDDEN,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Bad(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Changed(_) => StatusCode::CONFLICT,
            Self::Mismatch(_) => StatusCode::BAD_GATEWAY,
            Self::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Away(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The heading of the page that tells it.
    #[must_use]
    pub fn title(&self) -> &'static str {
        match self {
            Self::SignIn => "Sign in",
            Self::Refused(_) => "Not allowed",
            Self::NotFound(_) => "Not found",
            Self::Bad(_) => "Not understood",
            Self::Changed(_) => "Changed meanwhile",
            Self::Mismatch(_) => "Not what was recorded",
            Self::TooMany(_) => "Too many requests",
            Self::Away(_) => "Cannot be reached",
            Self::Internal(_) => "A defect of this page",
        }
    }
}

impl From<kube::Error> for PageError {
    fn from(error: kube::Error) -> Self {
        let said = plain(&error);
        match status_code(&error) {
            Some(401) => Self::SignIn,
            Some(404) => Self::NotFound(said),
            Some(409) => Self::Changed(said),
            Some(429) => Self::TooMany(format!("the API server has too many requests: {said}; try again in a moment")),
            Some(code) if (400..500).contains(&code) => Self::Refused(said),
            Some(_) | None => Self::Away(format!("the API server cannot be reached: {said}")),
        }
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        if matches!(self, Self::Internal(_)) {
            tracing::error!(error = %self, "a page could not be made");
        }
        let status = self.status();
        let mut response = (status, page::problem(&self)).into_response();
        // What surrounds the routes turns it into a redirect to the sign-in page where somebody only looks.
        response.extensions_mut().insert(self);
        response
    }
}
