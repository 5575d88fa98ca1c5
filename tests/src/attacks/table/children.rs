//! Attacks on the objects that a run owns besides Approvals and Blobs: the Pods of its steps.

use serde_json::{Value, json};

use crate::attacks::Actor::{Admin, ClusterAdmin, Edit, Operator};
use crate::attacks::{CHANGES, Object, REMOVALS, Row, Scene, Way};

const WORDS: &str = "only the operator can create and change objects with the label signoff.dev/workflow";
const PODS: &str = "/api/v1/namespaces/{namespace}/pods";

fn pod(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels},
        "spec": {"schedulerName": "never", "automountServiceAccountToken": false, "containers": [container("c", "100m")]}})
}

fn container(image: &str, cpu: &str) -> Value {
    json!({"name": "c", "image": image, "resources": {"requests": {"cpu": cpu}}})
}

fn run() -> Value {
    json!({"signoff.dev/workflow": "refund", "case": "{case}"})
}

pub(super) fn rows() -> Vec<Row> {
    let hands = [Edit, Admin, ClusterAdmin];
    let own_step = || Scene::Object(Operator, PODS, pod("signoff-step-{case}", run()));
    let shell = |what, sub| {
        Row::new(what, [Edit, Admin], [Way::Connect], Value::Null)
            .with_scene(own_step())
            .on(Object::Sub(sub))
            .shipped_roles()
            .refused("lacks the verb debug on workflows.signoff.dev")
            .honest("the same from who holds the verb", Value::Null)
            .by(ClusterAdmin)
            .reaches("does not have a host assigned")
    };
    let stepped = |what, how: &[Way], change: Value| {
        let annotation = json!({"metadata": {"annotations": {"cni.example/address": "10.0.0.7"}}});
        Row::new(what, hands, [Way::Merge], change)
            .ways(how)
            .with_scene(own_step())
            .refused(WORDS)
            .honest("an annotation, as network plugins write them", annotation)
            .way(Way::Merge)
    };
    let containers = |image: &str, cpu: &str| json!({"spec": {"containers": [container(image, cpu)]}});
    let resources = |cpu: &str| containers("c", cpu);
    let bound = |annotation: &str| {
        json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "signoff-step-{case}", "annotations": {annotation: "x"}},
            "target": {"kind": "Node", "name": "nowhere"}})
    };
    let unscheduled =
        json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"});
    vec![
        // One policy refuses its label and another its name, and either may answer.
        Row::new("forges the Pod of a step", hands, [Way::Create], pod("signoff-step-{case}", run()))
            .with_scene(Scene::Nothing)
            .shipped_roles()
            .on(Object::Path(PODS))
            .refused("only the operator can create")
            .honest("a Pod of their own", pod("mine-{case}", json!({}))),
        Row::new(
            "makes a Pod at the name of a step's first",
            hands,
            [Way::Create],
            pod("signoff-step-{case}", json!({})),
        )
        .with_scene(Scene::Nothing)
        .on(Object::Path(PODS))
        .refused("only the operator can create pods")
        .honest("a Pod of another name", pod("steps-{case}", json!({}))),
        shell("opens a shell in the Pod of a step", "exec"),
        shell("attaches to the Pod of a step", "attach"),
        Row::new(
            "puts a debugger into the Pod of a step",
            [ClusterAdmin],
            [Way::Merge, Way::Json],
            json!({"spec": {"ephemeralContainers": [{"name": "d", "image": "d"}]}}),
        )
        .with_scene(own_step())
        .on(Object::Sub("ephemeralcontainers"))
        .refused(WORDS)
        .honest("the operator's", json!({"spec": {"ephemeralContainers": [{"name": "d", "image": "d"}]}}))
        .by(Operator),
        Row::new(
            "writes the status of the Pod of a step",
            [ClusterAdmin],
            CHANGES,
            json!({"status": {"phase": "Succeeded"}}),
        )
        .with_scene(own_step())
        .on(Object::Sub("status"))
        .refused(WORDS)
        .honest("why it has no node, as schedulers say it", json!({"status": {"conditions": [unscheduled]}})),
        Row::new("gives the Pod of a step more", [ClusterAdmin], [Way::Merge, Way::Json], resources("200m"))
            .with_scene(own_step())
            .on(Object::Sub("resize"))
            .refused(WORDS)
            .honest("the operator's", resources("300m"))
            .by(Operator),
        Row::new(
            "gives the Pod of a step a node and another file",
            [ClusterAdmin],
            [Way::Create],
            bound("signoff.dev/file-0"),
        )
        .with_scene(own_step())
        .on(Object::Sub("binding"))
        .dry_run()
        .refused("only the operator can write labels and annotations of signoff.dev on the pod of a step")
        .honest("a node and an annotation of their own", bound("cni.example/address")),
        stepped(
            "keeps the Pod of a step from going",
            &CHANGES,
            json!({"metadata": {"finalizers": ["example.com/mine"]}}),
        ),
        stepped("changes the image of the Pod of a step", &CHANGES, containers("other", "100m")),
        stepped(
            "unlabels the Pod of a step",
            &REMOVALS,
            json!({"metadata": {"labels": {"signoff.dev/workflow": null}}}),
        ),
        stepped(
            "says that the Pod of a step was made from something else",
            &CHANGES,
            json!({"metadata": {"annotations": {"signoff.dev/input-digest": "sha256:0"}}}),
        ),
        stepped(
            "gives the Pod of a step to another run",
            &CHANGES,
            json!({"metadata": {"ownerReferences": [
                {"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "name": "other", "uid": "77aa", "controller": true}]}}),
        ),
        Row::new(
            "makes a Pod of theirs one of a step",
            hands,
            CHANGES,
            json!({"metadata": {"labels": {"signoff.dev/workflow": "refund"}}}),
        )
        .with_scene(Scene::Object(Edit, PODS, pod("hers-{case}", json!({"case": "{case}"}))))
        .refused(WORDS)
        .honest("another label", json!({"metadata": {"labels": {"team": "finance"}}})),
    ]
}
