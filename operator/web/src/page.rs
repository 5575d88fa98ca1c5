//! The shell of every page: its title, its user and its navigation; and the types that all templates use.
//!
//! **Invariant:** no text is marked as safe, so the templates escape every text.

use askama::Template;
use axum::response::{Html, IntoResponse, Response};
use http::{HeaderName, HeaderValue, header::CACHE_CONTROL};
use signoff_api::Moment;

use crate::session::{Caller, Overview};

/// The shell around the content of a page.
#[derive(Clone, Debug)]
pub struct Shell {
    /// The title, without the product's name.
    pub title: String,
    /// The user name, or `None` without a session.
    pub user: Option<String>,
    /// The name of the navigation entry to which this page belongs.
    pub here: &'static str,
    /// The number of requests that wait for the user, if the page has it.
    pub waiting: Option<usize>,
    /// A notice that the user sees on every page, or `None`.
    pub notice: Option<String>,
    /// The reason why votes are not counted now, or `None`.
    pub alert: Option<String>,
    /// Whether the user may read policies.
    pub reads_policies: bool,
    /// The command that does the same on a terminal.
    pub command: Option<String>,
}

impl Shell {
    /// Returns the shell of a page for a user.
    #[must_use]
    pub fn of(caller: &Caller, title: &str, here: &'static str) -> Self {
        let user = Some(caller.me.user.clone());
        let notice = caller.groups_left_out.as_ref().map(|why| {
            format!("Note: {why}. Until then you act without groups: requests to your groups are not shown as yours, and no vote of yours counts for a group.")
        });
        let Overview { alert, reads_policies } = caller.overview.clone();
        Self { title: title.to_owned(), user, here, waiting: None, notice, alert, reads_policies, command: None }
    }

    /// Returns the shell of a page without a user.
    #[must_use]
    pub fn of_nobody(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            user: None,
            here: "",
            waiting: None,
            notice: None,
            alert: None,
            reads_policies: false,
            command: None,
        }
    }
}

/// An instant for a page. A script shows it in the reader's time zone, and keeps the exact instant as its title.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instant {
    /// The instant as RFC 3339, in UTC.
    pub exact: String,
    /// The instant for people, in UTC: `25 Nov, 14:30 UTC`.
    pub shown: String,
}

impl From<Moment> for Instant {
    fn from(at: Moment) -> Self {
        let at = at.ceil_to_second();
        let shown = at.timestamp().strftime("%-d %b, %H:%M UTC").to_string();
        Self { exact: at.to_string(), shown }
    }
}

/// The cache directive of a response that the browser keeps for a few minutes.
pub const KEPT: &str = "private, max-age=300";

/// Returns the response to a form with the cache directive [`KEPT`], so that Back shows it again.
#[must_use]
pub fn kept(mut response: Response) -> Response {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(KEPT));
    response
}

/// Returns a response that lets the browser drop the responses that it keeps, because they are of another session.
/// Drafts are not in the cache, and stay.
#[must_use]
pub fn without_kept(mut response: Response) -> Response {
    let (name, value) = (HeaderName::from_static("clear-site-data"), HeaderValue::from_static("\"cache\""));
    response.headers_mut().insert(name, value);
    response
}

/// Returns a rendered template.
#[must_use]
pub fn html<T: Template>(template: &T) -> Response {
    match template.render() {
        Ok(text) => Html(text).into_response(),
        Err(error) => {
            tracing::error!(%error, "a template could not be rendered");
            (http::StatusCode::INTERNAL_SERVER_ERROR, "this page has a defect, see its log\n").into_response()
        }
    }
}
