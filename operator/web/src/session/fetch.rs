//! Requests to the identity provider: over TLS, without redirects, and bounded in time and size.
//!
//! **Invariant:** a request has no header or cookie of a browser's request.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::Context;
use futures::{FutureExt, future::BoxFuture};
use openidconnect::{AsyncHttpClient, HttpRequest, HttpResponse};
use signoff_cluster::error::innermost;

/// The time in which a connection must be established.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time in which an answer must be complete.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest answer, in bytes. Documents of an identity provider have some kilobytes.
const LARGEST: usize = 512 * 1024;

/// The reason why there is no answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct FetchError(pub String);

type Send = dyn Fn(HttpRequest) -> BoxFuture<'static, Result<HttpResponse, FetchError>> + std::marker::Send + Sync;

/// A client of the identity provider.
#[derive(Clone)]
pub struct Fetch(Arc<Send>);

impl Fetch {
    /// Returns a client that trusts the certificates of a file, or those of the system without a file.
    ///
    /// # Errors
    /// A file that cannot be read, or has no certificates.
    pub fn new(ca_file: Option<&Path>) -> anyhow::Result<Self> {
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("signoff-web/", env!("CARGO_PKG_VERSION")))
            .https_only(true)
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(ANSWER_TIMEOUT);
        if let Some(path) = ca_file {
            let named = || format!("{} (--oidc-ca-file)", path.display());
            let pem = std::fs::read(path).with_context(|| format!("reading {}", named()))?;
            let all = reqwest::Certificate::from_pem_bundle(&pem).with_context(named)?;
            anyhow::ensure!(!all.is_empty(), "{} has no certificate: write one into it as PEM", named());
            builder = builder.tls_certs_only(all);
        }
        let client = builder.build().context("preparing connections to the identity provider")?;
        Ok(Self::through(move |request| exchange(client.clone(), request).boxed()))
    }

    /// Returns a client that sends requests by a function.
    pub(crate) fn through(
        send: impl Fn(HttpRequest) -> BoxFuture<'static, Result<HttpResponse, FetchError>>
        + std::marker::Send
        + Sync
        + 'static,
    ) -> Self {
        Self(Arc::new(send))
    }
}

impl AsyncHttpClient<'_> for Fetch {
    type Error = FetchError;
    type Future = BoxFuture<'static, Result<HttpResponse, FetchError>>;

    fn call(&self, request: HttpRequest) -> Self::Future {
        (self.0)(request)
    }
}

async fn exchange(client: reqwest::Client, request: HttpRequest) -> Result<HttpResponse, FetchError> {
    let host = request.uri().host().unwrap_or_default().to_owned();
    let failed = |error: reqwest::Error| FetchError(format!("{host}: {}", innermost(&error)));
    let request = reqwest::Request::try_from(request).map_err(failed)?;
    let mut answer = client.execute(request).await.map_err(failed)?;
    let mut body = Vec::new();
    while let Some(part) = answer.chunk().await.map_err(failed)? {
        if body.len() + part.len() > LARGEST {
            return Err(FetchError(format!("{host} sends more than {LARGEST} bytes")));
        }
        body.extend_from_slice(&part);
    }
    let mut response = http::Response::new(body);
    *response.status_mut() = answer.status();
    *response.headers_mut() = answer.headers().clone();
    Ok(response)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn request_without_tls_is_refused() {
        let request =
            http::Request::get("http://127.0.0.1:9/.well-known/openid-configuration").body(Vec::new()).unwrap();
        let refused = Fetch::new(None).unwrap().call(request).await.unwrap_err();
        assert_eq!(refused.to_string(), "127.0.0.1: URL scheme is not allowed");
    }

    #[test]
    fn file_without_certificates_is_named_in_the_error() {
        let problem = |path: &Path| format!("{:#}", Fetch::new(Some(path)).err().unwrap());
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        assert!(problem(&file).contains("Cargo.toml (--oidc-ca-file) has no certificate"), "{}", problem(&file));
        let missing = problem(Path::new("/none/ca.crt"));
        assert!(missing.contains("reading /none/ca.crt (--oidc-ca-file)"), "{missing}");
    }
}
