//! The status that follows from a turn of a local run, and the Approval that follows from its asking.
//!
//! Pure: the same turn gives the same status.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use signoff_api::{
    Approval, ApprovalSpec, Digest, GROUP, Moment, VERSION, Workflow, WorkflowStatus,
    conditions::{self, Say},
    journal::{self, BlobRef, StepRecord},
    names,
    workflow::{ArtifactRef, WorkflowPhase},
};
use signoff_engine::{End, Plan, Turn, language::text, turn::Ask};

/// The longest output that stands in the status itself, in bytes.
const SHORT: usize = 4096;

/// What the run has to show that does not fit into the status: a long output, and files.
pub(super) fn apart(turn: &Turn) -> Vec<(Digest, String)> {
    let long = match &turn.end {
        Some(End::Succeeded(text)) if text.len() > SHORT => Some(text),
        _ => None,
    };
    let files = turn.artifacts.iter().map(|(_, content)| content);
    long.into_iter().chain(files).map(|text| (Digest::of_bytes(text.as_bytes()), text.clone())).collect()
}

fn reference(text: &str) -> BlobRef {
    BlobRef { digest: Digest::of_bytes(text.as_bytes()), size: i64::try_from(text.len()).unwrap_or(i64::MAX) }
}

/// The status after a turn. `held` says that nothing new may begin, because the run is about to pause.
pub(super) fn after(workflow: &Workflow, plan: &Plan, turn: &Turn, held: bool, now: Moment) -> WorkflowStatus {
    let mut status = workflow.status.clone().unwrap_or_default();
    status.seq = turn.journal.seq();
    status.steps = turn.journal.records().to_vec();
    status.usage = turn.journal.usage();
    status.pending = if turn.end.is_some() { Vec::new() } else { turn.pending.clone() };
    status.phase = match turn.phase {
        WorkflowPhase::Suspended if held && status.pending.is_empty() => WorkflowPhase::Running,
        WorkflowPhase::Suspended if held => WorkflowPhase::Waiting,
        phase => turn.end.as_ref().map_or(phase, End::phase),
    };
    status.observed_generation = workflow.metadata.generation;
    status.journal_version = Some(journal::version(&[]));
    status.spec_digest = Some(plan.spec_digest().clone());
    status.started_at = status.started_at.or(Some(now));
    status.message = match &turn.end {
        Some(end) => Some(text::display(end.message(), 1024)),
        None if status.phase == WorkflowPhase::Suspended => Some("suspended by spec.suspend".to_owned()),
        None => None,
    };
    if let Some(End::Succeeded(text)) = &turn.end {
        if text.len() > SHORT {
            status.outputs_ref = Some(reference(text));
        } else {
            status.outputs = Some(text.clone());
        }
        let file = |(path, content): &(String, String)| ArtifactRef { path: path.clone(), content: reference(content) };
        status.artifacts = turn.artifacts.iter().map(file).collect();
    }
    let accepted = match plan.warnings() {
        [] => "every field was understood".to_owned(),
        some => format!("with warnings: {}", some.join("; ")),
    };
    let waiting = match status.pending.as_slice() {
        [] => "nobody needs to decide anything".to_owned(),
        some => format!("waiting for {}", some.join(", ")),
    };
    let waits = !status.pending.is_empty();
    let reason = if waits { "ApprovalPending" } else { "NothingPending" };
    say(&mut status, now, conditions::ACCEPTED, true, "Accepted", &accepted);
    say(&mut status, now, conditions::WAITING, waits, reason, &waiting);
    if let Some(end) = &turn.end {
        status.finished_at = Some(now);
        let phase = end.phase();
        let good = if phase == WorkflowPhase::Succeeded { conditions::COMPLETE } else { conditions::FAILED };
        for kind in [conditions::FINISHED, good] {
            say(&mut status, now, kind, true, phase.name(), end.message());
        }
    }
    status
}

fn say(status: &mut WorkflowStatus, now: Moment, kind: &str, holds: bool, reason: &str, message: &str) {
    let message = text::display(message, 1024);
    conditions::set(&mut status.conditions, &Say { kind, holds, reason, message: &message }, Some(1), now);
}

/// The Approval that an asking makes.
pub(super) fn approval(workflow: &Workflow, ask: &Ask, now: Moment) -> Approval {
    let metadata = &workflow.metadata;
    let (name, uid) = (metadata.name.clone().unwrap_or_default(), metadata.uid.clone().unwrap_or_default());
    let labels = BTreeMap::from([
        (names::LABEL_WORKFLOW.to_owned(), name.clone()),
        (names::LABEL_WORKFLOW_UID.to_owned(), uid.clone()),
        (names::LABEL_GATE.to_owned(), ask.request.gate.name.clone()),
    ]);
    let owner = OwnerReference {
        api_version: format!("{GROUP}/{VERSION}"),
        kind: "Workflow".to_owned(),
        name,
        uid,
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    Approval {
        metadata: ObjectMeta {
            name: Some(ask.name.clone()),
            namespace: metadata.namespace.clone(),
            labels: Some(labels),
            owner_references: Some(vec![owner]),
            creation_timestamp: Some(Time(now.timestamp())),
            generation: Some(1),
            ..ObjectMeta::default()
        },
        spec: ApprovalSpec { request: ask.request.clone(), decisions: BTreeMap::new() },
        status: None,
    }
}

/// Why an Approval is not the one that a record stands for; none where it is.
pub(super) fn stranger(approval: &Approval, record: &StepRecord, uid: &str) -> Option<&'static str> {
    let request = &approval.spec.request;
    let asked = record.request.as_ref().map(|facts| &facts.digest);
    if request.workflow.uid != uid {
        Some("it belongs to another run")
    } else if asked != Some(&request.digest) || request.gate.path != record.path {
        Some("it asks something else")
    } else if request.digest_of_the_rest().ok().as_ref() != Some(&request.digest) {
        Some("it asks something else than its digest says")
    } else {
        None
    }
}
