//! Attempts to act as the operator, and requests that even the operator cannot make.

use serde_json::{Value, json};

use super::workflow::{WORKFLOWS, new_workflow};
use crate::attacks::Actor::{Approver, ClusterAdmin, Operator, OperatorsNeighbour, Requester, Stolen};
use crate::attacks::{Actor, CHANGES, Object, Row, Scene, Token, Way, approve, own, user};

const BOUND: &str = "must use a token that is bound to its pod";
const ADMINISTER: &str = "lacks the verb administer on installations.signoff.dev";

pub(super) fn rows() -> Vec<Row> {
    [stolen_tokens(), tokens_without_pod(), impersonation(), own_token(), foreign_pods(), own_objects()]
        .into_iter()
        .flatten()
        .collect()
}

/// Returns attacks with tokens of the operator's account that were not issued to its Pod.
fn stolen_tokens() -> Vec<Row> {
    let stolen: [Actor; 5] = Token::ALL.map(Stolen);
    let delete = || json!({"kind": "DeleteOptions", "apiVersion": "v1"});
    let reminded = || json!({"status": {"reminders": 1}});
    let running = || json!({"status": {"phase": "Running"}});
    let fresh = || json!({"{approval}": {}});
    let label = || json!({"metadata": {"labels": {"signoff.dev/workflow": "refund"}}});
    vec![
        Row::new("writes a status", stolen, CHANGES, reminded())
            .on(Object::Sub("status"))
            .refused("only the operator, from its pod, can write status")
            .or(BOUND)
            .honest("the operator's word", reminded())
            .by(Operator),
        Row::new("writes a run's status", stolen, CHANGES, running())
            .with_scene(Scene::Workflow(json!({})))
            .on(Object::Sub("status"))
            .refused("only the operator, from its pod, can write status")
            .or(BOUND)
            .honest("the operator's word", running())
            .by(Operator),
        Row::new("creates an Approval", stolen, [Way::Create, Way::Apply], fresh())
            .with_scene(Scene::Nothing)
            .refused("only the operator can create Approvals")
            .or(BOUND)
            .honest("the operator's", fresh())
            .by(Operator),
        Row::new("deletes an Approval", stolen, [Way::Delete], delete())
            .refused("an Approval is deleted with its Workflow")
            .or(BOUND)
            .honest("the operator's delete", delete())
            .by(Operator),
        Row::new("puts a label of ours on an Approval", stolen, CHANGES, label())
            .refused("only an approver of this gate can change this Approval")
            .or(BOUND)
            .honest("the operator's label", label())
            .by(Operator),
        Row::new("votes", stolen, CHANGES, own(approve()))
            .refused("is not an approver of this gate")
            .or(BOUND)
            .honest("an approver's vote", own(approve()))
            .by(Approver),
    ]
}

/// Returns writes in the operator's name whose only fault is that the token names no Pod.
fn tokens_without_pod() -> Vec<Row> {
    let tokens = [Token::Created, Token::BoundToSecret, Token::Secret, Token::Impersonated].map(Stolen);
    let account = json!({"kind": "ServiceAccount", "name": "signoff-operator", "namespace": "signoff-system"});
    let suspend = || json!({"spec": {"suspend": true}});
    vec![
        Row::new("votes at a gate that lists the operator's account", tokens, [Way::Merge, Way::Apply], own(approve()))
            .with_request(json!({"approvers": [user("alice@example.com"), account]}))
            .refused(BOUND)
            .honest("an approver's vote", own(approve()))
            .by(Approver),
        Row::new("asks for a run", tokens, [Way::Create, Way::Apply], new_workflow(json!({})))
            .with_scene(Scene::Nothing)
            .on(WORKFLOWS)
            .refused(BOUND)
            .honest("a requester's run", new_workflow(json!({})))
            .by(Requester),
        Row::new("suspends a run", tokens, CHANGES, suspend())
            .with_scene(Scene::Workflow(json!({})))
            .refused(BOUND)
            .honest("the requester's suspend", suspend())
            .by(Requester),
    ]
}

