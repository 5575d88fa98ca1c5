//! The Approval as an object: its request, labels, owners and lifetime.

use serde_json::{Map, Value, json};

use crate::attacks::Actor::{
    Admin, Approver, ClusterAdmin, Delegate, Edit, GarbageCollector, Operator, Outsider, Requester, SecondApprover,
    StatusHolder, Unlisted, Viewer,
};
use crate::attacks::{CHANGES, EVERYBODY, OTHERS, Object, REMOVALS, Row, Scene, Way, approve, own, user};

/// Returns an Approval that does not exist yet, with this change.
fn new_approval(change: Value) -> Value {
    json!({"{approval}": change})
}

/// Returns the approvers of a scene's Approval.
fn approvers() -> Value {
    json!([user("alice@example.com"), user("bob@example.com")])
}

/// Returns the quorum of a scene's Approval with other approvers.
fn quorum(approvers: Value, threshold: i32) -> Value {
    json!({"source": "gate review", "approvers": approvers, "threshold": threshold})
}

fn many_entries(count: usize, value: &str) -> Value {
    (0..count).map(|n| (format!("n{n}"), json!(value))).collect::<Map<_, _>>().into()
}

pub(super) fn rows() -> Vec<Row> {
    [request_changes(), metadata_changes(), lifetime()].into_iter().flatten().collect()
}

fn request_changes() -> Vec<Row> {
    let fixed =
        |row: Row| row.refused("request is immutable").honest("an approver's vote", own(approve())).by(Approver);
    let change = |fields: Value| json!({"spec": {"request": fields}});
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}});
    let with_schema =
        |schema: &Value| json!({"form": {"questions": [{"id": "answer", "required": false, "schema": schema}]}});
    let mut more = schema.clone();
    more["properties"]["c"] = json!({});
    let mut less = schema.clone();
    less["properties"] = json!({"a": {"type": "string"}});
    let others = [Approver, ClusterAdmin];
    let mut rows =
        vec![fixed(Row::new("rewrites the prompt", EVERYBODY, CHANGES, change(json!({"prompt": "Something else?"}))))];
    for (what, fields) in [
        ("changes the threshold", json!({"quorums": [quorum(approvers(), 2)]})),
        ("moves the closing time", json!({"closesAt": "2100-01-01T00:00:00Z"})),
        ("moves the deadline", json!({"deadline": "2099-01-01T00:00:00Z"})),
        ("changes what a timeout does", json!({"timeout": {"after": "24h", "action": "Approve"}})),
        (
            "lists another approver",
            json!({"quorums": [quorum(json!([user("alice@example.com"), user("bob@example.com"), user("mallory@example.com")]), 1)]}),
        ),
        ("takes an approver off the list", json!({"quorums": [quorum(json!([user("alice@example.com")]), 1)]})),
        ("says that somebody else asked", json!({"requestedBy": "mallory@example.com"})),
        ("changes the guard's epoch", json!({"guardEpoch": "forged"})),
        ("changes the digest", json!({"digest": format!("sha256:{}", "f".repeat(64))})),
        (
            "adds a quorum",
            json!({"quorums": [quorum(approvers(), 1), quorum(json!([user("mallory@example.com")]), 1)]}),
        ),
        ("says who is which person", json!({"persons": [{"pattern": ".+", "person": "one"}]})),
    ] {
        rows.push(fixed(Row::new(what, others, CHANGES, change(fields))));
    }
    for (what, words, fields) in [
        ("takes the request away", "spec.request", json!(null)),
        ("leaves out who requested it", "spec.request.requestedBy: Required value", json!({"requestedBy": null})),
    ] {
        let removal = change(fields);
        let vote = |row: Row| row.refused(words).honest("an approver's vote", own(approve())).by(Approver);
        rows.push(vote(Row::new(what, EVERYBODY, REMOVALS, removal.clone())));
        // An apply cannot remove a field that another manager owns.
        let applied = Row::new(what, EVERYBODY, [Way::Apply], removal);
        rows.push(vote(applied));
    }
    rows.extend([
        fixed(Row::new("allows one verdict only", others, REMOVALS, change(json!({"allowedVerdicts": ["Approve"]})))),
        fixed(
            Row::new("takes a quorum away", others, REMOVALS, change(json!({"quorums": [quorum(approvers(), 1)]})))
                .with_request(json!({"further": [quorum(json!([user("carol@example.com")]), 1)]})),
        ),
        Row::new("takes all quorums away", others, REMOVALS, change(json!({"quorums": []})))
            .refused("spec.request.quorums in body should have at least 1 items")
            .honest("an approver's vote", own(approve()))
            .by(Approver),
        fixed(
            Row::new("adds a key inside free-form JSON", others, CHANGES, change(with_schema(&more)))
                .with_request(with_schema(&schema)),
        ),
        fixed(
            Row::new(
                "drops a key inside free-form JSON",
                others,
                [Way::Json, Way::Replace],
                change(with_schema(&less)),
            )
            .with_request(with_schema(&schema)),
        ),
    ]);
    rows
}

