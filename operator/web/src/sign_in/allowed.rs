//! The limit of sign-ins of one address, which is checked before the API server or the issuer is asked.

use std::net::SocketAddr;

use axum::{
    extract::{ConnectInfo, FromRequestParts},
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header::RETRY_AFTER, request::Parts};

use super::show_error;
use crate::{error::PageError, session::Network, state::PageState};

/// The address of a request that is not counted yet, because another site may have caused the request.
pub struct Uncounted(Network);

impl Uncounted {
    /// Counts the request, and returns a refusal if its address has sent too many.
    pub fn count(&self, state: &PageState) -> Option<Response> {
        let wait = state.sessions.limits.count(self.0).err()?;
        let seconds = wait.as_secs() + 1;
        let why = format!("There were too many sign-ins from your address: try again in {seconds} seconds.");
        let mut response = show_error(state, StatusCode::TOO_MANY_REQUESTS, &why);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        Some(response)
    }
}

impl FromRequestParts<PageState> for Uncounted {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &PageState) -> Result<Self, Response> {
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        let Some(ConnectInfo(peer)) = peer else {
            return Err(PageError::Internal("the address of a client is not known".to_owned()).into_response());
        };
        Ok(Self(Network::from(state.sessions.limits.address(peer.ip(), &parts.headers))))
    }
}

/// A counted request of an address that has not sent too many.
pub struct Allowed;

impl FromRequestParts<PageState> for Allowed {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &PageState) -> Result<Self, Response> {
        let address = Uncounted::from_request_parts(parts, state).await?;
        address.count(state).map_or(Ok(Self), Err)
    }
}
