//! Sign-in with the identity provider: the redirect to it, and its answer.
//!
//! **Invariant:** only the browser that began a sign-in can end it, and only once.

use std::sync::Arc;

use axum::{
    extract::{Query, State, rejection::QueryRejection},
    response::{IntoResponse, Response},
};
use axum_extra::extract::PrivateCookieJar;
use http::{HeaderName, HeaderValue, StatusCode};
use serde::Deserialize;
use signoff_expr::text::display;

use super::allowed::{Allowed, Uncounted};
use crate::{
    error::PageError,
    session::{Caller, Issuer, Session, Unverified, flow, now},
    settings::Auth,
    sign_in,
    state::PageState,
};

/// The answer of the identity provider, which the browser brings.
#[derive(Deserialize)]
pub struct Answer {
    state: Option<String>,
    code: Option<String>,
    error: Option<String>,
    error_description: Option<String>,
    iss: Option<String>,
}

fn issuer(state: &PageState) -> Result<&Arc<Issuer>, PageError> {
    let none = || PageError::NotFound("this page has no identity provider: sign in with a token".to_owned());
    state.sessions.issuer().ok_or_else(none)
}

fn show_unavailable(state: &PageState, why: &str) -> Response {
    sign_in::show_error(state, StatusCode::SERVICE_UNAVAILABLE, why)
}

/// Begins a sign-in. The browser continues by `Refresh`, because a redirect would count as a form that leads to another
/// site.
///
/// # Errors
/// There is no identity provider.
pub async fn start(
    State(state): State<PageState>,
    _allowed: Allowed,
    jar: PrivateCookieJar,
) -> Result<Response, PageError> {
    let (to, begun) = match issuer(&state)?.begin(now()).await {
        Ok(begun) => begun,
        Err(Unverified::Away(why) | Unverified::Wrong(why)) => return Ok(show_unavailable(&state, &why)),
    };
    let refresh = HeaderValue::try_from(format!("0; url={to}"))
        .map_err(|_| PageError::Internal("the address of the identity provider fits no header".to_owned()))?;
    let mut response = (flow::add(jar, begun, now()), sign_in::go_on(&state, to.as_str())).into_response();
    response.headers_mut().insert(HeaderName::from_static("refresh"), refresh);
    Ok(response)
}

/// Ends a sign-in. Only a sign-in that this browser began is counted: another site can send a browser here, such as by
/// an image, but then the cookie of the sign-in is missing.
///
/// # Errors
/// There is no identity provider, or the request is not an answer of one.
pub async fn end(
    State(state): State<PageState>,
    from: Uncounted,
    jar: PrivateCookieJar,
    answer: Result<Query<Answer>, QueryRejection>,
) -> Result<Response, PageError> {
    let issuer = issuer(&state)?;
    let Ok(Query(answer)) = answer else {
        return Err(PageError::Bad("this is no answer of the identity provider: sign in again".to_owned()));
    };
    let (jar, begun) = flow::take(jar, &answer.state.unwrap_or_default(), now());
    let Some(begun) = begun else {
        let why = "This sign-in has ended already, was begun in another browser, or took longer than 10 minutes: sign in again.";
        return Ok(sign_in::show_refusal(&state, why));
    };
    // The sign-in stays in the cookie, so that a reload continues it.
    if let Some(too_many) = from.count(&state) {
        return Ok(too_many);
    }
    let refused = |jar: PrivateCookieJar, why: &str| Ok((jar, sign_in::show_refusal(&state, why)).into_response());
    if answer.iss.is_some_and(|iss| iss != issuer.url().as_str()) {
        return refused(jar, "Another identity provider has answered: sign in again.");
    }
    let code = match (answer.error, answer.code) {
        (None, Some(code)) => code,
        (Some(error), _) => {
            let said = answer.error_description.map_or(error.clone(), |more| format!("{error}, {more}"));
            let said = display(&said, 300).replace('\n', " ");
            return refused(jar, &format!("The identity provider does not let you in: {said}"));
        }
        (None, None) => return refused(jar, "The identity provider has sent no code: sign in again."),
    };
    let nonce = begun.nonce.clone();
    let token = match issuer.finish(code, begun, now()).await {
        Ok((token, _)) => token,
        Err(Unverified::Away(why)) => return Ok((jar, show_unavailable(&state, &why)).into_response()),
        Err(Unverified::Wrong(why)) => return refused(jar, &format!("You are not signed in: {why}")),
    };
    let session = Session { token, nonce: Some(nonce), since: now() };
    Ok(accept_session(&state, jar, &session).await)
}

/// Starts a session if the API server accepts its token, and otherwise shows why not.
async fn accept_session(state: &PageState, jar: PrivateCookieJar, session: &Session) -> Response {
    let refused = |jar: PrivateCookieJar, why: &str| (jar, sign_in::show_refusal(state, why)).into_response();
    match Caller::of(session, state).await {
        Ok(caller) => {
            tracing::info!(user = %caller.me.user, "somebody has signed in");
            sign_in::start_session(state, jar, session)
        }
        Err(PageError::SignIn)
            if state.settings.auth == Auth::PassThrough
                && let Some(why) = state.sessions.groups_left_out(session) =>
        {
            refused(jar, &format!("The API server does not accept your token, perhaps because {why}"))
        }
        Err(PageError::SignIn) if state.settings.auth == Auth::PassThrough => refused(
            jar,
            "The API server does not accept the token of this identity provider: its administrators name issuer and client in its own settings (--oidc-issuer-url, --oidc-client-id), or choose impersonation for this page.",
        ),
        Err(PageError::SignIn) => refused(
            jar,
            "The API server does not accept the token of this page itself: its administrators can see why in its log.",
        ),
        Err(PageError::Refused(why)) => refused(jar, &format!("You are not signed in: {why}")),
        Err(other) => (jar, sign_in::show_error(state, other.status(), &other.to_string())).into_response(),
    }
}
