//! Tests of the merge of approval policies into a gate: each requirement alone, all of them together, and conflicts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;
use serde_json::{Value, json};
use signoff_api::{Verdict, gate::TimeoutAction, step::HitlStep};

use super::{gate::caution_rank, *};
use crate::{FieldError, Plan, Settings, gate::subject};

pub(super) fn cluster(policies: &[(&str, Value)]) -> Policies {
    policies_of(policies, &[])
}

/// Returns the policies of a cluster, `wide`, and of a namespace with the label `env: prod`, `own`.
pub(super) fn policies_of(wide: &[(&str, Value)], own: &[(&str, Value)]) -> Policies {
    let wide: Vec<(&str, ClusterApprovalPolicySpec)> =
        wide.iter().map(|(name, spec)| (*name, serde_json::from_value(spec.clone()).unwrap())).collect();
    let own: Vec<(&str, ApprovalPolicySpec)> =
        own.iter().map(|(name, spec)| (*name, serde_json::from_value(spec.clone()).unwrap())).collect();
    let labels = BTreeMap::from([("env".to_owned(), "prod".to_owned())]);
    Policies::of(&labels, wide.iter().map(|(n, s)| (*n, s)), own.iter().map(|(n, s)| (*n, s)))
}

/// Returns the `hitl` of a gate as an author writes it. `more`: further fields.
fn hitl_with(more: Value) -> HitlStep {
    let mut hitl = json!({"prompt": "go?", "approvers": [{"kind": "Group", "name": "finance"}, {"kind": "User", "name": "alice"}]});
    for (key, value) in more.as_object().unwrap() {
        hitl[key] = value.clone();
    }
    serde_json::from_value(hitl).unwrap()
}

const DANA: Requester<'_> = Requester { by: "dana", on_behalf_of: None, earlier: &[] };

fn merge_into(policies: &Policies, hitl: &HitlStep, requester: Requester<'_>) -> EffectiveGate {
    policies.merge_into(
        hitl,
        &subject::GateSubject::Step(Some(0)),
        requester,
        Settings::default().default_gate_timeout,
        None,
    )
}

/// Returns the gate `hitl` after its merge with one policy named `policy`, which has the requirements `gates`.
fn merged_gate(gates: Value, hitl: Value) -> EffectiveGate {
    merge_into(&cluster(&[("policy", json!({"gates": gates}))]), &hitl_with(hitl), DANA)
}

#[track_caller]
fn assert_demands(gate: &EffectiveGate, rule: &str) {
    let rules: Vec<_> = gate.required_by.iter().flat_map(|by| &by.rules).collect();
    assert!(rules.iter().any(|named| named.contains(rule)), "`{rule}` is not named in {rules:?}");
    assert!(gate.contradictions.is_empty(), "{:?}", gate.contradictions);
}

#[track_caller]
fn assert_contradicts(gate: &EffectiveGate, words: &str) {
    let found: Vec<_> = gate.contradictions.iter().map(|c| &c.message).collect();
    assert!(found.iter().any(|message| message.contains(words)), "no contradiction with `{words}` in {found:#?}");
}

#[test]
fn a_gate_is_unchanged_without_policies() {
    let hitl = hitl_with(json!({"timeout": {"after": "1h", "action": "Approve"}}));
    let gate = merge_into(&Policies::default(), &hitl, DANA);
    assert_eq!(gate.hitl, hitl);
    assert_eq!(gate.allowed, subject::verdicts_of_gate(&hitl, &subject::GateSubject::Step(Some(0))));
    assert!(gate.policy_quorums.is_empty() && gate.persons.is_empty() && gate.required_by.is_empty());
}

#[test]
fn deciders_of_a_policy_are_an_additional_quorum() {
    let gate = merged_gate(
        json!({"deciders": {"approvers": [{"kind": "Group", "name": "security"}], "excludeRequester": true}}),
        json!({}),
    );
    assert_demands(&gate, "1 person out of group security must agree too, without the requester");
    let [quorum] = gate.policy_quorums.as_slice() else { panic!("{:?}", gate.policy_quorums) };
    assert_eq!(quorum.source, "ClusterApprovalPolicy policy");
    assert_eq!(quorum.exclude_requester, Some(true));
    assert_eq!(gate.hitl.exclude_requester, None, "the gate's own quorum is its author's");
}

