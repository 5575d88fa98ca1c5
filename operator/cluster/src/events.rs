//! Kubernetes Events: one for each transition, written beside the reconciles with best effort *(I/O)*.
//!
//! **Invariant:** no Event delays a write of state. The queue is bounded, and Events that do not fit are counted and
//! dropped. The name of an Event follows from its transition, so a repeated Event has the same name.

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream::FuturesUnordered};
use http::header::{ACCEPT, HeaderValue};
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{
    Client, Resource,
    api::{GetParams, PostParams},
    core::Request,
};
use serde::de::IgnoredAny;
use signoff_api::{Digest, EventReason};
use signoff_expr::text;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};

use crate::{
    error::{is_ambiguous, status_code},
    kinds::{METADATA_ONLY, ReconciledKind},
    metrics::RequestMetrics,
    write_priority::WritePriority,
};

/// The most Events that may be queued.
const MAX_QUEUED: usize = 1024;
/// The longest time for which an Event waits for writes of state.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// The longest note that the API server accepts, in bytes.
const MAX_NOTE_BYTES: usize = 1024;
/// The most Events that are written at once.
const MAX_WRITES: usize = 4;
/// The timeout of a request for an Event.
const TIMEOUT: Duration = Duration::from_secs(10);
const REPORTER: &str = "signoff.dev/operator";

/// An Event to be written.
#[derive(Clone, Debug)]
pub struct Report {
    regarding: ObjectReference,
    related: Option<ObjectReference>,
    reason: EventReason,
    note: String,
    name: String,
    at: jiff::Timestamp,
}

impl Report {
    /// Returns a report about the object with this metadata. `key` distinguishes its transitions.
    #[must_use]
    pub fn of_meta<K: ReconciledKind>(
        meta: &ObjectMeta,
        reason: EventReason,
        note: &str,
        key: &str,
        at: jiff::Timestamp,
    ) -> Self {
        let uid = meta.uid.as_deref().unwrap_or_default();
        let digest = Digest::of_bytes(format!("{uid}/{}/{key}", reason.name()).as_bytes());
        let name = meta.name.clone().unwrap_or_default();
        // A name is a DNS subdomain of at most 253 characters.
        let cut = name.get(..200).unwrap_or(&name).trim_end_matches(['-', '.']);
        Self {
            regarding: reference_to::<K>(meta),
            related: None,
            reason,
            note: text::first(&text::display(note, MAX_NOTE_BYTES), MAX_NOTE_BYTES).to_owned(),
            name: format!("{cut}.{}", digest.short(16)),
            at,
        }
    }

    /// Adds a related object.
    #[must_use]
    pub fn related<K: ReconciledKind>(self, meta: &ObjectMeta) -> Self {
        Self { related: Some(reference_to::<K>(meta)), ..self }
    }

    fn into_event(self, instance: &str) -> Event {
        Event {
            metadata: ObjectMeta {
                name: Some(self.name),
                namespace: self.regarding.namespace.clone(),
                ..ObjectMeta::default()
            },
            action: Some(self.reason.name().to_owned()),
            event_time: Some(MicroTime(self.at)),
            note: Some(self.note),
            reason: Some(self.reason.name().to_owned()),
            regarding: Some(self.regarding),
            related: self.related,
            reporting_controller: Some(REPORTER.to_owned()),
            reporting_instance: Some(instance.to_owned()),
            type_: Some(if self.reason.is_warning() { "Warning" } else { "Normal" }.to_owned()),
            ..Event::default()
        }
    }
}

fn reference_to<K: ReconciledKind>(meta: &ObjectMeta) -> ObjectReference {
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::KIND.to_owned()),
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        ..ObjectReference::default()
    }
}

/// The sender of reports, which never waits.
#[derive(Clone)]
pub struct Reporter {
    to: mpsc::Sender<Report>,
    metrics: RequestMetrics,
}

/// The writer of the reports that a [`Reporter`] has queued.
pub struct Delivery {
    from: mpsc::Receiver<Report>,
    client: Client,
    instance: Arc<str>,
    priority: WritePriority,
    metrics: RequestMetrics,
    /// The secret of this process, for names that others cannot compute.
    secret: RandomState,
}

/// Returns a reporter and the writer of its reports. `instance`: the name of this operator.
#[must_use]
pub fn reporter(
    client: Client,
    instance: &str,
    priority: WritePriority,
    metrics: RequestMetrics,
) -> (Reporter, Delivery) {
    let (to, from) = mpsc::channel(MAX_QUEUED);
    let instance = instance.get(..128).unwrap_or(instance).into();
    let secret = RandomState::new();
    (Reporter { to, metrics: metrics.clone() }, Delivery { from, client, instance, priority, metrics, secret })
}

impl Reporter {
    /// Queues a report, or drops it if the queue is full.
    pub fn report(&self, report: Report) {
        if self.to.try_send(report).is_err() {
            self.metrics.count_event("dropped");
        }
    }
}

