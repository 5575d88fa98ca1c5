//! Follows all objects of one kind *(I/O)*: list -> watch, and again from the list if the version has expired.
//!
//! **Invariant:** an object that cannot be decoded is reported and skipped, and does not stop the watch. Keeps no
//! objects. [`crate::client`] guarantees that serde_json can parse the answers.

use std::time::Duration;

use futures::{AsyncBufReadExt, AsyncReadExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Client,
    api::{ListParams, WatchParams},
    core::Request,
};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::{
    error::{plain, status_code},
    kinds::{Decoded, DecodedKind, Meta, Name},
    metrics::RequestMetrics,
};

/// The most objects in a page of a list, because a whole page is held in memory.
const MAX_PAGE: u32 = 100;
/// The most bytes of a page of more than one object. A longer page is requested again with fewer objects. Decoded, a
/// page of short values takes 36 times as much.
const MAX_PAGE_BYTES: u64 = 2 * 1024 * 1024;
/// The timeout of a watch that is requested from the server, in seconds.
const WATCH_SECONDS: u32 = 290;
/// The time after `WATCH_SECONDS` in which a connection without data still counts as alive.
const GRACE: Duration = Duration::from_secs(10);
/// The timeout of a page of a list, and of the beginning of the answer to a watch.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest pause between two attempts.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// An event of a watch or its list.
#[derive(Debug)]
pub enum WatchEvent<K> {
    /// A list begins.
    Listing,
    /// An object of the list.
    Listed(Box<K>),
    /// The list of this version is complete.
    ListDone(String),
    /// An object was created or changed.
    Applied(Box<K>),
    /// An object was deleted.
    Deleted(ObjectMeta),
    /// An object of a list, or one that was created or changed, cannot be read.
    Unreadable {
        /// The metadata, as far as it can be decoded.
        meta: ObjectMeta,
        /// The error of the decoder.
        why: String,
        /// Whether the object is part of a list.
        listed: bool,
    },
    /// The watch is broken, and the cache may become stale. Sent at the first, second, fourth and eighth failure and so
    /// on, until the watch works again.
    Broken {
        /// The error of the request, as one sentence.
        why: String,
        /// Whether the API server does not know the kind.
        unknown_kind: bool,
    },
}

enum WatchError {
    /// The version has expired: list again.
    Expired,
    /// The receiver was dropped.
    ReceiverDropped,
    Failed {
        why: String,
        unknown_kind: bool,
    },
}

impl From<kube::Error> for WatchError {
    fn from(error: kube::Error) -> Self {
        match status_code(&error) {
            Some(410) => Self::Expired,
            code => Self::Failed { why: plain(&error), unknown_kind: code == Some(404) },
        }
    }
}

impl From<serde_json::Error> for WatchError {
    fn from(error: serde_json::Error) -> Self {
        Self::Failed { why: format!("the API server's answer is not JSON: {error}"), unknown_kind: false }
    }
}

/// Follows the objects of a kind in all namespaces until the receiver is dropped.
pub async fn follow<K: DecodedKind>(client: Client, to: mpsc::Sender<WatchEvent<K>>, metrics: RequestMetrics) {
    follow_in(client, None, to, metrics).await;
}

/// Follows the objects of a kind in one namespace, or in all, until the receiver is dropped.
pub async fn follow_in<K: DecodedKind>(
    client: Client,
    namespace: Option<String>,
    to: mpsc::Sender<WatchEvent<K>>,
    metrics: RequestMetrics,
) {
    follow_selected(client, namespace, None, to, metrics).await;
}

/// Follows the objects of a kind that match a field selector. An object that no longer matches is reported as deleted.
pub async fn follow_selected<K: DecodedKind>(
    client: Client,
    namespace: Option<String>,
    fields: Option<String>,
    to: mpsc::Sender<WatchEvent<K>>,
    metrics: RequestMetrics,
) {
    let watch = KindWatch { client, to, path: Request::new(K::url_path(&(), namespace.as_deref())), fields };
    let mut failures = 0_u32;
    let mut version = None;
    loop {
        let is_watch = version.is_some();
        let error = match watch.list_or_watch(&mut version).await {
            Ok(()) => {
                // A successful list does not prove that the kind can be watched.
                if is_watch {
                    failures = 0;
                }
                continue;
            }
            Err(error) => error,
        };
        failures = failures.saturating_add(1);
        let mut longest = MAX_PAUSE;
        match error {
            WatchError::ReceiverDropped => return,
            WatchError::Expired => {
                version = None;
                // One expiry is normal. If the version of a fresh list expires again, the pause prevents a busy loop.
                if failures == 1 {
                    continue;
                }
            }
            WatchError::Failed { why, unknown_kind } => {
                metrics.count_failed_watch(K::KIND);
                if failures.is_power_of_two() && watch.to.send(WatchEvent::Broken { why, unknown_kind }).await.is_err()
                {
                    return;
                }
                // A user who has just installed the CRDs waits for the first list.
                if unknown_kind {
                    longest = MAX_PAUSE / 6;
                }
            }
        }
        let pause = Duration::from_millis(250) * 2_u32.saturating_pow(failures.min(16) - 1);
        tokio::time::sleep(pause.min(longest)).await;
    }
}

