//! The bounds of a decision: the API server and a local run treat the same decision alike, and no decisions fill an
//! Approval.

use std::collections::BTreeMap;

use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use signoff_api::{Approval, Decision};
use signoff_local::admit;

use super::harness::{Answer, Harness, assert_refused, count_votes, to_answer};

const ALICE: &str = "alice@example.com";

/// The treatment of a decision, by the API server or by a local run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Treatment {
    /// The decision is refused and not stored.
    Refused,
    /// The decision is stored, and `status.invalid` names its author.
    Invalid,
    /// The decision is stored and counts.
    Counted,
}

/// Returns a request about a call of a tool with this threshold.
fn request_about_call(threshold: i32) -> Value {
    json!({
        "action": {"kind": "toolCall", "agent": "clerk", "tool": "refund"}, "threshold": threshold,
        "approvers": [{"kind": "User", "name": ALICE}, {"kind": "Group", "name": "finance"}],
        "parameters": {"Modify": {"type": "object", "required": ["arguments"], "properties": {"arguments": {"type": "object"}}}},
    })
}

fn modify(arguments: Value) -> Value {
    json!({"verdict": "Modify", "parameters": {"arguments": arguments}})
}

/// Returns arguments nested to this depth.
fn nested_arguments(levels: usize) -> Value {
    (1..levels).fold(json!({"x": 1}), |inner, _| json!({"x": inner}))
}

/// The bytes that the bounds count in a decision with an object of arguments besides the value of `x`.
const OBJECT_OVERHEAD: usize = 17 + 9;
/// The bytes that the bounds count in a decision with a text of arguments besides the value of `x`.
const TEXT_OVERHEAD: usize = 17 + 8;

/// Returns arguments whose decision has exactly this size, in bytes, as an object or as one text.
fn arguments_of_size(size: usize, is_text: bool) -> Value {
    let object = |bytes: usize| json!({"x": "x".repeat(bytes)});
    if is_text { json!(object(size - TEXT_OVERHEAD).to_string()) } else { object(size - OBJECT_OVERHEAD) }
}

/// Returns the treatment of alice's stored decision, after the votes were counted.
fn treatment_of(status: &signoff_api::ApprovalStatus) -> Treatment {
    if status.invalid.contains_key(ALICE) { Treatment::Invalid } else { Treatment::Counted }
}

/// Returns the treatment of a decision of alice in a local run.
fn decide_locally(approval: &Approval, decision: &Value) -> Treatment {
    let mut approval = approval.clone();
    let decision: Decision = serde_json::from_value(decision.clone()).unwrap();
    if admit(&approval, ALICE, &decision, jiff::Timestamp::now().into()).is_err() {
        return Treatment::Refused;
    }
    approval.spec.decisions.insert(ALICE.to_owned(), decision);
    treatment_of(&count_votes(&approval))
}

#[tokio::test]
async fn bounds_of_a_decision_are_the_same_on_a_cluster_and_in_a_local_run() {
    use Treatment::{Counted, Invalid, Refused};
    const KIB: usize = 1024;
    let harness = Harness::open("bounds").await;
    let step = || json!({"approvers": [{"kind": "User", "name": ALICE}]});
    let cases = [
        // Arguments of n levels are n + 1 levels of parameters.
        (request_about_call(2), nested_arguments(4), Counted),
        (request_about_call(2), nested_arguments(5), Refused),
        (request_about_call(2), nested_arguments(64), Refused),
        (request_about_call(2), json!(nested_arguments(5).to_string()), Counted),
        (request_about_call(2), json!(nested_arguments(6).to_string()), Counted),
        (request_about_call(2), json!(nested_arguments(64).to_string()), Counted),
        (request_about_call(2), json!(nested_arguments(65).to_string()), Invalid),
        (request_about_call(2), arguments_of_size(16 * KIB, false), Counted),
        (request_about_call(2), arguments_of_size(16 * KIB + 1, false), Refused),
        (request_about_call(2), arguments_of_size(30 * KIB, false), Refused),
        (request_about_call(2), arguments_of_size(30 * KIB, true), Counted),
        (request_about_call(2), arguments_of_size(64 * KIB, true), Counted),
        // The bound of an entry is above that of arguments, so that a reason fits.
        (request_about_call(2), arguments_of_size(72 * KIB, true), Invalid),
        (request_about_call(2), arguments_of_size(72 * KIB + 1, true), Refused),
        (request_about_call(2), arguments_of_size(73 * KIB, true), Refused),
        (request_about_call(2), json!(json!({"x": "é".repeat(30_000)}).to_string()), Counted),
        (request_about_call(2), json!(json!({"x": "é".repeat(40_000)}).to_string()), Refused),
        (request_about_call(3), arguments_of_size(16 * KIB, true), Counted),
        (request_about_call(3), arguments_of_size(16 * KIB + 1, true), Refused),
        (request_about_call(3), json!(nested_arguments(64).to_string()), Counted),
        (step(), arguments_of_size(16 * KIB + 1, true), Refused),
        (request_about_call(1), json!("{\"x\": 1, \"x\": 2}"), Invalid),
        (request_about_call(1), json!(""), Invalid),
    ];
    signoff_tests::tried(cases.len(), "bounds of decisions");
    for (request, arguments, expected) in cases {
        let approval = harness.ask(request).await;
        let decision = modify(arguments);
        let shown: String = decision.to_string().chars().take(80).collect();
        let on_cluster = match harness.decide("alice", &approval, decision.clone()).await {
            Ok(stored) => treatment_of(&count_votes(&stored)),
            Err(why) => {
                assert!(why.contains("at most 16 KiB"), "{why}");
                Refused
            }
        };
        assert_eq!((on_cluster, decide_locally(&approval, &decision)), (expected, expected), "{shown}");
    }
}