#[test]
fn each_requirement_tightens_its_field_and_is_named() {
    let gate = merged_gate(json!({"minThreshold": 2}), json!({}));
    assert_demands(&gate, "at least 2 people");
    assert_eq!(gate.hitl.threshold, Some(2));
    assert_eq!(merged_gate(json!({"minThreshold": 2}), json!({"threshold": 3})).hitl.threshold, Some(3));

    let gate = merged_gate(json!({"requiredFrom": [{"group": "finance", "min": 1}]}), json!({}));
    assert_demands(&gate, "1 of group finance");
    assert_eq!(gate.hitl.required_from.len(), 1);
    let more = json!({"requiredFrom": [{"group": "finance", "min": 2}]});
    assert_eq!(
        merged_gate(json!({"requiredFrom": [{"group": "finance", "min": 1}]}), more).hitl.required_from[0].min,
        2
    );

    let gate = merged_gate(json!({"excludeRequester": true}), json!({"excludeRequester": false}));
    assert_demands(&gate, "the requester does not decide");
    assert_eq!(gate.hitl.exclude_requester, Some(true));

    let gate = merged_gate(
        json!({"maxTimeout": "2h"}),
        json!({"timeout": {"after": "9h", "action": "Escalate",
        "escalation": [{"after": "8h", "to": [{"kind": "User", "name": "olga"}]}, {"to": [{"kind": "User", "name": "otto"}]}]}}),
    );
    assert_demands(&gate, "people have at most 2h (the gate gives 9h)");
    let timeout = gate.hitl.timeout.unwrap();
    assert_eq!(timeout.after.unwrap().to_string(), "2h");
    let levels: Vec<_> = timeout.escalation.iter().map(|l| l.after.map(|after| after.to_string())).collect();
    assert_eq!(levels, [Some("2h".to_owned()), None]);
    let usual = merged_gate(json!({"maxTimeout": "2h"}), json!({}));
    assert_eq!(usual.hitl.timeout.unwrap().after.unwrap().to_string(), "2h", "the operator's default is cut too");
}

#[test]
fn the_shortest_age_of_votes_of_all_policies_applies_and_each_is_named() {
    let rules = |gates: Value| json!({"gates": gates});
    let policies = cluster(&[
        ("a", rules(json!({"maxVoteAge": "4h"}))),
        ("b", rules(json!({"maxVoteAge": "90m", "maxTimeout": "3h"}))),
        ("c", rules(json!({"maxVoteAge": "2h"}))),
    ]);
    let gate = merge_into(&policies, &hitl_with(json!({})), DANA);
    assert_eq!(gate.max_vote_age.map(|age| age.to_string()), Some("1h30m".to_owned()));
    for rule in ["votes count together for 4h", "votes count together for 1h30m", "votes count together for 2h"] {
        let named = gate.required_by.iter().flat_map(|by| &by.rules).any(|said| said.contains(rule));
        assert!(named, "{rule}: {:?}", gate.required_by);
    }
    assert_eq!(merged_gate(json!({"minThreshold": 1}), json!({})).max_vote_age, None);
}

#[test]
fn verdicts_are_intersected_and_reject_and_abort_stay() {
    let gate = merged_gate(json!({"allowedVerdicts": ["Approve", "Escalate"]}), json!({}));
    assert_demands(&gate, "nothing but Approve, Escalate");
    assert_eq!(gate.allowed, [Verdict::Approve, Verdict::Reject, Verdict::Abort]);
    assert_eq!(gate.form, None, "nobody may respond, so nothing is to be filled in");
}

