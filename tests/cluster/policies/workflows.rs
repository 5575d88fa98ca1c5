//! The requester of a Workflow, the runs that requesters can create, and that neither changes afterwards.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use signoff_api::{Workflow, workflow::Provider};
use signoff_tests::control_plane::Cluster;

use super::harness::{self, Harness, assert_refused, to_answer, user};

#[tokio::test]
async fn the_requester_is_stamped_and_another_name_is_refused() {
    let harness = Harness::open("asked").await;
    let alice = json!({"requestedBy": "alice@example.com"});
    for fields in [alice.clone(), json!({"requestedBy": "alice@example.com", "restored": true})] {
        let answer = harness.request("dana", "refund", fields).await;
        assert_refused(
            answer.clone(),
            "spec.requestedBy is alice@example.com, and a Workflow is requested by its creator",
        );
        assert_refused(answer.clone(), "(dana@example.com): remove spec.requestedBy");
        assert_refused(answer, "use an account with the RBAC verb restore on workflows.signoff.dev");
    }
    for fields in [json!({}), json!({"requestedBy": "dana@example.com"})] {
        let name = format!("refund-{}", fields.as_object().unwrap().len());
        let workflow = harness.request("dana", &name, fields).await.unwrap();
        assert_eq!((&*workflow.spec.requested_by, workflow.spec.restored), ("dana@example.com", None));
    }
    // The verb on another kind does not give the right.
    harness
        .grant(
            "dana@example.com",
            json!({"apiGroups": ["signoff.dev"], "resources": ["approvals"], "verbs": ["restore"]}),
        )
        .await;
    assert_refused(harness.request("dana", "refund", alice).await, "a Workflow is requested by its creator");
}

#[tokio::test]
async fn a_holder_of_restore_keeps_the_requester_without_rights_of_a_run() {
    let harness = Harness::open("asked").await;
    harness.namespace.bind("signoff-restorer", "viktor@example.com").await.unwrap();
    let gate = json!({"prompt": "ok?", "approvers": [user("alice")], "excludeRequester": true});
    let secret = json!({"name": "models", "secret": "key", "key": "token"});
    let fields = json!({
        "requestedBy": "system:serviceaccount:ci:bot", "requestedFor": "erin@example.com", "secrets": [secret],
        "steps": [{"name": "ask", "hitl": gate}, {"name": "build", "pod": {"image": "example.com/a"}}],
    });
    let restored = harness.request("viktor", "refund", fields.clone()).await.unwrap();
    assert_eq!((&*restored.spec.requested_by, restored.spec.restored), ("system:serviceaccount:ci:bot", Some(true)));
    // Typed, as before Kubernetes 1.36, and for a run of the account's own.
    let own = json!({"requestedBy": "viktor@example.com", "restored": true});
    assert_eq!(harness.request("viktor", "own", own.clone()).await.unwrap().spec.restored, Some(true));
    assert_refused(
        harness.request("dana", "own", json!({"restored": true})).await,
        "lacks the RBAC verb restore on workflows.signoff.dev",
    );

    // A run that the account requests itself is an ordinary run, with the rights of a run.
    let mut new = fields;
    new["requestedBy"] = json!("viktor@example.com");
    assert_refused(harness.request("viktor", "new", new).await, "lacks the RBAC verb");
    assert_eq!(harness.request("viktor", "new", json!({})).await.unwrap().spec.restored, None);

    // The field cannot be changed.
    let workflows = harness.workflows("admin").await;
    for value in [json!(null), json!(false)] {
        let patch = Patch::Merge(json!({"spec": {"restored": value}}));
        assert_refused(
            to_answer(workflows.patch("refund", &PatchParams::default(), &patch).await),
            "spec is immutable except",
        );
    }
    let cancel = Patch::Merge(json!({"spec": {"cancel": true}}));
    workflows.patch("refund", &PatchParams::default(), &cancel).await.unwrap();
}