/// Sends a vote of one of many users with all rights.
async fn vote(harness: &Harness, approval: &Approval, user: &str, decision: &Value) -> Answer<Approval> {
    let client = harness.cluster.client(user, &["system:masters"]).await.unwrap();
    let api: Api<Approval> = Api::namespaced(client, &harness.namespace.name);
    let patch = Patch::Merge(json!({"spec": {"decisions": {user: decision}}}));
    to_answer(api.patch(&approval.name_any(), &Default::default(), &patch).await)
}

#[tokio::test]
async fn bounds_of_all_decisions_leave_room_for_small_ones_however_they_are_stored() {
    let harness = Harness::open("bounds").await;
    let users: Vec<_> = (0..64).map(|n| format!("voter-{n}@example.com")).collect();
    let subjects: Vec<_> = users.iter().map(|name| json!({"kind": "User", "name": name})).collect();
    let reason = |length: usize| json!({"verdict": "Reject", "reason": "<".repeat(length)});
    let list = modify(json!({"x": "<".repeat(16_000)}));
    for text in ["\"".repeat(60_000), "<".repeat(20_000), "x".repeat(60_000)] {
        let mut request = request_about_call(2);
        request["approvers"] = json!(subjects);
        let approval = harness.ask(request).await;
        let edit = modify(json!(text));
        let mut answers: BTreeMap<&str, usize> = BTreeMap::new();
        // Every vote that fits, and then a small vote of each other user.
        for (user, decision) in users.iter().zip([&edit, &list].into_iter().cycle()).take(20) {
            match vote(&harness, &approval, user, decision).await {
                Ok(_) => *answers.entry("stored").or_default() += 1,
                Err(why) => {
                    assert!(why.contains("spec.decisions is full"), "{why}");
                    vote(&harness, &approval, user, &reason(1000)).await.unwrap();
                    *answers.entry("full").or_default() += 1;
                }
            }
        }
        assert!(answers["stored"] >= 3 && answers["full"] >= 3, "{answers:?}");
        for user in &users[20..] {
            vote(&harness, &approval, user, &reason(1000)).await.unwrap();
        }
        let stored = harness.approvals_of_operator().get(&approval.name_any()).await.unwrap();
        assert_eq!(stored.spec.decisions.len(), users.len());
    }
}

#[tokio::test]
async fn bounds_let_two_people_agree_on_the_longest_edit() {
    let harness = Harness::open("bounds").await;
    let users = ["one@example.com", "two@example.com", "three@example.com", "four@example.com"];
    let subjects: Vec<_> = users.iter().map(|name| json!({"kind": "User", "name": name})).collect();
    let mut request = request_about_call(2);
    request["approvers"] = json!(subjects);
    let approval = harness.ask(request).await;
    let arguments = json!({"text": "x".repeat(65_500)});
    let pretty = serde_json::to_string_pretty(&arguments).unwrap();
    vote(&harness, &approval, users[0], &modify(json!(arguments.to_string()))).await.unwrap();
    let stored = vote(&harness, &approval, users[1], &modify(json!(pretty))).await.unwrap();
    assert_eq!(count_votes(&stored).outcome.unwrap().decided_by, &users[..2]);
    vote(&harness, &approval, users[2], &modify(json!(arguments.to_string()))).await.unwrap();
    assert_refused(
        vote(&harness, &approval, users[3], &modify(json!(arguments.to_string()))).await,
        "spec.decisions is full",
    );
    vote(&harness, &approval, users[3], &json!({"verdict": "Abort", "reason": "x".repeat(900)})).await.unwrap();
}

