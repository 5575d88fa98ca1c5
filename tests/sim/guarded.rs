//! The guard: while the admission policies are not enforced exactly as shipped, no decision counts. The simulated
//! server enforces only the policy that the operator tries; that the guard checks all of them is tested here.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use signoff_admission::policies::{self, Identity, PolicyObject};
use signoff_api::crds;
use signoff_controller::GuardMode;
use signoff_tests::sim::{Entry, Resource};

use crate::{
    ending::list,
    harness::{Harness, approvals},
    people::verdict,
    scenarios::{RUN, chain, gate, post},
};

/// Returns a harness with every policy installed, and the user name of its operator.
pub async fn guarded() -> (Harness, String) {
    guarded_with(json!([gate("review", json!({})), post("pay", "42 EUR", "fail")])).await
}

/// Returns a harness with every policy installed and a run of these steps, and the user name of its operator.
pub async fn guarded_with(steps: Value) -> (Harness, String) {
    let mut harness = Harness::new();
    harness.guard = GuardMode::Checked(Box::default());
    for object in shipped() {
        harness.server.insert(object).unwrap();
    }
    // The author of an object is not certain before the policies are enforced.
    harness.pass(10).await;
    harness.apply(RUN, &chain(steps));
    (harness, Identity::default().user_name())
}

/// Returns every object on which the guard relies, as it is installed.
pub fn shipped() -> Vec<Value> {
    let crds = crds::all().into_iter().map(|crd| serde_json::to_value(crd).unwrap());
    let policies = policies::objects(&Identity::default()).unwrap().into_iter().map(|object| match object {
        PolicyObject::Validating(policy) => serde_json::to_value(policy).unwrap(),
        PolicyObject::ValidatingBinding(binding) => serde_json::to_value(binding).unwrap(),
        PolicyObject::Mutating(policy) => serde_json::to_value(policy).unwrap(),
        PolicyObject::MutatingBinding(binding) => serde_json::to_value(binding).unwrap(),
    });
    crds.chain(policies).collect()
}

/// Returns the kind and the name of an object.
pub fn place(object: &Value) -> (Resource, String) {
    (Resource::of_object(object), object["metadata"]["name"].as_str().unwrap().to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_run_ends_when_every_policy_is_enforced() {
    let (harness, operator) = guarded().await;
    let life = harness.begin(&operator);
    harness.people().decide("alice", "review", 60, verdict("Approve")).await;
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded", "{}", harness.server.story());
    life.crash().await;
}

#[tokio::test(start_paused = true)]
async fn writes_are_read_back_while_a_foreign_webhook_can_change_them() {
    let (harness, operator) = guarded().await;
    let rules = json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/status"]}]);
    let webhook = json!({"name": "mesh.example.com", "rules": rules, "clientConfig": {"url": "https://mesh.example.com"},
        "sideEffects": "None", "admissionReviewVersions": ["v1"]});
    let foreign = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "mesh"}, "webhooks": [webhook]});
    let (resource, name) = place(&foreign);
    harness.server.insert(foreign).unwrap();
    let answers_are_whole = || -> Vec<bool> {
        let by_operator = |write: &Entry| write.actor.as_ref() == operator && write.resource.group == "signoff.dev";
        let writes = harness.server.writes().into_iter().filter(|write| by_operator(write) && write.took_effect());
        writes.map(|write| !write.accept.contains("PartialObjectMetadata")).collect()
    };
    let life = harness.begin(&operator);
    let approval = harness.people().wait_for_gate("review").await;
    harness.pass(60).await;
    let first = answers_are_whole();
    assert!(first.len() >= 2 && first.iter().all(|whole| *whole), "{}", harness.server.story());
    assert!(harness.server.remove(&resource, "", &name));
    // The first write shows that the webhook is gone.
    harness.pass(60).await;
    harness.people().vote("alice", &approval, verdict("Approve"));
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded", "{}", harness.server.story());
    let later = answers_are_whole().split_off(first.len());
    assert!(later.len() >= 2 && later.iter().all(|whole| !whole), "{}", harness.server.story());
    life.crash().await;
}

#[tokio::test(start_paused = true)]
async fn no_run_begins_without_a_policy_a_binding_or_a_crd() {
    let (harness, operator) = guarded().await;
    let life = harness.begin(&operator);
    harness.people().wait_for_gate("review").await;
    let spec = harness.workflow(RUN)["spec"].clone();
    // One of each kind; the guard's own tests compare all of them.
    let one_a_kind: BTreeMap<String, Value> =
        shipped().into_iter().map(|object| (object["kind"].to_string(), object)).collect();
    for (number, object) in one_a_kind.into_values().enumerate() {
        let (resource, name) = place(&object);
        assert!(harness.server.remove(&resource, "", &name), "{name}");
        harness.pass(1).await;
        let run = format!("run-{number}");
        harness.apply(&run, &spec);
        harness.pass(600).await;
        assert_eq!(harness.workflow(&run)["status"]["phase"], "Pending", "without {name}:\n{}", harness.server.story());
        assert_eq!(harness.condition("Guarded"), ("False".to_owned(), "PoliciesDiffer".to_owned()), "without {name}");
        harness.server.insert(object).unwrap();
        // A run created without the object fails, because its requester is not verified.
        let refused = harness.wait_for_phase(&run, "Failed").await;
        let why = list(&refused["status"]["conditions"]).find(|condition| condition["type"] == "Accepted").unwrap();
        assert_eq!(why["reason"], "RequesterUnverified", "without {name}");
        let command = format!("run `kubectl approve rerun {run} -n default`");
        assert!(why["message"].as_str().unwrap().contains(&command), "the run is not lost without a word: {why}");
        harness.pass(10).await;
        assert_eq!(harness.condition("Guarded"), Default::default(), "with {name} again");
    }
    harness.people().decide("alice", "review", 60, verdict("Approve")).await;
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded");
    life.crash().await;
}