#[tokio::test]
async fn a_replacement_without_a_requester_keeps_the_requester() {
    let harness = Harness::open("asked").await;
    let stored = harness.request("dana", "refund", json!({})).await.unwrap();
    let mut typed = harness::workflow("refund", json!({}));
    typed["metadata"]["namespace"] = json!(harness.namespace.name);
    typed["metadata"]["resourceVersion"] = json!(stored.resource_version());
    typed["spec"].as_object_mut().unwrap().remove("requestedBy");
    let replace = async |object: &Value, who: &str| {
        let run = harness
            .cluster
            .kubectl(["replace", "-n", &harness.namespace.name, "-f", "-"])
            .person(who)
            .input(object.to_string());
        run.run().await.unwrap()
    };
    replace(&typed, "dana").await.ok().unwrap();
    let kept = harness.workflows("dana").await.get("refund").await.unwrap();
    assert_eq!(kept.spec.requested_by, "dana@example.com");

    // Without a spec nothing could be restored: the first of two steps of a forgery.
    let mut bare = typed.clone();
    bare.as_object_mut().unwrap().remove("spec");
    bare["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let answer = replace(&bare, "dana").await.refused().unwrap();
    assert!(answer.contains("spec"), "{answer}");
}

/// Returns a Workflow as users write it from Kubernetes 1.36 on: without `requestedBy`.
fn without_requester(name: &str) -> Value {
    let mut workflow = harness::workflow(name, json!({}));
    workflow["spec"].as_object_mut().unwrap().remove("requestedBy");
    workflow
}

#[tokio::test]
async fn each_workflow_of_a_list_without_requesters_is_created_and_stamped() {
    let harness = Harness::open("listed").await;
    let list =
        json!({"apiVersion": "v1", "kind": "List", "items": [without_requester("one"), without_requester("two")]});
    let create = harness.cluster.kubectl(["create", "-n", &harness.namespace.name, "-f", "-"]).person("dana");
    create.input(list.to_string()).run().await.unwrap().ok().unwrap();
    for name in ["one", "two"] {
        let stored = harness.workflows("dana").await.get(name).await.unwrap();
        assert_eq!(stored.spec.requested_by, "dana@example.com");
    }
}

#[tokio::test]
async fn a_missing_requester_is_refused_without_mutating_policies() {
    const MISSING: &str = "spec.requestedBy: Required value: before Kubernetes 1.36 write your own user name";
    // As before Kubernetes 1.36: without the mutating policies.
    let cluster = Cluster::own().await.unwrap();
    cluster.install(&[]).await.unwrap();
    let kinds = "mutatingadmissionpolicybindings,mutatingadmissionpolicies";
    cluster.kubectl(["delete", kinds, "--all"]).person("admin").run().await.unwrap().ok().unwrap();
    let namespace = cluster.namespace("typed").await.unwrap();
    let workflows: Api<Workflow> = Api::namespaced(cluster.token_client("dana").await.unwrap(), &namespace.name);
    let create = async |object: Value| {
        to_answer(workflows.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await)
    };
    // The API server stops using a policy some time after its deletion.
    let gone = async {
        for n in 0.. {
            let answer = create(without_requester(&format!("missing-{n}"))).await;
            if answer.is_err() {
                return assert_refused(answer, MISSING);
            }
        }
    };
    let patience = std::time::Duration::from_secs(120);
    tokio::time::timeout(patience, gone).await.expect("the API server uses the deleted policies no more");

    let typed = |requester: &str| harness::workflow("typed", json!({"requestedBy": requester}));
    assert_refused(
        create(typed("alice@example.com")).await,
        "a Workflow is requested by its creator (dana@example.com)",
    );
    create(typed("dana@example.com")).await.unwrap();
    let patch = async |spec: Value| {
        let patch = Patch::Merge(json!({"spec": spec}));
        to_answer(workflows.patch("typed", &PatchParams::default(), &patch).await)
    };
    assert_refused(patch(json!({"requestedBy": null})).await, MISSING);
    patch(json!({"suspend": true})).await.unwrap();
    let newest = workflows.get("typed").await.unwrap();
    let mut replacement = without_requester("typed");
    replacement["metadata"]["resourceVersion"] = json!(newest.resource_version());
    let replace = async |object: &Value| {
        let object = serde_json::from_value(object.clone()).unwrap();
        to_answer(workflows.replace("typed", &PostParams::default(), &object).await)
    };
    assert_refused(replace(&replacement).await, MISSING);
    replacement["spec"]["requestedBy"] = json!("dana@example.com");
    replace(&replacement).await.unwrap();
}

#[tokio::test]
async fn a_request_for_another_person_needs_the_verb_delegate() {
    let harness = Harness::open("asked").await;
    let fields = json!({"requestedFor": "erin@example.com"});
    assert_refused(
        harness.request("dana", "refund", fields.clone()).await,
        "lacks the RBAC verb delegate on people.signoff.dev erin@example.com",
    );
    let rule = json!({"apiGroups": ["signoff.dev"], "resources": ["people"], "resourceNames": ["erin@example.com"], "verbs": ["delegate"]});
    harness.grant("dana@example.com", rule).await;
    harness.request("dana", "refund", fields).await.unwrap();
}

#[tokio::test]
async fn a_machine_names_its_person_where_a_gate_excludes_the_requester() {
    let harness = Harness::open("asked").await;
    let bot = format!("system:serviceaccount:{}:bot", harness.namespace.name);
    harness.namespace.bind("signoff-requester", &bot).await.unwrap();
    let rule = json!({"apiGroups": ["signoff.dev"], "resources": ["people"], "resourceNames": ["dana@example.com"], "verbs": ["delegate"]});
    harness.grant(&bot, rule).await;
    let api: Api<Workflow> = Api::namespaced(harness.cluster.client(&bot, &[]).await.unwrap(), &harness.namespace.name);
    let gate = json!({"prompt": "ok?", "approvers": [user("alice")], "excludeRequester": true});
    let create = async |name: &str, exclude: bool, requested_for: Option<&str>| {
        let mut gate = gate.clone();
        gate["excludeRequester"] = json!(exclude);
        let mut fields = json!({"steps": [{"name": "ask", "hitl": gate}]});
        if let Some(person) = requested_for {
            fields["requestedFor"] = json!(person);
        }
        let workflow = serde_json::from_value(harness::workflow(name, fields)).unwrap();
        to_answer(api.create(&PostParams::default(), &workflow).await)
    };
    assert_refused(create("alone", true, None).await, "set spec.requestedFor to the person");
    create("named", true, Some("dana@example.com")).await.unwrap();
    create("open", false, None).await.unwrap();
}

#[tokio::test]
async fn the_requester_must_be_able_to_read_every_secret_that_is_used() {
    let harness = Harness::open("asked").await;
    let entry = |n: usize| json!({"name": format!("s{n}"), "secret": format!("key-{n}"), "key": "token"});
    let all: Vec<_> = (0..8).map(entry).collect();
    let secrets: Api<Secret> = Api::namespaced(harness.client("admin").await, &harness.namespace.name);
    let secret = serde_json::from_value(json!({"metadata": {"name": "key-0"}, "stringData": {"token": "x"}})).unwrap();
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    let words = "dana@example.com lacks the RBAC verb get on the Secrets that this Workflow uses";
    assert_refused(harness.request("dana", "refund", json!({"secrets": [entry(0)]})).await, words);
    for kind in Provider::KINDS.into_iter().filter(|kind| *kind != "scripted") {
        let keyed = json!({"secrets": [entry(0)], "providers": [{"name": "p", kind: {"key": "s0"}}]});
        assert_refused(harness.request("dana", kind, keyed).await, words);
    }
    let read = |names: Vec<String>| json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": names, "verbs": ["get"]});
    harness.grant("dana@example.com", read((0..7).map(|n| format!("key-{n}")).collect())).await;
    assert_refused(harness.request("dana", "refund", json!({"secrets": all})).await, words);
    harness.request("dana", "one", json!({"secrets": [entry(0)]})).await.unwrap();
    harness.grant("dana@example.com", read(vec!["key-7".into()])).await;
    harness.request("dana", "refund", json!({"secrets": all})).await.unwrap();
}

#[tokio::test]
async fn inputs_are_of_their_types() {
    let harness = Harness::open("inputs").await;
    let input = |kind: &str, field: &str, value: Value| json!({"inputs": [{"name": "it", "type": kind, field: value}]});
    let cases = [
        ("string", json!(1), json!("1")),
        ("number", json!("1"), json!(1.5)),
        ("number", json!(true), json!(1)),
        ("integer", json!(1.5), json!(-1)),
        ("integer", json!(9_007_199_254_740_993_i64), json!(9_007_199_254_740_991_i64)),
        ("boolean", json!("true"), json!(true)),
        ("object", json!([]), json!({"a": {"b": []}})),
        ("array", json!({}), json!([1, "two"])),
    ];
    for (n, (kind, wrong, right)) in cases.into_iter().enumerate() {
        for field in ["value", "default"] {
            let answer = harness.request("dana", "wrong", input(kind, field, wrong.clone())).await;
            assert_refused(answer, &format!("spec.inputs it: value, default and enum must be of the type {kind}"));
            harness.request("dana", &format!("right-{n}-{field}"), input(kind, field, right.clone())).await.unwrap();
        }
    }
}

#[tokio::test]
async fn an_invalid_input_is_refused() {
    let harness = Harness::open("inputs").await;
    let input = |fields: Value| json!({"inputs": [fields]});
    let deep = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    let refusals = [
        (json!({"name": "it", "enum": ["a", "b"], "value": "c"}), "value and default must be among enum"),
        (json!({"name": "it", "enum": ["a", 1], "value": "a"}), "must be of the type string"),
        (json!({"name": "it", "required": true}), "spec.inputs it: a value is required"),
        (json!({"name": "it", "type": "array", "value": deep(17)}), "must nest at most 16 levels"),
    ];
    for (fields, words) in refusals {
        assert_refused(harness.request("dana", "wrong", input(fields)).await, words);
    }
    let honest = [
        json!({"name": "it", "enum": ["a", "b"], "value": "b"}),
        json!({"name": "it", "required": true, "default": "x"}),
        json!({"name": "it"}),
        json!({"name": "it", "type": "array", "value": deep(16)}),
    ];
    for (n, fields) in honest.into_iter().enumerate() {
        harness.request("dana", &format!("right-{n}"), input(fields)).await.unwrap();
    }
}

#[tokio::test]
async fn a_name_has_at_most_63_characters() {
    let harness = Harness::open("asked").await;
    assert_refused(
        harness.request("dana", &"x".repeat(64), json!({})).await,
        "metadata.name must have at most 63 characters",
    );
    harness.request("dana", &"x".repeat(63), json!({})).await.unwrap();
}

#[tokio::test]
async fn the_refusal_of_steps_inside_a_pattern_names_their_place() {
    let harness = Harness::open("asked").await;
    let step = json!({"name": "s", "set": {"value": "x"}});
    let apply = async |pattern: Option<Value>, steps: Value| {
        let mut object = json!({
            "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"generateName": "shape-"}, "spec": {},
        });
        if let Some(pattern) = pattern {
            object["spec"]["pattern"] = pattern;
        }
        if steps != json!(null) {
            object["spec"]["steps"] = steps;
        }
        // Without strict validation the API server drops unknown fields.
        let arguments = ["create", "--validate=false", "-n", &harness.namespace.name, "-f", "-"];
        harness.cluster.kubectl(arguments).person("dana").input(object.to_string()).run().await.unwrap()
    };
    let old = [
        json!({"chain": {"steps": [step]}}),
        json!({"dag": {"tasks": [step]}}),
        json!({"graph": {"nodes": [step]}}),
        json!({"parallel": {"branches": [{"name": "a", "steps": [step]}, {"name": "b", "steps": [step]}]}}),
        json!({"routing": {"router": {"agent": "a", "input": "x"}, "routes": [{"name": "a", "steps": [step]}]}}),
    ];
    for pattern in old {
        let answer = apply(Some(pattern.clone()), json!(null)).await.refused().unwrap();
        assert!(answer.contains("spec.steps"), "{pattern}: {answer}");
    }
    assert!(apply(None, json!(null)).await.refused().unwrap().contains("every step must be in spec.steps"));
    let answer = apply(Some(json!({"parallel": {"reduce": step}})), json!([step])).await.refused().unwrap();
    assert!(answer.contains("spec.pattern.parallel.reduce"), "{answer}");
    apply(None, json!([step])).await.ok().unwrap();
    apply(Some(json!({"dag": {}})), json!([step])).await.ok().unwrap();
}
