//! A user who reads the page over HTTP, as a browser does, signed in with a token of their own.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleRef, Subject};
use kube::api::{Api, ObjectMeta, PostParams};
use reqwest::redirect::Policy;
use serde::Deserialize;
use signoff_tests::control_plane::WebProcess;

use crate::crowd;
use crate::harness::Harness;

/// The deadline for an API server to apply a new binding.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The pause between two requests: no event tells which bindings the API server applies.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The service account of all readers: groups of service accounts must not be approvers, and a list of hundreds of them
/// would make each request large.
pub(super) const READER: &str = "reader";

/// Tokens of a service account that can read and decide. For the page each token is a session with a feed of its own.
pub(super) struct Readers(Vec<String>);

impl Readers {
    /// Creates the service account and `count` tokens, binds it, and waits until the binding is effective.
    pub(super) async fn prepare(harness: &Harness, namespace: &str, count: usize) -> Result<Self> {
        let accounts: Api<ServiceAccount> = Api::namespaced(harness.admin.clone(), namespace);
        let metadata = ObjectMeta { name: Some(READER.to_owned()), ..ObjectMeta::default() };
        accounts.create(&PostParams::default(), &ServiceAccount { metadata, ..ServiceAccount::default() }).await?;
        let tokens = crowd::each(8, count, async |_| harness.cluster.account_token(namespace, READER).await).await?;
        let distinct: BTreeSet<_> = tokens.iter().collect();
        ensure!(distinct.len() == count, "{count} tokens were asked for, and {} are distinct", distinct.len());
        let binding = ClusterRoleBinding {
            metadata: ObjectMeta { name: Some("bench-readers".to_owned()), ..ObjectMeta::default() },
            role_ref: RoleRef {
                api_group: Some("rbac.authorization.k8s.io".to_owned()),
                kind: "ClusterRole".to_owned(),
                name: "signoff-approver".to_owned(),
            },
            subjects: Some(vec![Subject {
                api_group: None,
                kind: "ServiceAccount".to_owned(),
                name: READER.to_owned(),
                namespace: Some(namespace.to_owned()),
            }]),
        };
        Api::<ClusterRoleBinding>::all(harness.admin.clone()).create(&PostParams::default(), &binding).await?;
        let readers = Self(tokens);
        let client = harness.cluster.bearer(readers.token(0)?).await?;
        let deadline = Instant::now() + TIMEOUT;
        while let Err(error) = crowd::get(&client, "/apis/signoff.dev/v1alpha1/approvals?limit=1").await {
            ensure!(
                Instant::now() < deadline,
                "readers may not list Approvals {TIMEOUT:?} after they were bound: {error:#}"
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(readers)
    }

    /// Returns the token of one reader.
    pub(super) fn token(&self, number: usize) -> Result<&str> {
        Ok(self.0.get(number).with_context(|| format!("there is no reader {number}"))?)
    }
}

/// A reader who is signed in.
pub(super) struct Reader {
    client: reqwest::Client,
    url: String,
    cookies: String,
}

impl Reader {
    /// Signs a reader in. The number determines their address: sign-ins are limited by address.
    pub(super) async fn sign_in(web: &WebProcess, token: &str, number: usize) -> Result<Self> {
        let client = reqwest::Client::builder().no_proxy().redirect(Policy::none()).build()?;
        let url = web.url().to_owned();
        let body = format!("token={token}");
        let request = client.post(format!("{url}/sign-in/token")).header("origin", &url);
        let request = request.header("x-forwarded-for", format!("10.0.{}.{}", number / 250, number % 250 + 1));
        let request = request.header("content-type", "application/x-www-form-urlencoded").body(body);
        let answer = request.send().await?;
        ensure!(answer.status() == 303, "reader {number} is not signed in: {}", answer.status());
        let set = answer.headers().get_all("set-cookie").iter().filter_map(|value| value.to_str().ok());
        let cookies: Vec<_> =
            set.filter_map(|cookie| cookie.split(';').next()).filter(|one| !one.ends_with('=')).collect();
        ensure!(!cookies.is_empty(), "reader {number} has no session");
        Ok(Self { client, url, cookies: cookies.join("; ") })
    }

    /// Returns the body of the page at this path, as the reader gets it.
    pub(super) async fn get(&self, path: &str) -> Result<String> {
        let answer = self.ask(path).await?;
        Ok(answer.text().await?)
    }

    /// Opens the live page of the reader.
    pub(super) async fn live(&self) -> Result<Events> {
        let stream = self.ask("/events").await?.bytes_stream();
        Ok(Events { stream: Box::pin(stream.map(|piece| piece.map(|bytes| bytes.to_vec()))), text: String::new() })
    }

    async fn ask(&self, path: &str) -> Result<reqwest::Response> {
        let answer = self.client.get(format!("{}{path}", self.url)).header("cookie", &self.cookies).send().await?;
        ensure!(answer.status() == 200, "{path} answers with {}", answer.status());
        Ok(answer)
    }
}

/// The events of one live page.
pub(super) struct Events {
    stream: Pin<Box<dyn Stream<Item = reqwest::Result<Vec<u8>>>>>,
    text: String,
}

#[derive(Deserialize)]
struct Said {
    waiting: usize,
}

impl Events {
    /// Waits for the next event; returns how many requests wait for the reader.
    pub(super) async fn waiting(&mut self) -> Result<usize> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let data = event.lines().find_map(|line| line.strip_prefix("data: ").map(str::to_owned));
                self.text = rest.to_owned();
                // A comment only keeps the stream alive.
                let Some(data) = data else { continue };
                return Ok(serde_json::from_str::<Said>(&data).with_context(|| format!("the event {data}"))?.waiting);
            }
            let piece = self.stream.next().await.context("the live page has ended")??;
            self.text.push_str(&String::from_utf8_lossy(&piece));
        }
    }
}

/// Returns the files that a page loads, by path.
pub(super) fn files(page: &str) -> Vec<String> {
    let mut files: Vec<String> =
        page.split(['"', '\'']).filter(|text| text.starts_with("/static/")).map(str::to_owned).collect();
    files.sort();
    files.dedup();
    files
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_page_names_its_files_once() {
        let page = r#"<link href="/static/1/a.css"><script src="/static/1/b.js"></script><a href="/">x</a><link href="/static/1/a.css">"#;
        assert_eq!(files(page), ["/static/1/a.css", "/static/1/b.js"]);
    }

    #[tokio::test]
    async fn events_are_told_from_comments_and_may_come_in_pieces() {
        let pieces =
            [": alive\n\nevent: inbox\nda", "ta: {\"waiting\":7,\"version\":1}\n", "\ndata: {\"waiting\":6}\n\n"];
        let stream = futures::stream::iter(pieces.map(|piece| Ok(piece.as_bytes().to_vec())));
        let mut events = Events { stream: Box::pin(stream), text: String::new() };
        assert_eq!(events.waiting().await.unwrap(), 7);
        assert_eq!(events.waiting().await.unwrap(), 6);
        assert!(events.waiting().await.is_err());
    }
}
