//! The namespaces that a page lists for a reader who may not list the whole cluster.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum_extra::extract::PrivateCookieJar;
use http::request::Parts;

use crate::{scope::is_namespace, state::PageState};

/// The cookie with the namespaces that the reader typed.
pub const TYPED: &str = "__Host-signoff-namespaces";
/// The most namespaces that a reader can type.
pub const TYPED_MOST: usize = 20;

/// The namespaces that are listed for a reader who may not list the whole cluster: those of the settings, and those
/// that the reader typed.
pub struct Places(pub Vec<String>);

impl FromRequestParts<PageState> for Places {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &PageState) -> Result<Self, Infallible> {
        let jar = PrivateCookieJar::from_headers(&parts.headers, state.key.clone());
        Ok(Self(typed(&jar).into_iter().chain(state.settings.namespace.clone()).collect()))
    }
}

/// Returns the namespaces that the reader typed.
pub fn typed(jar: &PrivateCookieJar) -> Vec<String> {
    let value = jar.get(TYPED).map(|cookie| cookie.value().to_owned()).unwrap_or_default();
    value.split(',').filter(|name| is_namespace(name)).take(TYPED_MOST).map(str::to_owned).collect()
}
