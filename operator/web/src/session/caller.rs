//! The caller of a request: a verified session, and the client that acts as its user.
//!
//! It must not take anything from a request but its cookies.

use axum::extract::FromRequestParts;
use axum_extra::extract::PrivateCookieJar;
use http::request::Parts;
use kube::Client;
use signoff_api::Moment;

use super::{Me, TokenId, cookie, now, who};
use crate::{error::PageError, state::PageState};

/// Somebody who has signed in.
#[derive(Clone)]
pub struct Caller {
    /// The user, as the API server says.
    pub me: Me,
    /// The name of the token.
    pub token: TokenId,
    /// A client that acts as the user.
    pub client: Client,
    /// When the session ends.
    pub ends: Moment,
}

impl FromRequestParts<PageState> for Caller {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, state: &PageState) -> Result<Self, PageError> {
        let jar = PrivateCookieJar::from_headers(&parts.headers, state.key.clone());
        let session = cookie::read(&jar).ok_or(PageError::SignIn)?;
        let (identity, ends) = state.sessions.verify(&session, now())?;
        let client = state.connection.as_identity(&identity).map_err(|error| PageError::Bad(error.to_string()))?;
        let me = who(&client).await?;
        Ok(Self { me, token: TokenId::of(&session.token), client, ends })
    }
}
