//! Attacks on Blobs, which hold the long values of runs.

use serde_json::{Value, json};

use crate::attacks::Actor::{
    Admin, Approver, ClusterAdmin, Delegate, Edit, GarbageCollector, Operator, Outsider, Requester, Stolen, Viewer,
};
use crate::attacks::{Actor, CHANGES, EVERYBODY, Object, PEOPLE, REMOVALS, Row, Scene, Token, Way};

const BLOBS: &str = "/apis/signoff.dev/v1alpha1/namespaces/{namespace}/blobs";
const CREATES: &str = "only the operator can create Blobs";
const CHANGED: &str = "a Blob is immutable";
const IMMUTABLE: &str = "the content of a Blob is immutable";
const DELETED: &str = "a Blob is deleted with its Workflow: delete the Workflow";
const OWNED: &str = "a Blob must have one owner, a Workflow";

/// One actor of each kind. The cluster administrator stands for all who hold every verb.
const SOME: [Actor; 6] = [Approver, Requester, Edit, ClusterAdmin, Operator, GarbageCollector];
/// The actors who hold roles of the chart or built-in roles.
const BY_ROLE: [Actor; 7] = [Approver, Delegate, Requester, Viewer, Edit, Admin, Outsider];

/// Returns a Blob of the run that exists in each namespace.
fn blob(change: Value) -> Value {
    let mut blob = json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Blob",
        "metadata": {
            "name": "value-{case}",
            "labels": {"signoff.dev/workflow": "owner", "signoff.dev/workflow-uid": "{owner}", "case": "{case}"},
            "ownerReferences": [owner("owner", "{owner}")],
        },
        "spec": {"data": "x"}});
    json_patch::merge(&mut blob, &change);
    blob
}

fn owner(name: &str, uid: &str) -> Value {
    json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "name": name, "uid": uid, "controller": true})
}

pub(super) fn rows() -> Vec<Row> {
    [creations(), broken_creations(), changes(), deletions()].into_iter().flatten().collect()
}

fn delete() -> Value {
    json!({"kind": "DeleteOptions", "apiVersion": "v1"})
}

/// Sets an existing Blob as the scene of a row, and the operator's delete as the honest request.
fn with_existing_blob(row: Row) -> Row {
    let real = Scene::Object(Operator, BLOBS, blob(json!({})));
    row.with_scene(real).honest("the operator's delete", delete()).by(Operator).way(Way::Delete).about(Object::Scene)
}

fn creations() -> Vec<Row> {
    let new = |row: Row| {
        let row = row.with_scene(Scene::Nothing).on(Object::Path(BLOBS));
        row.honest("the operator's", blob(json!({}))).by(Operator).way(Way::Create)
    };
    let plain = || blob(json!({}));
    let stolen: [Actor; 5] = Token::ALL.map(Stolen);
    vec![
        new(Row::new("makes a value of a run", PEOPLE, [Way::Create, Way::Apply], plain()).refused(CREATES)),
        new(Row::new("makes a value of a run", [GarbageCollector], [Way::Create], plain()).refused(CREATES)),
        new(Row::new("makes a value of a run", stolen, [Way::Create, Way::Apply], plain())
            .refused(CREATES)
            .or("must use a token that is bound to its pod")),
        new(Row::new(
            "makes a value of no run",
            PEOPLE,
            [Way::Create],
            blob(json!({"metadata": {"ownerReferences": null}})),
        )
        .refused(CREATES)
        .or(OWNED)),
        new(Row::new("makes a value of a run", BY_ROLE, [Way::Create], plain())
            .shipped_roles()
            .refused("cannot {verb} resource \"blobs\"")),
    ]
}

/// Returns attacks with objects that even the operator cannot create.
fn broken_creations() -> Vec<Row> {
    let shaped = |what, change: Value, words| {
        Row::new(what, [Operator], [Way::Create, Way::Apply], blob(change))
            .with_scene(Scene::Nothing)
            .on(Object::Path(BLOBS))
            .refused(words)
            .honest("one of a run", blob(json!({})))
    };
    let metadata = |change: Value| json!({"metadata": change});
    let two = json!([owner("owner", "{owner}"), {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "77aa"}]);
    let other = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "owner", "uid": "{owner}"}]);
    let either = "give either data or binary";
    vec![
        shaped("makes a value of no run", metadata(json!({"ownerReferences": null})), OWNED),
        shaped("makes a value with two owners", metadata(json!({"ownerReferences": two})), OWNED),
        shaped("makes a value of something else than a run", metadata(json!({"ownerReferences": other})), OWNED),
        shaped("makes a value without labels", metadata(json!({"labels": null})), OWNED),
        shaped(
            "makes a value with the label of another run",
            metadata(json!({"labels": {"signoff.dev/workflow": "other"}})),
            OWNED,
        ),
        shaped(
            "makes a value with the label of another uid",
            metadata(json!({"labels": {"signoff.dev/workflow-uid": "77aa"}})),
            OWNED,
        ),
        shaped("makes a value without content", json!({"spec": {"data": null}}), either),
        shaped("makes a value with two contents", json!({"spec": {"binary": "eA=="}}), either),
        shaped("makes a value of what is not base64", json!({"spec": {"data": null, "binary": "!"}}), "spec.binary"),
    ]
}

