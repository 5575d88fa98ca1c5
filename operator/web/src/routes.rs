//! The routes and their middleware: the headers of every response, and the refusal of foreign requests.
//!
//! **Invariant:** only a POST changes anything, and a POST of another site reaches no handler.

use axum::{
    Router,
    extract::{DefaultBodyLimit, RawPathParams, Request, State, rejection::RawPathParamsRejection},
    middleware::{self, Next},
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use axum_extra::extract::PrivateCookieJar;
use http::{
    HeaderName, HeaderValue, Method, StatusCode, Uri,
    header::{self, HOST, ORIGIN},
};
use tower_http::{catch_panic::CatchPanicLayer, csrf::CsrfLayer, limit::RequestBodyLimitLayer};

use crate::{
    approval, assets,
    error::PageError,
    history, inbox, page, policies,
    problem::problem,
    run, runs,
    scope::{is_name, is_namespace},
    session::{Caller, Session, cookie, now, wanted},
    sign_in,
    state::PageState,
    turn,
};

/// The largest body of a request: a form with texts of 8,192 characters each.
const LARGEST_BODY: usize = 1024 * 1024;

/// The answer to a request of another site.
const FOREIGN: &str = "the request comes from another site: nothing was changed; open the page itself and try again";

/// The headers of every response. Scripts and styles come only from files of the page, no site can frame the page, and
/// no other site learns its addresses.
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

/// Returns all routes with their middleware.
pub fn router(state: PageState) -> Router {
    let foreign = CsrfLayer::new().with_rejection_response(|_| PageError::Refused(FOREIGN.to_owned()).into_response());
    Router::new()
        .route("/", get(inbox::page))
        .route("/namespaces", post(inbox::store_namespaces))
        .route("/n/{namespace}/a/{name}", get(approval::page))
        .route("/n/{namespace}/a/{name}/decide", post(approval::decide))
        .route("/n/{namespace}/a/{name}/events", get(approval::events))
        .route("/n/{namespace}/a/{name}/text/{part}", get(approval::text))
        .route("/n/{namespace}/t/{name}", get(turn::page))
        .route("/n/{namespace}/t/{name}/decide", post(turn::decide))
        .route("/runs", get(runs::page))
        .route("/together", get(turn::together))
        .route("/n/{namespace}/together/decide", post(turn::decide_together))
        .route("/history", get(history::page))
        .route("/history.csv", get(history::csv))
        .route("/policies", get(policies::page))
        .route("/events", get(inbox::events))
        .route("/n/{namespace}/w/{name}", get(run::page))
        .route("/n/{namespace}/w/{name}/change", post(run::change))
        .route("/n/{namespace}/w/{name}/events", get(run::events))
        .route("/n/{namespace}/w/{name}/value/{digest}", get(run::value))
        .route("/sign-in", get(sign_in::form))
        .route("/sign-in/token", post(sign_in::token).layer(DefaultBodyLimit::max(sign_in::LARGEST)))
        .route("/sign-in/start", post(sign_in::callback::start))
        .route("/sign-in/callback", get(sign_in::callback::end))
        .route("/sign-out", post(sign_in::sign_out))
        .route("/static/{*file}", get(assets::file))
        .route_layer(middleware::from_fn(refuse_invalid_names))
        .fallback(async || PageError::NotFound("there is no such page: see the inbox".to_owned()))
        .method_not_allowed_fallback(redirect_or_refuse_method)
        .layer(middleware::from_fn_with_state(state.clone(), redirect_to_sign_in))
        .layer(foreign)
        .layer(middleware::from_fn_with_state(state.clone(), only_ours))
        .layer(RequestBodyLimitLayer::new(LARGEST_BODY))
        .layer(CatchPanicLayer::custom(|_: Box<dyn std::any::Any + Send>| {
            PageError::Internal("this page has a defect, see its log".to_owned()).into_response()
        }))
        .layer(middleware::from_fn_with_state(state.clone(), add_headers))
        .with_state(state)
}

/// Redirects a GET of an address that only takes forms, such as by “try again”, to the page of the form. Any other
/// method is an error.
async fn redirect_or_refuse_method(method: Method, uri: Uri) -> Response {
    if [Method::GET, Method::HEAD].contains(&method) {
        let page =
            if uri.path().starts_with("/sign-in/") { "/sign-in".to_owned() } else { wanted::page_of_form(uri.path()) };
        return Redirect::to(&page).into_response();
    }
    let why = "this address does not take such a request: see the inbox";
    (StatusCode::METHOD_NOT_ALLOWED, PageError::Bad(why.to_owned())).into_response()
}

/// Refuses addresses with texts that are not names of objects, because a name becomes a part of a path at the API
/// server.
async fn refuse_invalid_names(
    parts: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Response {
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
async fn add_headers(State(state): State<PageState>, request: Request, next: Next) -> Response {
    let is_static = request.uri().path().starts_with("/static/");
    let mut response = next.run(request).await;
    let is_lasting = is_static && response.status().is_success();
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    if state.settings.url.scheme() == "https" {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=31536000"));
    }
    let cache = if is_lasting { "public, max-age=31536000, immutable" } else { "no-store" };
    // The response to the form of a decision stays in the cache for Back.
    if headers.get(header::CACHE_CONTROL).is_none_or(|value| value != page::KEPT) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    }
    if !is_lasting {
        headers.insert(header::VARY, HeaderValue::from_static("Cookie"));
    }
    response
}

/// Refuses requests for another host, and changes whose headers do not say that they come from this page.
async fn only_ours(State(state): State<PageState>, request: Request, next: Next) -> Response {
    if let Some(refused) = refuse_foreign(&state, &request) {
        return refused;
    }
    next.run(request).await
}

/// Returns the refusal of a request for another host, or of a change that another site may have caused.
fn refuse_foreign(state: &PageState, request: &Request) -> Option<Response> {
    let url = &state.settings.url;
    let ours = match url.port() {
        Some(port) => format!("{}:{port}", url.host_str().unwrap_or_default()),
        None => url.host_str().unwrap_or_default().to_owned(),
    };
    let single_header = |name: HeaderName| {
        let mut all = request.headers().get_all(name).iter();
        // A header that is sent twice does not count.
        all.next().filter(|_| all.next().is_none()).map(|value| value.to_str().unwrap_or_default())
    };
    let elsewhere = request.uri().authority().is_some_and(|authority| authority.as_str() != ours);
    if elsewhere || single_header(HOST) != Some(ours.as_str()) {
        let why = format!("this page is {}: open that address (--url)", state.settings.origin());
        let mut response = PageError::Bad(why).into_response();
        *response.status_mut() = StatusCode::MISDIRECTED_REQUEST;
        return Some(response);
    }
    if is_read(request) {
        return None;
    }
    let site = HeaderName::from_static("sec-fetch-site");
    let has_header = |name: &HeaderName| request.headers().contains_key(name);
    if !has_header(&ORIGIN) && !has_header(&site) {
        let why = "the request does not say which site it comes from (Origin, Sec-Fetch-Site): use a current browser, or kubectl approve";
        return Some(PageError::Refused(why.to_owned()).into_response());
    }
    let is_same = single_header(site.clone()) == Some("same-origin");
    // With `no-referrer` browsers send `null` as the origin of the page's own forms. Only `Sec-Fetch-Site`, which no
    // page can set, distinguishes them from forms of a sandbox.
    let origin = single_header(ORIGIN);
    let is_own = origin == Some(state.settings.origin().as_str()) || (origin == Some("null") && is_same);
    // Each header that was sent must be that of this page. A page of a neighboring host (same-site) is another site.
    if (is_own || !has_header(&ORIGIN)) && (is_same || !has_header(&site)) {
        return None;
    }
    Some(PageError::Refused(FOREIGN.to_owned()).into_response())
}

/// Returns the page of an error with the navigation of its reader. If the API server may not answer, it is not asked
/// for the user, and the navigation is left out.
async fn with_navigation(
    state: &PageState,
    session: Option<Session>,
    error: &PageError,
    is_post: bool,
    response: Response,
) -> Response {
    use PageError as E;
    let answers = match error {
        E::Refused(_) | E::NotFound(_) | E::Bad(_) | E::Changed(_) | E::Mismatch(_) | E::Unreadable(_) => true,
        E::SignIn | E::TooMany(_) | E::Away(_) | E::Unknown(_) | E::Internal(_) => false,
    };
    let session = session.filter(|_| answers);
    let caller = match &session {
        Some(session) => Caller::of(session, state).await.ok(),
        None => None,
    };
    let (head, _) = response.into_parts();
    Response::from_parts(head, problem(error, caller.as_ref(), is_post).into_body())
}

fn is_read(request: &Request) -> bool {
    [Method::GET, Method::HEAD].contains(request.method())
}

/// Redirects a read without a session to the sign-in page, and remembers its address. The answer to a form without a
/// session is a page instead, because its text is a draft.
async fn redirect_to_sign_in(State(state): State<PageState>, request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let query = request.uri().query().map(str::to_owned);
    let is_post = !is_read(&request);
    let looks = !is_post && !path.ends_with("/events");
    let decides = is_post && (path.ends_with("/decide") || path.ends_with("/change"));
    let jar = PrivateCookieJar::from_headers(request.headers(), state.key.clone());
    let response = next.run(request).await;
    match response.extensions().get::<PageError>().cloned() {
        Some(PageError::SignIn) => {}
        Some(error) if !path.ends_with("/events") => {
            let response = with_navigation(&state, cookie::read(&jar), &error, is_post, response).await;
            // Back shows this error too, as it shows every other response to the form of a decision.
            return if decides { page::kept(response) } else { response };
        }
        Some(_) | None => return response,
    }
    let has_ended = cookie::read(&jar).is_some();
    let jar = wanted::remember(jar, &path, query.as_deref(), now());
    let response = match looks {
        true => (jar, Redirect::to("/sign-in")).into_response(),
        false => (jar, response).into_response(),
    };
    if has_ended { page::without_kept(response) } else { response }
}

#[cfg(test)]
mod tests;