fn metadata_changes() -> Vec<Row> {
    let labels = |labels: Value| json!({"metadata": {"labels": labels}});
    let notes = |notes: Value| json!({"metadata": {"annotations": notes}});
    let team = || labels(json!({"team": "finance"}));
    let dangling = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "00000000-0000-4000-8000-000000000001"}]);
    let deep = |levels: usize| {
        let fields = (0..levels).fold(json!({}), |inner, _| json!({"f:x": inner}));
        json!({"metadata": {"labels": {"team": "finance"}, "managedFields": [{"manager": "deep", "operation": "Update",
            "apiVersion": "signoff.dev/v1alpha1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": fields}}]}})
    };
    let ours = "only the operator can change labels and annotations of signoff.dev";
    let fixed = "only the operator can change owner references and finalizers";
    let count = "at most 24 labels, 24 annotations and 64 KiB of annotations";
    let strangers = [Requester, Viewer, Edit, Admin, Outsider, StatusHolder];
    let holders = [Unlisted, Delegate, ClusterAdmin];
    let decided =
        json!({"phase": "Approved", "outcome": {"phase": "Approved", "verdict": "Approve", "source": "Human"}});
    let by_an_approver = |row: Row| row.honest("an approver's label", team()).by(Approver);
    let ours_on_it = json!({"labels": {"signoff.dev/turn": "one", "signoff.dev/workflow": "refund"},
        "annotations": {"signoff.dev/note": "x"}});
    let labelled = |row: Row| row.change_gate(|gate| gate.metadata = ours_on_it.clone());
    vec![
        by_an_approver(
            Row::new("puts a label on it", strangers, CHANGES, team())
                .refused("only an approver of this gate can change this Approval"),
        ),
        by_an_approver(
            Row::new("puts an annotation on it", strangers, CHANGES, notes(json!({"x": "y"})))
                .refused("only an approver of this gate can change this Approval"),
        ),
        // Accounts that apply decisions from Git put their own labels and annotations on it, before and after the
        // outcome.
        Row::new("puts a label of ours on it", holders, CHANGES, labels(json!({"signoff.dev/forged": "x"})))
            .refused(ours)
            .honest("their own label", team()),
        Row::new("puts an annotation of ours on it", holders, CHANGES, notes(json!({"signoff.dev/forged": "x"})))
            .refused(ours)
            .honest("their own annotation", notes(json!({"x": "y"}))),
        Row::new(
            "has a further channel told of it",
            [Approver, Unlisted, Delegate, ClusterAdmin],
            CHANGES,
            notes(json!({"signoff.dev/notify": "oncall"})),
        )
        .refused(ours)
        .honest("an annotation of their own", notes(json!({"x": "y"}))),
        Row::new("puts a label of ours on a decided one", holders, CHANGES, labels(json!({"signoff.dev/forged": "x"})))
            .with_status(decided.clone())
            .refused(ours)
            .honest("their own label", team()),
        Row::new("puts a label on a decided one", strangers, CHANGES, team())
            .with_status(decided)
            .refused("only an approver of this gate can change this Approval")
            .honest("the label of an account with the verb approve", team())
            .by(Delegate),
        Row::new("puts 25 labels on it,", holders, CHANGES, labels(many_entries(24, "")))
            .refused(count)
            .honest("24 labels", labels(many_entries(23, ""))),
        Row::new("puts an owner on it", holders, CHANGES, json!({"metadata": {"ownerReferences": dangling}}))
            .refused(fixed)
            .honest("a label", team()),
        by_an_approver(
            Row::new(
                "puts an owner on it",
                [Approver, SecondApprover],
                CHANGES,
                json!({"metadata": {"ownerReferences": dangling}}),
            )
            .refused(fixed),
        ),
        by_an_approver(
            Row::new(
                "puts a finalizer on it",
                [Approver, SecondApprover],
                CHANGES,
                json!({"metadata": {"finalizers": ["example.com/hold"]}}),
            )
            .refused(fixed),
        ),
        by_an_approver(labelled(
            Row::new(
                "forges a label of ours",
                [Approver, SecondApprover],
                CHANGES,
                labels(json!({"signoff.dev/forged": "x"})),
            )
            .refused(ours),
        )),
        by_an_approver(labelled(
            Row::new(
                "forges a label of a subdomain of ours",
                [Approver],
                CHANGES,
                labels(json!({"x.signoff.dev/forged": "x"})),
            )
            .refused(ours),
        )),
        by_an_approver(labelled(
            Row::new("changes a label of ours", [Approver], CHANGES, labels(json!({"signoff.dev/workflow": "other"})))
                .refused(ours),
        )),
        by_an_approver(labelled(
            Row::new("moves it to another turn", [Approver], CHANGES, labels(json!({"signoff.dev/turn": "other"})))
                .refused(ours),
        )),
        by_an_approver(labelled(
            Row::new("removes a label of ours", [Approver], REMOVALS, labels(json!({"signoff.dev/workflow": null})))
                .refused(ours),
        )),
        by_an_approver(labelled(
            Row::new("removes all labels", [Approver], REMOVALS, labels(Value::Null)).refused(ours),
        )),
        by_an_approver(labelled(
            Row::new("forges an annotation of ours", [Approver], CHANGES, notes(json!({"signoff.dev/decided": "yes"})))
                .refused(ours),
        )),
        by_an_approver(labelled(
            Row::new("changes an annotation of ours", [Approver], CHANGES, notes(json!({"signoff.dev/note": "y"})))
                .refused(ours),
        )),
        by_an_approver(labelled(
            Row::new("removes an annotation of ours", [Approver], REMOVALS, notes(json!({"signoff.dev/note": null})))
                .refused(ours),
        )),
        // Every case has one more label.
        Row::new("puts 25 labels on it", [Approver], CHANGES, labels(many_entries(24, "")))
            .refused(count)
            .honest("24 labels", labels(many_entries(23, ""))),
        Row::new("puts 25 annotations on it", [Approver], CHANGES, notes(many_entries(25, "")))
            .refused(count)
            .honest("24 annotations", notes(many_entries(24, ""))),
        Row::new(
            "puts more than 64 KiB of annotations on it",
            [Approver],
            CHANGES,
            notes(json!({"a": "x".repeat(33_000), "b": "x".repeat(33_000)})),
        )
        .refused(count)
        .honest("60 KiB of them", notes(json!({"a": "x".repeat(30_000), "b": "x".repeat(30_000)}))),
        Row::new("nests managedFields to blind other clients", [Approver], REMOVALS, deep(60))
            .refused("metadata.managedFields is nested too deeply")
            .honest("managedFields as they are", deep(3)),
        Row::new("nests managedFields deeper than clients decode", [Approver], [Way::Merge, Way::Replace], deep(150))
            .refused("managedFields")
            .honest("managedFields as they are", deep(3)),
    ]
}