/// Returns writes that the chart's roles allow the operator, in its name and without its Pod: `edit` in the operator's
/// namespace includes impersonating its service account.
fn impersonation() -> Vec<Row> {
    let tokens = [Token::Created, Token::BoundToSecret, Token::Secret, Token::Impersonated].map(Stolen);
    let named = |version: &str, kind: &str, rest: Value| {
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "unbound-{case}"}});
        json_patch::merge(&mut object, &rest);
        object
    };
    let made = |what, path, object: Value| {
        Row::new(what, tokens, [Way::Create], object.clone())
            .with_scene(Scene::Nothing)
            .shipped_roles()
            .on(Object::Path(path))
            .dry_run()
            .refused(BOUND)
            .honest("the operator's", object)
            .by(Operator)
    };
    let delete = || json!({"kind": "DeleteOptions", "apiVersion": "v1"});
    let pod = named("v1", "Pod", json!({"spec": {"containers": [{"name": "shell", "image": "shell"}]}}));
    let value = json!({"spec": {"data": "x"}, "metadata": {
        "labels": {"signoff.dev/workflow": "owner", "signoff.dev/workflow-uid": "{owner}"},
        "ownerReferences": [{"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "name": "owner", "uid": "{owner}"}]}});
    let event = named(
        "events.k8s.io/v1",
        "Event",
        json!({"eventTime": "2026-01-01T00:00:00.000000Z", "reason": "Forged", "action": "Forged", "type": "Normal",
            "reportingController": "signoff.dev/operator", "reportingInstance": "forged",
            "regarding": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "{namespace}", "name": "x"}}),
    );
    vec![
        Row::new("deletes a Workflow", tokens, [Way::Delete], delete())
            .with_scene(Scene::Workflow(json!({})))
            .shipped_roles()
            .refused(BOUND)
            .honest("the operator's delete", delete())
            .by(Operator),
        made("makes a Pod", "/api/v1/namespaces/{namespace}/pods", pod),
        made(
            "makes a ConfigMap beside the operator's",
            "/api/v1/namespaces/signoff-system/configmaps",
            named("v1", "ConfigMap", json!({"data": {"a": "b"}})),
        ),
        made(
            "makes a value of a run",
            "/apis/signoff.dev/v1alpha1/namespaces/{namespace}/blobs",
            named("signoff.dev/v1alpha1", "Blob", value),
        )
        .or("only the operator can create Blobs"),
        made("forges an Event", "/apis/events.k8s.io/v1/namespaces/{namespace}/events", event),
        made(
            "makes a Lease beside the operator's",
            "/apis/coordination.k8s.io/v1/namespaces/signoff-system/leases",
            named("coordination.k8s.io/v1", "Lease", json!({"spec": {"holderIdentity": "stolen"}})),
        ),
    ]
}

/// Returns attacks with the operator's own token, stolen from its Pod: it can report but not decide.
fn own_token() -> Vec<Row> {
    let alices = json!({"spec": {"decisions": {"alice@example.com": approve()}}});
    let by_alice = |row: Row| row.honest("an approver's vote", own(approve())).by(Approver).way(Way::Merge);
    vec![
        by_alice(
            Row::new("votes in an approver's name with the chart's rights", [Operator], CHANGES, alices)
                .shipped_roles()
                .refused("cannot {verb} resource \"approvals\""),
        ),
        by_alice(
            Row::new("votes with the chart's rights", [Operator], CHANGES, own(approve()))
                .shipped_roles()
                .refused("cannot {verb} resource \"approvals\""),
        ),
        by_alice(
            Row::new(
                "deletes an Approval with the chart's rights",
                [Operator],
                [Way::Delete, Way::DeleteAll],
                json!({}),
            )
            .shipped_roles()
            .refused("cannot {verb} resource \"approvals\""),
        ),
        Row::new(
            "changes what was requested with the chart's rights",
            [Operator],
            CHANGES,
            json!({"spec": {"suspend": true}}),
        )
        .shipped_roles()
        .with_scene(Scene::Workflow(json!({})))
        .refused("cannot {verb} resource \"workflows\"")
        .honest("what it may write", json!({"status": {"phase": "Running"}}))
        .way(Way::Merge)
        .about(Object::Sub("status")),
    ]
}

/// Returns attempts to run as the operator with the built-in role admin in its namespace.
fn foreign_pods() -> Vec<Row> {
    let spec = json!({"serviceAccountName": "signoff-operator", "restartPolicy": "Always",
        "containers": [{"name": "shell", "image": "shell"}]});
    let labels = json!({"app": "shell"});
    let template = json!({"metadata": {"labels": labels}, "spec": spec});
    let mut once = template.clone();
    once["spec"]["restartPolicy"] = json!("Never");
    let workload = |version: &str, kind: &str, spec: Value| json!({"apiVersion": version, "kind": kind, "metadata": {"name": "shell-{case}"}, "spec": spec});
    let selected = json!({"selector": {"matchLabels": labels}, "template": template});
    let mut set = selected.clone();
    set["serviceName"] = json!("shell");
    let token = |bound: Value| json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": bound});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "stolen-{case}", "annotations": {"kubernetes.io/service-account.name": "signoff-operator"}}});
    let created = |what, path, object: Value| {
        Row::new(what, [OperatorsNeighbour], [Way::Create], object.clone())
            .with_scene(Scene::Nothing)
            .on(Object::Path(path))
            .dry_run()
            .refused(ADMINISTER)
            .honest("the same from who holds the verb", object)
            .by(ClusterAdmin)
    };
    let operators_pod = |what, how: Way, path, change: Value| {
        Row::new(what, [OperatorsNeighbour], [how], change.clone())
            .with_scene(Scene::Nothing)
            .on(Object::Path(path))
            .refused(ADMINISTER)
            .honest("the same from who holds the verb", change)
            .by(ClusterAdmin)
    };
    vec![
        created("runs a Pod as the operator", "/api/v1/namespaces/signoff-system/pods", workload("v1", "Pod", spec.clone())),
        created("runs a ReplicationController as the operator", "/api/v1/namespaces/signoff-system/replicationcontrollers", workload("v1", "ReplicationController", json!({"selector": labels, "template": template}))),
        created("runs a Deployment as the operator", "/apis/apps/v1/namespaces/signoff-system/deployments", workload("apps/v1", "Deployment", selected.clone())),
        created("runs a ReplicaSet as the operator", "/apis/apps/v1/namespaces/signoff-system/replicasets", workload("apps/v1", "ReplicaSet", selected.clone())),
        created("runs a DaemonSet as the operator", "/apis/apps/v1/namespaces/signoff-system/daemonsets", workload("apps/v1", "DaemonSet", selected.clone())),
        created("runs a StatefulSet as the operator", "/apis/apps/v1/namespaces/signoff-system/statefulsets", workload("apps/v1", "StatefulSet", set)),
        created("runs a Job as the operator", "/apis/batch/v1/namespaces/signoff-system/jobs", workload("batch/v1", "Job", json!({"template": once}))),
        created("runs a CronJob as the operator", "/apis/batch/v1/namespaces/signoff-system/cronjobs", workload("batch/v1", "CronJob", json!({"schedule": "* * * * *", "jobTemplate": {"spec": {"template": once}}}))),
        created("makes a token Secret of the operator's", "/api/v1/namespaces/signoff-system/secrets", secret),
        created("draws a token of the operator's", "/api/v1/namespaces/signoff-system/serviceaccounts/signoff-operator/token", token(json!({"audiences": []}))),
        created("draws a token bound to the operator's Pod", "/api/v1/namespaces/signoff-system/serviceaccounts/signoff-operator/token", token(json!({"audiences": [], "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "signoff-operator-outside"}}))),
        operators_pod("opens a shell in the operator's Pod", Way::Connect, "/api/v1/namespaces/signoff-system/pods/signoff-operator-outside/exec", Value::Null).reaches("does not have a host assigned"),
        operators_pod("attaches to the operator's Pod", Way::Connect, "/api/v1/namespaces/signoff-system/pods/signoff-operator-outside/attach", Value::Null).reaches("does not have a host assigned"),
        operators_pod("changes the operator's Pod", Way::Merge, "/api/v1/namespaces/signoff-system/pods/signoff-operator-outside", json!({"metadata": {"annotations": {"x": "y"}}})).dry_run(),
        Row::new("makes a token Secret of a neighbour's", [OperatorsNeighbour], [Way::Create], json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token", "metadata": {"name": "x-{case}", "annotations": {"kubernetes.io/service-account.name": "default"}}}))
            .with_scene(Scene::Nothing)
            .on(Object::Path("/api/v1/namespaces/signoff-system/secrets"))
            .dry_run()
            .refused(ADMINISTER)
            .honest("a Secret that is no token", json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mine-{case}"}, "stringData": {"a": "b"}})),
    ]
}

/// Returns attacks on the operator's own objects in its namespace, with which an attacker could stop every run.
fn own_objects() -> Vec<Row> {
    let lease = |name: &str| {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
            "spec": {"holderIdentity": "neighbour", "leaseDurationSeconds": 3600}})
    };
    let memory = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"epoch": "forged"}});
    let address = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
            "stringData": {"url": "https://evil.example"}})
    };
    let taken = |what, path, object: Value, own: Value| {
        Row::new(what, [OperatorsNeighbour], [Way::Apply], object)
            .with_scene(Scene::Nothing)
            .on(Object::Path(path))
            .dry_run()
            .refused(ADMINISTER)
            .honest("one of their own", own)
    };
    vec![
        taken(
            "takes the operator's Lease",
            "/apis/coordination.k8s.io/v1/namespaces/signoff-system/leases",
            lease("signoff-operator"),
            lease("mine-{case}"),
        ),
        taken(
            "forges what the guard remembers",
            "/api/v1/namespaces/signoff-system/configmaps",
            memory("signoff-guard"),
            memory("mine-{case}"),
        ),
        taken(
            "forges which notices are delivered",
            "/api/v1/namespaces/signoff-system/configmaps",
            memory("signoff-notices"),
            memory("mine-{case}"),
        ),
        taken(
            "has notices, and the operator's token, sent elsewhere",
            "/api/v1/namespaces/signoff-system/configmaps",
            memory("signoff-notifications"),
            memory("mine-{case}"),
        ),
        taken(
            "chooses the address of a webhook of notices",
            "/api/v1/namespaces/signoff-system/secrets",
            address("signoff-notifications-hook"),
            address("mine-{case}"),
        ),
    ]
}
