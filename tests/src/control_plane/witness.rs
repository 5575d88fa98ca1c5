//! A proxy between the page and the API server that records the user of each request, and that can be closed or slow.
//! Requests and answers pass unchanged.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use kube::config::Kubeconfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::authority::Certificates;
use super::cluster::Cluster;
use super::kubeconfig;
use super::plane::private_folder;

type Body = UnsyncBoxBody<Bytes, reqwest::Error>;

/// A request that the page sent to the API server.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The HTTP method, such as `GET`.
    pub method: Method,
    /// The path with its query.
    pub path: String,
    /// All headers, with `Authorization` and `Impersonate-*`.
    pub headers: HeaderMap,
    /// The body, as text.
    pub body: String,
    /// The status of the API server's answer; `None` before the answer.
    pub status: Option<u16>,
}

impl Seen {
    /// Returns the bearer token, or `None`.
    #[must_use]
    pub fn token(&self) -> Option<&str> {
        self.headers.get("authorization")?.to_str().ok()?.strip_prefix("Bearer ")
    }

    /// Returns all headers `Impersonate-*`, in order, by their lowercase names.
    #[must_use]
    pub fn impersonates(&self) -> Vec<(String, String)> {
        let headers = self.headers.iter().filter(|(name, _)| name.as_str().starts_with("impersonate-"));
        headers
            .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
            .collect()
    }

    /// Returns whether the request only reads.
    #[must_use]
    pub fn reads(&self) -> bool {
        matches!(self.method, Method::GET | Method::HEAD)
    }
}

/// A running witness. It ends with the test that started it.
pub struct Witness {
    shared: Arc<Shared>,
    address: SocketAddr,
    tls: TlsAcceptor,
    serving: tokio::sync::Mutex<Option<JoinHandle<()>>>,
    folder: TempDir,
    authority: PathBuf,
}

struct Shared {
    upstream: String,
    client: reqwest::Client,
    seen: Mutex<Vec<Seen>>,
    delay: Mutex<Duration>,
}

impl Witness {
    /// Starts a witness before a cluster's API server.
    ///
    /// # Errors
    /// The cluster's kubeconfig names no server.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        super::install_tls();
        let folder = private_folder("signoff-witness-", &std::env::temp_dir())?;
        let certificates = Certificates::create(folder.path())?;
        let config = Kubeconfig::read_from(cluster.kubeconfig())?;
        let server = config.clusters.first().and_then(|named| named.cluster.clone()).context("no cluster")?;
        let authority = server.certificate_authority.context("a cluster without a file of its authority")?;
        let trusted = reqwest::Certificate::from_pem_bundle(&std::fs::read(&authority)?)?;
        let client = reqwest::Client::builder().no_proxy().tls_certs_only(trusted);
        let client = client.redirect(reqwest::redirect::Policy::none()).build()?;

        let chain = CertificateDer::pem_file_iter(&certificates.certificate)?.collect::<Result<_, _>>()?;
        let key = PrivateKeyDer::from_pem_file(&certificates.key)?;
        let tls = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;

        let shared = Shared {
            upstream: server.server.context("a cluster without a server")?,
            client,
            seen: Mutex::default(),
            delay: Mutex::default(),
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let witness = Self {
            shared: Arc::new(shared),
            address,
            tls: TlsAcceptor::from(Arc::new(tls)),
            serving: tokio::sync::Mutex::default(),
            folder,
            authority: certificates.authority,
        };
        *witness.serving.lock().await = Some(witness.serve(listener));
        Ok(witness)
    }