fn lifetime() -> Vec<Row> {
    let delete = || json!({"kind": "DeleteOptions", "apiVersion": "v1"});
    let with_the_workflow = "an Approval is deleted with its Workflow";
    let only_the_operator = "only the operator can create Approvals, without decisions";
    let hands = [
        Approver,
        SecondApprover,
        Unlisted,
        Delegate,
        Requester,
        Viewer,
        Edit,
        Admin,
        Outsider,
        StatusHolder,
        ClusterAdmin,
    ];
    let collected = |row: Row| row.honest("the garbage collector's delete", delete()).by(GarbageCollector);
    let vote = |name: &str| json!({"spec": {"decisions": {name: approve()}}});
    vec![
        collected(Row::new("deletes it", hands, [Way::Delete], delete()).refused(with_the_workflow)),
        collected(Row::new("deletes it with those like it", hands, [Way::DeleteAll], delete()).on(Object::All).refused(with_the_workflow)),
        collected(Row::new("deletes it without grace", [Approver, Edit, Admin, ClusterAdmin], [Way::Delete], json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "propagationPolicy": "Orphan"})).refused(with_the_workflow)),
        collected(Row::new("deletes it", [Approver, Delegate, Requester, Viewer, Edit, Admin, Outsider], [Way::Delete, Way::DeleteAll], delete()).shipped_roles().refused("cannot {verb} resource \"approvals\"")).way(Way::Delete),
        Row::new("creates one", OTHERS, [Way::Create, Way::Apply], new_approval(json!({})))
            .with_scene(Scene::Nothing)
            .refused(only_the_operator)
            .honest("the operator's", new_approval(json!({})))
            .by(Operator),
        Row::new("creates one", [Requester, Viewer, Edit, Admin, Outsider], [Way::Create], new_approval(json!({})))
            .with_scene(Scene::Nothing)
            .shipped_roles()
            .refused("cannot {verb} resource \"approvals\"")
            .honest("the operator's", new_approval(json!({})))
            .by(Operator),
        Row::new("creates one", [Approver, Delegate], [Way::Create, Way::Apply], new_approval(json!({})))
            .with_scene(Scene::Nothing)
            .shipped_roles()
            .refused(only_the_operator)
            .honest("the operator's", new_approval(json!({})))
            .by(Operator)
            .way(Way::Create),
        Row::new("decides one that was never asked", [Approver, Delegate], [Way::Create, Way::Apply], new_approval(json!({"spec": {"request": null, "decisions": vote("{me}")["spec"]["decisions"]}})))
            .with_scene(Scene::Nothing)
            .shipped_roles()
            .refused("(not asked yet, or its run is gone): remove this file")
            .honest("the operator's", new_approval(json!({})))
            .by(Operator)
            .way(Way::Create),
        Row::new("creates one without a request", EVERYBODY, [Way::Create, Way::Apply], new_approval(json!({"spec": {"request": null}})))
            .with_scene(Scene::Nothing)
            .refused("spec.request: Required value: there is no Approval")
            .honest("the operator's", new_approval(json!({})))
            .by(Operator),
        Row::new("creates one that is decided already", [Operator, ClusterAdmin], [Way::Create, Way::Apply], new_approval(vote("alice@example.com")))
            .with_scene(Scene::Nothing)
            .refused(only_the_operator)
            .honest("one without a decision", new_approval(json!({})))
            .by(Operator),
        Row::new("creates one under another request's digest", [Operator], [Way::Create, Way::Apply], new_approval(json!({"metadata": {"name": "refund-review-0000000000"}})))
            .with_scene(Scene::Nothing)
            .refused("metadata.name must end with the first ten hex digits of spec.request.digest")
            .honest("one under its own", new_approval(json!({}))),
        Row::new("asks everybody who is logged in", [Operator], [Way::Create], new_approval(json!({"spec": {"request": {"quorums": [quorum(json!([{"kind": "Group", "name": "system:authenticated"}]), 1)]}}})))
            .with_scene(Scene::Nothing)
            .refused("name must not start with system:")
            .honest("a group of people", new_approval(json!({}))),
        Row::new("asks without a quorum", [Operator], [Way::Create, Way::Apply], new_approval(json!({"spec": {"request": {"quorums": []}}})))
            .with_scene(Scene::Nothing)
            .refused("spec.request.quorums in body should have at least 1 items")
            .honest("one quorum", new_approval(json!({}))),
        Row::new("asks people outside of a quorum", [Operator], [Way::Create], new_approval(json!({"spec": {"request": {"quorums": null, "approvers": approvers(), "threshold": 1}}})))
            .with_scene(Scene::Nothing)
            .refused("spec.request.quorums: Required value")
            .honest("one quorum", new_approval(json!({}))),
        Row::new("asks ten quorums", [Operator], [Way::Create, Way::Apply], new_approval(json!({"spec": {"request": {"quorums": vec![quorum(approvers(), 1); 10]}}})))
            .with_scene(Scene::Nothing)
            .refused("spec.request.quorums: Too many: 10: must have at most 9 items")
            .honest("nine quorums", new_approval(json!({"spec": {"request": {"quorums": vec![quorum(approvers(), 1); 9]}}}))),
        Row::new("puts one where there is none", [Approver, Edit, ClusterAdmin], [Way::Replace], new_approval(json!({})))
            .with_scene(Scene::Nothing)
            .refused("not found")
            .honest("the operator's create", new_approval(json!({})))
            .by(Operator)
            .way(Way::Create),
        Row::new("gives itself a vote while deleting", [GarbageCollector], CHANGES, own(approve()))
            .refused("is not an approver of this gate")
            .honest("an approver's vote", own(approve()))
            .by(Approver),
        Row::new("takes hold of a subresource that is not there", [Approver, Edit, Admin, ClusterAdmin], [Way::Merge, Way::Replace], json!({"spec": {"replicas": 0}}))
            .on(Object::Sub("scale"))
            .refused("not found")
            .honest("an approver's vote", own(approve()))
            .by(Approver)
            .about(Object::Scene),
        Row::new("takes hold of its finalizers as a subresource", [Approver, Edit, Admin, ClusterAdmin], [Way::Merge, Way::Replace], json!({"metadata": {"finalizers": []}}))
            .on(Object::Sub("finalizers"))
            .refused("not found")
            .honest("an approver's vote", own(approve()))
            .by(Approver)
            .about(Object::Scene),
    ]
}
