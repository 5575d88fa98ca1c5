//! The sign-in page, sign-in with a pasted token, and sign-out.
//!
//! **Invariant:** a token that the API server does not accept begins no session.

mod allowed;
pub mod callback;

use askama::Template;
use axum::{
    Form,
    extract::{State, rejection::FormRejection},
    response::{IntoResponse, Redirect, Response},
};
use axum_extra::extract::PrivateCookieJar;
use http::{HeaderMap, StatusCode};
use secrecy::SecretString;
use serde::Deserialize;

use crate::{
    api_server::Identity,
    error::PageError,
    page,
    session::{Caller, Session, TokenId, cookie, now, wanted},
    state::PageState,
};

use allowed::Allowed;

/// The largest form with a token, in bytes. Tokens that fit into cookies are shorter.
pub const LARGEST: usize = 64 * 1024;

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignIn {
    shell: page::Shell,
    takes_tokens: bool,
    issuer: Option<String>,
    problem: Option<String>,
    /// The address at the identity provider to which the browser continues.
    go_on: Option<String>,
}

/// Shows the sign-in page. A user with a session is redirected to the inbox.
pub async fn form(
    State(state): State<PageState>,
    jar: PrivateCookieJar,
    caller: Result<Caller, PageError>,
) -> Response {
    match caller {
        Ok(_) => Redirect::to("/").into_response(),
        Err(PageError::SignIn) if cookie::read(&jar).is_some() => page::without_kept(show(&state, None)),
        Err(PageError::SignIn) => show(&state, None),
        Err(other) => show_error(&state, other.status(), &other.to_string()),
    }
}

fn show(state: &PageState, problem: Option<String>) -> Response {
    render(state, problem, None)
}

/// Shows the sign-in page after a refused sign-in, with the reason.
pub(super) fn show_refusal(state: &PageState, why: &str) -> Response {
    show_error(state, StatusCode::UNAUTHORIZED, why)
}

/// Shows the sign-in page after an error, with a status and the reason.
pub(super) fn show_error(state: &PageState, status: StatusCode, why: &str) -> Response {
    let mut response = show(state, Some(why.to_owned()));
    *response.status_mut() = status;
    response
}

/// Shows the page from which the browser continues to the identity provider.
pub(super) fn go_on(state: &PageState, to: &str) -> Response {
    render(state, None, Some(to.to_owned()))
}

fn render(state: &PageState, problem: Option<String>, go_on: Option<String>) -> Response {
    let issuer = state.sessions.issuer().and_then(|issuer| issuer.url().url().host_str().map(str::to_owned));
    page::html(&SignIn {
        shell: page::Shell::of_nobody("Sign in"),
        takes_tokens: state.settings.takes_tokens(),
        issuer,
        problem,
        go_on,
    })
}

/// A pasted token.
#[derive(Deserialize)]
pub struct Pasted {
    token: String,
}

/// Signs in with a token, if the API server accepts it.
///
/// # Errors
/// The page takes no tokens.
pub async fn token(
    State(state): State<PageState>,
    _allowed: Allowed,
    jar: PrivateCookieJar,
    pasted: Result<Form<Pasted>, FormRejection>,
) -> Result<Response, PageError> {
    if !state.settings.takes_tokens() {
        return Err(PageError::Refused("this page takes no tokens: sign in with the identity provider".to_owned()));
    }
    let Ok(Form(pasted)) = pasted else {
        let why = format!("The form has no token, or one of more than {} KiB: paste the token alone.", LARGEST / 1024);
        return Ok(show_refusal(&state, &why));
    };
    let token = SecretString::from(pasted.token.trim().to_owned());
    if state.connection.as_identity(&Identity::Bearer(token.clone())).is_err() {
        let why = "This is no token: a token has no spaces, line ends or accents. Paste it again.";
        return Ok(show_refusal(&state, why));
    }
    let session = Session { token, nonce: None, since: now() };
    match Caller::of(&session, &state).await {
        Ok(_) => {}
        Err(PageError::SignIn) => {
            let why = "The API server does not accept this token: it may have expired, or be of another cluster.";
            return Ok(show_refusal(&state, why));
        }
        Err(other) => return Ok(show_error(&state, other.status(), &other.to_string())),
    }
    Ok(start_session(&state, jar, &session))
}

/// Stores a session in the browser, and redirects to the page that was requested before the sign-in.
pub(super) fn start_session(state: &PageState, jar: PrivateCookieJar, session: &Session) -> Response {
    let (jar, path) = wanted::take(jar, now());
    match cookie::write(jar, session) {
        // The earlier session may have been of another user.
        Ok(jar) => page::without_kept((jar, Redirect::to(&path)).into_response()),
        Err(why) => show_refusal(state, &why),
    }
}

/// Ends the session in this browser, with its feeds and streams. An expired token is no error.
pub async fn sign_out(State(state): State<PageState>, jar: PrivateCookieJar, headers: HeaderMap) -> Response {
    if let Some(session) = cookie::read(&jar) {
        let token = TokenId::of(&session.token);
        state.feeds.end(&token);
        state.streams.end(&token);
    }
    page::without_kept((cookie::forget(&headers), Redirect::to("/sign-in")).into_response())
}
