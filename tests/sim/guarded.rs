//! The guard: while the admission policies are not in force exactly as shipped, nothing that anybody decided counts.
//! The simulated server enforces only the one that the operator tries; that it looks for all of them is tested here.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use signoff_admission::policies::{self, Identity, PolicyObject};
use signoff_api::crds;
use signoff_controller::GuardMode;
use signoff_tests::sim::{Entry, Resource};

use crate::{
    ending::list,
    harness::{Stage, approvals},
    people::verdict,
    scenarios::{RUN, chain, gate, post},
};

/// A stage with every policy installed, and the user name of its operator.
pub async fn guarded() -> (Stage, String) {
    let mut stage = Stage::new();
    stage.guard = GuardMode::Checked(Box::default());
    for object in shipped() {
        stage.server.insert(object).unwrap();
    }
    // What is created while the rules are being put in force is nobody's for certain.
    stage.pass(10).await;
    stage.apply(RUN, &chain(json!([gate("review", json!({})), post("pay", "42 EUR", "fail")])));
    (stage, Identity::default().user_name())
}

/// Every object on which the guard rests, as it is installed.
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

/// The kind and the name of an object.
pub fn place(object: &Value) -> (Resource, String) {
    (Resource::of_object(object), object["metadata"]["name"].as_str().unwrap().to_owned())
}

#[tokio::test(start_paused = true)]
async fn with_every_policy_in_force_a_run_goes_to_its_end() {
    let (stage, operator) = guarded().await;
    let life = stage.begin(&operator);
    stage.people().decides("alice", "review", 60, verdict("Approve")).await;
    assert_eq!(stage.ended(RUN).await["status"]["phase"], "Succeeded", "{}", stage.server.story());
    life.crash().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_stored_is_read_back_while_a_foreign_webhook_could_change_it() {
    let (stage, operator) = guarded().await;
    let rules = json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/status"]}]);
    let webhook = json!({"name": "mesh.example.com", "rules": rules, "clientConfig": {"url": "https://mesh.example.com"},
        "sideEffects": "None", "admissionReviewVersions": ["v1"]});
    let foreign = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "mesh"}, "webhooks": [webhook]});
    let (resource, name) = place(&foreign);
    stage.server.insert(foreign).unwrap();
    let answers_are_whole = || -> Vec<bool> {
        let by_operator = |write: &Entry| write.actor.as_ref() == operator && write.resource.group == "signoff.dev";
        let writes = stage.server.writes().into_iter().filter(|write| by_operator(write) && write.took_effect());
        writes.map(|write| !write.accept.contains("PartialObjectMetadata")).collect()
    };
    let life = stage.begin(&operator);
    let approval = stage.people().asked("review").await;
    stage.pass(60).await;
    let first = answers_are_whole();
    assert!(first.len() >= 2 && first.iter().all(|whole| *whole), "{}", stage.server.story());
    assert!(stage.server.remove(&resource, "", &name));
    // The first write says that the webhook is gone.
    stage.pass(60).await;
    stage.people().votes("alice", &approval, verdict("Approve"));
    assert_eq!(stage.ended(RUN).await["status"]["phase"], "Succeeded", "{}", stage.server.story());
    let later = answers_are_whole().split_off(first.len());
    assert!(later.len() >= 2 && later.iter().all(|whole| !whole), "{}", stage.server.story());
    life.crash().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_policy_a_binding_or_a_crd_nothing_begins() {
    let (stage, operator) = guarded().await;
    let life = stage.begin(&operator);
    stage.people().asked("review").await;
    let spec = stage.workflow(RUN)["spec"].clone();
    // One of each kind: that every one of them is compared is the guard's own test.
    let one_a_kind: BTreeMap<String, Value> =
        shipped().into_iter().map(|object| (object["kind"].to_string(), object)).collect();
    for (number, object) in one_a_kind.into_values().enumerate() {
        let (resource, name) = place(&object);
        assert!(stage.server.remove(&resource, "", &name), "{name}");
        stage.pass(1).await;
        let run = format!("run-{number}");
        stage.apply(&run, &spec);
        stage.pass(600).await;
        assert_eq!(stage.workflow(&run)["status"]["phase"], "Pending", "without {name}:\n{}", stage.server.story());
        assert_eq!(stage.condition("Guarded"), ("False".to_owned(), "PoliciesDiffer".to_owned()), "without {name}");
        stage.server.insert(object).unwrap();
        // Who asked for it then is anybody's word; what was asked before goes on.
        let refused = stage.reaches(&run, "Failed").await;
        let why = list(&refused["status"]["conditions"]).find(|condition| condition["type"] == "Accepted").unwrap();
        assert_eq!(why["reason"], "RequesterUnverified", "without {name}");
        stage.pass(10).await;
        assert_eq!(stage.condition("Guarded"), Default::default(), "with {name} again");
    }
    stage.people().decides("alice", "review", 60, verdict("Approve")).await;
    assert_eq!(stage.ended(RUN).await["status"]["phase"], "Succeeded");
    life.crash().await;
}

