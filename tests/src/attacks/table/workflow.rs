//! Workflows: their requester and the requests that they can make, neither of which can be changed.

use serde_json::{Map, Value, json};

use crate::attacks::Actor::{
    self, Admin, Approver, ClusterAdmin, Edit, Operator, Outsider, Requester, ServiceAccount, StatusHolder, Unlisted,
    Viewer,
};
use crate::attacks::{CHANGES, Object, REMOVALS, Row, Scene, Way, user};

const PATH: &str = "/apis/signoff.dev/v1alpha1/namespaces/{namespace}/workflows";
pub(super) const WORKFLOWS: Object = Object::Path(PATH);
/// A collection in a namespace where no user creates a Workflow.
const OF_OPERATOR: &str = "/apis/signoff.dev/v1alpha1/namespaces/signoff-system/workflows";
pub(super) const FIXED: &str = "spec is immutable except suspend, cancel and ttlAfterFinished";

/// The refusal of a TTL: Flux or Argo CD would create a deleted run again.
const TTL: &str = "spec.ttlAfterFinished must be absent from a Workflow that Flux or Argo CD applies";

/// Returns the labels of every object that Flux applies.
fn flux() -> Value {
    json!({"kustomize.toolkit.fluxcd.io/name": "refunds", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"})
}

/// Returns a Workflow that does not exist yet, with these fields of its spec.
pub(super) fn new_workflow(fields: Value) -> Value {
    let mut spec = json!({"requestedBy": "", "steps": [{"name": "only", "set": {"value": "1"}}]});
    for (field, value) in fields.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "case-{case}"}, "spec": spec})
}

/// Returns the actors who can change Workflows on careless ground, and the operator.
fn writers() -> [Actor; 5] {
    [Requester, Edit, Admin, ClusterAdmin, Operator]
}

fn gate(fields: Value) -> Value {
    let mut gate = json!({"prompt": "ok?", "approvers": [user("alice@example.com")]});
    for (field, value) in fields.as_object().into_iter().flatten() {
        gate[field] = value.clone();
    }
    json!({"steps": [{"name": "ask", "hitl": gate}]})
}

pub(super) fn rows() -> Vec<Row> {
    [spec_changes(), metadata_changes(), creations()].into_iter().flatten().collect()
}

fn spec_changes() -> Vec<Row> {
    let everybody =
        [Requester, Approver, Unlisted, Viewer, Edit, Admin, Outsider, StatusHolder, ClusterAdmin, Operator];
    let inputs = |value: Value| json!([{"name": "order", "type": "object", "value": value}]);
    let given = || Scene::Workflow(json!({"inputs": inputs(json!({"id": 1, "note": "x"}))}));
    let suspend = |row: Row| {
        row.with_scene(given()).honest("the requester's suspend", json!({"spec": {"suspend": true}})).by(Requester)
    };
    let spec = |fields: Value| json!({"spec": fields});
    let mut rows = vec![
        suspend(
            Row::new(
                "says that somebody else asked",
                everybody,
                CHANGES,
                spec(json!({"requestedBy": "mallory@example.com"})),
            )
            .refused("requestedBy is immutable"),
        ),
        suspend(
            Row::new(
                "says for whom it was asked",
                everybody,
                CHANGES,
                spec(json!({"requestedFor": "mallory@example.com"})),
            )
            .refused(FIXED),
        ),
        suspend(
            Row::new("makes a run a copy from a backup", everybody, CHANGES, spec(json!({"restored": true})))
                .refused(FIXED),
        ),
        suspend(
            Row::new(
                "replaces the steps",
                everybody,
                CHANGES,
                spec(json!({"steps": [{"name": "only", "set": {"value": "2"}}]})),
            )
            .refused(FIXED),
        ),
        suspend(
            Row::new("takes the inputs away", [Requester, Edit, ClusterAdmin], REMOVALS, spec(json!({"inputs": null})))
                .refused(FIXED),
        ),
        suspend(
            Row::new("takes the spec away", [Requester, Edit, ClusterAdmin], REMOVALS, json!({"spec": null}))
                .refused("spec"),
        ),
    ];
    for (what, fields) in [
        ("adds outputs", json!({"outputs": {"from": "x"}})),
        ("changes an input", json!({"inputs": inputs(json!({"id": 2, "note": "x"}))})),
        ("adds a key inside an input", json!({"inputs": inputs(json!({"id": 1, "note": "x", "more": 1}))})),
        ("adds a provider", json!({"providers": [{"name": "p", "scripted": {"replies": [{"text": "x"}]}}]})),
        ("sets a deadline", json!({"activeDeadline": "1h"})),
    ] {
        rows.push(suspend(Row::new(what, [Requester, Edit, ClusterAdmin], CHANGES, spec(fields)).refused(FIXED)));
    }
    rows.push(suspend(
        Row::new(
            "drops a key inside an input",
            [Requester, Edit, ClusterAdmin],
            [Way::Json, Way::Replace],
            spec(json!({"inputs": inputs(json!({"id": 1}))})),
        )
        .refused(FIXED),
    ));
    rows.push(suspend(Row::new(
        "leaves out who asked",
        [Requester, Edit, ClusterAdmin],
        REMOVALS,
        spec(json!({"requestedBy": null})),
    )));
    let backup = || new_workflow(json!({"requestedBy": "alice@example.com"}));
    let restored = |row: Row| {
        let row = row.with_scene(Scene::Object(ClusterAdmin, PATH, backup())).refused(FIXED);
        row.honest("the requester's cancel", spec(json!({"cancel": true}))).by(Requester)
    };
    rows.push(restored(Row::new("lets a restored run go on", writers(), REMOVALS, spec(json!({"restored": null})))));
    rows.push(restored(Row::new(
        "says that a run is not restored",
        writers(),
        CHANGES,
        spec(json!({"restored": false})),
    )));
    rows.push(
        Row::new(
            "changes what was asked",
            [Approver, Viewer, Edit, Admin, Outsider],
            CHANGES,
            spec(json!({"cancel": true})),
        )
        .shipped_roles()
        .with_scene(given())
        .refused("cannot {verb} resource \"workflows\"")
        .honest("the requester's cancel", spec(json!({"cancel": true})))
        .by(Requester),
    );
    rows
}

