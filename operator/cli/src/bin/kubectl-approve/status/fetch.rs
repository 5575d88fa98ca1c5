//! The objects of a run: its Workflow with the whole journal, and the Approvals of its gates.
//!
//! **Invariant:** the bytes of a Blob are used only if they have the digest that the Workflow names.

use std::collections::BTreeMap;

use kube::{Api, ResourceExt, api::ListParams};
use signoff_api::{Approval, Digest, Workflow, approval::WorkflowRef, journal::StepRecord, names};
use signoff_review::{run, whole};

use crate::{cluster::client::Session, error::Failure};

/// The records of segments, by the digest of the segment.
pub type Segments = BTreeMap<Digest, Vec<StepRecord>>;

/// A run: its Workflow and Approvals.
#[derive(Clone, Debug, PartialEq)]
pub struct RunState {
    /// The Workflow; records of segments that could be read are in `status.steps`.
    pub workflow: Workflow,
    /// The Approvals of the gates of the run.
    pub approvals: Vec<Approval>,
}

/// Fetches a run of the namespace with its Approvals. `segments`: the segments that were read before, to which new ones
/// are added.
///
/// # Errors
/// A request fails. Segments that cannot be read are no error: the page says how many records are missing.
pub async fn fetch_run(session: &Session, name: &str, segments: &mut Segments) -> Result<RunState, Failure> {
    let mut workflow = fetch_workflow(session, name).await?;
    let api = Api::<Approval>::namespaced(session.raw().clone(), &session.namespace);
    let listed = api.list(&ListParams::default().labels(&run::approvals(&workflow))).await;
    let approvals = listed.map_err(|error| session.explain(error))?.items;
    restore_segments(session, &mut workflow, segments).await;
    Ok(RunState { workflow, approvals })
}

/// Returns a Workflow of the namespace as it is stored, without the records of segments.
///
/// # Errors
/// The request fails.
pub async fn fetch_workflow(session: &Session, name: &str) -> Result<Workflow, Failure> {
    let api = Api::<Workflow>::namespaced(session.raw().clone(), &session.namespace);
    api.get(name).await.map_err(|error| session.explain(error))
}

/// Moves the records of segments back into `status.steps`. A segment that cannot be read stays in `status.segments`.
/// `cache`: the segments that were read before, to which new ones are added.
pub async fn restore_segments(session: &Session, workflow: &mut Workflow, cache: &mut Segments) {
    let run = WorkflowRef { name: workflow.name_any(), uid: workflow.uid().unwrap_or_default() };
    let Some(status) = &mut workflow.status else { return };
    let mut records = Vec::new();
    let mut unread = Vec::new();
    for segment in std::mem::take(&mut status.segments) {
        if !cache.contains_key(&segment.digest) {
            let unusual_name = status.value_names.get(&segment.digest).map(String::as_str);
            cache.extend(
                read_segment(session, &run, &segment.digest, unusual_name)
                    .await
                    .map(|read| (segment.digest.clone(), read)),
            );
        }
        match cache.get(&segment.digest) {
            Some(found) => records.extend(found.iter().cloned()),
            None => unread.push(segment),
        }
    }
    status.segments = unread;
    records.append(&mut status.steps);
    status.steps = records;
}

/// Returns the records of a segment, or `None` if its Blob cannot be read. `unusual_name`: the name of the Blob if it
/// does not follow from run and digest.
async fn read_segment(
    session: &Session,
    run: &WorkflowRef,
    digest: &Digest,
    unusual_name: Option<&str>,
) -> Option<Vec<StepRecord>> {
    serde_json::from_slice(&fetch_segment(session, run, digest, unusual_name).await.ok()?).ok()
}

/// Returns the verified bytes of a segment. `unusual_name`: the name of the Blob if it does not follow from run and
/// digest.
///
/// # Errors
/// The request fails, or the Blob belongs to another run or has another digest.
pub async fn fetch_segment(
    session: &Session,
    run: &WorkflowRef,
    digest: &Digest,
    unusual_name: Option<&str>,
) -> Result<Vec<u8>, Failure> {
    let usual = names::blob(&run.name, &run.uid, digest);
    let name = unusual_name.filter(|name| names::is_blob(&usual, name)).unwrap_or(&usual);
    let blob = session.blob(name).await?;
    whole::verified(blob, run, digest, "a part of the journal").map_err(|why| Failure::Other(why.to_string()))
}