#[test]
fn a_forbidden_timeout_action_becomes_the_next_more_cautious_one() {
    let action = |policy: Value, own: Value| {
        let gate = merged_gate(json!({"timeoutActions": policy}), json!({"timeout": own}));
        (gate.hitl.timeout.and_then(|t| t.action), gate.contradictions.len())
    };
    let approve = json!({"action": "Approve"});
    assert_eq!(action(json!(["Abort", "Reject"]), approve.clone()), (Some(TimeoutAction::Reject), 0));
    assert_eq!(action(json!(["Reject", "Approve"]), approve.clone()), (Some(TimeoutAction::Approve), 0));
    assert_eq!(
        action(json!(["Escalate", "Skip"]), approve.clone()),
        (Some(TimeoutAction::Skip), 0),
        "nobody to escalate to"
    );
    assert_eq!(action(json!(["Expire"]), approve), (Some(TimeoutAction::Expire), 0));
    // A policy of the namespace cannot loosen one of the cluster.
    assert_eq!(action(json!(["Approve", "Skip"]), json!({"action": "Reject"})), (Some(TimeoutAction::Reject), 1));
    assert_eq!(action(json!(["Abort"]), json!({})), (Some(TimeoutAction::Abort), 0));
    let gate = merged_gate(json!({"timeoutActions": ["Reject"]}), json!({"timeout": {"action": "Approve"}}));
    assert_demands(&gate, "a timeout does nothing but Reject (the gate says Approve)");
}

#[test]
fn a_default_answer_is_given_only_when_respond_is_allowed() {
    let gate = merged_gate(
        json!({"allowedVerdicts": ["Approve"]}),
        json!({"allowedVerdicts": ["Approve", "Respond", "Reject"], "timeout": {"action": "Default", "default": "yes"}}),
    );
    let timeout = gate.hitl.timeout.unwrap();
    assert_eq!((timeout.action, timeout.default), (Some(TimeoutAction::Reject), None));
}

#[test]
fn several_people_do_not_answer_in_free_text() {
    let gate = merged_gate(json!({"minThreshold": 2}), json!({}));
    assert!(!gate.allowed.contains(&Verdict::Respond), "by default it is left out");
    let gate = merged_gate(json!({"minThreshold": 2}), json!({"allowedVerdicts": ["Approve", "Respond"]}));
    assert_contradicts(&gate, "ClusterApprovalPolicy policy requires several people, and Respond with free text");
}

#[test]
fn an_unreachable_requirement_names_the_policy_and_the_remedy() {
    let named = json!({"approvers": [{"kind": "User", "name": "alice"}, {"kind": "User", "name": "dana"}]});
    assert_contradicts(
        &merged_gate(json!({"minThreshold": 3}), named.clone()),
        "2 of the listed approvers can decide: list more people",
    );
    assert_contradicts(
        &merged_gate(json!({"minThreshold": 2, "excludeRequester": true}), named),
        "1 of the listed approvers",
    );
    assert_contradicts(
        &merged_gate(json!({"requiredFrom": [{"group": "legal", "min": 1}]}), json!({})),
        "group legal, which is not among",
    );
    assert_contradicts(
        &merged_gate(json!({"allowedVerdicts": ["Skip"]}), json!({"allowedVerdicts": ["Approve", "Reject"]})),
        "no verdict is left with which the run could continue",
    );
    let own = json!({"deciders": {"approvers": [{"kind": "User", "name": "dana"}], "excludeRequester": true}});
    assert_contradicts(
        &merged_gate(own, json!({})),
        "requires 1 person of its own quorum, and only 0 of the approvers",
    );
    // People whom the gate's own quorum excludes cannot vote at all.
    let dana = json!({"deciders": {"approvers": [{"kind": "User", "name": "dana"}]}});
    assert!(merged_gate(dana.clone(), json!({})).contradictions.is_empty());
    assert_contradicts(
        &merged_gate(dana, json!({"excludeRequester": true})),
        "and only 0 of the approvers that it lists can decide",
    );
}

#[test]
fn a_service_account_as_requester_cannot_be_excluded() {
    let policies = cluster(&[("policy", json!({"gates": {"excludeRequester": true}}))]);
    let machine = Requester { by: "system:serviceaccount:ci:bot", on_behalf_of: None, earlier: &[] };
    let gate = merge_into(&policies, &hitl_with(json!({})), machine);
    assert_eq!(gate.contradictions[0].reason, "RequesterIsMachine");
    let for_erin = Requester { on_behalf_of: Some("erin"), ..machine };
    assert!(merge_into(&policies, &hitl_with(json!({})), for_erin).contradictions.is_empty());
}

