//! The caller of a request: a verified session, and the client that acts as its user.
//!
//! **Invariant:** the identity of a caller depends on the cookies of the request alone.

use axum::extract::FromRequestParts;
use axum_extra::extract::PrivateCookieJar;
use http::{Method, request::Parts};
use kube::Client;
use signoff_api::Moment;
use tokio::time::Instant;

use super::{Me, Overview, Places, Session, TokenId, cookie, fetch_user, now};
use crate::{api_server::Identity, error::PageError, state::PageState};

/// A user who has signed in.
#[derive(Clone)]
pub struct Caller {
    /// The user by the answer of the API server.
    pub me: Me,
    /// The name of the token.
    pub token: TokenId,
    /// A client that acts as the user.
    pub client: Client,
    /// The end of the session.
    pub ends: Moment,
    /// The notice for a user whose identity provider left the groups out of the token.
    pub groups_left_out: Option<String>,
    /// The facts on every page of the user.
    pub overview: Overview,
    /// The time at which the request arrived. A later sign-out ends its feeds too.
    pub arrived: Instant,
}

impl FromRequestParts<PageState> for Caller {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, state: &PageState) -> Result<Self, PageError> {
        let jar = PrivateCookieJar::from_headers(&parts.headers, state.key.clone());
        let session = cookie::read(&jar).ok_or(PageError::SignIn)?;
        let mut caller = Self::of(&session, state).await?;
        // A GET that is not for a stream is for a page, which shows the overview.
        if [Method::GET, Method::HEAD].contains(&parts.method) && !parts.uri.path().ends_with("/events") {
            let Ok(Places(namespaces)) = Places::from_request_parts(parts, state).await;
            let operator = &state.settings.operator_namespace;
            caller.overview = state.overviews.load(&caller.client, &caller.token, &namespaces, operator).await;
        }
        Ok(caller)
    }
}

impl Caller {
    /// Verifies a session, and asks the API server for its user.
    ///
    /// # Errors
    /// The session is invalid, or the API server does not accept it or cannot be reached.
    pub(crate) async fn of(session: &Session, state: &PageState) -> Result<Self, PageError> {
        let arrived = Instant::now();
        let (identity, ends) = state.sessions.verify(session, now()).await?;
        let token = TokenId::of(&session.token);
        // A page that is reloaded with a refused token sends no request.
        if state.sessions.limits.is_refused(&token) {
            return Err(PageError::SignIn);
        }
        let client = state.connection.as_identity(&identity).map_err(|error| PageError::Bad(error.to_string()))?;
        let me = fetch_user(&client).await.inspect_err(|error| {
            if *error == PageError::SignIn {
                state.sessions.limits.refuse(token.clone());
            }
        })?;
        // If a proxy drops the headers, the API server sees the page's own identity.
        if let Identity::Impersonated { user, .. } = &identity
            && *user != me.user
        {
            return Err(PageError::Internal(format!(
                "the API server sees {} instead of you: nothing is shown; is there a proxy that drops Impersonate headers?",
                signoff_expr::text::display(&me.user, 200)
            )));
        }
        // The API server may have fetched the groups itself.
        let has_groups = me.groups.iter().any(|group| !group.starts_with("system:"));
        let groups_left_out = if has_groups { None } else { state.sessions.groups_left_out(session) };
        let overview = state.overviews.cached(&token);
        Ok(Self { me, token, client, ends, groups_left_out, overview, arrived })
    }
}
