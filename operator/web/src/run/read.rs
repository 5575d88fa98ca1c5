//! A run as the caller reads it: the Workflow with its journal, and the Approvals of its gates.
//!
//! **Invariant:** a Blob without the digest that the Workflow names is not used.

use std::collections::BTreeMap;

use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, ObjectMeta},
};
use signoff_api::{
    Approval, Digest, Workflow,
    approval::WorkflowRef,
    journal::{Segment, StepRecord},
};
use signoff_cluster::error::plain;
use signoff_review::{run, text::one_line, whole};

use super::address::Address;
use crate::error::PageError;

/// The most Approvals that are listed.
const APPROVALS: u32 = 500;
/// The most segments of a journal for one page, and their most bytes. The latest segments are read.
const SEGMENTS: (usize, i64) = (16, 8 * 1024 * 1024);

/// The number of segments and of bytes of a journal that can still be read for one page.
pub struct JournalBudget(usize, i64);

impl Default for JournalBudget {
    fn default() -> Self {
        Self(SEGMENTS.0, SEGMENTS.1)
    }
}

impl JournalBudget {
    /// Subtracts a segment if it fits, and returns whether it fits.
    pub fn takes(&mut self, segment: &Segment) -> bool {
        let left = (self.0.checked_sub(1), self.1.checked_sub(segment.size.max(0)));
        let (Some(segments), Some(bytes @ 0..)) = left else { return false };
        *self = Self(segments, bytes);
        true
    }
}

/// A run as it was read.
pub struct RunSnapshot {
    /// The Workflow; records of segments that were read are in `status.steps`, the others stay in `status.segments`.
    pub workflow: Workflow,
    /// The Approvals of the gates of the run.
    pub approvals: Vec<Approval>,
    /// The reason why not all Approvals were listed.
    pub unlisted: Option<String>,
    /// The versions of the objects that were read.
    pub versions: Versions,
}

/// The versions of objects, by their uids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions(BTreeMap<String, String>);

impl Versions {
    /// Adds or replaces the version of an object.
    pub fn put(&mut self, object: &ObjectMeta) {
        let (uid, version) = (object.uid.clone(), object.resource_version.clone());
        self.0.insert(uid.unwrap_or_default(), version.unwrap_or_default());
    }

    /// Removes an object.
    pub fn remove(&mut self, object: &ObjectMeta) {
        self.0.remove(object.uid.as_deref().unwrap_or_default());
    }

    /// Returns the versions of the objects of both sets.
    pub fn and(mut self, other: &Self) -> Self {
        self.0.extend(other.0.clone());
        self
    }

    /// Returns a word that identifies all versions.
    pub fn word(&self) -> String {
        let versions: String = self.0.iter().map(|(uid, version)| format!("{uid}={version};")).collect();
        Digest::of_bytes(versions.as_bytes()).short(16).to_owned()
    }
}

impl RunSnapshot {
    /// Reads a run.
    ///
    /// # Errors
    /// As every request for the Workflow. Approvals and segments that cannot be read are no error; the page says that
    /// they are missing.
    pub async fn fetch(client: &Client, address: &Address) -> Result<Self, PageError> {
        let mut workflow = fetch_workflow(client, address).await?;
        let selected = ListParams::default().labels(&run::approvals(&workflow)).limit(APPROVALS);
        let listed = Api::<Approval>::namespaced(client.clone(), &address.namespace).list(&selected).await;
        let (approvals, unlisted) = match listed {
            Ok(list) => {
                let more = list.metadata.continue_.as_ref().is_some_and(|token| !token.is_empty());
                (list.items, more.then(|| format!("only the first {APPROVALS} Approvals of this run are shown")))
            }
            Err(error) => {
                let why = one_line(&plain(&error), 1024);
                (Vec::new(), Some(format!("the Approvals of this run cannot be read, so votes are not shown: {why}")))
            }
        };
        let mut versions = Versions::default();
        versions.put(&workflow.metadata);
        approvals.iter().for_each(|approval| versions.put(&approval.metadata));
        read_segments(client, address, &mut workflow).await;
        Ok(Self { workflow, approvals, unlisted, versions })
    }
}

/// Reads the Workflow of an address.
///
/// # Errors
/// As every request.
pub async fn fetch_workflow(client: &Client, address: &Address) -> Result<Workflow, PageError> {
    Ok(Api::<Workflow>::namespaced(client.clone(), &address.namespace).get(&address.name).await?)
}

/// Reads the Workflow of an address, with the records of the latest segments in `status.steps`.
///
/// # Errors
/// As every request. Segments that cannot be read stay in `status.segments`.
pub async fn fetch_with_journal(client: &Client, address: &Address) -> Result<Workflow, PageError> {
    let mut workflow = fetch_workflow(client, address).await?;
    read_segments(client, address, &mut workflow).await;
    Ok(workflow)
}

/// Moves the records of the latest segments back into `status.steps`: as many as [`JournalBudget`] allows, and up to
/// the first one that cannot be read.
async fn read_segments(client: &Client, address: &Address, workflow: &mut Workflow) {
    let run = reference(workflow);
    let Some(status) = &mut workflow.status else { return };
    let mut budget = JournalBudget::default();
    while let Some(segment) = status.segments.last() {
        if !budget.takes(segment) {
            return;
        }
        let Some(mut records) = read_segment(client, address, &run, segment).await else { return };
        records.append(&mut status.steps);
        status.steps = records;
        status.segments.pop();
    }
}

/// Returns the reference by which the objects of a run name it.
pub fn reference(workflow: &Workflow) -> WorkflowRef {
    WorkflowRef { name: workflow.name_any(), uid: workflow.uid().unwrap_or_default() }
}

/// Reads the records of a segment, or returns `None` and logs the reason if its Blob cannot be read.
pub async fn read_segment(
    client: &Client,
    address: &Address,
    run: &WorkflowRef,
    segment: &Segment,
) -> Option<Vec<StepRecord>> {
    let read = whole::value(client, &address.namespace, run, &segment.digest, "a part of the journal").await;
    match read {
        Ok(bytes) => serde_json::from_slice(&bytes).ok(),
        Err(error) => {
            tracing::warn!(namespace = address.namespace, workflow = address.name, %error, "a part of a journal cannot be read");
            None
        }
    }
}
