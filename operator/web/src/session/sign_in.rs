//! Sign-in with a pasted token, and sign-out.
//!
//! It must not accept a token that the API server does not accept.

use askama::Template;
use axum::{
    Form,
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use axum_extra::extract::PrivateCookieJar;
use secrecy::SecretString;
use serde::Deserialize;

use super::{Session, TokenId, cookie, now, who};
use crate::{connection::Identity, error::PageError, page, state::PageState};

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignIn {
    shell: page::Shell,
    takes_tokens: bool,
    issuer: Option<String>,
    problem: Option<String>,
}

/// Shows the ways to sign in.
pub async fn form(State(state): State<PageState>) -> Response {
    show(&state, None)
}

fn show(state: &PageState, problem: Option<String>) -> Response {
    let issuer = state.settings.oidc.issuer.as_ref().and_then(|url| url.host_str()).map(str::to_owned);
    page::html(&SignIn {
        shell: page::Shell::of_nobody("Sign in"),
        takes_tokens: state.settings.takes_tokens(),
        issuer,
        problem,
    })
}

/// A token that somebody pasted.
#[derive(Deserialize)]
pub struct Pasted {
    token: String,
}

/// Signs in with a token, if the API server accepts it.
///
/// # Errors
/// The API server cannot be reached.
pub async fn token(
    State(state): State<PageState>,
    jar: PrivateCookieJar,
    Form(pasted): Form<Pasted>,
) -> Result<Response, PageError> {
    if !state.settings.takes_tokens() {
        return Err(PageError::Refused("this page takes no tokens: sign in with the identity provider".to_owned()));
    }
    let token = SecretString::from(pasted.token.trim().to_owned());
    let refused = |why: &str| {
        let mut response = show(&state, Some(why.to_owned()));
        *response.status_mut() = http::StatusCode::UNAUTHORIZED;
        response
    };
    let Ok(client) = state.connection.as_identity(&Identity::Bearer(token.clone())) else {
        return Ok(refused("This is no token: a token has no spaces, line ends or accents. Paste it again."));
    };
    match who(&client).await {
        Ok(_) => {}
        Err(PageError::SignIn) => {
            return Ok(refused(
                "The API server does not accept this token: it may have expired, or be of another cluster.",
            ));
        }
        Err(other) => return Err(other),
    }
    let session = Session { token, nonce: None, since: now() };
    match cookie::write(jar, &session) {
        Ok(jar) => Ok((jar, Redirect::to("/")).into_response()),
        Err(why) => Ok(refused(&why)),
    }
}

/// Ends the session in this browser, and what is followed for it.
pub async fn out(State(state): State<PageState>, jar: PrivateCookieJar) -> Response {
    if let Some(session) = cookie::read(&jar) {
        let token = TokenId::of(&session.token);
        state.feeds.end(&token);
        state.streams.end(&token);
    }
    (cookie::remove(jar), Redirect::to("/sign-in")).into_response()
}
