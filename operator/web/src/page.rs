//! The shell of every page: its title, who looks at it, and where else one can go; and what all templates say alike.
//!
//! It must not mark any text as safe: templates escape whatever they are given.

use askama::Template;
use axum::response::{Html, IntoResponse, Response};
use http::{HeaderName, HeaderValue, header::CACHE_CONTROL};
use signoff_api::Moment;

use crate::session::{Caller, Overview};

/// What surrounds the content of a page.
#[derive(Clone, Debug)]
pub struct Shell {
    /// The title, without the product's name.
    pub title: String,
    /// The user name, or `None` if nobody has signed in.
    pub user: Option<String>,
    /// The path of the entry in the navigation that this page belongs to.
    pub here: &'static str,
    /// The number of requests that wait for the user, where the page knows it.
    pub waiting: Option<usize>,
    /// What the user should know on every page, or `None`.
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

/// An instant in the reader's time zone where scripts run, and with the exact instant at hand everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instant {
    /// As RFC 3339, in UTC.
    pub exact: String,
    /// As people read it, in UTC: `25 Nov, 14:30 UTC`.
    pub shown: String,
}

impl From<Moment> for Instant {
    fn from(at: Moment) -> Self {
        let at = at.ceil_to_second();
        let shown = at.timestamp().strftime("%-d %b, %H:%M UTC").to_string();
        Self { exact: at.to_string(), shown }
    }
}

/// The cache directive of an answer that this browser keeps for a moment.
pub const KEPT: &str = "private, max-age=300";

/// Returns the answer to a form as one that this browser keeps for a moment, so that Back shows it again.
#[must_use]
pub fn kept(mut response: Response) -> Response {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(KEPT));
    response
}

/// Returns an answer at which this browser drops the answers that it keeps: they are of a session that has ended, or of
/// another user. Drafts are no cache, and stay.
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
