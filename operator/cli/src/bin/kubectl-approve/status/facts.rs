//! A run for programs: its Workflow and Approvals with every field that is stored.
//!
//! **Invariant:** the facts have all parts of the journal, and all fields, also those that only a later version
//! defines.

use kube::{
    Api,
    api::{ApiResource, DynamicObject, ListParams},
};
use serde_json::{Value, json};
use signoff_api::{Approval, Digest, Workflow, approval::WorkflowRef, names};
use signoff_cli::sanitize::one_line;

use super::fetch;
use crate::{cluster::client::Session, error::Failure};

/// A segment of the journal: its digest, and its bytes or why they cannot be read.
type SegmentBytes = (Digest, Result<Vec<u8>, Failure>);

/// Returns `{workflow, approvals}`: the run with its whole journal in `status.steps`, and the Approvals of its gates,
/// as they are stored.
///
/// # Errors
/// A request fails, or a part of the journal cannot be read.
pub async fn fetch_facts(session: &Session, name: &str) -> Result<Value, Failure> {
    let (client, namespace) = (session.raw(), &session.namespace);
    let resource = ApiResource::erase::<Workflow>(&());
    let workflow_api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
    let workflow = workflow_api.get(name).await.map_err(|error| session.explain(error))?;
    let run = WorkflowRef { name: name.to_owned(), uid: workflow.metadata.uid.clone().unwrap_or_default() };
    let resource = ApiResource::erase::<Approval>(&());
    let approval_api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
    let of_run = ListParams::default().labels(&format!("{}={}", names::LABEL_WORKFLOW_UID, run.uid));
    let approvals = approval_api.list(&of_run).await.map_err(|error| session.explain(error))?.items;
    let approvals = approvals.into_iter().map(stored_fields).collect::<Result<Vec<Value>, Failure>>()?;
    let workflow = stored_fields(workflow)?;
    let mut segments = Vec::new();
    for digest in segment_digests(&workflow)? {
        let unusual_name = workflow["status"]["valueNames"][digest.as_str()].as_str();
        let bytes = fetch::fetch_segment(session, &run, &digest, unusual_name).await;
        segments.push((digest, bytes));
    }
    Ok(json!({"workflow": restore_journal(workflow, segments)?, "approvals": Value::Array(approvals)}))
}

/// Returns an object without its managed fields.
fn stored_fields(mut object: DynamicObject) -> Result<Value, Failure> {
    object.metadata.managed_fields = None;
    serde_json::to_value(&object).map_err(|error| Failure::Other(error.to_string()))
}

/// Returns the digests of the segments of a Workflow, in their order.
fn segment_digests(workflow: &Value) -> Result<Vec<Digest>, Failure> {
    let segments = workflow["status"]["segments"].as_array().into_iter().flatten();
    let digests = segments.map(|segment| serde_json::from_value::<Digest>(segment["digest"].clone()));
    digests.collect::<Result<Vec<_>, _>>().map_err(|why| {
        let why = one_line(&why.to_string(), 1000);
        Failure::Other(format!("the journal names a part without a digest ({why}): update kubectl-approve"))
    })
}

/// Moves the records of the segments back into `status.steps`, and removes `status.segments`.
fn restore_journal(mut workflow: Value, segments: Vec<SegmentBytes>) -> Result<Value, Failure> {
    let name = one_line(workflow["metadata"]["name"].as_str().unwrap_or_default(), 253);
    let mut records: Vec<Value> = Vec::new();
    for (digest, bytes) in segments {
        let part = bytes.and_then(|bytes| {
            serde_json::from_slice::<Vec<Value>>(&bytes).map_err(|error| Failure::Other(error.to_string()))
        });
        records.extend(part.map_err(|why| {
            let rest = format!("kubectl get workflow {name} -o json has the rest");
            Failure::Other(format!("the part {digest} of the journal of {name} cannot be read ({why}); {rest}"))
        })?);
    }
    let status = workflow.get_mut("status").and_then(Value::as_object_mut);
    if let Some(status) = status.filter(|_| !records.is_empty()) {
        status.shift_remove("segments");
        let steps = status.entry("steps").or_insert_with(|| json!([]));
        records.extend(steps.as_array_mut().map(std::mem::take).unwrap_or_default());
        *steps = Value::Array(records);
    }
    Ok(workflow)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn digest(part: u8) -> Digest {
        Digest::of_bytes(&[part])
    }

    fn workflow() -> Value {
        let segments = [1, 2].map(|part| json!({"digest": digest(part), "records": 1}));
        json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "refund"},
            "spec": {"later": true}, "status": {"later": 7, "segments": segments, "steps": [{"path": "c", "new": 1}]}})
    }

    #[test]
    fn a_run_has_every_stored_field_and_its_whole_journal_in_order() {
        let read = |path: &str| Ok(json!([{"path": path, "later": "x"}]).to_string().into_bytes());
        assert_eq!(segment_digests(&workflow()).unwrap(), [digest(1), digest(2)]);
        let whole = restore_journal(workflow(), vec![(digest(1), read("a")), (digest(2), read("b"))]).unwrap();
        let steps = json!([{"path": "a", "later": "x"}, {"path": "b", "later": "x"}, {"path": "c", "new": 1}]);
        assert_eq!((&whole["status"]["steps"], &whole["status"]["segments"]), (&steps, &Value::Null));
        assert_eq!((&whole["spec"]["later"], &whole["status"]["later"]), (&json!(true), &json!(7)));
        let short = json!({"metadata": {"name": "new"}, "spec": {}});
        assert_eq!(restore_journal(short.clone(), Vec::new()).unwrap(), short);
    }

    #[test]
    fn a_part_of_the_journal_that_cannot_be_read_is_named_and_fails() {
        for lost in [Err(Failure::NotFound("no such Blob".to_owned())), Ok(b"not JSON".to_vec())] {
            let failure = restore_journal(workflow(), vec![(digest(2), lost)]).unwrap_err();
            let text = failure.to_string();
            assert!(text.contains(&format!("the part {} of the journal of refund", digest(2))), "{text}");
            assert!(text.ends_with("kubectl get workflow refund -o json has the rest"), "{text}");
            assert_eq!(failure.code(), 1);
        }
    }

    #[test]
    fn an_object_is_printed_as_it_is_stored_without_managed_fields() {
        let object = json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Approval",
            "metadata": {"name": "a", "managedFields": [{"manager": "x"}]}, "spec": {"later": 1}});
        let stored = stored_fields(serde_json::from_value(object).unwrap()).unwrap();
        assert_eq!(
            stored,
            json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Approval", "metadata": {"name": "a"}, "spec": {"later": 1}})
        );
    }
}