fn metadata_changes() -> Vec<Row> {
    let dangling = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "00000000-0000-4000-8000-000000000001"}]);
    let labels = |count: usize| -> Value {
        json!({"metadata": {"labels": (0..count).map(|n| (format!("n{n}"), json!(""))).collect::<Map<_, _>>()}})
    };
    let deep = |levels: usize| {
        let fields = (0..levels).fold(json!({}), |inner, _| json!({"f:x": inner}));
        json!({"metadata": {"managedFields": [{"manager": "deep", "operation": "Update",
            "apiVersion": "signoff.dev/v1alpha1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": fields}}]}})
    };
    let options = |policy: &str| json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy});
    let given = |row: Row| row.with_scene(Scene::Workflow(json!({})));
    let deleted = |row: Row| given(row).honest("a delete with what it owns", options("Background"));
    let deleted_later = |row: Row| {
        let helm = json!({"metadata": {"labels": {"app.kubernetes.io/instance": "refunds"}}});
        row.with_scene(Scene::Workflow(json!({"ttlAfterFinished": "1h"}))).honest("the label of Helm's charts", helm)
    };
    let hands = [Requester, Edit, Admin, ClusterAdmin];
    vec![
        given(
            Row::new(
                "puts an owner on it, to have it deleted,",
                hands,
                CHANGES,
                json!({"metadata": {"ownerReferences": dangling}}),
            )
            .refused("metadata.ownerReferences of a Workflow is immutable")
            .honest("a label", labels(1)),
        ),
        // Every case has one more label.
        given(
            Row::new("puts 65 labels on it", hands, CHANGES, labels(64))
                .refused("at most 64 labels")
                .honest("64 labels", labels(63)),
        ),
        given(
            Row::new(
                "leaves its Approvals behind by a finalizer",
                hands,
                CHANGES,
                json!({"metadata": {"finalizers": ["orphan"]}}),
            )
            .refused(
                "metadata.finalizers must not contain orphan, which would leave the Approvals of this Workflow behind",
            )
            .honest("a label", labels(1)),
        ),
        given(
            Row::new("nests managedFields to blind other clients", [Requester, Edit], REMOVALS, deep(60))
                .refused("metadata.managedFields is nested too deeply")
                .honest("managedFields as they are", deep(3)),
        ),
        deleted_later(
            Row::new("gives a run that deletes itself to Flux", hands, CHANGES, json!({"metadata": {"labels": flux()}}))
                .refused(TTL),
        ),
        deleted_later(
            Row::new(
                "gives a run that deletes itself to Argo CD",
                hands,
                CHANGES,
                json!({"metadata": {"annotations": {"argocd.argoproj.io/tracking-id": "app:signoff.dev/Workflow:a/b"}}}),
            )
            .refused(TTL),
        ),
        given(
            Row::new(
                "has a run of Flux deleted after its end",
                hands,
                CHANGES,
                json!({"metadata": {"labels": flux()}, "spec": {"ttlAfterFinished": "1h"}}),
            )
            .refused(TTL)
            .honest("the labels of Flux alone", json!({"metadata": {"labels": flux()}})),
        ),
        deleted(
            Row::new("deletes it away from its Approvals", hands, [Way::Delete], options("Orphan"))
                .refused("--cascade=orphan is refused"),
        ),
        deleted(
            Row::new("deletes those like it away from their Approvals", hands, [Way::DeleteAll], options("Orphan"))
                .on(Object::All)
                .refused("--cascade=orphan is refused"),
        ),
        deleted(
            Row::new(
                "orphans its Approvals as clients once did",
                hands,
                [Way::Delete],
                json!({"kind": "DeleteOptions", "apiVersion": "v1", "orphanDependents": true}),
            )
            .refused("--cascade=orphan is refused"),
        ),
    ]
}