    /// Writes a kubeconfig with the witness as the server, and with this token or without a login.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn kubeconfig(&self, token: Option<&str>) -> Result<PathBuf> {
        let name = if token.is_some() { "login.yaml" } else { "nobody.yaml" };
        let file = self.folder.path().join(name);
        kubeconfig::write(&file, &kubeconfig::with_login(&self.url(), &self.authority, token))?;
        Ok(file)
    }

    /// Returns the address at which it listens.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Returns the certificate of its authority.
    #[must_use]
    pub fn authority(&self) -> &Path {
        &self.authority
    }

    /// Returns every request since the start or since [`Self::forget`], in the order in which they came.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        lock(&self.shared.seen).clone()
    }

    /// Forgets all requests.
    pub fn forget(&self) {
        lock(&self.shared.seen).clear();
    }

    /// Delays every later request by this duration before it is passed on.
    pub fn delay(&self, delay: Duration) {
        *lock(&self.shared.delay) = delay;
    }

    /// Closes the witness, as if the API server were away: connections break, and new ones are refused.
    pub async fn close(&self) {
        if let Some(serving) = self.serving.lock().await.take() {
            serving.abort();
            // The task always ends with an error here; the port is free now.
            let _ = serving.await;
        }
    }

    /// Opens the witness again at the same address.
    ///
    /// # Errors
    /// Another process took the port.
    pub async fn open(&self) -> Result<()> {
        let mut serving = self.serving.lock().await;
        if serving.is_none() {
            *serving = Some(self.serve(TcpListener::bind(self.address).await?));
        }
        Ok(())
    }

    fn serve(&self, listener: TcpListener) -> JoinHandle<()> {
        let (shared, tls) = (Arc::clone(&self.shared), self.tls.clone());
        tokio::spawn(async move {
            // Connections end with this task, because the set is dropped with it.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                connections.spawn(serve_connection(Arc::clone(&shared), tls.clone(), stream));
            }
        })
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        if let Some(serving) = self.serving.get_mut().take() {
            serving.abort();
        }
    }
}

/// Serves one connection. Its errors are ignored, because the client notices them.
async fn serve_connection(shared: Arc<Shared>, tls: TlsAcceptor, stream: TcpStream) {
    let Ok(stream) = tls.accept(stream).await else { return };
    let service = hyper::service::service_fn(|request| {
        let shared = Arc::clone(&shared);
        async move { shared.pass_on(request).await }
    });
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

impl Shared {
    /// Records a request and returns its number.
    fn record(&self, request: Seen) -> usize {
        let mut seen = lock(&self.seen);
        seen.push(request);
        seen.len() - 1
    }

    /// Sends a request to the API server and returns its answer.
    async fn pass_on(&self, request: Request<Incoming>) -> Result<Response<Body>, hyper::Error> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let number = self.record(Seen {
            method: parts.method.clone(),
            path: path.clone(),
            headers: parts.headers.clone(),
            body: String::from_utf8_lossy(&body).into_owned(),
            status: None,
        });
        let delay = *lock(&self.delay);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let mut headers = parts.headers;
        for name in ["host", "connection", "transfer-encoding", "content-length"] {
            headers.remove(name);
        }
        let url = format!("{}{path}", self.upstream);
        let sent = self.client.request(parts.method, url).headers(headers).body(body).send().await;
        let answer = match sent {
            Ok(answer) => answer,
            Err(error) => return Ok(bad_gateway(&error)),
        };
        // After `forget` this number may belong to another request or to none; then no status is written.
        if let Some(seen) = lock(&self.seen).get_mut(number).filter(|seen| seen.path == path && seen.status.is_none()) {
            seen.status = Some(answer.status().as_u16());
        }
        let (status, mut headers) = (answer.status(), answer.headers().clone());
        for name in ["connection", "transfer-encoding", "content-length"] {
            headers.remove(name);
        }
        // Pieces of the body are passed on as they come, because a watch never ends.
        let stream = answer.bytes_stream().map(|piece| piece.map(Frame::data));
        let mut response = Response::new(StreamBody::new(stream).boxed_unsync());
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        Ok(response)
    }
}

/// Returns the answer for a request that did not reach the API server.
fn bad_gateway(error: &reqwest::Error) -> Response<Body> {
    let text = Full::new(Bytes::from(format!("the witness: {error}")));
    let mut response = Response::new(text.map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