/// Sets what the first binding of a policy does with a request that the policy refuses, and returns the earlier value.
pub fn set_actions(harness: &Harness, actions: Value) -> Value {
    let binding = shipped().into_iter().find(|object| object["kind"] == "ValidatingAdmissionPolicyBinding").unwrap();
    let (resource, name) = place(&binding);
    harness.server.edit(&resource, "", &name, |object| object["spec"]["validationActions"] = actions).unwrap();
    binding["spec"]["validationActions"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_decision_does_not_count_while_a_binding_only_warns() {
    for operator_lives in [true, false] {
        let (harness, operator) = guarded().await;
        let mut life = harness.begin(&operator);
        let approval = harness.people().wait_for_gate("review").await;
        harness.pass(10).await;
        if !operator_lives {
            life.crash().await;
            life = harness.begin("nobody");
        }
        let enforced = set_actions(&harness, json!(["Warn"]));
        harness.server.clock().settle().await;
        harness.people().vote("alice", &approval, verdict("Approve"));
        if !operator_lives {
            life.crash().await;
            life = harness.begin(&operator);
        }
        harness.pass(3600).await;
        assert!(
            harness.server.value(&approvals(), "default", &approval).unwrap()["status"]["outcome"].is_null(),
            "{}",
            harness.server.story()
        );
        assert_eq!(harness.condition("Guarded").0, "False");
        assert_eq!(harness.world.effects().len(), 0);
        set_actions(&harness, enforced);
        // Decisions of that time are void, and the gate asks again.
        harness.people().decide("bob", "review#2", 10, verdict("Approve")).await;
        assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded");
        let first = harness.server.value(&approvals(), "default", &approval).unwrap();
        assert_eq!(first["status"]["phase"], "Superseded", "{}", harness.server.story());
        let events = harness.events("GateSuperseded");
        assert!(events[0]["note"].as_str().unwrap().contains("recorded while unguarded"), "{events:?}");
        assert_eq!(harness.condition("Guarded"), Default::default());
        assert_eq!(harness.world.effects().len(), 1);
        life.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_changed_without_a_binding_is_asked_again() {
    for voted in [true, false] {
        let (harness, operator) = guarded().await;
        let life = harness.begin(&operator);
        let approval = harness.people().wait_for_gate("review").await;
        harness.pass(10).await;
        let asked = harness.server.value(&approvals(), "default", &approval).unwrap()["spec"]["request"].clone();
        let enforced = set_actions(&harness, json!(["Warn"]));
        harness.server.clock().settle().await;
        harness.server.edit(&approvals(), "default", &approval, |object| {
            object["spec"]["request"]["quorums"][0]["approvers"] = json!([{"kind": "User", "name": "mallory"}])
        });
        if voted {
            harness.people().vote("mallory", &approval, verdict("Approve"));
        }
        harness.pass(3600).await;
        set_actions(&harness, enforced);
        harness.people().decide("bob", "review#2", 10, verdict("Approve")).await;
        assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded", "{}", harness.server.story());
        let first = harness.server.value(&approvals(), "default", &approval).unwrap();
        assert_eq!(
            (&first["status"]["phase"], &first["status"]["outcome"]["verdict"]),
            (&json!("Superseded"), &Value::Null)
        );
        let again = harness.approvals().into_iter().find(|other| other["metadata"]["name"] != json!(approval)).unwrap();
        assert_eq!(again["spec"]["request"]["quorums"], asked["quorums"]);
        assert_eq!(harness.world.effects().len(), 1);
        life.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_operator_with_another_user_name_counts_no_decision() {
    for stranger in ["operator", "system:serviceaccount:elsewhere:signoff-operator"] {
        let (harness, _) = guarded().await;
        let life = harness.begin(stranger);
        harness.pass(600).await;
        assert_eq!(harness.approvals().len(), 0, "{stranger}");
        life.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_guard_makes_no_requests_while_nothing_changes() {
    let (harness, operator) = guarded().await;
    let life = harness.begin(&operator);
    harness.people().wait_for_gate("review").await;
    harness.pass(10).await;
    let before = harness.server.log().len();
    harness.pass(3600).await;
    let mut asked = BTreeMap::<String, usize>::new();
    for entry in harness.server.log()[before..].iter().filter(|entry| entry.verb != signoff_tests::sim::Verb::Watch) {
        *asked.entry(format!("{:?} {}", entry.verb, entry.resource)).or_default() += 1;
    }
    assert!(asked.is_empty(), "{asked:?}");
    life.crash().await;
}
