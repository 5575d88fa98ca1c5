//! The routes, and what surrounds them: the headers of every response, and the refusal of foreign requests.
//!
//! **Invariant:** whatever changes something is a POST, and a POST of another site reaches no handler.

use axum::{
    Router,
    extract::{RawPathParams, Request, State, rejection::RawPathParamsRejection},
    middleware::{self, Next},
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use http::{
    HeaderName, HeaderValue, Method, StatusCode,
    header::{self, HOST, ORIGIN},
};
use tower_http::{catch_panic::CatchPanicLayer, csrf::CsrfLayer, limit::RequestBodyLimitLayer};

use crate::{
    approval, assets,
    error::PageError,
    history, inbox, live, policies,
    scope::{is_name, is_namespace},
    session::sign_in,
    state::PageState,
};

/// The largest body of a request: a form with texts of 8,192 characters each.
const LARGEST_BODY: usize = 1024 * 1024;

/// The headers of every response. Scripts and styles come from files of ours only, nothing may frame the page, and no other site
/// learns where somebody was.
const HEADERS: [(HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
];

/// Returns the whole page.
///
/// # Errors
/// A public address that is no origin.
pub fn router(state: PageState) -> anyhow::Result<Router> {
    let foreign = CsrfLayer::new().add_trusted_origin(state.settings.origin())?;
    Ok(Router::new()
        .route("/", get(inbox::page))
        .route("/namespaces", post(inbox::places))
        .route("/n/{namespace}/a/{name}", get(approval::page))
        .route("/n/{namespace}/a/{name}/decide", post(approval::decide))
        .route("/history", get(history::page))
        .route("/history.csv", get(history::csv))
        .route("/policies", get(policies::page))
        .route("/events", get(live::events))
        .route("/sign-in", get(sign_in::form))
        .route("/sign-in/token", post(sign_in::token))
        .route("/sign-out", post(sign_in::out))
        .route("/static/{*file}", get(assets::file))
        .route_layer(middleware::from_fn(only_names))
        .fallback(async || PageError::NotFound("there is no such page: see the inbox".to_owned()))
        .layer(middleware::from_fn(signs_in))
        .layer(foreign)
        .layer(middleware::from_fn_with_state(state.clone(), only_ours))
        .layer(RequestBodyLimitLayer::new(LARGEST_BODY))
        .layer(CatchPanicLayer::custom(|_: Box<dyn std::any::Any + Send>| {
            PageError::Internal("this page has a defect, see its log".to_owned()).into_response()
        }))
        .layer(middleware::from_fn(headers))
        .with_state(state))
}

/// Refuses addresses of objects whose names are none: a name becomes a part of the path at the API server, and must not be more
/// than one part of it.
async fn only_names(parts: Result<RawPathParams, RawPathParamsRejection>, request: Request, next: Next) -> Response {
    let holds = |(part, text): (&str, &str)| match part {
        "namespace" => is_namespace(text),
        "name" => is_name(text),
        _ => true,
    };
    if parts.is_ok_and(|parts| parts.iter().all(holds)) {
        return next.run(request).await;
    }
    let why =
        "there is no such page: names of objects have lower-case letters, digits, hyphens and dots; see the inbox";
    PageError::NotFound(why.to_owned()).into_response()
}

/// Adds the headers of every response.
async fn headers(request: Request, next: Next) -> Response {
    let is_static = request.uri().path().starts_with("/static/");
    let mut response = next.run(request).await;
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    let cache =
        if is_static && response.status().is_success() { "public, max-age=31536000, immutable" } else { "no-store" };
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    response
}

/// Refuses requests for another host, and changes from anything that does not say where it comes from.
async fn only_ours(State(state): State<PageState>, request: Request, next: Next) -> Response {
    if let Some(refused) = foreign(&state, &request) {
        return refused;
    }
    next.run(request).await
}

fn foreign(state: &PageState, request: &Request) -> Option<Response> {
    let url = &state.settings.url;
    let ours = match url.port() {
        Some(port) => format!("{}:{port}", url.host_str().unwrap_or_default()),
        None => url.host_str().unwrap_or_default().to_owned(),
    };
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if host != ours {
        let why = format!("this page is {}: open that address (--url)", state.settings.origin());
        let mut response = PageError::Bad(why).into_response();
        *response.status_mut() = StatusCode::MISDIRECTED_REQUEST;
        return Some(response);
    }
    let is_read = [Method::GET, Method::HEAD].contains(request.method());
    let says = |name: &str| request.headers().contains_key(name);
    if !is_read && !says(ORIGIN.as_str()) && !says("sec-fetch-site") {
        let why = "the request does not say which site it comes from (Origin, Sec-Fetch-Site): use a current browser, or kubectl approve";
        return Some(PageError::Refused(why.to_owned()).into_response());
    }
    None
}

/// Sends whoever only looks to the sign-in page.
async fn signs_in(request: Request, next: Next) -> Response {
    let looks = request.method() == Method::GET && !request.uri().path().starts_with("/events");
    let response = next.run(request).await;
    if looks && response.extensions().get::<PageError>() == Some(&PageError::SignIn) {
        return Redirect::to("/sign-in").into_response();
    }
    response
}
