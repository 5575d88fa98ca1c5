//! The two kinds themselves: the policies that the API server accepts, and the users who can write one.

use serde_json::{Value, json};

use super::harness::{Harness, gate};

fn cluster(spec: Value) -> Value {
    json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "ClusterApprovalPolicy",
        "metadata": {"generateName": "of-a-test-"}, "spec": spec})
}

fn own(spec: Value) -> Value {
    json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "ApprovalPolicy",
        "metadata": {"generateName": "of-a-test-"}, "spec": spec})
}

async fn create_dry_run(harness: &Harness, object: &Value) -> Result<String, String> {
    let words = ["create", "--dry-run=server", "--validate=strict", "-f", "-", "--namespace", &harness.namespace.name];
    let finished = harness.cluster.kubectl(words).input(object.to_string()).run().await.unwrap();
    if finished.code == 0 { Ok(finished.stdout) } else { Err(finished.stderr) }
}

#[tokio::test]
async fn an_invalid_policy_is_refused_with_the_remedy() {
    let harness = Harness::open("policies").await;
    let hitl = gate("x", json!({}))["hitl"].clone();
    let step = |fields: Value| {
        let mut step = json!({"name": "check", "hitl": hitl});
        for (field, value) in fields.as_object().into_iter().flatten() {
            step[field] = value.clone();
        }
        json!({"steps": [step]})
    };
    let person = |pattern: &str, person: &str| json!({"identities": [{"pattern": pattern, "person": person}]});
    let decider = |more: Value| {
        let mut deciders = json!({"approvers": [{"kind": "User", "name": "alice@example.com"}]});
        for (field, value) in more.as_object().into_iter().flatten() {
            deciders[field] = value.clone();
        }
        json!({"gates": {"deciders": deciders}})
    };
    for (spec, words) in [
        (step(json!({})), "give exactly one of at (Start or End) and before"),
        (
            step(json!({"at": "Start", "before": {"kinds": ["http"]}})),
            "give exactly one of at (Start or End) and before",
        ),
        (step(json!({"before": {"kinds": ["set"]}})), "Unsupported value"),
        (step(json!({"before": {"kinds": ["tool", "http"]}})), "tool stands alone"),
        (step(json!({"before": {"kinds": ["http"], "calls": {"changes": true}}})), "calls selects calls of tools"),
        (step(json!({"before": {"kinds": ["tool"], "calls": {"changes": false}}})), "Unsupported value"),
        (step(json!({"before": {"kinds": ["tool"], "calls": {"hosts": ["https://a.org/"]}}})), "should match"),
        (step(json!({"before": {"kinds": ["tool"], "calls": {"names": ["refund"]}}})), "unknown field"),
        (json!({"tools": {"never": [{}]}}), "each entry needs at least one field"),
        (json!({"tools": {"never": [{"images": ["*"], "methods": ["POST"]}]}}), "write two entries"),
        (person(r"\d+", "x"), "write [0-9] for"),
        (person("(?i)alice", "x"), "programs read them differently"),
        (person("[a&&b]", "x"), "programs read them differently"),
        (person("(", "x"), "regular expression (RE2)"),
        (person("a**", "x"), "regular expression (RE2)"),
        (person("(.+)@x", "$2"), "must not contain a $ except $1"),
        (person("(.+)@x", "$1x"), "must not contain a $ except $1"),
        (person("(a)(b)", "$1"), "exactly one group"),
        (decider(json!({"threshold": 2})), "threshold must not be larger than the number of approvers"),
        (decider(json!({"requiredFrom": [{"group": "sre", "min": 1}]})), "must be among the approvers"),
        (
            decider(json!({"approvers": [{"kind": "Group", "name": "system:authenticated"}]})),
            "must not start with system:",
        ),
        (json!({"allowedHosts": ["https://a.org/"]}), "should match"),
        (json!({"allowedHosts": ["a.*.org"]}), "should match"),
        (json!({"allowedSecrets": ["A/B"]}), "should match"),
        (json!({"gates": {"minThreshold": 0}}), "greater than or equal to 1"),
        (json!({"gates": {"maxVoteAge": "59s"}}), "maxVoteAge must be at least 1m"),
        (
            json!({"match": {"namespaceSelector": {"matchExpressions": [{"key": "env", "operator": "In"}]}}}),
            "In and NotIn need values",
        ),
    ] {
        match create_dry_run(&harness, &cluster(spec.clone())).await {
            Err(why) => assert!(why.contains(words), "{spec}: refused, but not because of {words:?}: {why}"),
            Ok(_) => panic!("{spec} was accepted"),
        }
    }
    let why = create_dry_run(&harness, &own(json!({"match": {"namespaceSelector": {}}}))).await.unwrap_err();
    assert!(why.contains("unknown field"), "a namespace's own policy holds in that namespace: {why}");
    let why =
        create_dry_run(&harness, &own(json!({"identities": [{"pattern": "a", "person": "a"}]}))).await.unwrap_err();
    assert!(why.contains("unknown field"), "who is who is not a namespace's to say: {why}");
    for spec in [
        json!({}),
        json!({"allowedHosts": [], "allowedSecrets": ["*"]}),
        json!({"allowedHosts": ["*.example.com", "[::1]:8080", "10.0.0.1", "api.example.com:443"]}),
        person(r"(.+)@example\.com", "$1"),
        step(json!({"before": {"kinds": ["tool"]}})),
        step(json!({"before": {"kinds": ["tool"], "calls": {"kinds": ["http", "set"], "changes": true}}})),
        json!({"tools": {"requireGate": true, "never": [{"methods": ["DELETE"]}, {"images": ["*:latest"]}]}}),
        step(json!({"at": "End"})),
        decider(json!({})),
    ] {
        create_dry_run(&harness, &cluster(spec.clone())).await.unwrap_or_else(|why| panic!("{spec}: {why}"));
    }
}

#[tokio::test]
async fn only_a_holder_of_the_role_can_write_policies_of_a_namespace() {
    let harness = Harness::open("policies").await;
    let policy = json!({"gates": {"minThreshold": 2, "maxVoteAge": "1m"}});
    for who in ["dana", "alice", "nina", "adam", "viktor", "mallory"] {
        for object in [own(policy.clone()), cluster(policy.clone())] {
            let refused = harness.create(who, &object).await.refused().unwrap();
            assert!(refused.contains("forbidden"), "{who}: {refused}");
        }
    }
    harness.namespace.bind("signoff-policy-admin", "viktor@example.com").await.unwrap();
    let mut refused = String::new();
    for _ in 0..1000 {
        let tried = harness.create("viktor", &own(policy.clone())).await;
        if tried.code == 0 {
            refused.clear();
            break;
        }
        refused = tried.stderr;
    }
    assert_eq!(refused, "", "a role that was bound is in force within a thousand questions");
    let refused = harness.create("viktor", &cluster(policy)).await.refused().unwrap();
    assert!(refused.contains("forbidden"), "{refused}");
}
