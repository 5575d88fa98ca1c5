//! The largest gate that the schema allows: every rule costs at most half of the API server's budget for a request, so
//! that no gate is too expensive to be decided.

use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Map, Value, json};
use signoff_api::{Approval, ApprovalRequest, Decision, Verdict};

use super::harness::{Answer, Harness, count_votes, to_answer};

const GROUP: &str = "admissionregistration.k8s.io";

/// Returns a name of the greatest length, which begins with `prefix`.
fn longest_name(prefix: &str, n: usize) -> String {
    let pad = "x".repeat(253 - "-00@example.com".len() - prefix.len());
    format!("{prefix}{pad}-{n:02}@example.com")
}

fn longest_names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| longest_name(prefix, n)).collect()
}

fn items(value: &mut Value) -> impl Iterator<Item = &mut Value> {
    value.as_array_mut().into_iter().flatten()
}

/// Changes a policy so that each expression is evaluated twice, except for an expression with one of the words of
/// `once`.
fn double_expressions(spec: &mut Value, once: &[&str]) {
    let again = |expression: &mut Value, form: &dyn Fn(&str) -> String| {
        let text = expression.as_str().expect("an expression");
        if !once.iter().any(|word| text.contains(word)) {
            *expression = json!(form(text));
        }
    };
    let value = |e: &str| format!("[({e}), ({e})][0]");
    let both = |e: &str| format!("({e}) && ({e})");
    items(&mut spec["variables"]).for_each(|variable| again(&mut variable["expression"], &value));
    items(&mut spec["validations"]).for_each(|rule| again(&mut rule["expression"], &both));
    items(&mut spec["matchConditions"]).for_each(|condition| again(&mut condition["expression"], &both));
    items(&mut spec["auditAnnotations"]).for_each(|note| again(&mut note["valueExpression"], &value));
}

