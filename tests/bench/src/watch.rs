//! A watch that reads of every object only the fields that a benchmark needs, and its arrival. It begins with the
//! existing objects and resumes where it was cut off, without a list.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use futures::{AsyncBufRead, AsyncBufReadExt};
use kube::Client;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// An object in a watch event, with the time at which the event arrived.
pub(super) struct Seen {
    pub(super) object: Object,
    pub(super) at: Instant,
}

/// An object, without the fields that are not read.
#[derive(Deserialize)]
pub(super) struct Object {
    pub(super) metadata: Metadata,
    #[serde(default)]
    pub(super) status: Status,
    /// The message of an error, which comes instead of an object.
    #[serde(default)]
    message: Option<String>,
}

/// The metadata, without the fields that are not read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    resource_version: String,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
}

/// The status, without the fields that are not read.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    #[serde(default)]
    pub(super) phase: String,
    #[serde(default)]
    pub(super) message: Option<String>,
    /// The journal of a Workflow.
    #[serde(default)]
    pub(super) steps: Vec<Record>,
    #[serde(default)]
    conditions: Vec<Condition>,
    /// The container statuses of a Pod.
    #[serde(default)]
    pub(super) container_statuses: Vec<Container>,
}

/// A condition, without the fields that are not read.
#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

impl Status {
    /// Returns whether this condition is true.
    pub(super) fn has(&self, condition: &str) -> bool {
        self.conditions.iter().any(|other| other.type_ == condition && other.status == "True")
    }
}

/// A record, without the fields that are not read.
#[derive(Deserialize)]
pub(super) struct Record {
    pub(super) path: String,
    pub(super) phase: String,
}

/// A container's status, without the fields that are not read.
#[derive(Deserialize)]
pub(super) struct Container {
    #[serde(default)]
    state: State,
}

#[derive(Default, Deserialize)]
struct State {
    terminated: Option<IgnoredAny>,
}

impl Container {
    pub(super) fn has_ended(&self) -> bool {
        self.state.terminated.is_some()
    }
}

#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type")]
    type_: String,
    object: Object,
}

/// An open watch.
pub(super) struct Watch {
    client: Client,
    path: String,
    version: String,
    stream: Pin<Box<dyn AsyncBufRead>>,
}

impl Watch {
    /// Opens a watch of a collection; `selector` is a field selector, already encoded for a query, or empty.
    pub(super) async fn open(client: &Client, collection: &str, selector: &str) -> Result<Self> {
        let path = format!("{collection}?watch=true&timeoutSeconds=3600&fieldSelector={selector}");
        let stream = stream(client, &path, "0").await?;
        Ok(Self { client: client.clone(), path, version: "0".to_owned(), stream })
    }

    /// Passes every created or changed object to `enough` until `enough` returns true.
    pub(super) async fn until(mut self, mut enough: impl FnMut(Seen) -> Result<bool>) -> Result<()> {
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            if self.stream.read_until(b'\n', &mut bytes).await.unwrap_or(0) == 0 {
                self.stream = stream(&self.client, &self.path, &self.version).await?;
                continue;
            }
            let at = Instant::now();
            let line: Line = serde_json::from_slice(&bytes).with_context(|| format!("a line of {}", self.path))?;
            match line.type_.as_str() {
                "ADDED" | "MODIFIED" => {}
                "ERROR" => bail!("{}: {}", self.path, line.object.message.unwrap_or_default()),
                _ => continue,
            }
            self.version.clone_from(&line.object.metadata.resource_version);
            if enough(Seen { object: line.object, at })? {
                return Ok(());
            }
        }
    }
}

async fn stream(client: &Client, path: &str, version: &str) -> Result<Pin<Box<dyn AsyncBufRead>>> {
    let request = http::Request::get(format!("{path}&resourceVersion={version}")).body(Vec::new())?;
    Ok(Box::pin(client.request_stream(request).await.with_context(|| format!("watching {path}"))?))
}
