//! The effect of the operator's write of a status on an object, and its answer: the status and the version, whatever
//! other users wrote on the object. The tests use the operator's own code, without an operator.

use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use signoff_api::{
    Approval, ApprovalStatus, Seq, Workflow, WorkflowStatus, approval::ApprovalPhase, workflow::WorkflowPhase,
};
use signoff_cluster::kinds::{Decoded, ReconciledKind, WriteAnswer};
use signoff_cluster::requests::{AnswerForm, ApiRequests, write_turns};
use signoff_cluster::store::Store;
use signoff_cluster::{error::status_code, metrics::RequestMetrics, write_priority::WritePriority};

use super::harness::{self, Harness};

/// Returns the object as the API server has it, and as the operator reads it.
async fn read<K: ReconciledKind>(harness: &Harness, name: &str) -> (Value, K) {
    let api: Api<DynamicObject> =
        Api::namespaced_with(harness.client("admin").await, &harness.namespace.name, &ApiResource::erase::<K>(&()));
    let object = serde_json::to_value(api.get(name).await.unwrap()).unwrap();
    let Decoded(typed) = serde_json::from_value(object.clone()).unwrap();
    (object, typed)
}

/// The finalizer that the garbage collector itself removes.
const FINALIZER: &str = "foregroundDeletion";

/// Writes a label, an annotation and further metadata on an object, as a person of the cast.
async fn write_metadata<K: ReconciledKind>(harness: &Harness, who: &str, name: &str, mut metadata: Value) {
    let api: Api<DynamicObject> =
        Api::namespaced_with(harness.client(who).await, &harness.namespace.name, &ApiResource::erase::<K>(&()));
    for field in ["labels", "annotations"] {
        metadata[field] = json!({"example.com/mark": "theirs"});
    }
    api.patch(name, &PatchParams::default(), &Patch::Merge(json!({"metadata": metadata}))).await.unwrap();
}

/// Removes the parts that a write of a status may change.
fn without_status(mut object: Value) -> Value {
    object.as_object_mut().unwrap().remove("status");
    object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let entries = object["metadata"]["managedFields"].as_array_mut().unwrap();
    entries.retain(|entry| entry["subresource"] != "status");
    assert!(!entries.is_empty(), "others have written fields");
    object
}

async fn check_status_write<K: ReconciledKind>(harness: &Harness, name: &str, status: K::Status) {
    let requests =
        ApiRequests::new(harness.operator.clone(), RequestMetrics::default(), WritePriority::default(), write_turns());
    let (before, observed) = read::<K>(harness, name).await;
    assert_eq!(before["metadata"]["finalizers"], json!([FINALIZER]));
    assert_eq!(before["metadata"]["labels"]["example.com/mark"], "theirs");
    let answer = requests.replace_status(&observed, &status, AnswerForm::Metadata).await.unwrap();
    let (after, stored) = read::<K>(harness, name).await;
    assert_eq!(after["status"], serde_json::to_value(&status).unwrap());
    assert_ne!(after["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"]);
    assert_eq!(without_status(after), without_status(before), "{name}: more than the status was changed");

    let WriteAnswer::Metadata(metadata) = answer else { panic!("the answer is the whole {}", K::KIND) };
    assert_eq!(&*metadata, stored.meta());
    let store = Store::default();
    let sent = store.record_sent(observed.stored_as(*metadata, status.clone()));
    assert_eq!(*sent, stored);
    assert!(!store.apply(stored.clone()), "what is stored is what was sent");

    let unchanged = requests.replace_status(&stored, &status, AnswerForm::Metadata).await.unwrap();
    assert_eq!(
        unchanged,
        WriteAnswer::Metadata(Box::new(stored.meta().clone())),
        "a write that changes nothing makes no version"
    );
    let whole = requests.replace_status(&stored, &status, AnswerForm::Whole).await.unwrap();
    assert_eq!(whole, WriteAnswer::Whole(stored.clone()));

    let refusal = async |change: &dyn Fn(&mut K)| {
        let mut observed = stored.clone();
        change(&mut observed);
        status_code(&requests.replace_status(&observed, &status, AnswerForm::Metadata).await.unwrap_err())
    };
    let older = observed.meta().resource_version.clone();
    assert_eq!(refusal(&|object| object.meta_mut().resource_version.clone_from(&older)).await, Some(409));
    let other = "00000000-0000-4000-8000-999999999999";
    assert_eq!(refusal(&|object| object.meta_mut().uid = Some(other.to_owned())).await, Some(409));
    assert_eq!(refusal(&|object| object.meta_mut().resource_version = None).await, Some(422));
}

