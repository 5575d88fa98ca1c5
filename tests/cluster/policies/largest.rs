//! The largest gate that the schema allows: the cost of every rule stays within what the API server spends on a request.
//! These tests may not say who may decide, only that deciding remains possible.

use kube::ResourceExt;
use serde_json::{Value, json};
use signoff_api::Approval;

use super::stage::{Stage, said};

#[tokio::test]
async fn the_largest_gate_there_can_be_still_takes_votes() {
    let stage = Stage::open("largest").await;
    let names =
        |prefix: &str, count: usize| (0..count).map(|n| format!("{prefix}-{n}@example.com")).collect::<Vec<_>>();
    let subjects =
        |names: &[String]| names.iter().map(|name| json!({"kind": "User", "name": name})).collect::<Vec<_>>();
    let voters = names("voter", 64);
    let further: Vec<_> = (0..8)
        .map(|n| {
            json!({"source": "floor", "approvers": subjects(&names(&format!("further-{n}"), 64)), "threshold": 64,
            "excludeRequester": true,
            "requiredFrom": (0..8).map(|g| json!({"group": format!("group-{g}"), "min": 1})).collect::<Vec<_>>()})
        })
        .collect();
    let persons: Vec<_> = (0..32)
        .map(|n| json!({"pattern": format!("(.+)-{}@example\\.com", n + 100), "person": "$1"}))
        .chain([json!({"pattern": "(.+)@example\\.com", "person": "$1"})])
        .skip(1)
        .collect();
    let required_by: Vec<_> = (0..16)
        .map(|n| json!({"source": format!("ClusterApprovalPolicy p{n}"), "rules": vec!["a rule ".repeat(70).trim(); 10]}))
        .collect();
    let options: Vec<_> =
        (0..32).map(|n| json!({"id": format!("option-{n}"), "label": format!("The option {n}")})).collect();
    let questions: Vec<_> = (0..16)
        .map(|n| json!({"id": format!("q{n}"), "options": options, "allowText": true, "pattern": "([a-z]+ ?)+", "maxLength": 8000}))
        .collect();
    let approval = stage
        .ask(json!({"approvers": subjects(&voters), "further": further, "persons": persons, "excludeRequester": true,
            "excluded": names("excluded", 32), "form": {"questions": questions}, "threshold": 64,
            "closesAt": "2100-01-01T00:00:00Z", "requireReason": true, "requiredBy": required_by}))
        .await;
    let vote = async |n: usize, decision: Value| {
        let groups: Vec<_> = (0..200).map(|n| format!("some-group-of-a-large-company-{n}")).collect();
        let groups: Vec<_> = groups.iter().map(String::as_str).chain(["system:masters"]).collect();
        let client = stage.cluster.client(&voters[n], &groups).await.unwrap();
        let api: kube::Api<Approval> = kube::Api::namespaced(client, &stage.namespace.name);
        let patch = kube::api::Patch::Merge(json!({"spec": {"decisions": {&voters[n]: decision}}}));
        said(api.patch(&approval.name_any(), &Default::default(), &patch).await)
    };
    let answers: serde_json::Map<_, _> =
        (0..16).map(|n| (format!("q{n}"), json!({"text": "some words ".repeat(80).trim()}))).collect();
    vote(63, json!({"verdict": "Respond", "reason": "x".repeat(2000), "answers": answers})).await.unwrap();
    for n in 0..8 {
        let bulky = json!({"list": vec![json!({"a": [1, "two", {"b": "three"}]}); 150]});
        vote(n, json!({"verdict": "Modify", "reason": "y", "parameters": bulky})).await.unwrap();
    }
    vote(62, json!({"verdict": "Approve", "reason": "last"})).await.unwrap();
}
