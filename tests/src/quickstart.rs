//! The quickstart example on a running cluster: its manifest, the service that gets its letters, and its Events. The
//! manifest is the committed file except for the values that the caller replaces.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, bail};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use futures::StreamExt;
use http_body_util::{BodyExt, Limited};
use k8s_openapi::api::events::v1::Event;
use kube::Client;
use kube::api::{Api, WatchEvent, WatchParams};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The largest letter that the letter box accepts, in bytes.
const MAX_LETTER_BYTES: usize = 1 << 20;

/// Returns the path of the committed manifest.
#[must_use]
pub fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/quickstart/workflow.yaml")
}

/// Returns the committed manifest as an object.
///
/// # Errors
/// The file is missing or is not YAML.
pub fn manifest() -> Result<Value> {
    let text = std::fs::read_to_string(file()).context("the quickstart example")?;
    serde_saphyr::from_str(&text).context("the quickstart example")
}

/// Returns the value of one of the manifest's inputs.
///
/// # Errors
/// The manifest has no such input.
pub fn input<'a>(manifest: &'a mut Value, name: &str) -> Result<&'a mut Value> {
    let inputs = manifest.pointer_mut("/spec/inputs").and_then(Value::as_array_mut);
    let input = inputs.into_iter().flatten().find(|input| input["name"] == name);
    input
        .and_then(|input| input.get_mut("value"))
        .with_context(|| format!("the quickstart example has no input {name}"))
}

/// A request that the letter box got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    /// Method and path: `POST /letters`.
    pub what: String,
    /// The header `content-type`.
    pub content_type: String,
    /// The whole body; bytes that are not UTF-8 are replaced.
    pub body: String,
}

/// A small HTTP service on loopback that accepts and records every letter, and answers with its number.
#[derive(Debug)]
pub struct Letterbox {
    address: SocketAddr,
    posted: Arc<Mutex<Vec<Posted>>>,
    server: JoinHandle<std::io::Result<()>>,
}

impl Letterbox {
    /// Opens a letter box on this port of 127.0.0.1, or on a free port if that one is taken (0 takes any).
    ///
    /// # Errors
    /// There is no free port.
    pub async fn open(port: u16) -> Result<Self> {
        let listener = match TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
            Ok(listener) => listener,
            Err(_) => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("a port for the letter box")?,
        };
        let address = listener.local_addr()?;
        let posted = Arc::new(Mutex::new(Vec::new()));
        let router = Router::new().fallback(accept_letter).with_state(Arc::clone(&posted));
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { address, posted, server })
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
    pub fn posted(&self) -> Vec<Posted> {
        self.posted.lock().map(|posted| posted.clone()).unwrap_or_default()
    }
}

impl Drop for Letterbox {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn accept_letter(State(posted): State<Arc<Mutex<Vec<Posted>>>>, request: Request) -> (StatusCode, String) {
    let what = format!("{} {}", request.method(), request.uri().path());
    let content_type = request.headers().get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let content_type = content_type.to_owned();
    let Ok(body) = Limited::new(request.into_body(), MAX_LETTER_BYTES).collect().await else {
        return (StatusCode::PAYLOAD_TOO_LARGE, "the letter does not fit".to_owned());
    };
    let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    let Ok(mut posted) = posted.lock() else {
        return (StatusCode::INTERNAL_SERVER_ERROR, "the letter box is broken".to_owned());
    };
    posted.push(Posted { what, content_type, body });
    (StatusCode::CREATED, format!("letter {} posted", posted.len()))
}

/// Waits until an Event with this reason was written about the object, and returns its note. Events are written in
/// parallel to the work and may come later.
///
/// # Errors
/// The watch fails, or ends after a minute without such an Event.
pub async fn told(client: Client, namespace: &str, name: &str, reason: &str) -> Result<String> {
    let events: Api<Event> = Api::namespaced(client, namespace);
    let fields = format!("regarding.name={name},reason={reason}");
    // From version "0" the watch begins with the existing objects, so no event is lost between a list and a watch.
    let events = events.watch(&WatchParams::default().fields(&fields).timeout(60), "0").await?;
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        if let WatchEvent::Added(event) | WatchEvent::Modified(event) = event? {
            return Ok(event.note.unwrap_or_default());
        }
    }
    bail!("no Event {reason} was written about {namespace}/{name}")
}
