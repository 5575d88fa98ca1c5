//! Tests of the sentences about policies.
#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;

#[test]
fn policy_has_a_sentence_for_each_demand() {
    let spec: ClusterApprovalPolicySpec = serde_json::from_value(json!({
        "match": {
            "namespaceSelector": {
                "matchLabels": {"env": "prod"},
                "matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["lab"]}, {"key": "paused", "operator": "DoesNotExist"}],
            },
            "gateTypes": ["stepStart"],
        },
        "identities": [{"pattern": "(.+)-admin@example.com", "person": "$1"}],
        "gates": {
            "deciders": {
                "approvers": [{"kind": "Group", "name": "risk"}, {"kind": "ServiceAccount", "name": "bot", "namespace": "ci"}],
                "threshold": 2, "requiredFrom": [{"group": "risk", "min": 1}], "excludeRequester": true, "rejectPolicy": "threshold",
            },
            "minThreshold": 2, "requiredFrom": [{"group": "finance", "min": 1}], "excludeRequester": true,
            "allowedVerdicts": ["Approve", "Reject"], "timeoutActions": ["Reject", "Abort"], "maxTimeout": "24h",
        },
        "steps": [{"name": "release", "before": {"kinds": ["http", "egress"]}, "hitl": {"prompt": "Go?", "approvers": [{"kind": "Group", "name": "ops"}], "threshold": 2}}],
        "allowedHosts": ["*.example.com"],
        "allowedSecrets": [],
    }))
    .unwrap();
    let words = of_cluster(&spec);
    assert_eq!(
        words.applies,
        [
            "namespaces with env=prod and label team absent or none of lab and no label paused",
            "only gates of these types: steps before they start"
        ]
    );
    assert_eq!(
        words.who.as_deref(),
        Some(
            "2 people, 1 of group risk, as many for Reject, not the requester out of group risk, service account ci/bot must agree too"
        )
    );
    assert_eq!(
        words.demands,
        [
            "at least 2 people of those whom the gate names must agree",
            "at least 1 of group finance must be among them",
            "the requester does not decide",
            "nothing but Approve, Reject can be decided; Reject and Abort stay wherever a gate has them",
            "when the deadline passes, nothing happens but: it is rejected; the run is aborted",
            "people have at most 24h",
            "a Reject ends the run",
            "the gate release is added before every HTTP request and every step that sends data out: 2 people out of group ops must agree",
            "http steps, MCP servers and model providers may connect to: *.example.com",
            "a run may use the Secrets: none",
            "only these people count, each once; user names and who they are: (.+)-admin@example.com is $1",
        ]
    );
}

#[test]
fn empty_policy_has_no_demands() {
    let words = of_namespace(&ApprovalPolicySpec::default(), "finance");
    assert_eq!(
        words,
        Words { applies: vec!["namespace finance".into(), "every gate".into()], who: None, demands: Vec::new() }
    );
    assert_eq!(of_cluster(&ClusterApprovalPolicySpec::default()).applies, ["every namespace", "every gate"]);
}

#[test]
fn rules_for_tools_have_sentences() {
    let spec: ClusterApprovalPolicySpec = serde_json::from_value(json!({
        "tools": {"requireGate": true, "never": [{"methods": ["DELETE"]}, {"hosts": ["*.prod.example"], "changes": true}]},
        "steps": [{"name": "guard", "before": {"kinds": ["tool"], "calls": {"kinds": ["http"]}},
                   "hitl": {"prompt": "Go?", "approvers": [{"kind": "Group", "name": "ops"}]}}],
    }))
    .unwrap();
    let demands = of_cluster(&spec).demands;
    let expected = [
        "the gate guard is added before calls of tools that are http steps: 1 person out of group ops must agree",
        "a gate must always ask about calls of tools that can change something",
        "no agent may make calls of tools, with DELETE",
        "no agent may make calls of tools, to *.prod.example, that can change something",
    ];
    assert_eq!(demands, expected);
}
