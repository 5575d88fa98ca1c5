//! The messages of refusals by the rules of the types, which the CRDs leave to admission. The table of attacks tests
//! that each broken shape is refused in every way of sending it.

use serde_json::{Value, json};

use super::harness::{Harness, assert_refused, user};

#[tokio::test]
async fn a_refusal_names_the_step_or_the_place() {
    let harness = Harness::open("shapes").await;
    let steps = json!([
        {"name": "first", "set": {"value": "x"}},
        {"name": "second", "hitl": {"prompt": "?", "approvers": [user("alice"), {"kind": "Group", "name": "system:masters"}]}},
        {"name": "third"},
    ]);
    let answer = harness.request("dana", "broken", json!({"steps": steps})).await.unwrap_err();
    let second = answer.contains("second: name must not start with system:");
    assert!(second || answer.contains("third: a step must have exactly one of"), "{answer}");
    // A person with the name of the group is not the group.
    let gate = |subject: Value| {
        let hitl = json!({"prompt": "?", "approvers": [subject], "requiredFrom": [{"group": "finance", "min": 1}]});
        json!({"steps": [{"name": "ask", "hitl": hitl}]})
    };
    let person = json!({"kind": "User", "name": "finance"});
    assert_refused(
        harness.request("dana", "broken", gate(person)).await,
        "every group of requiredFrom must be among the approvers",
    );
    harness.request("dana", "honest", gate(json!({"kind": "Group", "name": "finance"}))).await.unwrap();
    let provider = json!({"providers": [{"name": "models"}]});
    assert_refused(
        harness.request("dana", "broken", provider).await,
        "spec.providers models: a provider is exactly one of",
    );
}