/// Returns a random decision about a gate with questions: parts that belong to the verdict or not, empty, blank, and of
/// lengths around the bounds.
fn random_decision(random: &mut fastrand::Rng) -> Value {
    const VERDICTS: [&str; 6] = ["Approve", "Reject", "Modify", "Respond", "Defer", "Abort"];
    let text = |random: &mut fastrand::Rng, most: usize| match random.u8(0..8) {
        0 => String::new(),
        1 => "   ".to_owned(),
        2 => "...".to_owned(),
        3 => "x".repeat(most),
        4 => "é".repeat(most + 1),
        _ => "Lisbon".to_owned(),
    };
    let mut decision = json!({"verdict": VERDICTS[random.usize(0..VERDICTS.len())]});
    let is_given = |random: &mut fastrand::Rng, of_ten: u8| random.u8(0..10) < of_ten;
    if is_given(random, 7) {
        decision["reason"] = json!(text(random, 2048));
    }
    if is_given(random, 3) {
        decision["response"] = json!(text(random, 8192));
    }
    if is_given(random, 3) {
        let id = ["city", "why", "note", "nothing"][random.usize(0..4)];
        decision["answers"] = json!({"city": {"text": text(random, 8192)}, id: {"text": text(random, 8192)}});
    }
    if is_given(random, 3) {
        decision["guidance"] = json!(text(random, 4096));
    }
    if is_given(random, 3) {
        decision["parameters"] = [json!({}), json!({"response": "x"}), json!({"else": 1})][random.usize(0..3)].clone();
    }
    if is_given(random, 1) {
        decision["escalateTo"] = json!([{"kind": "User", "name": "carol@example.com"}]);
    }
    decision
}

/// A local run has no admission rules about payloads, and the checks of the engine are at least as strict as those of
/// the API server.
#[tokio::test]
async fn no_random_decision_counts_in_a_local_run_that_a_cluster_refuses() {
    use Treatment::{Counted, Refused};
    const DECISIONS: usize = 240;
    let harness = Harness::open("bounds").await;
    let approvers = json!([{"kind": "User", "name": ALICE}]);
    let question = |id: &str| json!({"id": id, "prompt": "?", "maxLength": 100});
    let gates = [
        json!({"approvers": approvers, "requireReason": true}),
        json!({"approvers": approvers, "form": {"questions": [question("city")]}}),
        json!({"approvers": approvers, "form": {"questions": [question("city"), question("why")]}}),
        json!({"approvers": approvers, "form": {"questions": [
            question("city"), {"id": "note", "prompt": "?", "required": false, "pattern": "[0-9]+"},
        ]}}),
    ];
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let (alice, mut counts) = (harness.approvals("alice").await, [0; 2]);
    for gate in gates {
        let approval = harness.ask(gate).await;
        for _ in 0..DECISIONS / 4 {
            let decision = random_decision(&mut random);
            let patch = Patch::Merge(json!({"spec": {"decisions": {ALICE: decision}}}));
            let on_cluster =
                to_answer(alice.patch(&approval.name_any(), &PatchParams::default().dry_run(), &patch).await);
            let on_cluster = on_cluster.map_or(Refused, |stored| treatment_of(&count_votes(&stored)));
            let shown: String = decision.to_string().chars().take(300).collect();
            let is_counted = on_cluster == Counted;
            assert_eq!(
                decide_locally(&approval, &decision) == Counted,
                is_counted,
                "seed {seed}: {on_cluster:?}: {shown}"
            );
            counts[usize::from(is_counted)] += 1;
        }
    }
    assert!(counts.iter().all(|count| *count >= DECISIONS / 20), "seed {seed}: {counts:?} of each kind");
    signoff_tests::tried(DECISIONS, "random decisions");
}