impl Delivery {
    /// Writes reports until every reporter is dropped.
    pub async fn run(mut self) {
        let mut writing = FuturesUnordered::new();
        let mut next: Option<(Report, Instant)> = None;
        loop {
            let until = next.as_ref().map_or_else(Instant::now, |(_, until)| *until);
            tokio::select! {
                biased;
                Some(result) = writing.next(), if !writing.is_empty() => self.metrics.count_event(result),
                _ = timeout_at(until, self.priority.until_idle()), if next.is_some() && writing.len() < MAX_WRITES => {
                    if let Some((report, _)) = next.take() {
                        let event = report.into_event(&self.instance);
                        writing.push(write_event(self.client.clone(), self.secret.clone(), event));
                    }
                }
                received = self.from.recv(), if next.is_none() => {
                    let Some(report) = received else { break };
                    next = Some((report, Instant::now() + MAX_WAIT));
                }
            }
        }
        while let Some(result) = writing.next().await {
            self.metrics.count_event(result);
        }
    }
}

/// Writes one Event, with up to two further attempts, and returns the result for the metrics. If another user's object
/// has the name, a name that cannot be computed in advance is used.
async fn write_event(client: Client, secret: RandomState, mut event: Event) -> &'static str {
    let mut is_renamed = false;
    for pause in [Some(1), Some(5), None] {
        let mut written = create_event(&client, &event).await;
        if is_taken(&written) && !is_renamed && !is_same_event(&client, &event).await {
            let usual = event.metadata.name.take().unwrap_or_default();
            event.metadata.name = Some(format!("{usual}-{:016x}", secret.hash_one(&usual)));
            is_renamed = true;
            written = create_event(&client, &event).await;
        }
        match written {
            Ok(()) => return "written",
            Err(error) if status_code(&error) == Some(409) => return "repeated",
            Err(error) => match pause {
                Some(seconds) if is_ambiguous(&error) || status_code(&error) == Some(429) => {
                    tokio::time::sleep(Duration::from_secs(seconds)).await;
                }
                _ => {
                    tracing::debug!(%error, name = event.metadata.name, "an Event was not written");
                    break;
                }
            },
        }
    }
    "failed"
}

/// Whether another object has the name of an Event.
fn is_taken(written: &Result<(), kube::Error>) -> bool {
    matches!(written, Err(error) if status_code(error) == Some(409))
}

/// Whether the object with the name of an Event is the same Event about the same object.
async fn is_same_event(client: &Client, event: &Event) -> bool {
    let path = Request::new(Event::url_path(&(), event.metadata.namespace.as_deref()));
    let name = event.metadata.name.as_deref().unwrap_or_default();
    let Ok(request) = path.get(name, &GetParams::default()) else { return false };
    let Ok(Ok(stored)) = tokio::time::timeout(TIMEOUT, client.request::<Event>(request)).await else { return false };
    let uid = |event: &Event| event.regarding.as_ref().and_then(|regarding| regarding.uid.clone());
    let content = |event: &Event| (event.reason.clone(), event.note.clone(), event.type_.clone());
    uid(&stored) == uid(event) && content(&stored) == content(event)
}

/// Creates the object of an Event.
async fn create_event(client: &Client, event: &Event) -> Result<(), kube::Error> {
    let path = Request::new(Event::url_path(&(), event.metadata.namespace.as_deref()));
    let body = serde_json::to_vec(event).map_err(kube::Error::SerdeError)?;
    let mut request = path.create(&PostParams::default(), body).map_err(kube::Error::BuildRequest)?;
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static(METADATA_ONLY));
    let answer = tokio::time::timeout(TIMEOUT, client.request::<IgnoredAny>(request)).await;
    answer.map_err(|_| kube::Error::Service(format!("no answer within {TIMEOUT:?}").into()))??;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::convert::Infallible;

    use kube::client::Body;
    use signoff_api::{Workflow, workflow::WorkflowPhase};

    use super::*;

    /// Returns a client that reports each request to `to`.
    fn client(to: mpsc::UnboundedSender<()>) -> Client {
        let service = tower::service_fn(move |_: http::Request<Body>| {
            let _ = to.send(());
            std::future::ready(Ok::<_, Infallible>(http::Response::new(Body::from(b"{}".to_vec()))))
        });
        crate::connect_service(service, "n")
    }

    fn report(note: &str) -> Report {
        let meta = ObjectMeta { name: Some("w".into()), namespace: Some("n".into()), ..ObjectMeta::default() };
        let reason = EventReason::RunEnded(WorkflowPhase::Succeeded);
        Report::of_meta::<Workflow>(&meta, reason, note, "", jiff::Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_note_in_any_script_is_short_enough_for_the_api_server() {
        for long in ["審".repeat(2000), "x".repeat(2000), "\u{202e}".repeat(2000)] {
            let note = report(&long).note;
            assert!(note.len() <= MAX_NOTE_BYTES && note.len() > MAX_NOTE_BYTES - 100, "{} bytes", note.len());
        }
        assert_eq!(report("short").note, "short");
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_waits_for_state_writes_for_a_limited_time() {
        let (sent, mut written) = mpsc::unbounded_channel();
        let priority = WritePriority::default();
        let (reporter, delivery) = reporter(client(sent), "operator", priority.clone(), RequestMetrics::default());
        let delivery = tokio::spawn(delivery.run());
        let state_write = priority.begin_state_write();
        let begun = Instant::now();
        reporter.report(report("one"));
        reporter.report(report("two"));
        written.recv().await.unwrap();
        assert!(begun.elapsed() >= MAX_WAIT, "it gave way while a state was being written");
        written.recv().await.unwrap();
        let between = Instant::now();
        drop(state_write);
        reporter.report(report("three"));
        written.recv().await.unwrap();
        assert_eq!(between.elapsed(), Duration::ZERO, "nothing is being written any more");
        drop(reporter);
        delivery.await.unwrap();
    }
}