/// Sets what the first binding of a policy does with a request that the policy refuses, and returns what it did before.
fn set_actions(stage: &Stage, actions: Value) -> Value {
    let binding = shipped().into_iter().find(|object| object["kind"] == "ValidatingAdmissionPolicyBinding").unwrap();
    let (resource, name) = place(&binding);
    stage.server.edit(&resource, "", &name, |object| object["spec"]["validationActions"] = actions).unwrap();
    binding["spec"]["validationActions"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_decision_is_not_honoured_while_a_binding_only_warns() {
    for operator_lives in [true, false] {
        let (stage, operator) = guarded().await;
        let mut life = stage.begin(&operator);
        let approval = stage.people().asked("review").await;
        stage.pass(10).await;
        if !operator_lives {
            life.crash().await;
            life = stage.begin("nobody");
        }
        let enforced = set_actions(&stage, json!(["Warn"]));
        stage.server.clock().settle().await;
        stage.people().votes("alice", &approval, verdict("Approve"));
        if !operator_lives {
            life.crash().await;
            life = stage.begin(&operator);
        }
        stage.pass(3600).await;
        assert!(
            stage.server.value(&approvals(), "default", &approval).unwrap()["status"]["outcome"].is_null(),
            "{}",
            stage.server.story()
        );
        assert_eq!(stage.condition("Guarded").0, "False");
        assert_eq!(stage.world.effects().len(), 0);
        set_actions(&stage, enforced);
        // What was decided meanwhile is void, and asked again.
        stage.people().decides("bob", "review#2", 10, verdict("Approve")).await;
        assert_eq!(stage.ended(RUN).await["status"]["phase"], "Succeeded");
        let first = stage.server.value(&approvals(), "default", &approval).unwrap();
        assert_eq!(first["status"]["phase"], "Superseded", "{}", stage.server.story());
        let told = stage.events("GateSuperseded");
        assert!(told[0]["note"].as_str().unwrap().contains("recorded while unguarded"), "{told:?}");
        assert_eq!(stage.condition("Guarded"), Default::default());
        assert_eq!(stage.world.effects().len(), 1);
        life.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_changed_while_a_binding_was_away_is_asked_again_unchanged() {
    for voted in [true, false] {
        let (stage, operator) = guarded().await;
        let life = stage.begin(&operator);
        let approval = stage.people().asked("review").await;
        stage.pass(10).await;
        let asked = stage.server.value(&approvals(), "default", &approval).unwrap()["spec"]["request"].clone();
        let enforced = set_actions(&stage, json!(["Warn"]));
        stage.server.clock().settle().await;
        stage.server.edit(&approvals(), "default", &approval, |object| {
            object["spec"]["request"]["quorums"][0]["approvers"] = json!([{"kind": "User", "name": "mallory"}])
        });
        if voted {
            stage.people().votes("mallory", &approval, verdict("Approve"));
        }
        stage.pass(3600).await;
        set_actions(&stage, enforced);
        stage.people().decides("bob", "review#2", 10, verdict("Approve")).await;
        assert_eq!(stage.ended(RUN).await["status"]["phase"], "Succeeded", "{}", stage.server.story());
        let first = stage.server.value(&approvals(), "default", &approval).unwrap();
        assert_eq!(
            (&first["status"]["phase"], &first["status"]["outcome"]["verdict"]),
            (&json!("Superseded"), &Value::Null)
        );
        let again = stage.approvals().into_iter().find(|other| other["metadata"]["name"] != json!(approval)).unwrap();
        assert_eq!(again["spec"]["request"]["quorums"], asked["quorums"]);
        assert_eq!(stage.world.effects().len(), 1);
        life.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_the_policies_do_not_know_honours_nothing() {
    for stranger in ["operator", "system:serviceaccount:elsewhere:signoff-operator"] {
        let (stage, _) = guarded().await;
        let life = stage.begin(stranger);
        stage.pass(600).await;
        assert_eq!(stage.approvals().len(), 0, "{stranger}");
        life.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn looking_at_the_policies_costs_nothing_while_nothing_changes() {
    let (stage, operator) = guarded().await;
    let life = stage.begin(&operator);
    stage.people().asked("review").await;
    stage.pass(10).await;
    let before = stage.server.log().len();
    stage.pass(3600).await;
    let mut asked = BTreeMap::<String, usize>::new();
    for entry in stage.server.log()[before..].iter().filter(|entry| entry.verb != signoff_tests::sim::Verb::Watch) {
        *asked.entry(format!("{:?} {}", entry.verb, entry.resource)).or_default() += 1;
    }
    assert!(asked.is_empty(), "{asked:?}");
    life.crash().await;
}