#[test]
fn requirements_beyond_the_limits_of_a_request_are_a_contradiction() {
    let deciders = json!({"gates": {"deciders": {"approvers": [{"kind": "Group", "name": "security"}]}}});
    let names: Vec<String> = (0..9).map(|n| format!("p{n}")).collect();
    let policies: Vec<_> = names.iter().map(|name| (name.as_str(), deciders.clone())).collect();
    assert_contradicts(
        &merge_into(&cluster(&policies), &hitl_with(json!({})), DANA),
        "at most 8 quorums besides its own",
    );
    assert!(merge_into(&cluster(&policies[..8]), &hitl_with(json!({})), DANA).contradictions.is_empty());
}

#[test]
fn identities_limit_who_counts_and_two_different_lists_are_a_contradiction() {
    let rules = json!([{"pattern": "oidc:(.+)", "person": "$1"}, {"pattern": "alice", "person": "alice"}]);
    let one = ("one", json!({"identities": rules}));
    let gate = merge_into(&cluster(std::slice::from_ref(&one)), &hitl_with(json!({})), DANA);
    assert_demands(&gate, "only people whom its identities name count, each once");
    assert_eq!(gate.persons.len(), 2);
    let two_names = hitl_with(json!({"threshold": 2,
        "approvers": [{"kind": "User", "name": "alice"}, {"kind": "User", "name": "oidc:alice"}]}));
    assert_contradicts(
        &merge_into(&cluster(std::slice::from_ref(&one)), &two_names, DANA),
        "requires 2 people here, and only 1 of the listed",
    );
    let unknown = hitl_with(json!({"approvers": [{"kind": "User", "name": "bob"}]}));
    assert_contradicts(&merge_into(&cluster(std::slice::from_ref(&one)), &unknown, DANA), "and only 0 of the listed");
    let two = ("two", json!({"identities": [{"pattern": "bob", "person": "bob"}]}));
    assert_contradicts(
        &merge_into(&cluster(&[one.clone(), two]), &hitl_with(json!({})), DANA),
        "put all of them into one",
    );
    assert!(
        merge_into(&cluster(&[one.clone(), ("same", one.1)]), &hitl_with(json!({})), DANA).contradictions.is_empty()
    );
}

#[test]
fn matching_policies_of_the_cluster_come_first() {
    let policies = policies_of(
        &[
            ("zeta", json!({"gates": {"minThreshold": 2}})),
            (
                "dev",
                json!({"match": {"namespaceSelector": {"matchLabels": {"env": "dev"}}}, "gates": {"minThreshold": 5}}),
            ),
            (
                "alpha",
                json!({"match": {"namespaceSelector": {"matchLabels": {"env": "prod"}}, "gateTypes": ["step"]}, "gates": {"minThreshold": 1}}),
            ),
        ],
        &[("beta", json!({"gates": {"minThreshold": 3}}))],
    );
    let gate = merge_into(&policies, &hitl_with(json!({})), DANA);
    let sources: Vec<_> = gate.required_by.iter().map(|by| by.source.as_str()).collect();
    assert_eq!(sources, ["ClusterApprovalPolicy alpha", "ClusterApprovalPolicy zeta", "ApprovalPolicy beta"]);
    assert_eq!(gate.hitl.threshold, Some(3));
}

