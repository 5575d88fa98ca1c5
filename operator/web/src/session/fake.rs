//! An identity provider, an API server and a browser for the tests of sessions.
//!
//! The provider is as strict as a real one: codes are used once, and PKCE is checked. The API server accepts only its
//! own tokens.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{Router, body::Body, extract::ConnectInfo, response::Response};
use axum_extra::extract::cookie::Key;
use base64::{Engine, engine::general_purpose::STANDARD, engine::general_purpose::URL_SAFE_NO_PAD};
use clap::Parser;
use futures::FutureExt;
use http::{HeaderMap, Request, StatusCode, header};
use openidconnect::{
    HttpRequest, HttpResponse, JsonWebKeyId, PrivateSigningKey,
    core::{CoreEdDsaPrivateSigningKey, CoreHmacKey, CoreJwsSigningAlgorithm},
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use signoff_review::foreseen::Counter;
use tower::ServiceExt;

use super::{
    Overviews, Sessions,
    fetch::{Fetch, FetchError},
    oidc::Issuer,
};
use crate::{
    api_server::Connection,
    live::{Feeds, Streams},
    routes,
    settings::Settings,
    state::{PageState, Parts},
};

pub const ISSUER: &str = "https://idp.example";
pub const PAGE: &str = "https://signoff.example";

/// A key with its id.
#[derive(Clone, Copy)]
pub struct SigningKey(pub u8, pub &'static str);

pub const FIRST: SigningKey = SigningKey(1, "first");
pub const SECOND: SigningKey = SigningKey(2, "second");

impl SigningKey {
    fn private(self) -> CoreEdDsaPrivateSigningKey {
        let mut der = hex::decode("302e020100300506032b657004220420").unwrap();
        der.extend([self.0; 32]);
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", STANDARD.encode(der));
        CoreEdDsaPrivateSigningKey::from_ed25519_pem(&pem, Some(JsonWebKeyId::new(self.1.to_owned()))).unwrap()
    }

    fn public(self) -> Value {
        serde_json::to_value(self.private().as_verification_key()).unwrap()
    }

    /// Returns a token with claims, signed with EdDSA.
    pub fn sign(self, claims: &Value) -> String {
        let input = input(&json!({"alg": "EdDSA", "kid": self.1, "typ": "JWT"}), claims);
        let signature = self.private().sign(&CoreJwsSigningAlgorithm::EdDsa, input.as_bytes()).unwrap();
        format!("{input}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// Returns a token with claims, signed with a secret (HS256).
pub fn sign_with_secret(secret: &str, claims: &Value) -> String {
    let input = input(&json!({"alg": "HS256", "kid": FIRST.1}), claims);
    let key = CoreHmacKey::new(secret);
    let signature = key.sign(&CoreJwsSigningAlgorithm::HmacSha256, input.as_bytes()).unwrap();
    format!("{input}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// Returns a token with claims and without a signature.
pub fn unsigned_token(claims: &Value) -> String {
    format!("{}.", input(&json!({"alg": "none"}), claims))
}

fn input(header: &Value, claims: &Value) -> String {
    format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(claims.to_string()))
}

/// Returns the time `from_now` seconds from now, in seconds since 1970.
pub fn seconds(from_now: i64) -> i64 {
    jiff::Timestamp::now().as_second() + from_now
}

/// The state and the behavior of the identity provider.
#[derive(Default)]
pub struct Idp {
    pub keys: Vec<SigningKey>,
    pub is_away: bool,
    /// Whether the provider accepts requests and does not answer them.
    pub is_silent: bool,
    /// The number of requests that the provider did not answer.
    pub unanswered: usize,
    pub asked_for_keys: usize,
    pub asked_for_tokens: usize,
    codes: HashMap<String, BTreeMap<String, String>>,
    pub make: Option<Box<dyn Fn(Value) -> String + Send>>,
    pub claims: Value,
}

impl Idp {
    /// Authorizes a sign-in, as the page of the provider does, and returns the code.
    fn authorize(&mut self, query: &BTreeMap<String, String>) -> String {
        assert_eq!(query["redirect_uri"], format!("{PAGE}/sign-in/callback"));
        assert_eq!((query["response_type"].as_str(), query["code_challenge_method"].as_str()), ("code", "S256"));
        assert!(query["scope"].split(' ').any(|scope| scope == "openid"), "{query:?}");
        let code = format!("code-{}", self.codes.len());
        self.codes.insert(code.clone(), query.clone());
        code
    }

    fn answer(&mut self, request: &HttpRequest) -> Result<HttpResponse, FetchError> {
        if self.is_away {
            return Err(FetchError("connection refused".to_owned()));
        }
        let (status, body) = match request.uri().path() {
            "/.well-known/openid-configuration" => (
                200,
                json!({
                    "issuer": ISSUER, "authorization_endpoint": format!("{ISSUER}/authorize"), "token_endpoint": format!("{ISSUER}/token"),
                    "jwks_uri": format!("{ISSUER}/keys"), "response_types_supported": ["code"], "subject_types_supported": ["public"],
                    "id_token_signing_alg_values_supported": ["RS256", "EdDSA"],
                }),
            ),
            "/keys" => {
                self.asked_for_keys += 1;
                (200, json!({"keys": self.keys.iter().map(|key| key.public()).collect::<Vec<_>>()}))
            }
            "/token" => self.token(request),
            other => panic!("{other}"),
        };
        let response = http::Response::builder().status(status).header(header::CONTENT_TYPE, "application/json");
        Ok(response.body(body.to_string().into_bytes()).unwrap())
    }

    fn token(&mut self, request: &HttpRequest) -> (u16, Value) {
        self.asked_for_tokens += 1;
        let form: BTreeMap<String, String> = url::form_urlencoded::parse(request.body()).into_owned().collect();
        let refused = (400, json!({"error": "invalid_grant", "error_description": "this code is not known"}));
        let Some(begun) = self.codes.remove(&form["code"]) else { return refused };
        if URL_SAFE_NO_PAD.encode(Sha256::digest(&form["code_verifier"])) != begun["code_challenge"] {
            return refused;
        }
        let mut claims = json!({"iss": ISSUER, "aud": "signoff", "sub": "alice", "nonce": begun["nonce"], "iat": seconds(0), "exp": seconds(3600)});
        for (name, value) in self.claims.as_object().into_iter().flatten() {
            claims[name] = value.clone();
        }
        let token = match &self.make {
            Some(make) => make(claims),
            None => self.keys[0].sign(&claims),
        };
        (200, json!({"access_token": "a", "token_type": "Bearer", "id_token": token}))
    }
}

/// A page between a fake provider and a fake API server.
pub struct World {
    pub idp: Arc<Mutex<Idp>>,
    /// The headers of every request that the API server received.
    pub seen: Arc<Mutex<Vec<HeaderMap>>>,
    /// The users by token; `*` is any id_token.
    pub tokens: Arc<Mutex<HashMap<String, String>>>,
    pub state: PageState,
    pub page: Router,
}

impl World {
    pub fn new(flags: &[&str]) -> Self {
        Self::with_key(flags, Key::generate())
    }

    pub fn with_key(flags: &[&str], key: Key) -> Self {
        let base = [
            "signoff-web",
            "--url",
            PAGE,
            "--oidc-issuer",
            ISSUER,
            "--oidc-client-id",
            "signoff",
            "--oidc-scope",
            "groups",
        ];
        let settings = Settings::try_parse_from(base.iter().chain(flags)).unwrap();
        assert_eq!(settings.problem(), None);
        let idp = Arc::new(Mutex::new(Idp { keys: vec![FIRST], ..Idp::default() }));
        let asked = Arc::clone(&idp);
        let fetch = Fetch::through(move |request| {
            let mut idp = asked.lock().unwrap();
            if idp.is_silent {
                idp.unanswered += 1;
                return async {
                    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
                    Err(FetchError("operation timed out".to_owned()))
                }
                .boxed();
            }
            let answer = idp.answer(&request);
            async move { answer }.boxed()
        });
        let sessions = Sessions::of(&settings, Some(Issuer::new(&settings, fetch).unwrap()));
        let (seen, tokens) =
            (Arc::<Mutex<Vec<HeaderMap>>>::default(), Arc::<Mutex<HashMap<String, String>>>::default());
        let connection = Connection::over(api_server(Arc::clone(&seen), Arc::clone(&tokens)), settings.auth);
        let (feeds, streams, counter) = (Feeds::new(10), Streams::new(10), Counter::start(1).unwrap());
        let state = PageState::new(Parts {
            settings,
            connection,
            sessions,
            feeds,
            streams,
            overviews: Overviews::default(),
            counter,
            key,
        });
        let page = routes::router(state.clone());
        Self { idp, seen, tokens, state, page }
    }

    /// Makes the API server accept a token as one of a user.
    pub fn accept_token(&self, token: &str, user: &str) {
        self.tokens.lock().unwrap().insert(token.to_owned(), user.to_owned());
    }

    /// Returns the number of requests that the API server received.
    pub fn count_requests(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}

/// Returns an API server that only answers requests for the user of a token.
fn api_server(seen: Arc<Mutex<Vec<HeaderMap>>>, tokens: Arc<Mutex<HashMap<String, String>>>) -> kube::Client {
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let headers = request.headers().clone();
        seen.lock().unwrap().push(headers.clone());
        let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        let bearer = text("authorization").and_then(|value| value.strip_prefix("Bearer ").map(str::to_owned));
        let tokens = tokens.lock().unwrap();
        let user = text("impersonate-user").or_else(|| {
            let bearer = bearer?;
            tokens.get(&bearer).or_else(|| tokens.get("*").filter(|_| bearer.split('.').count() == 3)).cloned()
        });
        let (status, body) = match user {
            Some(user) => (
                201,
                json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {}, "status": {"userInfo": {"username": user}}}),
            ),
            None => (
                401,
                json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 401, "reason": "Unauthorized", "message": "Unauthorized"}),
            ),
        };
        let response = http::Response::builder().status(status).header(header::CONTENT_TYPE, "application/json");
        let response = response.body(http_body_util::Full::new(bytes::Bytes::from(body.to_string()))).unwrap();
        async move { Ok::<_, std::convert::Infallible>(response) }
    });
    signoff_cluster::client::connect_service(service, "default")
}

/// A browser, which keeps cookies and sends the site of a form.
#[derive(Clone, Default)]
pub struct Browser {
    pub cookies: BTreeMap<String, String>,
    pub more: Vec<(String, String)>,
}

impl Browser {
    pub async fn get(&mut self, world: &World, path: &str) -> Response {
        self.send(world, Request::get(path).body(Body::empty()).unwrap()).await
    }

    pub async fn post(&mut self, world: &World, path: &str, form: &str) -> Response {
        let request = Request::post(path)
            .header(header::ORIGIN, PAGE)
            .header("sec-fetch-site", "same-origin")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        self.send(world, request.body(Body::from(form.to_owned())).unwrap()).await
    }

    pub async fn send(&mut self, world: &World, mut request: Request<Body>) -> Response {
        let peer: SocketAddr = "192.0.2.7:4711".parse().unwrap();
        request.extensions_mut().insert(ConnectInfo(peer));
        let headers = request.headers_mut();
        headers.entry(header::HOST).or_insert(PAGE.trim_start_matches("https://").parse().unwrap());
        for (name, value) in &self.more {
            headers.append(http::HeaderName::try_from(name).unwrap(), value.parse().unwrap());
        }
        let cookies: Vec<_> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if !cookies.is_empty() {
            headers.insert(header::COOKIE, cookies.join("; ").parse().unwrap());
        }
        let response = world.page.clone().oneshot(request).await.unwrap();
        for line in response.headers().get_all(header::SET_COOKIE) {
            let line = line.to_str().unwrap();
            let (name, value) = line.split(';').next().unwrap().split_once('=').unwrap();
            if line.contains("Max-Age=0") || value.is_empty() {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        response
    }

    /// Begins a sign-in, authorizes it at the provider, and returns the path to which the browser returns.
    pub async fn begin(&mut self, world: &World) -> String {
        let response = self.post(world, "/sign-in/start", "").await;
        assert_eq!(response.status(), StatusCode::OK);
        let refresh = response.headers()["refresh"].to_str().unwrap().to_owned();
        let url: url::Url = refresh.strip_prefix("0; url=").unwrap().parse().unwrap();
        assert_eq!(url.as_str().split('?').next().unwrap(), format!("{ISSUER}/authorize"));
        let query: BTreeMap<String, String> = url.query_pairs().into_owned().collect();
        let code = world.idp.lock().unwrap().authorize(&query);
        format!("/sign-in/callback?code={code}&state={}", query["state"])
    }

    /// Signs in with the provider.
    pub async fn sign_in(&mut self, world: &World) -> Response {
        let back = self.begin(world).await;
        self.get(world, &back).await
    }

    /// Whether the page accepts the session of the browser.
    pub async fn is_signed_in(&mut self, world: &World) -> bool {
        self.get(world, "/sign-in").await.status() == StatusCode::SEE_OTHER
    }
}

pub fn location(response: &Response) -> &str {
    assert_eq!(response.status(), StatusCode::SEE_OTHER);
    response.headers()[header::LOCATION].to_str().unwrap()
}

pub async fn text(response: Response) -> String {
    let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}