fn changes() -> Vec<Row> {
    let content =
        |what, how: &[Way], change: Value| with_existing_blob(Row::new(what, SOME, [Way::Merge], change).ways(how));
    let content = |what, how, change| content(what, how, change).refused(CHANGED).or(IMMUTABLE);
    let around = |what, how: &[Way], change: Value| {
        with_existing_blob(Row::new(what, SOME, [Way::Merge], json!({"metadata": change})).ways(how).refused(CHANGED))
    };
    let labels = |labels: Value| json!({"labels": labels});
    vec![
        with_existing_blob(Row::new(
            "changes a value of a run",
            EVERYBODY,
            CHANGES,
            json!({"spec": {"data": "forged"}}),
        ))
        .refused(CHANGED)
        .or(IMMUTABLE),
        content("empties a value of a run", &CHANGES, json!({"spec": {"data": ""}})),
        content("puts other bytes into a value", &REMOVALS, json!({"spec": {"data": null, "binary": "eA=="}})),
        content(
            "unlabels a value and changes it",
            &REMOVALS,
            json!({"metadata": {"labels": {"signoff.dev/workflow": null}}, "spec": {"data": "forged"}}),
        ),
        around("unlabels a value of a run", &REMOVALS, labels(json!({"signoff.dev/workflow": null}))),
        around("moves a value to another run", &CHANGES, labels(json!({"signoff.dev/workflow": "other"}))),
        around("puts a label on a value", &CHANGES, labels(json!({"team": "finance"}))),
        around("puts an annotation on a value", &CHANGES, json!({"annotations": {"x": "y"}})),
        around("puts a finalizer on a value", &CHANGES, json!({"finalizers": ["example.com/hold"]})),
        around("gives a value to another run", &CHANGES, json!({"ownerReferences": [owner("other", "77aa")]}))
            .or("Only one reference can have Controller set to true"),
        with_existing_blob(
            Row::new("takes a value from its run", PEOPLE, REMOVALS, json!({"metadata": {"ownerReferences": null}}))
                .refused(CHANGED),
        )
        .honest("the garbage collector's", json!({"metadata": {"ownerReferences": null}}))
        .by(GarbageCollector)
        .way(Way::Merge),
        with_existing_blob(
            Row::new("changes a value of a run", BY_ROLE, CHANGES, json!({"spec": {"data": "forged"}}))
                .shipped_roles()
                .refused("cannot {verb} resource \"blobs\""),
        )
        .honest("the garbage collector's delete", delete())
        .by(GarbageCollector),
        with_existing_blob(
            Row::new("writes the status of a value", [ClusterAdmin], [Way::Merge, Way::Replace], json!({"status": {}}))
                .on(Object::Sub("status"))
                .refused("not found"),
        ),
    ]
}

fn deletions() -> Vec<Row> {
    let kept =
        |row: Row| with_existing_blob(row).honest("the garbage collector's delete", delete()).by(GarbageCollector);
    vec![
        kept(Row::new("deletes a value of a run", PEOPLE, [Way::Delete], delete()).refused(DELETED)),
        kept(
            Row::new("deletes the values of a run", PEOPLE, [Way::DeleteAll], delete())
                .on(Object::All)
                .refused(DELETED),
        ),
        kept(
            Row::new("deletes a value of a run", BY_ROLE, [Way::Delete, Way::DeleteAll], delete())
                .shipped_roles()
                .refused("cannot {verb} resource \"blobs\""),
        ),
        kept(
            Row::new("deletes a value of a run", [Operator], [Way::Delete, Way::DeleteAll], delete())
                .shipped_roles()
                .refused("cannot {verb} resource \"blobs\""),
        ),
    ]
}