#[test]
fn hosts_and_secrets_must_be_allowed_by_every_policy() {
    let policies = policies_of(
        &[("prod", json!({"allowedHosts": ["*.example.com", "10.0.0.1:8080"], "allowedSecrets": ["models-*", "key"]}))],
        &[("strict", json!({"allowedHosts": ["api.example.com", "10.0.0.1"]}))],
    );
    for url in
        ["https://api.example.com/x", "https://API.example.com.:8443", "http://10.0.0.1:8080", "http://167772161:8080/"]
    {
        assert_eq!(policies.refuses_url(url), None, "{url}");
    }
    for url in [
        "https://www.example.com",
        "http://10.0.0.1",
        "https://api.example.com@evil.org/",
        "no url",
        "data:x",
        "file:///etc",
    ] {
        let why = policies.refuses_url(url).unwrap_or_else(|| panic!("{url} is allowed"));
        assert!(why.contains("ApprovalPolicy"), "{why}");
    }
    assert_eq!(policies.refuses_secret("models-eu"), None);
    assert_eq!(policies.refuses_secret("key"), None);
    let container = |secret: &str| {
        let volume = json!({"name": "v", "mountPath": "/v", "secret": {"secretName": secret}});
        let pod = json!({"image": "x", "volumes": [volume]});
        policies.refuses_container(&serde_json::from_value(pod).unwrap())
    };
    assert_eq!(container("models-eu"), None);
    assert!(container("root-key").unwrap().contains("Secret root-key is not allowed by"));
    assert!(
        policies.refuses_secret("keys").unwrap().contains("ClusterApprovalPolicy prod (allowedSecrets: models-*, key)")
    );
    assert!(
        cluster(&[("none", json!({"allowedHosts": []}))])
            .refuses_url("https://a.org")
            .unwrap()
            .contains("allowedHosts: none")
    );
}

#[test]
fn a_host_is_fixed_when_no_template_can_change_it() {
    assert_eq!(fixed_host("https://a.org/x"), Some("https://a.org/x"));
    assert_eq!(fixed_host("https://a.org/{{ x }}"), Some("https://a.org/"));
    assert_eq!(fixed_host("https://a.org?{{ x }}"), Some("https://a.org?"));
    for open in ["https://a.org{{ x }}", "https://{{ x }}/", "{{ x }}", "https://a.org:{% if x %}1{% endif %}/"] {
        assert_eq!(fixed_host(open), None, "{open}");
    }
}

pub(super) fn errors(policies: Policies, spec: Value) -> Vec<FieldError> {
    let workflow = serde_json::from_value(json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"}, "spec": spec,
    }))
    .unwrap();
    Plan::of(&workflow, &Settings::default(), &std::sync::Arc::new(policies)).err().unwrap_or_default()
}

#[test]
fn a_spec_that_policies_forbid_is_refused_before_the_run() {
    let policies = cluster(&[(
        "prod",
        json!({"allowedHosts": ["a.org"], "allowedSecrets": ["models"], "gates": {"minThreshold": 2}}),
    )]);
    let found = errors(
        policies,
        json!({
            "requestedBy": "dana",
            "secrets": [{"name": "root", "secret": "root", "key": "k"}],
            "providers": [
                {"name": "p", "openai": {"baseURL": "https://a.org/v1", "key": "root"}},
                {"name": "q", "openai": {"baseURL": "https://evil.org/v1"}},
                {"name": "r", "openai": {}},
            ],
            "steps": [
                {"name": "fixed", "http": {"url": "https://evil.org/x"}},
                {"name": "open", "http": {"url": "https://{{ last_response }}/"}},
                {"name": "gate", "hitl": {"prompt": "go?", "approvers": [{"kind": "User", "name": "alice"}]}},
            ],
        }),
    );
    let told: Vec<_> = found.iter().map(|c| (c.reason, c.field.as_str())).collect();
    assert_eq!(
        told,
        [
            ("NotAllowed", "spec.secrets[0]"),
            ("NotAllowed", "spec.providers[1]"),
            ("NotAllowed", "spec.providers[2]"),
            ("NotAllowed", "spec.steps[0].http.url"),
            ("PolicyConflict", "spec.steps[2].hitl.approvers"),
        ]
    );
}

#[test]
fn an_added_gate_needs_a_name_of_its_own() {
    let hitl = json!({"prompt": "go?", "approvers": [{"kind": "Group", "name": "g"}]});
    let policies = cluster(&[("prod", json!({"steps": [{"name": "review", "at": "Start", "hitl": hitl}]}))]);
    let found = errors(policies, json!({"requestedBy": "dana", "steps": [{"name": "review", "set": {"value": "x"}}]}));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].reason, "PolicyConflict");
    assert!(found[0].message.contains("ClusterApprovalPolicy prod adds a gate named review"), "{found:?}");
}

