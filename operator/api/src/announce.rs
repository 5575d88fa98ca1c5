//! The single interface for listeners to events: Kubernetes Events, metrics, and the handler of a local run.
//!
//! **Invariant:** nothing depends on a listener, and an event is announced only after its object is stored.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::{
    Approval, EventReason, Workflow,
    occurrence::{GateEvent, Occurrence, RunEvent},
};

/// The object of an announcement.
#[derive(Clone, Copy, Debug)]
pub enum About<'a> {
    /// A Workflow.
    Workflow(&'a ObjectMeta),
    /// An Approval.
    Approval(&'a ObjectMeta),
}

/// The stored object that a typed event is about: for an event of a gate its Approval.
#[derive(Clone, Copy, Debug)]
pub enum StoredObject<'a> {
    /// A Workflow.
    Workflow(&'a Workflow),
    /// An Approval.
    Approval(&'a Approval),
}

/// A typed event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypedEvent {
    /// An event of a gate.
    Gate(Occurrence<GateEvent>),
    /// An event of a run.
    Run(Occurrence<RunEvent>),
}

/// A sentence for people.
#[derive(Clone, Debug)]
pub struct Sentence<'a> {
    /// The reason of the Kubernetes Event.
    pub reason: EventReason,
    /// One sentence.
    pub message: &'a str,
    /// A key that is equal for the same transition of the object, so that a repetition is recognized.
    pub key: &'a str,
    /// Another object that it is about too.
    pub related: Option<About<'a>>,
}

/// An announcement: a typed event, a sentence for people, or both.
#[derive(Clone, Debug)]
pub struct Announcement<'a> {
    /// The object.
    pub about: About<'a>,
    /// The typed event, if it is one.
    pub event: Option<TypedEvent>,
    /// The stored object of the typed event, if it is available.
    pub object: Option<StoredObject<'a>>,
    /// The sentence, if there is one.
    pub sentence: Option<Sentence<'a>>,
}

impl<'a> Announcement<'a> {
    /// Returns an empty announcement about an object.
    #[must_use]
    pub fn about(about: About<'a>) -> Self {
        Self { about, event: None, object: None, sentence: None }
    }

    /// Adds the event of a gate.
    #[must_use]
    pub fn gate(self, event: Option<Occurrence<GateEvent>>) -> Self {
        Self { event: event.map(TypedEvent::Gate), ..self }
    }

    /// Adds the event of a run.
    #[must_use]
    pub fn run(self, event: Option<Occurrence<RunEvent>>) -> Self {
        Self { event: event.map(TypedEvent::Run), ..self }
    }

    /// Adds the stored object of the typed event.
    #[must_use]
    pub fn object(self, object: StoredObject<'a>) -> Self {
        Self { object: Some(object), ..self }
    }

    /// Adds a sentence.
    #[must_use]
    pub fn sentence(self, reason: EventReason, message: &'a str, key: &'a str) -> Self {
        Self { sentence: Some(Sentence { reason, message, key, related: None }), ..self }
    }

    /// Adds another object to the sentence.
    #[must_use]
    pub fn related(self, to: About<'a>) -> Self {
        Self { sentence: self.sentence.map(|sentence| Sentence { related: Some(to), ..sentence }), ..self }
    }
}

/// A receiver of announcements. It neither fails nor waits.
pub trait Listener: Send + Sync {
    /// Handles one announcement.
    fn on_announcement(&self, announcement: &Announcement<'_>);
}

/// Passes an announcement to every listener, unless it is empty.
pub fn announce<'l>(listeners: impl IntoIterator<Item = &'l dyn Listener>, announcement: &Announcement<'_>) {
    if announcement.event.is_none() && announcement.sentence.is_none() {
        return;
    }
    for listener in listeners {
        listener.on_announcement(announcement);
    }
}