/// Creates a copy of a shipped policy, bound to the test's namespace. The copy costs twice as much, so it refuses a
/// request that costs the shipped policy more than half of the budget.
async fn add_doubled(harness: &Harness, kind: &str, name: &str, once: &[&str], change: impl FnOnce(&mut Value)) {
    let admin = harness.cluster.admin().await.unwrap();
    let api = |kind: &str| -> Api<DynamicObject> {
        Api::all_with(admin.clone(), &ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1", kind)))
    };
    let copy = format!("doubled-{name}-{}", harness.namespace.name);
    let mut policy = serde_json::to_value(api(kind).get(name).await.unwrap()).unwrap();
    policy["metadata"] = json!({"name": copy});
    change(&mut policy["spec"]);
    double_expressions(&mut policy["spec"], once);
    api(kind).create(&PostParams::default(), &serde_json::from_value(policy).unwrap()).await.unwrap();
    let bindings = api(&format!("{kind}Binding"));
    let mut binding = serde_json::to_value(bindings.get(name).await.unwrap()).unwrap();
    binding["metadata"] = json!({"name": copy});
    binding["spec"]["policyName"] = json!(copy);
    binding["spec"]["matchResources"] =
        json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": harness.namespace.name}}});
    bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
}

fn subjects(kind: &str, names: &[String]) -> Vec<Value> {
    let namespace = (kind == "ServiceAccount").then(|| "n".repeat(63));
    let subject = |name| json!({"kind": kind, "name": name, "namespace": namespace});
    names.iter().map(subject).collect()
}

/// Returns the groups of one quorum: its approvers, and those that its rules require.
fn groups_of(quorum: usize) -> [Vec<String>; 2] {
    [longest_names(&format!("approvers{quorum}"), 64), longest_names(&format!("required{quorum}"), 8)]
}

/// Returns a request at the bounds of the schema whose nine quorums all have groups, and no group twice.
fn request_to_groups() -> Value {
    let mut request = largest_request(&[]);
    let quorum = |n| {
        let [approvers, required] = groups_of(n);
        let required: Vec<_> = required.iter().map(|group| json!({"group": group, "min": 1})).collect();
        (json!(subjects("Group", &approvers)), json!(required))
    };
    (request["approvers"], request["requiredFrom"]) = quorum(0);
    for (n, further) in items(&mut request["further"]).enumerate() {
        (further["approvers"], further["requiredFrom"]) = quorum(n + 1);
    }
    request
}

/// Returns a request at the bounds of the schema: nine quorums of 64 people, groups and service accounts.
fn largest_request(voters: &[String]) -> Value {
    let further: Vec<_> = (0..8)
        .map(|n| {
            let kind = if n % 2 == 0 { "Group" } else { "ServiceAccount" };
            let required: Vec<_> = longest_names("required", 8).iter().map(|group| json!({"group": group, "min": 1})).collect();
            json!({"source": "ClusterApprovalPolicy ".to_owned() + &"p".repeat(63), "threshold": 64, "excludeRequester": true,
                "approvers": subjects(kind, &longest_names(&format!("further{n}"), 64)), "requiredFrom": required})
        })
        .collect();
    let pattern = |n: usize| {
        let (open, close) = ("(.+)", format!("-{n:03}@example[.]com"));
        json!({"pattern": format!("{open}{}{close}", "y".repeat(253 - open.len() - close.len())), "person": "$1"})
    };
    let persons: Vec<_> =
        (0..31).map(pattern).chain([json!({"pattern": "(.+)@example[.]com", "person": "$1"})]).collect();
    let required_by: Vec<_> = (0..16)
        .map(|n| json!({"source": format!("ClusterApprovalPolicy p{n}"), "rules": vec!["a rule ".repeat(70).trim(); 10]}))
        .collect();
    let options: Vec<_> = (0..32)
        .map(|n| json!({"id": format!("{}-{n:02}", "o".repeat(60)), "label": longest_name("label", n)}))
        .collect();
    let pattern = format!("([a-z]+ ?)+{}", "([a-z]+ ?)*".repeat(40));
    let questions: Vec<_> = (0..16)
        .map(|n| json!({"id": format!("q{n}"), "options": options, "allowText": true, "pattern": pattern, "maxLength": 8000}))
        .collect();
    json!({"approvers": subjects("User", voters), "further": further, "persons": persons, "excludeRequester": true,
        "excluded": longest_names("excluded", 32), "form": {"questions": questions}, "threshold": 64,
        "requestedBy": longest_name("requester", 0), "requestedFor": longest_name("principal", 0),
        "earlierRequesters": longest_names("earlier", 16),
        "closesAt": "2100-01-01T00:00:00Z", "requireReason": true, "requiredBy": required_by})
}

/// Returns the Approvals as a voter in 200 groups of the longest names that a vote can hold.
async fn connect_as_voter(harness: &Harness, user: &str) -> Api<Approval> {
    let groups = longest_names("member", 100).into_iter().chain(longest_names("memberof", 100));
    connect_in_groups(harness, user, &groups.collect::<Vec<_>>()).await
}

/// Returns the Approvals as a user in these groups with all rights.
async fn connect_in_groups(harness: &Harness, user: &str, groups: &[String]) -> Api<Approval> {
    let groups: Vec<&str> = groups.iter().map(String::as_str).chain(["system:masters"]).collect();
    Api::namespaced(harness.cluster.client(user, &groups).await.unwrap(), &harness.namespace.name)
}

async fn vote(harness: &Harness, user: &str, approval: &Approval, decision: Value) -> Answer<Approval> {
    decide(connect_as_voter(harness, user).await, user, approval, decision).await
}

async fn decide(api: Api<Approval>, user: &str, approval: &Approval, decision: Value) -> Answer<Approval> {
    let patch = Patch::Merge(json!({"spec": {"decisions": {user: decision}}}));
    to_answer(api.patch(&approval.name_any(), &PatchParams::default(), &patch).await)
}

/// Waits until a doubled policy is enforced: it refuses a label that the shipped rules accept.
async fn wait_until_enforced(harness: &Harness, user: &str, approval: &Approval) {
    let api = connect_as_voter(harness, user).await;
    let label = Patch::Merge(json!({"metadata": {"labels": {"canary": "x"}}}));
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    for _ in 0..1000 {
        match to_answer(api.patch(&approval.name_any(), &dry, &label).await) {
            Ok(_) => {}
            Err(why) if why.contains("the doubled rules are in force") => return,
            Err(why) => panic!("{why}"),
        }
    }
    panic!("the doubled rules are not in force after 1000 requests");
}

#[tokio::test]
async fn the_largest_vote_at_the_largest_gate_costs_at_most_half_of_every_budget() {
    let harness = Harness::open("largest").await;
    let voters = longest_names("voter", 64);
    let approval = harness.ask(largest_request(&voters)).await;
    add_doubled(&harness, "MutatingAdmissionPolicy", "signoff-voter-groups", &[], |spec| {
        // The shipped policy has already named the groups, or comes later.
        let conditions = spec["matchConditions"].as_array_mut().unwrap();
        conditions.retain(|condition| condition["name"] != "votes-without-groups");
        assert_eq!(conditions.len(), 2);
    })
    .await;
    add_doubled(&harness, "ValidatingAdmissionPolicy", "signoff-approvals", &[], |spec| {
        let canary = json!({"expression": "!has(object.metadata.labels) || !('canary' in object.metadata.labels)",
            "message": "the doubled rules are in force"});
        spec["validations"].as_array_mut().unwrap().insert(0, canary);
    })
    .await;
    wait_until_enforced(&harness, &voters[0], &approval).await;

    let answers: Map<_, _> =
        (0..16).map(|n| (format!("q{n}"), json!({"text": "some words ".repeat(80).trim()}))).collect();
    let answer = json!({"verdict": "Respond", "reason": "x".repeat(2000), "answers": answers});
    vote(&harness, &voters[63], &approval, answer.clone()).await.unwrap();
    for user in &voters[..8] {
        let bulky = json!({"list": vec![json!({"a": [1, "two", {"b": "three"}]}); 150]});
        vote(&harness, user, &approval, json!({"verdict": "Modify", "reason": "y", "parameters": bulky}))
            .await
            .unwrap();
    }
    for (user, verdict) in voters[8..].iter().zip(["Approve", "Reject", "Abort"]) {
        vote(&harness, user, &approval, json!({"verdict": verdict, "reason": "last"})).await.unwrap();
    }

    // The Approval has the longest edits of a call and the longest small decisions.
    let mut call = largest_request(&voters);
    call["action"] = json!({"kind": "toolCall", "agent": "clerk", "tool": "refund"});
    call["threshold"] = json!(2);
    items(&mut call["further"]).for_each(|quorum| quorum["threshold"] = json!(2));
    let approval = harness.ask(call).await;
    let bulky = json!({"list": vec![json!({"a": [1, "two", {"b": "three"}]}); 150]});
    let bulky = json!({"verdict": "Modify", "reason": "y", "parameters": bulky});
    let edit = json!({"verdict": "Modify", "reason": "y", "parameters": {"arguments": "\"[1]".repeat(18_000)}});
    for (user, decision) in voters.iter().zip([&bulky, &bulky, &bulky, &edit, &edit]) {
        vote(&harness, user, &approval, decision.clone()).await.unwrap();
    }
    for (user, verdict) in voters[8..].iter().zip(["Approve", "Reject", "Abort"]) {
        vote(&harness, user, &approval, json!({"verdict": verdict, "reason": "last"})).await.unwrap();
    }

    // This voter is in every group that the request names.
    let approval = harness.ask(request_to_groups()).await;
    let groups: Vec<String> = (0..ApprovalRequest::MAX_QUORUMS).flat_map(groups_of).flatten().collect();
    for (user, decision) in voters.iter().zip([answer, approve(), json!({"verdict": "Reject", "reason": "last"})]) {
        let api = connect_in_groups(&harness, user, &groups).await;
        let stored = decide(api, user, &approval, decision).await.unwrap();
        let named = &stored.spec.decisions[user].groups;
        assert_eq!((named.len(), named), (Decision::MAX_GROUPS, &stored.groups_of_voter(&groups)));
        let have = count_votes(&stored).tally.map_or(0, |tally| tally.have);
        assert_eq!(have, 1, "the vote of {user} counts");
    }
    let stored = harness.approvals_of_operator().get(&approval.name_any()).await.unwrap();
    let outcome = count_votes(&stored).outcome.unwrap();
    assert_eq!((outcome.verdict, &outcome.decided_by[..]), (Some(Verdict::Reject), &voters[2..3]));
}

fn approve() -> Value {
    json!({"verdict": "Approve", "reason": "last"})
}

/// The policies of new Workflows, of which doubled copies are also enforced in a test's namespace.
const OF_WORKFLOWS: [&str; 2] = ["signoff-workflows", "signoff-workflows-shape"];
/// The parts of an expression with a check by the authorizer, which has a fixed cost: two of them in one expression are
/// more than half of a budget.
const CHECKS: [&str; 2] = ["authorizer", ".check("];

/// Waits until a doubled policy refuses a Workflow of this name.
async fn wait_until_refused(harness: &Harness, name: &str) {
    for _ in 0..1000 {
        if harness.request("dana", name, json!({})).await.is_err_and(|why| why.contains("is doubled")) {
            return;
        }
        let _ = harness.workflows("dana").await.delete(name, &DeleteParams::default()).await;
    }
    panic!("the doubled policy that refuses {name} is not in force after 1000 requests");
}

#[tokio::test]
async fn the_largest_workflow_costs_less_than_half_of_the_budget_of_a_rule() {
    /// The default limit of the bytes of a Workflow.
    const BYTES: usize = 512 * 1024;
    let harness = Harness::open("largest").await;
    for name in OF_WORKFLOWS {
        // A name of its own: if two policies refuse, either may answer.
        let refused = format!("refused-by-{name}");
        add_doubled(&harness, "ValidatingAdmissionPolicy", name, &CHECKS, |spec| {
            let expression = format!("object.metadata.name != '{refused}'");
            let canary = json!({"expression": expression, "message": "is doubled"});
            spec["validations"].as_array_mut().unwrap().insert(0, canary);
        })
        .await;
        wait_until_refused(&harness, &refused).await;
    }
    let pods = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["create"], "resourceNames": []});
    harness.grant("dana@example.com", pods).await;
    let users = |count: usize| (0..count).map(|n| json!({"kind": "User", "name": n.to_string()})).collect::<Vec<_>>();
    let groups = |count: usize| (0..count).map(|n| json!({"kind": "Group", "name": n.to_string()})).collect::<Vec<_>>();
    let required: Vec<_> = (56..64).map(|n| json!({"group": n.to_string(), "min": 1})).collect();
    let questions: Vec<_> = (0..16).map(|n| json!({"id": n.to_string()})).collect();
    let variables: Vec<_> = (0..64).map(|n| json!({"name": format!("a{n}"), "value": ""})).collect();
    let volumes: Vec<_> = (0..16).map(|n| json!({"name": n.to_string(), "mountPath": "/v", "emptyDir": {}})).collect();
    let hitl = |fields: Value| {
        let mut hitl = json!({"prompt": "?", "approvers": users(1)});
        hitl.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({"hitl": hitl})
    };
    let escalation = json!({"action": "Escalate", "escalation": vec![json!({"to": users(16)}); 8]});
    let shapes = [
        ("bare", json!({"set": {"value": ""}})),
        ("approvers", hitl(json!({"approvers": users(64), "threshold": 64}))),
        ("groups", hitl(json!({"approvers": groups(64), "requiredFrom": required}))),
        ("escalation", hitl(json!({"timeout": escalation}))),
        ("questions", hitl(json!({"form": {"questions": questions}}))),
        ("variables", json!({"pod": {"image": "i", "env": variables}})),
        ("volumes", json!({"pod": {"image": "i", "volumes": volumes}})),
    ];
    signoff_tests::tried(shapes.len(), "largest Workflows");
    for (name, shape) in shapes {
        let step = |n: usize| {
            let mut step = shape.clone();
            step["name"] = json!(format!("s{n}"));
            step
        };
        let each = step(1000).to_string().len() + 1;
        let steps: Vec<_> = (0..(BYTES / each).min(1024)).map(step).collect();
        let count = steps.len();
        let answer = harness.request("dana", name, json!({"steps": steps})).await;
        // After a 504 the client sends it again: it may be stored by then, on a loaded machine.
        let is_stored = answer.is_ok() || {
            let found = harness.workflows("dana").await.get_opt(name).await.unwrap();
            found.is_some_and(|workflow| workflow.spec.steps.len() == count)
        };
        assert!(is_stored, "{name}, {count} steps of {each} bytes: {answer:?}");
    }
}
