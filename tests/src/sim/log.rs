//! The log of every request, in order, with its outcome.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::store::{Key, Resource};

/// The verb of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads many objects.
    List,
    /// Reads changes as they come.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH of any kind.
    Patch,
    /// DELETE of one object.
    Delete,
    /// DELETE of all selected objects.
    DeleteCollection,
}

impl Verb {
    /// Returns whether a request with this verb can change objects.
    pub fn writes(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// A request as the server read it.
#[derive(Clone, Debug)]
pub struct Request {
    /// The name of the actor who sent the request.
    pub actor: Arc<str>,
    /// The number of the actor's life, from 1.
    pub incarnation: u64,
    /// The virtual time of arrival.
    pub at: Timestamp,
    /// The verb, which follows from the method, the path and the query.
    pub verb: Verb,
    /// The HTTP method, such as `PATCH`.
    pub method: http::Method,
    /// The path without the query.
    pub path: String,
    /// The query, decoded.
    pub query: BTreeMap<String, String>,
    /// The kind of object.
    pub resource: Resource,
    /// `apiVersion` as the path has it, for example `signoff.dev/v1alpha1`.
    pub api_version: String,
    /// The namespace; `None` for a cluster-scoped object and for all namespaces.
    pub namespace: Option<String>,
    /// The object's name; for a creation the name in its body.
    pub name: Option<String>,
    /// `status`, or `None` for the object itself.
    pub subresource: Option<String>,
    /// The media type of the body.
    pub content_type: String,
    /// The media types that the client accepts.
    pub accept: String,
    /// The client's `User-Agent`, or an empty text.
    pub user_agent: String,
    /// The body as it was sent.
    pub body: Bytes,
}

impl Request {
    /// Returns a value of the query, or an empty text.
    pub fn parameter(&self, name: &str) -> &str {
        self.query.get(name).map(String::as_str).unwrap_or_default()
    }

    /// Returns whether a flag of the query is set.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.parameter(name), "true" | "1")
    }

    /// Returns the body as JSON, or `null`.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Returns the SHA-256 of the body, in hex: equal requests have equal digests.
    pub fn body_digest(&self) -> String {
        hex::encode(Sha256::digest(&self.body))
    }

    /// Returns the key of the object, or `None` if the request names none.
    pub(crate) fn key(&self) -> Option<Key> {
        let name = self.name.clone()?;
        Some(Key { resource: self.resource.clone(), namespace: self.namespace.clone().unwrap_or_default(), name })
    }
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No answer yet; for a dead process there will be none.
    Unanswered,
    /// The HTTP code of the answer.
    Answered(u16),
    /// No answer, because the connection broke or the process died. `applied`: whether the server applied the request.
    Lost {
        /// Whether the server applied the request.
        applied: bool,
    },
}

/// One line of the log; it dereferences to its request.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The request as the server read it.
    pub request: Arc<Request>,
    /// The outcome so far: an answer in flight can still be lost.
    pub outcome: Outcome,
}

impl Entry {
    /// Returns whether the server applied the request, whether or not its answer arrived.
    pub fn took_effect(&self) -> bool {
        matches!(self.outcome, Outcome::Answered(200..=299) | Outcome::Lost { applied: true })
    }

    /// Returns whether the request created or changed state: a write that took effect, except on Events and Leases.
    pub fn is_state_write(&self) -> bool {
        self.verb.writes() && self.took_effect() && !matches!(self.resource.plural.as_str(), "events" | "leases")
    }

    /// Returns the line in readable form: actor, verb, object and outcome.
    pub fn line(&self) -> String {
        let outcome = match self.outcome {
            Outcome::Unanswered => "…".to_owned(),
            Outcome::Answered(code) => code.to_string(),
            Outcome::Lost { applied: true } => "lost, applied".to_owned(),
            Outcome::Lost { applied: false } => "lost, not applied".to_owned(),
        };
        format!("{}#{} {:?} {} {} -> {outcome}", self.actor, self.incarnation, self.verb, self.method, self.path)
    }
}

impl Deref for Entry {
    type Target = Request;

    fn deref(&self) -> &Request {
        &self.request
    }
}

/// All requests so far.
#[derive(Debug, Default)]
pub(crate) struct Log {
    entries: Vec<Entry>,
}

impl Log {
    /// Records a request and returns its number for [`Log::end`].
    pub(crate) fn begin(&mut self, request: &Arc<Request>) -> usize {
        self.entries.push(Entry { request: Arc::clone(request), outcome: Outcome::Unanswered });
        self.entries.len() - 1
    }

    pub(crate) fn end(&mut self, number: usize, outcome: Outcome) {
        if let Some(entry) = self.entries.get_mut(number) {
            entry.outcome = outcome;
        }
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }
}