fn policy() -> impl Strategy<Value = Value> {
    let some =
        |values: &'static [&'static str]| proptest::option::of(proptest::sample::subsequence(values, 1..=values.len()));
    (
        proptest::option::of(1..4_i32),
        any::<bool>(),
        some(&["Approve", "Reject", "Modify", "Respond", "Abort", "Skip"]),
        some(&["Reject", "Abort", "Approve", "Skip", "Default", "Expire", "Escalate"]),
        proptest::option::of(1..48_i32),
        proptest::option::of(1..3_i32),
        any::<bool>(),
    )
        .prop_map(|(least, exclude, verdicts, actions, hours, from, deciders)| {
            let mut gates = json!({"excludeRequester": exclude});
            let mut set = |key: &str, value: Option<Value>| {
                if let Some(value) = value {
                    gates[key] = value;
                }
            };
            set("minThreshold", least.map(Value::from));
            set("allowedVerdicts", verdicts.map(Value::from));
            set("timeoutActions", actions.map(Value::from));
            set("maxTimeout", hours.map(|hours| json!(format!("{hours}h"))));
            set("requiredFrom", from.map(|min| json!([{"group": "finance", "min": min}])));
            set("deciders", deciders.then(|| json!({"approvers": [{"kind": "Group", "name": "security"}]})));
            json!({"gates": gates})
        })
}

fn is_at_least_as_strict(strict: &EffectiveGate, lax: &EffectiveGate) -> bool {
    let after = |gate: &EffectiveGate| {
        gate.hitl
            .timeout
            .as_ref()
            .and_then(|t| t.after)
            .map_or(Settings::default().default_gate_timeout, |a| a.duration())
    };
    let action =
        |gate: &EffectiveGate| caution_rank(gate.hitl.timeout.as_ref().and_then(|t| t.action).unwrap_or_default());
    strict.hitl.threshold.unwrap_or(1) >= lax.hitl.threshold.unwrap_or(1)
        && (strict.hitl.exclude_requester == Some(true) || lax.hitl.exclude_requester != Some(true))
        && strict.allowed.iter().all(|verdict| lax.allowed.contains(verdict))
        && lax.policy_quorums.iter().all(|quorum| strict.policy_quorums.contains(quorum))
        && lax
            .hitl
            .required_from
            .iter()
            .all(|l| strict.hitl.required_from.iter().any(|s| s.group == l.group && s.min >= l.min))
        && after(strict) <= after(lax)
        && (action(strict) <= action(lax) || !strict.contradictions.is_empty())
        && (lax.contradictions.is_empty() || !strict.contradictions.is_empty())
}

proptest! {
    #[test]
    fn merging_can_only_tighten_and_its_order_does_not_matter(
        policies in proptest::collection::vec(policy(), 1..4),
        own in proptest::sample::select(vec!["Reject", "Approve", "Skip", "Default", "Abort"]),
        threshold in 1..3_i32,
    ) {
        println!("tried: 1 property cases");
        let hitl = hitl_with(json!({"threshold": threshold, "timeout": {"action": own, "after": "20h"},
            "form": {"questions": [{"id": "answer", "options": [{"id": "yes"}], "default": "yes"}]}}));
        let named = |order: &[usize]| {
            let names = ["p0", "p1", "p2"];
            let list: Vec<_> = order.iter().enumerate().map(|(at, policy)| (names[at], policies[*policy].clone())).collect();
            merge_into(&cluster(&list), &hitl, DANA)
        };
        let forwards: Vec<usize> = (0..policies.len()).collect();
        let backwards: Vec<usize> = forwards.iter().rev().copied().collect();
        let (one, other) = (named(&forwards), named(&backwards));
        prop_assert_eq!(&one.hitl, &other.hitl);
        prop_assert_eq!(&one.allowed, &other.allowed);
        prop_assert_eq!(one.policy_quorums.len(), other.policy_quorums.len());
        prop_assert_eq!(one.contradictions.is_empty(), other.contradictions.is_empty());
        prop_assert!(is_at_least_as_strict(&one, &merge_into(&Policies::default(), &hitl, DANA)));
        for fewer in 1..policies.len() {
            prop_assert!(is_at_least_as_strict(&one, &named(&forwards[..fewer])), "{one:?}");
        }
    }
}
