//! Requests of equal gates: the same gate and quorums, in runs whose specs differ in values of inputs only.
//!
//! key *(pure)*, and the spec of a run *(I/O)* -> its shape *(pure)*.

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};
use signoff_api::{Approval, Digest, Workflow, approval::WorkflowRef, names};

/// The fields of a spec that say who started the run, and those that can change while it goes on.
const OF_ONE_RUN: [&str; 5] = ["requestedBy", "requestedFor", "suspend", "cancel", "ttlAfterFinished"];
/// The digits of a key.
const DIGITS: usize = 16;

/// Returns the key of the gate of a request: equal gates with equal quorums in one namespace have equal keys. The gate
/// of a call is told by agent and tool, because its path has the number of the turn.
#[must_use]
pub fn key(approval: &Approval) -> String {
    let request = &approval.spec.request;
    let place = match &request.action {
        Some(action) => json!([action.kind, action.agent, action.tool]),
        None => json!(request.gate.path),
    };
    let gate = json!([
        approval.metadata.namespace,
        request.gate.name,
        request.gate.type_,
        place,
        request.quorums,
        approval.approvers(),
        request.required_by,
        request.allowed_verdicts,
    ]);
    Digest::of(&gate).unwrap_or_else(|_| request.digest.clone()).short(DIGITS).to_owned()
}

/// Reads the spec of a run, and returns its digest without the values of inputs; `None` if this run cannot be read.
pub async fn shape_of_run(client: &Client, namespace: &str, run: &WorkflowRef) -> Option<Digest> {
    if !names::is_object(&run.name) {
        return None;
    }
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &ApiResource::erase::<Workflow>(&()));
    let mut found = api.get(&run.name).await.ok().filter(|found| found.metadata.uid.as_ref() == Some(&run.uid))?;
    shape(found.data.get_mut("spec")?.take())
}

/// Returns the digest of a spec without the values of inputs and without the fields of [`OF_ONE_RUN`].
fn shape(mut spec: Value) -> Option<Digest> {
    let fields = spec.as_object_mut()?;
    fields.retain(|field, _| !OF_ONE_RUN.contains(&field.as_str()));
    for input in fields.get_mut("inputs").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(input) = input.as_object_mut() {
            input.remove("value");
        }
    }
    Digest::of(&spec).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sample;

    #[test]
    fn gates_are_equal_whatever_they_ask_and_different_by_each_part_of_the_gate() {
        let own = sample::approval();
        let changed = |change: fn(&mut Approval)| {
            let mut approval = sample::approval();
            change(&mut approval);
            key(&approval)
        };
        assert_eq!(key(&own).len(), DIGITS);
        assert_eq!(changed(|one| one.spec.request.prompt = "Another?".to_owned()), key(&own));
        assert_eq!(changed(|one| one.spec.request.workflow.name = "refund-4712".to_owned()), key(&own));
        let others = [
            changed(|one| one.metadata.namespace = Some("other".to_owned())),
            changed(|one| one.spec.request.gate.path = "other".to_owned()),
            changed(|one| one.spec.request.gate.name = "other".to_owned()),
            changed(|one| one.spec.request.quorums.iter_mut().for_each(|quorum| quorum.threshold = 2)),
            changed(|one| one.spec.request.allowed_verdicts.truncate(1)),
            changed(|one| {
                one.status.get_or_insert_default().approvers = vec![signoff_api::gate::Subject::group("ops")]
            }),
        ];
        assert!(!others.contains(&key(&own)), "{others:?}");
    }

    #[test]
    fn calls_of_one_tool_are_equal_in_different_turns() {
        let call = |path: &str, tool: &str| {
            let mut approval = sample::call();
            approval.spec.request.gate.path = path.to_owned();
            approval.spec.request.action.as_mut().unwrap().tool = tool.to_owned();
            key(&approval)
        };
        let first = call("handle/.turn-1/.call-1/.gate", "refund");
        assert_eq!(call("handle/.turn-4/.call-2/.gate", "refund"), first);
        assert_ne!(call("handle/.turn-1/.call-1/.gate", "letter"), first);
    }

    #[test]
    fn specs_have_one_shape_whoever_started_them_and_whatever_the_values_of_inputs() {
        let spec = |value: u32, default: u32, by: &str| {
            shape(
                json!({"requestedBy": by, "inputs": [{"name": "invoice", "default": default, "value": value}], "steps": []}),
            )
        };
        assert_eq!(spec(501, 1, "dana"), spec(502, 1, "erin"));
        assert_ne!(spec(501, 1, "dana"), spec(501, 2, "dana"), "a default is a part of the spec");
        assert_ne!(shape(json!({"steps": [1]})), shape(json!({"steps": []})));
        assert_eq!(shape(json!("no spec")), None);
    }
}
