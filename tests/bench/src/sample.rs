//! The measured objects: a Workflow of one gate between two steps, the decision, and copies of real objects.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use signoff_api::{ApprovalRequest, names};

/// Returns the path of a collection in one namespace.
pub(super) fn path(namespace: &str, plural: &str) -> String {
    format!("/apis/signoff.dev/v1alpha1/namespaces/{namespace}/{plural}")
}

/// Returns the `index`th Workflow's name.
pub(super) fn name(index: usize) -> String {
    format!("refund-{index:05}")
}

/// Returns a Workflow with the steps set → gate → set, as a requester would apply it.
pub(super) fn workflow(name: &str, approver: &str) -> Value {
    json!({
        "apiVersion": "signoff.dev/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": name},
        "spec": {
            // Admission stamps the requester if the name is empty.
            "requestedBy": "",
            "inputs": [
                {"name": "customer", "type": "string", "required": true, "value": "ACME"},
                {"name": "amount", "type": "number", "value": 420},
            ],
            "steps": [
                {"name": "draft", "set": {"value": "Refund {{ inputs.amount }} EUR to {{ inputs.customer }}."}},
                {"name": "review", "hitl": {
                    "prompt": "Send this letter to {{ inputs.customer }}?",
                    "contextDisplay": "{{ steps.draft.response }}",
                    "approvers": [{"kind": "User", "name": approver}],
                    "timeout": {"after": "24h", "action": "Reject"},
                }},
                {"name": "send", "set": {"value": "sent: {{ steps.draft.response }}"}},
            ],
        },
    })
}

/// Returns a merge patch with only the approver's own entry.
pub(super) fn decision(approver: &str) -> Value {
    json!({"spec": {"decisions": {approver: {"verdict": "Approve", "reason": "checked the numbers"}}}})
}

/// One finished Workflow and its Approval, as the API server returns them.
pub(super) struct Sample {
    pub(super) workflow: Value,
    pub(super) approval: Value,
    /// The Workflow's status while its gate was open.
    pub(super) waiting: Value,
}

impl Sample {
    /// Returns both objects' lengths in bytes, as JSON.
    pub(super) fn sizes(&self) -> [usize; 2] {
        [&self.workflow, &self.approval].map(|object| object.to_string().len())
    }

    /// Returns a copy of the sample's Approval for another Workflow, as the operator would create it. The Workflow must
    /// exist, because an object without an owner is collected as garbage.
    pub(super) fn approval(&self, workflow: &str) -> Result<Value> {
        let workflow: Value = serde_json::from_str(workflow)?;
        let text = |field: &str| workflow["metadata"][field].as_str().context("a Workflow without a name or uid");
        let (workflow, uid) = (text("name")?, text("uid")?);
        let mut request: ApprovalRequest =
            serde_json::from_value(self.approval["spec"]["request"].clone()).context("the sample's request")?;
        workflow.clone_into(&mut request.workflow.name);
        uid.clone_into(&mut request.workflow.uid);
        request.digest = request.digest_of_the_rest()?;
        let name = names::approval(workflow, &request.gate.name, &request.digest);
        let mut metadata = json!({
            "name": name,
            "labels": self.approval["metadata"]["labels"],
            "ownerReferences": self.approval["metadata"]["ownerReferences"],
        });
        metadata["labels"][names::LABEL_WORKFLOW] = json!(workflow);
        metadata["labels"][names::LABEL_WORKFLOW_UID] = json!(uid);
        metadata["ownerReferences"][0]["name"] = json!(workflow);
        metadata["ownerReferences"][0]["uid"] = json!(uid);
        Ok(json!({
            "apiVersion": self.approval["apiVersion"],
            "kind": "Approval",
            "metadata": metadata,
            "spec": {"request": request},
        }))
    }

    /// Returns an Event about the Approval, of the length that the operator writes.
    pub(super) fn event(&self, name: &str) -> Value {
        let about = &self.approval["metadata"];
        json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name},
            "action": "Decided",
            "reason": "Decided",
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "note": "Approved by alice@example.com: checked the numbers",
            "regarding": {
                "apiVersion": self.approval["apiVersion"], "kind": "Approval",
                "name": about["name"], "namespace": about["namespace"], "uid": about["uid"],
            },
            "reportingController": "signoff.dev/operator",
            "reportingInstance": "bench",
            "type": "Normal",
        })
    }
}

/// Returns the name of the object in the API server's answer.
pub(super) fn name_of(answer: &str) -> Result<String> {
    let object: Value = serde_json::from_str(answer)?;
    Ok(object["metadata"]["name"].as_str().context("an object without a name")?.to_owned())
}

/// Returns the name of an answered object, and the object with another status as the body of a PUT. The version in the
/// body makes the write a compare-and-swap.
pub(super) fn with_status(answer: &str, status: &Value) -> Result<(String, Vec<u8>)> {
    let mut object: Value = serde_json::from_str(answer)?;
    if let Some(metadata) = object["metadata"].as_object_mut() {
        // A client that reads objects for their content does not send managed fields back.
        metadata.remove("managedFields");
    }
    object["status"] = status.clone();
    let name = object["metadata"]["name"].as_str().context("an object without a name")?.to_owned();
    Ok((name, serde_json::to_vec(&object)?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_measured_workflow_has_one_gate_between_two_steps() {
        let workflow: signoff_api::Workflow = serde_json::from_value(workflow("w", "alice")).unwrap();
        let steps = workflow.spec.steps;
        assert_eq!(steps.iter().filter(|step| step.hitl.is_some()).count(), 1);
        assert_eq!(steps.iter().filter(|step| step.set.is_some()).count(), 2);
    }

    #[test]
    fn putting_a_status_back_keeps_the_version_and_drops_managed_fields() {
        let answer = r#"{"metadata": {"name": "n", "resourceVersion": "7", "managedFields": [{}]}, "spec": {}}"#;
        let (name, body) = with_status(answer, &json!({"seq": 1})).unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(name, "n");
        assert_eq!(body, json!({"metadata": {"name": "n", "resourceVersion": "7"}, "spec": {}, "status": {"seq": 1}}));
    }
}