fn creations() -> Vec<Row> {
    let made = |what, who: Actor, fields: Value| {
        Row::new(what, [who], [Way::Create, Way::Apply], new_workflow(fields)).with_scene(Scene::Nothing).on(WORKFLOWS)
    };
    let deletes_itself = |labels: Value| {
        let mut workflow = new_workflow(json!({"ttlAfterFinished": "1h"}));
        workflow["metadata"]["labels"] = labels;
        workflow
    };
    let labelled_run = |what, labels: Value| {
        Row::new(what, [Requester], [Way::Create, Way::Apply], deletes_itself(labels))
            .with_scene(Scene::Nothing)
            .on(WORKFLOWS)
            .refused(TTL)
            .honest("one with the label of Helm's charts", deletes_itself(json!({"app.kubernetes.io/instance": "r"})))
    };
    let provider = |n: usize| {
        json!({"name": format!("p{n}"), "openai": {"baseURL": "https://models.example.com/v1",
            "key": format!("k{n}")}})
    };
    let secret = |n: usize| json!({"name": format!("k{n}"), "secret": format!("key-{n}"), "key": "token"});
    let providers = |count: usize| json!({"secrets": (0..count).map(secret).collect::<Vec<_>>(), "providers": (0..count).map(provider).collect::<Vec<_>>()});
    let excluding = || gate(json!({"excludeRequester": true}));
    let everybody = gate(json!({"approvers": [{"kind": "Group", "name": "system:authenticated"}]}));
    let machines = gate(json!({"approvers": [{"kind": "Group", "name": "system:serviceaccounts"}]}));
    let root = gate(json!({"approvers": [{"kind": "User", "name": "system:admin"}]}));
    let system = "a Workflow must not be in the operator's or a system namespace";
    let no_system = "name must not start with system:";
    let somewhere = |what, path| {
        Row::new(what, [ClusterAdmin], [Way::Create], new_workflow(json!({})))
            .with_scene(Scene::Nothing)
            .on(Object::Path(path))
            .dry_run()
            .refused(system)
            .honest("the same in a namespace of its own", new_workflow(json!({})))
            .about(WORKFLOWS)
    };
    vec![
        Row::new(
            "asks in the name of another",
            [Requester, Approver, Viewer, Edit, Admin, Outsider, ServiceAccount],
            [Way::Create, Way::Apply],
            new_workflow(json!({"requestedBy": "erin@example.com"})),
        )
        .with_scene(Scene::Nothing)
        .on(WORKFLOWS)
        .refused("spec.requestedBy is erin@example.com, and a Workflow is requested by its creator")
        .honest("one in their own name", new_workflow(json!({}))),
        made(
            "asks in the name of another as if from a backup",
            Edit,
            json!({"requestedBy": "erin@example.com", "restored": true}),
        )
        .refused("spec.requestedBy is erin@example.com, and a Workflow is requested by its creator")
        .honest(
            "the same from who can restore",
            new_workflow(json!({"requestedBy": "erin@example.com", "restored": true})),
        )
        .by(ClusterAdmin),
        made("says of their own run that it is from a backup", Requester, json!({"restored": true}))
            .refused("dana@example.com lacks the RBAC verb restore on workflows.signoff.dev")
            .honest("one in their own name", new_workflow(json!({}))),
        made("asks for somebody else", Requester, json!({"requestedFor": "alice@example.com"}))
            .refused("lacks the RBAC verb delegate on people.signoff.dev alice@example.com")
            .honest("one in their own name", new_workflow(json!({}))),
        made("asks for themselves as if for another", Requester, json!({"requestedFor": "{me}"}))
            .refused("lacks the RBAC verb delegate on people.signoff.dev")
            .honest("one in their own name", new_workflow(json!({}))),
        made("asks in nobody's name where the requester is excluded", ServiceAccount, excluding())
            .refused("set spec.requestedFor to the person")
            .honest("one where the requester is not excluded", new_workflow(gate(json!({})))),
        made("uses a Secret they cannot read", Requester, providers(1))
            .refused("dana@example.com lacks the RBAC verb get on the Secrets that this Workflow uses")
            .honest("the same from who can read it", new_workflow(providers(1)))
            .by(ClusterAdmin),
        made("uses eight Secrets they cannot read", Requester, providers(8))
            .refused("dana@example.com lacks the RBAC verb get on the Secrets that this Workflow uses")
            .honest("the same from who can read them", new_workflow(providers(8)))
            .by(ClusterAdmin),
        made("uses a Secret that edit can read and they cannot", Approver, providers(1))
            .refused("alice@example.com lacks the RBAC verb get on the Secrets that this Workflow uses")
            .honest("the same from edit", new_workflow(providers(1)))
            .by(Edit),
        labelled_run("asks under Flux for a run that deletes itself", flux()),
        labelled_run(
            "asks under Flux's Helm for a run that deletes itself",
            json!({"helm.toolkit.fluxcd.io/name": "r"}),
        ),
        labelled_run("asks under Argo CD for a run that deletes itself", json!({"argocd.argoproj.io/instance": "r"})),
        made("lets everybody who is logged in decide", Requester, everybody)
            .refused(no_system)
            .honest("a person", new_workflow(gate(json!({})))),
        made("lets every machine decide", Requester, machines)
            .refused(no_system)
            .honest("a person", new_workflow(gate(json!({})))),
        made("lets a user of the system decide", Requester, root)
            .refused(no_system)
            .honest("a person", new_workflow(gate(json!({})))),
        Row::new(
            "asks without the role",
            [Approver, Viewer, Edit, Admin, Outsider],
            [Way::Create],
            new_workflow(json!({})),
        )
        .with_scene(Scene::Nothing)
        .on(WORKFLOWS)
        .shipped_roles()
        .refused("cannot {verb} resource \"workflows\"")
        .honest("the requester's", new_workflow(json!({})))
        .by(Requester),
        somewhere("asks in the operator's namespace", OF_OPERATOR)
            .honest("a dry run of the operator, by which the guard tries the policies", new_workflow(json!({})))
            .by(Operator)
            .about(Object::Path(OF_OPERATOR)),
        Row::new("asks in its own namespace, and not as a dry run", [Operator], [Way::Create], new_workflow(json!({})))
            .with_scene(Scene::Nothing)
            .on(Object::Path(OF_OPERATOR))
            .shipped_roles()
            .refused(system)
            .honest("the requester's in a namespace of its own", new_workflow(json!({})))
            .by(Requester)
            .about(WORKFLOWS),
        Row::new("asks in another namespace", [Operator], [Way::Create], new_workflow(json!({})))
            .with_scene(Scene::Nothing)
            .on(WORKFLOWS)
            .shipped_roles()
            .refused("cannot {verb} resource \"workflows\"")
            .honest("the requester's", new_workflow(json!({})))
            .by(Requester),
        somewhere("asks in kube-system", "/apis/signoff.dev/v1alpha1/namespaces/kube-system/workflows"),
        somewhere("asks in kube-public", "/apis/signoff.dev/v1alpha1/namespaces/kube-public/workflows"),
        somewhere("asks in kube-node-lease", "/apis/signoff.dev/v1alpha1/namespaces/kube-node-lease/workflows"),
    ]
}