struct KindWatch<K> {
    client: Client,
    to: mpsc::Sender<WatchEvent<K>>,
    path: Request,
    fields: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KindList<T> {
    metadata: ListMeta,
    #[serde(default = "Vec::new")]
    items: Vec<T>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta {
    resource_version: String,
    #[serde(rename = "continue")]
    next: Option<String>,
}

/// One line of a watch.
#[derive(Deserialize)]
struct WatchLine<T> {
    #[serde(rename = "type")]
    type_: String,
    object: T,
}

/// A line that is not an object of the kind: a bookmark, an error, or a broken object.
#[derive(Deserialize)]
struct OtherObject {
    #[serde(default)]
    metadata: Value,
    #[serde(default)]
    code: u16,
    #[serde(default)]
    message: String,
}

impl<K: DecodedKind> KindWatch<K> {
    /// Lists if there is no version, else watches until the server ends the watch.
    async fn list_or_watch(&self, version: &mut Option<String>) -> Result<(), WatchError> {
        match version {
            None => *version = Some(self.list().await?),
            Some(version) => self.watch(version).await?,
        }
        Ok(())
    }

    /// Sends every object of the kind, page by page. Returns the version of the list.
    async fn list(&self) -> Result<String, WatchError> {
        self.send_event(WatchEvent::Listing).await?;
        let mut objects = MAX_PAGE;
        let mut params = ListParams {
            label_selector: K::SELECTOR.map(str::to_owned),
            field_selector: self.fields.clone(),
            ..ListParams::default()
        };
        loop {
            params.limit = Some(objects);
            let page = tokio::time::timeout(ANSWER_TIMEOUT, self.read_page(&params)).await;
            let page = page.map_err(|_| {
                kube::Error::Service(format!("no answer to the list request within {ANSWER_TIMEOUT:?}").into())
            })??;
            let Some(text) = page else {
                objects = (objects / 2).max(1);
                continue;
            };
            objects = objects.saturating_mul(2).min(MAX_PAGE);
            let meta = match serde_json::from_str::<KindList<Decoded<K>>>(&text) {
                Ok(list) => {
                    for Decoded(object) in list.items {
                        self.send_event(WatchEvent::Listed(Box::new(object))).await?;
                    }
                    list.metadata
                }
                // At least one object cannot be decoded, so the objects are decoded one by one.
                Err(_) => self.list_one_by_one(&text).await?,
            };
            match meta.next.filter(|next| !next.is_empty()) {
                Some(next) => params.continue_token = Some(next),
                None => {
                    self.send_event(WatchEvent::ListDone(meta.resource_version.clone())).await?;
                    return Ok(meta.resource_version);
                }
            }
        }
    }

    /// Returns a page of a list, or `None` if it has several objects and is too long.
    async fn read_page(&self, params: &ListParams) -> Result<Option<String>, kube::Error> {
        let request = self.path.list(params).map_err(kube::Error::BuildRequest)?;
        let answer = self.client.request_stream(request).await?;
        let most = if params.limit == Some(1) { u64::MAX } else { MAX_PAGE_BYTES };
        let mut text = Vec::new();
        std::pin::pin!(answer.take(most)).read_to_end(&mut text).await.map_err(kube::Error::ReadEvents)?;
        if text.len() as u64 == most {
            return Ok(None);
        }
        String::from_utf8(text).map(Some).map_err(kube::Error::FromUtf8)
    }

    /// Sends the objects of a page, and reports each that cannot be decoded. Returns the metadata of the page.
    async fn list_one_by_one(&self, text: &str) -> Result<ListMeta, WatchError> {
        let list: KindList<Value> = serde_json::from_str(text)?;
        for item in list.items {
            let event = match Decoded::<K>::deserialize(&item) {
                Ok(Decoded(object)) => WatchEvent::Listed(Box::new(object)),
                Err(error) => {
                    let meta = decode_metadata(&item["metadata"]);
                    WatchEvent::Unreadable { meta, why: error.to_string(), listed: true }
                }
            };
            self.send_event(event).await?;
        }
        Ok(list.metadata)
    }

    /// Sends the changes since `version`, which follows the newest change, until the server ends the watch.
    async fn watch(&self, version: &mut String) -> Result<(), WatchError> {
        let label_selector = K::SELECTOR.map(str::to_owned);
        let field_selector = self.fields.clone();
        let params = WatchParams {
            timeout: Some(WATCH_SECONDS),
            bookmarks: true,
            label_selector,
            field_selector,
            ..WatchParams::default()
        };
        let request = self.path.watch(&params, version).map_err(kube::Error::BuildRequest)?;
        let opened = tokio::time::Instant::now();
        let stream = tokio::time::timeout(ANSWER_TIMEOUT, self.client.request_stream(request)).await;
        let stream = stream.map_err(|_| {
            kube::Error::Service(format!("no answer to the watch request within {ANSWER_TIMEOUT:?}").into())
        })??;
        let mut stream = std::pin::pin!(stream);
        let mut line = Vec::new();
        let mut lines = 0_u64;
        loop {
            line.clear();
            let silence = Duration::from_secs(WATCH_SECONDS.into()) + GRACE;
            let Ok(read) = tokio::time::timeout(silence, stream.read_until(b'\n', &mut line)).await else {
                return Ok(());
            };
            if read.map_err(kube::Error::ReadEvents)? == 0 {
                break;
            }
            if line.iter().any(|byte| !byte.is_ascii_whitespace()) {
                lines += 1;
                self.apply_line(&line, version).await?;
            }
        }
        // A pause follows if the server ends the watch at once without an event, so that there is no busy loop.
        if lines == 0 && opened.elapsed() < Duration::from_secs(1) {
            return Err(WatchError::Failed {
                why: "the API server ended the watch within a second, without an event".to_owned(),
                unknown_kind: false,
            });
        }
        Ok(())
    }

    /// Sends the event of one line of a watch, and updates `version`. A bookmark only updates `version`.
    async fn apply_line(&self, line: &[u8], version: &mut String) -> Result<(), WatchError> {
        // Nearly every line is a valid object. Bookmarks, errors and invalid objects are distinguished afterwards.
        let why = match serde_json::from_slice::<WatchLine<Decoded<K>>>(line) {
            // A bookmark or an error may decode as an object of a kind with few decoded fields.
            Ok(WatchLine { type_, object: Decoded(object) })
                if matches!(type_.as_str(), "ADDED" | "MODIFIED" | "DELETED") =>
            {
                if let Some(newer) = &object.meta().resource_version {
                    version.clone_from(newer);
                }
                let event = match type_.as_str() {
                    "DELETED" => WatchEvent::Deleted(object.meta().clone()),
                    _ => WatchEvent::Applied(Box::new(object)),
                };
                return self.send_event(event).await;
            }
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        };
        // A truncated line means a broken connection: the watch is opened again at the last version.
        let WatchLine { type_, object: other } = serde_json::from_slice::<WatchLine<OtherObject>>(line)?;
        if type_ == "ERROR" {
            let is_expired = other.code == 410;
            return Err(if is_expired {
                WatchError::Expired
            } else {
                WatchError::Failed { why: other.message, unknown_kind: false }
            });
        }
        let meta = decode_metadata(&other.metadata);
        if let Some(newer) = meta.resource_version.as_ref().filter(|newer| !newer.is_empty()) {
            version.clone_from(newer);
        }
        match type_.as_str() {
            "BOOKMARK" => Ok(()),
            "DELETED" => self.send_event(WatchEvent::Deleted(meta)).await,
            _ => self.send_event(WatchEvent::Unreadable { meta, why, listed: false }).await,
        }
    }

    async fn send_event(&self, event: WatchEvent<K>) -> Result<(), WatchError> {
        self.to.send(event).await.map_err(|_| WatchError::ReceiverDropped)
    }
}

/// Returns the metadata as far as it can be decoded, so that an invalid object does not stop the watch.
fn decode_metadata(metadata: &Value) -> ObjectMeta {
    Meta::deserialize(metadata).unwrap_or_default().into()
}

/// Returns the namespace and name in metadata.
#[must_use]
pub fn name_of(meta: &ObjectMeta) -> Name {
    Name::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}
