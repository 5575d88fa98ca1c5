//! A small HTTP server on loopback that answers as its caller decides, and records its requests.

mod tool_server;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub use tool_server::ToolServer;

/// The largest request that is read, in bytes.
const MAX_REQUEST_BYTES: usize = 16 << 20;

/// A request that the server got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Method, path and query: `GET /orders/4711?full`.
    pub what: String,
    /// The whole body; bytes that are not UTF-8 are replaced.
    pub body: String,
    /// The headers, by their lowercase names; of headers with the same name the last.
    pub headers: BTreeMap<String, String>,
}

/// The function that answers a request; its first argument is the number of the request, from 0.
type Answerer = dyn Fn(usize, &Received) -> Response + Send + Sync;

struct Shared {
    received: Mutex<Vec<Received>>,
    answer: Box<Answerer>,
}

/// A running server. Dropping it ends it.
pub struct Loopback {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: JoinHandle<std::io::Result<()>>,
}

impl Loopback {
    /// Starts a server on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// There is no free port.
    pub async fn start(answer: impl Fn(usize, &Received) -> Response + Send + Sync + 'static) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("a port on loopback")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { received: Mutex::default(), answer: Box::new(answer) });
        let router = Router::new().fallback(record_and_answer).with_state(Arc::clone(&shared));
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { address, shared, server })
    }

    /// Returns the address at which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address as `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns all requests so far, in order.
    #[must_use]
    pub fn received(&self) -> Vec<Received> {
        self.shared.received.lock().map(|received| received.clone()).unwrap_or_default()
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Returns an answer of JSON.
#[must_use]
pub fn json(value: &Value) -> Response {
    ([("content-type", "application/json")], value.to_string()).into_response()
}

/// Returns an answer of text.
#[must_use]
pub fn text(status: u16, text: impl Into<String>) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, text.into()).into_response()
}

async fn record_and_answer(State(shared): State<Arc<Shared>>, request: Request<Body>) -> Response {
    let target = request.uri().path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string);
    let what = format!("{} {target}", request.method());
    let header = |name: &HeaderName, value: &HeaderValue| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let headers = request.headers().iter().map(|(name, value)| header(name, value)).collect();
    let Ok(body) = Limited::new(request.into_body(), MAX_REQUEST_BYTES).collect().await else {
        return (StatusCode::PAYLOAD_TOO_LARGE, "the request is too large").into_response();
    };
    let received = Received { what, body: String::from_utf8_lossy(&body.to_bytes()).into_owned(), headers };
    let Ok(mut requests) = shared.received.lock() else {
        return (StatusCode::INTERNAL_SERVER_ERROR, "the server is broken").into_response();
    };
    requests.push(received.clone());
    let number = requests.len() - 1;
    drop(requests);
    (shared.answer)(number, &received)
}
