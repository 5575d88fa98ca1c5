//! The Approval of a gate: its construction, and the check whether an existing Approval is the one of a record.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};

use super::{Approval, ApprovalRequest, ApprovalSpec};
use crate::{Workflow, journal::StepRecord, names};

impl Approval {
    /// Returns the Approval of a gate of a Workflow: owned by the Workflow, without decisions.
    #[must_use]
    pub fn for_gate(workflow: &Workflow, name: &str, request: ApprovalRequest) -> Self {
        let (of, uid) = (workflow.name_any(), workflow.uid().unwrap_or_default());
        let mut labels = BTreeMap::from([
            (names::LABEL_WORKFLOW.to_owned(), of.clone()),
            (names::LABEL_WORKFLOW_UID.to_owned(), uid.clone()),
            (names::LABEL_GATE.to_owned(), request.gate.name.clone()),
        ]);
        labels.extend(request.turn().map(|turn| (names::LABEL_TURN.to_owned(), turn)));
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

    /// Whether the Approval names the Workflow with this uid and is owned by it.
    #[must_use]
    pub fn belongs_to(&self, uid: &str) -> bool {
        self.spec.request.workflow.uid == uid && self.owner_references().iter().any(|owner| owner.uid == uid)
    }

    /// Returns the reason why this Approval does not match `record` of the Workflow with this uid, or `None`. Completes
    /// the sentence "`<name>` …".
    #[must_use]
    pub fn mismatch(&self, record: &StepRecord, uid: &str) -> Option<&'static str> {
        let request = &self.spec.request;
        let asked = record.request.as_ref().map(|facts| &facts.digest);
        if !self.belongs_to(uid) {
            Some("belongs to another Workflow")
        } else if request.quorums.is_empty() {
            Some("has no quorum, so it cannot be decided")
        } else if asked != Some(&request.digest) || request.gate.path != record.path {
            Some("has a request that differs from the one that its gate recorded")
        } else if request.is_changed() {
            Some("has a request that does not match its digest")
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
    use crate::{
        Decision, Digest,
        gate::{Quorum, RequiredFrom, Subject},
    };

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
        (Approval::for_gate(&workflow, "w-g", request), serde_json::from_value(record).unwrap())
    }

    #[test]
    fn the_approval_of_a_gate_matches_its_record_and_is_owned_by_the_workflow() {
        let (approval, record) = asked();
        assert_eq!(approval.mismatch(&record, UID), None);
        assert_eq!(approval.namespace().as_deref(), Some("finance"));
        assert_eq!(approval.labels()[names::LABEL_GATE], "g");
        assert_eq!(approval.owner_references()[0].kind, "Workflow");
    }

    #[test]
    fn approvals_of_one_turn_have_the_same_label_and_others_have_another_or_none() {
        let label = |path: &str, uid: &str, action: Option<serde_json::Value>| {
            let (approval, _) = asked();
            let mut request = approval.spec.request;
            (request.gate.path, request.workflow.uid) = (path.to_owned(), uid.to_owned());
            request.action = action.map(|action| serde_json::from_value(action).unwrap());
            let workflow = serde_json::from_value(json!({
                "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "w", "uid": uid},
                "spec": {"requestedBy": "dana", "steps": [{"name": "one", "set": {"value": "x"}}]},
            }));
            Approval::for_gate(&workflow.unwrap(), "w-g", request).labels().get(names::LABEL_TURN).cloned()
        };
        let call = || Some(json!({"kind": "toolCall", "agent": "clerk", "tool": "refund"}));
        let question = || Some(json!({"kind": "question", "agent": "clerk", "tool": "ask-human"}));
        let first = label("handle/.turn-1/.call-1/.gate", UID, call());
        assert_eq!(first, Some(names::turn(UID, "handle/.turn-1")));
        assert_eq!(label("handle/.turn-1/.call-2/.gate#2", UID, call()), first);
        assert_eq!(label("handle/.turn-1/.call-3/.gate", UID, question()), first);
        let another_run = "00000000-0000-0000-0000-000000000002";
        let others = [
            label("handle/.turn-2/.call-1/.gate", UID, call()),
            label("handle/.turn-1/.call-1/.gate", another_run, call()),
            label("handle/.turn-1/.call-1/critic/.turn-1/.call-1/.gate", UID, call()),
        ];
        assert!(others.iter().all(|other| other.is_some() && *other != first), "{others:?}");
        assert_eq!(label("handle/.turn-1/.call-1/send/.before", UID, None), None, "a gate of the tool's step");
        assert_eq!(label("review", UID, None), None);
    }

    #[test]
    fn an_approval_with_another_owner_or_request_does_not_match() {
        let mismatch_after = |change: fn(&mut Approval)| {
            let (mut approval, record) = asked();
            change(&mut approval);
            approval.mismatch(&record, UID)
        };
        let another = Some("belongs to another Workflow");
        assert_eq!(mismatch_after(|approval| approval.spec.request.workflow.uid = "2".into()), another);
        assert_eq!(mismatch_after(|approval| approval.metadata.owner_references = None), another);
        assert_eq!(
            mismatch_after(|a| a.spec.request.gate.path = "h".into()),
            Some("has a request that differs from the one that its gate recorded")
        );
        assert_eq!(
            mismatch_after(|a| a.spec.request.digest = Digest::of_bytes(b"x")),
            Some("has a request that differs from the one that its gate recorded")
        );
        let undecidable = Some("has no quorum, so it cannot be decided");
        assert_eq!(mismatch_after(|approval| approval.spec.request.quorums.clear()), undecidable);
        let why = mismatch_after(|approval| approval.spec.request.prompt = "Send it all?".into());
        assert_eq!(why, Some("has a request that does not match its digest"));
    }

    /// Returns an Approval with nine quorums, each with 64 groups of approvers and eight required groups.
    fn asks_groups() -> Approval {
        let (mut approval, _) = asked();
        let groups = |prefix: &str, count| (0..count).map(|n| format!("{prefix}-{n}")).collect::<Vec<_>>();
        approval.spec.request.quorums = (0..ApprovalRequest::MAX_QUORUMS)
            .map(|n| {
                let approvers = groups(&format!("approvers{n}"), 64).iter().map(|name| Subject::group(name)).collect();
                let required = groups(&format!("required{n}"), Quorum::MAX_REQUIRED_FROM);
                let required_from = required.into_iter().map(|group| RequiredFrom { group, min: 1 }).collect();
                Quorum { approvers, required_from, ..approval.spec.request.quorums[0].clone() }
            })
            .collect();
        approval
    }

    fn all_groups(approval: &Approval) -> Vec<String> {
        let quorums = approval.spec.request.quorums.iter();
        let of = |quorum: &Quorum| {
            let required = quorum.required_from.iter().map(|rule| rule.group.clone());
            required.chain(quorum.approvers.iter().map(|group| group.name.clone())).collect::<Vec<_>>()
        };
        quorums.flat_map(of).collect()
    }

    #[test]
    fn a_vote_never_lists_more_groups_than_the_schema_allows() {
        let schema = crate::crds::declared_schema("Approval");
        let most = |pointer: &str| schema.pointer(pointer).and_then(serde_json::Value::as_u64).unwrap();
        let quorums = "/properties/spec/properties/request/properties/quorums";
        let required = format!("{quorums}/items/properties/requiredFrom/maxItems");
        let bounds = most(&format!("{quorums}/maxItems")) * (most(&required) + 1);
        assert_eq!(bounds, Decision::MAX_GROUPS as u64);
        assert_eq!(
            bounds,
            most("/properties/spec/properties/decisions/additionalProperties/properties/groups/maxItems")
        );
        assert_eq!(bounds, most("/properties/status/properties/votes/items/properties/groups/maxItems"));

        let approval = asks_groups();
        let all = all_groups(&approval);
        let twice = [all.clone(), all].concat();
        let named = approval.groups_of_voter(&twice);
        assert_eq!(named.len(), Decision::MAX_GROUPS);
        assert_eq!(named.iter().collect::<std::collections::BTreeSet<_>>().len(), named.len());
    }

    #[test]
    fn a_vote_lists_the_groups_that_count_and_no_others() {
        let mut approval = asks_groups();
        let of = |approval: &Approval, groups: &[&str]| {
            approval.groups_of_voter(&groups.iter().map(|&group| group.to_owned()).collect::<Vec<_>>())
        };
        let mine = ["staff", "approvers1-9", "approvers1-3", "required2-0", "required1-1", "approvers0-5"];
        assert_eq!(of(&approval, &mine), ["required1-1", "required2-0", "approvers0-5", "approvers1-3"]);
        approval.status.get_or_insert_default().approvers = vec![Subject::group("staff")];
        assert_eq!(of(&approval, &mine), ["required1-1", "required2-0", "staff", "approvers1-3"]);
        approval.spec.request.quorums.truncate(1);
        assert_eq!(of(&approval, &["approvers0-5", "required0-0"]), ["required0-0"], "alone, its list needs no name");
        approval.spec.request.quorums.clear();
        assert!(of(&approval, &mine).is_empty());
    }
}
