//! Every request the server got, in order, with what became of it.
//! It records and counts; it never decides how a request is answered.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::store::{Key, Resource};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// One object is read.
    Get,
    /// Many objects are read.
    List,
    /// Changes are read as they come.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH of any kind.
    Patch,
    /// DELETE of one object.
    Delete,
    /// DELETE of all objects that are selected.
    DeleteCollection,
}

impl Verb {
    /// Whether it changes objects.
    pub fn writes(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// A request as the server read it.
#[derive(Clone, Debug)]
pub struct Request {
    /// The actor's label.
    pub actor: Arc<str>,
    /// Which of the actor's lives asked.
    pub incarnation: u64,
    /// Virtual time of arrival.
    pub at: Timestamp,
    /// What it does.
    pub verb: Verb,
    /// HTTP method.
    pub method: http::Method,
    /// Path without the query.
    pub path: String,
    /// The query, decoded.
    pub query: BTreeMap<String, String>,
    /// The kind of object.
    pub resource: Resource,
    /// `apiVersion` as the path has it, for example `signoff.dev/v1alpha1`.
    pub api_version: String,
    /// The namespace, unless cluster-scoped or of all namespaces.
    pub namespace: Option<String>,
    /// The object's name; of a creation, the name in its body.
    pub name: Option<String>,
    /// `status`, or `None` for the object itself.
    pub subresource: Option<String>,
    /// Media type of the body.
    pub content_type: String,
    /// Media types the client takes.
    pub accept: String,
    /// The client's `User-Agent`, empty if it sends none.
    pub user_agent: String,
    /// The body as it came.
    pub body: Bytes,
}

impl Request {
    /// A value of the query, empty if absent.
    pub fn parameter(&self, name: &str) -> &str {
        self.query.get(name).map(String::as_str).unwrap_or_default()
    }

    /// Whether a flag of the query is set.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.parameter(name), "true" | "1")
    }

    /// The body as JSON, `null` if it is not.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// SHA-256 of the body, in hex: equal requests have equal digests.
    pub fn body_digest(&self) -> String {
        hex::encode(Sha256::digest(&self.body))
    }

    /// The object this is about, if it names one.
    pub(crate) fn key(&self) -> Option<Key> {
        let name = self.name.clone()?;
        Some(Key { resource: self.resource.clone(), namespace: self.namespace.clone().unwrap_or_default(), name })
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No answer yet; of a dead process, never one.
    Unanswered,
    /// The HTTP code of the answer.
    Answered(u16),
    /// No answer came, the connection broke or the process died. `applied`: whether the server did what was asked.
    Lost {
        /// Whether the server did what was asked.
        applied: bool,
    },
}

/// One line of the log; reads like the request it is about.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The request.
    pub request: Arc<Request>,
    /// What became of it.
    pub outcome: Outcome,
}

impl Entry {
    /// Whether the server did what was asked and said so, or died saying it.
    pub fn took_effect(&self) -> bool {
        matches!(self.outcome, Outcome::Answered(200..=299) | Outcome::Lost { applied: true })
    }

    /// Whether this created or changed state: a write to anything but Events and Leases that took effect.
    pub fn is_state_write(&self) -> bool {
        self.verb.writes() && self.took_effect() && !matches!(self.resource.plural.as_str(), "events" | "leases")
    }

    /// The line as a person reads it: who, what, where, and the outcome.
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
    /// Records a request; the number is for [`Log::end`].
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
