//! The Approval that a gate makes, and whether an Approval is the one that a gate made.
//!
//! Pure: it may not ask whether the object exists.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};

use super::{Approval, ApprovalRequest, ApprovalSpec};
use crate::{Workflow, journal::StepRecord, names};

impl Approval {
    /// The Approval by which a Workflow asks: owned by it, with nothing decided.
    #[must_use]
    pub fn asking(workflow: &Workflow, name: &str, request: ApprovalRequest) -> Self {
        let (of, uid) = (workflow.name_any(), workflow.uid().unwrap_or_default());
        let labels = BTreeMap::from([
            (names::LABEL_WORKFLOW.to_owned(), of.clone()),
            (names::LABEL_WORKFLOW_UID.to_owned(), uid.clone()),
            (names::LABEL_GATE.to_owned(), request.gate.name.clone()),
        ]);
        let owner = OwnerReference {
            api_version: Workflow::api_version(&()).into_owned(),
            kind: Workflow::kind(&()).into_owned(),
            name: of,
            uid,
            controller: Some(true),
            block_owner_deletion: Some(true),
        };
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: workflow.namespace(),
            labels: Some(labels),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        };
        Self { metadata, spec: ApprovalSpec { request, decisions: BTreeMap::new() }, status: None }
    }

    /// Whether it asks for the Workflow with this uid, and is owned by it.
    #[must_use]
    pub fn belongs_to(&self, uid: &str) -> bool {
        self.spec.request.workflow.uid == uid && self.owner_references().iter().any(|owner| owner.uid == uid)
    }

    /// Why it is not the Approval that this record of this Workflow stands for, as what follows its name; none where
    /// it is.
    #[must_use]
    pub fn stranger_to(&self, record: &StepRecord, uid: &str) -> Option<&'static str> {
        let request = &self.spec.request;
        let asked = record.request.as_ref().map(|facts| &facts.digest);
        if !self.belongs_to(uid) {
            Some("belongs to another Workflow")
        } else if request.quorums.is_empty() {
            Some("has no quorum, so nobody can decide it")
        } else if asked != Some(&request.digest) || request.gate.path != record.path {
            Some("asks something else")
        } else if request.is_changed() {
            Some("asks something else than its digest says")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::Digest;

    const UID: &str = "00000000-0000-0000-0000-000000000001";

    fn asked() -> (Approval, StepRecord) {
        let workflow = serde_json::from_value(json!({
            "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow",
            "metadata": {"name": "w", "namespace": "finance", "uid": UID},
            "spec": {"requestedBy": "dana", "steps": [{"name": "one", "set": {"value": "x"}}]},
        }))
        .unwrap();
        let mut request: ApprovalRequest = serde_json::from_value(json!({
            "workflow": {"name": "w", "uid": UID}, "gate": {"name": "g", "type": "step", "path": "g", "visit": 1},
            "specDigest": Digest::of_bytes(b""), "guardEpoch": "e", "deadline": "2030-01-01T00:00:00Z", "prompt": "?",
            "allowedVerdicts": ["Approve"],
            "quorums": [{"source": "gate g", "approvers": [{"kind": "User", "name": "alice"}], "threshold": 1}],
            "requestedBy": "dana", "timeout": {"after": "1h"}, "digest": Digest::of_bytes(b""),
        }))
        .unwrap();
        request.digest = request.digest_of_the_rest().unwrap();
        let record = json!({
            "path": "g", "attempt": 1, "kind": "hitl", "phase": "Waiting", "seq": 1, "at": "2029-12-31T23:00:00Z",
            "request": {"digest": request.digest, "deadline": "2030-01-01T00:00:00Z", "guardEpoch": "e"},
        });
        (Approval::asking(&workflow, "w-g", request), serde_json::from_value(record).unwrap())
    }

    #[test]
    fn what_a_gate_made_is_its_own_and_stands_in_its_workflows_place() {
        let (approval, record) = asked();
        assert_eq!(approval.stranger_to(&record, UID), None);
        assert_eq!(approval.namespace().as_deref(), Some("finance"));
        assert_eq!(approval.labels()[names::LABEL_GATE], "g");
        assert_eq!(approval.owner_references()[0].kind, "Workflow");
    }

    #[test]
    fn what_asks_something_else_or_for_somebody_else_is_a_stranger() {
        let strange = |change: fn(&mut Approval)| {
            let (mut approval, record) = asked();
            change(&mut approval);
            approval.stranger_to(&record, UID)
        };
        let another = Some("belongs to another Workflow");
        assert_eq!(strange(|approval| approval.spec.request.workflow.uid = "2".into()), another);
        assert_eq!(strange(|approval| approval.metadata.owner_references = None), another);
        assert_eq!(strange(|a| a.spec.request.gate.path = "h".into()), Some("asks something else"));
        assert_eq!(strange(|a| a.spec.request.digest = Digest::of_bytes(b"x")), Some("asks something else"));
        let undecidable = Some("has no quorum, so nobody can decide it");
        assert_eq!(strange(|approval| approval.spec.request.quorums.clear()), undecidable);
        let why = strange(|approval| approval.spec.request.prompt = "Send it all?".into());
        assert_eq!(why, Some("asks something else than its digest says"));
    }
}