#[tokio::test]
async fn a_status_is_written_without_the_rest_of_its_object() {
    let harness = Harness::open("status").await;
    let workflow = harness.request("dana", "refund", json!({})).await.unwrap();
    let mut approval = harness::approval(json!({"workflow": {"name": "refund", "uid": workflow.uid().unwrap()}}));
    approval.metadata.owner_references = Some(vec![workflow.controller_owner_ref(&()).unwrap()]);
    approval.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
    let approval = harness.approvals_of_operator().create(&PostParams::default(), &approval).await.unwrap();
    write_metadata::<Workflow>(&harness, "admin", "refund", json!({"finalizers": [FINALIZER]})).await;
    write_metadata::<Approval>(&harness, "alice", &approval.name_any(), json!({})).await;

    let status = WorkflowStatus { phase: WorkflowPhase::Running, seq: Seq::from(1), ..WorkflowStatus::default() };
    check_status_write::<Workflow>(&harness, "refund", status).await;
    let status = ApprovalStatus { phase: ApprovalPhase::Overdue, seq: 1, ..ApprovalStatus::default() };
    check_status_write::<Approval>(&harness, &approval.name_any(), status).await;
}

#[tokio::test]
async fn a_new_approval_is_what_was_sent_with_its_first_status() {
    let harness = Harness::open("status").await;
    let requests =
        ApiRequests::new(harness.operator.clone(), RequestMetrics::default(), WritePriority::default(), write_turns());
    let mut approval = harness::approval(json!({}));
    approval.metadata.namespace = Some(harness.namespace.name.clone());
    let WriteAnswer::Metadata(metadata) = requests.create(&approval, AnswerForm::Metadata).await.unwrap() else {
        panic!("the answer is the whole Approval");
    };
    let (_, stored) = read::<Approval>(&harness, &approval.name_any()).await;
    assert_eq!(Approval { metadata: *metadata, status: Some(ApprovalStatus::default()), ..approval }, stored);
}

/// The parts of a status that only the operator writes and that have no schema.
#[tokio::test]
async fn the_journal_takes_any_shape_of_at_most_4096_items_and_its_status_no_other() {
    let harness = Harness::open("open-parts").await;
    let name = harness.request("dana", "journal", json!({})).await.unwrap().name_any();
    let api: Api<DynamicObject> =
        Api::namespaced_with(harness.operator.clone(), &harness.namespace.name, &ApiResource::erase::<Workflow>(&()));
    let write = async |status: Value| {
        let patch = Patch::Merge(json!({"status": status}));
        api.patch_status(&name, &PatchParams::default(), &patch).await
    };
    let deep = (0..60).fold(json!("x"), |inner, _| json!({"a": [inner]}));
    let long = "x".repeat(1 << 20);
    for shape in [json!("forged"), json!(7), json!({"a": 1}), json!([null, 7, [deep]]), json!([{"path": long}])] {
        let stored = write(json!({"steps": shape})).await.unwrap();
        assert_eq!(stored.data["status"]["steps"], shape, "not a byte of it is pruned");
    }
    let items = |count: usize| json!({"steps": vec![json!({}); count]});
    write(items(4096)).await.unwrap();
    let refused = write(items(4097)).await.unwrap_err().to_string();
    assert!(refused.contains("status.steps: Too many: 4097: must have at most 4096 items"), "{refused}");
    let refused = write(json!({"seq": "many"})).await.unwrap_err().to_string();
    assert!(refused.contains("status.seq: Invalid value"), "{refused}");
}
