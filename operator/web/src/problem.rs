//! The page of an error: the reason why a page cannot be shown, or why a form had no effect.

use askama::Template;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, header::RETRY_AFTER};

use crate::{
    error::PageError,
    page::{self, Shell},
    session::Caller,
};

#[derive(Template)]
#[template(path = "problem.html")]
struct Problem {
    shell: Shell,
    said: String,
    retry: bool,
    sign_in: bool,
    /// Whether the error is of a form. An error of a read says nothing about an earlier decision.
    is_post: bool,
}

/// Returns the page of an error of a form or of a read, with the navigation of the user if there is one.
pub fn problem(error: &PageError, caller: Option<&Caller>, is_post: bool) -> Response {
    page::html(&Problem {
        shell: caller.map_or_else(|| Shell::of_nobody(error.title()), |caller| Shell::of(caller, error.title(), "")),
        said: error.to_string(),
        retry: matches!(error, PageError::Away(_) | PageError::TooMany(_)),
        sign_in: matches!(error, PageError::SignIn),
        is_post,
    })
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        if matches!(self, Self::Internal(_)) {
            tracing::error!(error = %self, "a page could not be made");
        }
        let status = self.status();
        let mut response = (status, problem(&self, None, true)).into_response();
        if matches!(self, Self::TooMany(_)) {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
        }
        // For a read, the middleware turns the error into a redirect to the sign-in page.
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_requests_has_a_retry_after_header() {
        let busy = PageError::TooMany("busy".to_owned()).into_response();
        assert_eq!(busy.headers()[RETRY_AFTER], HeaderValue::from_static("5"));
    }
}
