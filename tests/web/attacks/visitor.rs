//! A visitor of the page without a browser: every header and cookie is set by the test, and redirects are not followed.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{Api, PostParams};
use reqwest::header::{COOKIE, HeaderMap, SET_COOKIE};
use reqwest::{Client, Method, Response};
use serde_json::json;
use signoff_api::Approval;
use signoff_tests::control_plane::{CLIENT, Cluster, WebProcess, Witness, named};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::Harness;
use crate::runs::{Runs, path};

/// A person, or a program that acts for one.
#[derive(Clone)]
pub(crate) struct Visitor {
    http: Client,
    /// The address that people open.
    pub(crate) url: String,
    pub(crate) cookies: BTreeMap<String, String>,
    /// The token; empty before signing in.
    pub(crate) token: String,
}

/// An answer of the page.
#[derive(Debug)]
pub(crate) struct PageAnswer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl PageAnswer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Returns the value of the field `confirmed` of a confirmation page; `None` on any other page.
    pub(crate) fn confirmation(&self) -> Option<&str> {
        let (_, rest) = self.text.split_once("name=\"confirmed\" value=\"")?;
        rest.split('"').next()
    }
}

impl Visitor {
    /// Returns a visitor who has not signed in.
    pub(crate) fn stranger(web: &WebProcess) -> Self {
        let http = Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        Self { http, url: web.url().to_owned(), cookies: BTreeMap::new(), token: String::new() }
    }

    /// Returns a person of the cast who has signed in with a token of the issuer.
    pub(crate) async fn of(harness: &Harness, person: &str) -> Self {
        Self::with_token(&harness.web, &token(harness, named(person).unwrap().user).await).await
    }

    /// Signs in with a token.
    pub(crate) async fn with_token(web: &WebProcess, token: &str) -> Self {
        let mut visitor = Self::stranger(web);
        let answer = visitor.post("/sign-in/token", &[("token", token)]).await;
        assert_eq!(answer.status, 303, "{}", answer.text);
        visitor.store_cookies(&answer);
        token.clone_into(&mut visitor.token);
        visitor
    }

    /// Stores and deletes the cookies of an answer as a browser does.
    pub(crate) fn store_cookies(&mut self, answer: &PageAnswer) {
        for cookie in answer.headers.get_all(SET_COOKIE) {
            let cookie = cookie.to_str().unwrap();
            let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
            if value.is_empty() || cookie.contains("Max-Age=0") {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
    }

    /// Requests a page.
    pub(crate) async fn get(&self, path: &str) -> PageAnswer {
        self.send("GET", path, &[], None).await
    }

    /// Sends a form of the page, as a browser does.
    pub(crate) async fn post(&self, path: &str, fields: &[(&str, &str)]) -> PageAnswer {
        let headers = [("origin", self.url.as_str()), ("sec-fetch-site", "same-origin"), FORM];
        self.send("POST", path, &headers, Some(form(fields))).await
    }

    /// Approves a request, and confirms it.
    pub(crate) async fn approve(&self, approval: &Approval) -> PageAnswer {
        self.decide(&path(approval), &approval_fields(approval)[..2]).await
    }

    /// Sends a decision, and confirms it if the page asks. Returns the last answer.
    pub(crate) async fn decide(&self, path: &str, fields: &[(&str, &str)]) -> PageAnswer {
        let headers = [("origin", self.url.as_str()), ("sec-fetch-site", "same-origin"), FORM];
        self.decide_with(&format!("{path}/decide"), fields, &headers).await
    }

    /// Sends a decision as [`Self::decide`] does, to any path and with any headers.
    pub(crate) async fn decide_with(
        &self,
        path: &str,
        fields: &[(&str, &str)],
        headers: &[(&str, &str)],
    ) -> PageAnswer {
        let shown = self.send("POST", path, headers, Some(form(fields))).await;
        let Some(confirmation) = shown.confirmation() else { return shown };
        self.send("POST", path, headers, Some(form(&[fields, &[("confirmed", confirmation)]].concat()))).await
    }

    /// Sends a request with the cookies, and reads the whole answer.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<String>,
    ) -> PageAnswer {
        let answer = self.send_open(method, path, headers, body).await;
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        PageAnswer { status, headers, text: answer.text().await.unwrap() }
    }

    /// Sends a request as [`Self::send`] does, without waiting for the end of the answer.
    pub(crate) async fn send_open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<String>,
    ) -> Response {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        if !self.cookies.is_empty() {
            request = request.header(COOKIE, self.cookie());
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(body.unwrap_or_default()).send().await.unwrap()
    }

    /// Returns the header with all cookies.
    pub(crate) fn cookie(&self) -> String {
        self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ")
    }

    /// Sends a request with a path that an HTTP client would change. Returns the status and the whole answer.
    pub(crate) async fn send_raw(&self, method: &str, path: &str, more: &str) -> (u16, String) {
        let host = self.url.strip_prefix("http://").unwrap();
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nCookie: {}\r\nConnection: close\r\n{more}\r\n",
            self.cookie()
        );
        send_raw(host, &text).await
    }
}

/// Sends bytes and reads until the server closes the connection.
pub(crate) async fn send_raw(host: &str, text: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(host).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
    (status, answer)
}

/// The header of a form.
pub(crate) const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

/// Returns the body of a form.
pub(crate) fn form(fields: &[(&str, &str)]) -> String {
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}

/// Returns the fields of a form that approves a request and skips the confirmation page.
pub(crate) fn approval_fields(approval: &Approval) -> [(&str, &str); 3] {
    [("digest", approval.spec.request.digest.as_str()), ("verdict", "Approve"), ("confirmed", "yes")]
}

/// Returns a token of the issuer: for an address, or for `email=…&groups=…&seconds=…`.
pub(crate) async fn token(harness: &Harness, hint: &str) -> String {
    harness.issuer.tokens(CLIENT, hint).await.unwrap().id_token
}

/// Binds a role to a group in a namespace, and waits until the binding is effective.
pub(crate) async fn bind_group(cluster: &Cluster, runs: &Runs, role: &str, group: &str) {
    let api = "rbac.authorization.k8s.io";
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": {"generateName": "group-"},
        "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": api, "kind": "Group", "name": group}],
    }))
    .unwrap();
    let bindings: Api<RoleBinding> = Api::namespaced(cluster.admin().await.unwrap(), runs.name());
    bindings.create(&PostParams::default(), &binding).await.unwrap();
    // This binding is effective once a later binding is.
    runs.namespace.bind("view", "nobody@example.com").await.unwrap();
}

/// Returns the requests that the witness recorded for users, without the page's own check of the API server.
pub(crate) fn requests_of_users(witness: &Witness) -> Vec<signoff_tests::control_plane::Seen> {
    witness.seen().into_iter().filter(|seen| seen.path != "/livez").collect()
}

/// Fails when the witness recorded a request that changes something, even as a dry run.
pub(crate) fn assert_only_reads(witness: &Witness) {
    for seen in requests_of_users(witness) {
        // A review of a user and of their rights is a POST that stores nothing.
        let is_review =
            ["/selfsubjectreviews", "/selfsubjectaccessreviews"].iter().any(|kind| seen.path.contains(kind));
        assert!(
            seen.reads() || (seen.method == http::Method::POST && is_review),
            "{} {}: {}",
            seen.method,
            seen.path,
            seen.body
        );
    }
}
