//! Policies that are created, changed and deleted while runs go on and operators die: an open request stays as it is,
//! the next one follows the policies of its moment, and nothing begins while the policies are not known.

use serde_json::{Value, json};
use signoff_api::ClusterApprovalPolicy;
use signoff_tests::sim::{Crash, EffectCrash, Fault, On, Resource, Verb};

use crate::{
    dice::Dice,
    ending::list,
    harness::{Harness, OPERATOR, QUIET},
    laws,
    people::verdict,
    scenarios::{RUN, chain, gate, set},
};

fn policies() -> Resource {
    Resource::of::<ClusterApprovalPolicy>()
}

fn apply_policy(harness: &Harness, spec: Value) {
    let policy = json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "ClusterApprovalPolicy", "metadata": {"name": "policy"}, "spec": spec,
    });
    harness.server.insert(policy).unwrap();
}

fn remove_policy(harness: &Harness) {
    assert!(harness.server.remove(&policies(), "", "policy"));
}

fn policy_of_two_people() -> Value {
    json!({"gates": {"minThreshold": 2}})
}

/// Returns a policy that demands approvers whom no gate here has.
fn unmeetable_policy() -> Value {
    json!({"gates": {"requiredFrom": [{"group": "legal", "min": 1}]}})
}

fn two_gates() -> Value {
    chain(json!([gate("one", json!({})), gate("two", json!({})), set("end", "done")]))
}

fn request_of(harness: &Harness, path: &str) -> Value {
    let approvals = harness.approvals();
    let found = approvals.iter().find(|approval| approval["spec"]["request"]["gate"]["path"] == path);
    found.unwrap_or_else(|| panic!("{path} was never asked:\n{}", harness.server.story()))["spec"]["request"].clone()
}

/// Lets alice approve five seconds after the gate asks, and bob right after her.
async fn approve_by_both(harness: &Harness, path: &str) {
    let people = harness.people();
    people.decide("alice", path, 5, verdict("Approve")).await;
    people.decide("bob", path, 0, verdict("Approve")).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_policy_applies_to_the_next_gate_wherever_the_operator_crashes() {
    for crash in [Crash::NotApplied, Crash::Applied] {
        for n in 1.. {
            let harness = Harness::new();
            harness.server.fault(On::writes_of(OPERATOR).nth(n), Fault::Crash(crash));
            let scenario = async {
                harness.apply(RUN, &two_gates());
                let people = harness.people();
                people.wait_for_gate("one").await;
                apply_policy(&harness, policy_of_two_people());
                harness.pass(30).await;
                people.decide("alice", "one", 5, verdict("Approve")).await;
                approve_by_both(&harness, "two").await;
                harness.wait_for_end(RUN).await;
                harness.pass(QUIET.as_secs()).await;
            };
            let ((), deaths) = harness.keep_alive(&[OPERATOR], scenario).await;
            assert_eq!(
                harness.workflow(RUN)["status"]["phase"],
                "Succeeded",
                "{crash:?} {n}\n{}",
                harness.server.story()
            );
            assert_eq!(request_of(&harness, "one")["quorums"][0]["threshold"], 1);
            let two = request_of(&harness, "two");
            assert_eq!(
                (&two["quorums"][0]["threshold"], &two["requiredBy"][0]["source"]),
                (&json!(2), &json!("ClusterApprovalPolicy policy"))
            );
            laws::hold(&harness, RUN).unwrap_or_else(|law| panic!("{crash:?} {n}: {law}\n{}", harness.server.story()));
            if deaths == 0 {
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_not_created_follows_a_new_policy() {
    let harness = Harness::new();
    let creations = On::writes_of(OPERATOR).only(|r| r.verb == Verb::Create && r.resource.plural == "approvals");
    harness.server.fault(creations.nth(1), Fault::Crash(Crash::NotApplied));
    harness.apply(RUN, &two_gates());
    let life = harness.begin(OPERATOR);
    harness.pass(60).await;
    life.crash().await;
    assert_eq!(harness.workflow(RUN)["status"]["steps"][0]["phase"], "Waiting");
    apply_policy(&harness, policy_of_two_people());
    let life = harness.begin(OPERATOR);
    harness.people().wait_for_gate("one#2").await;
    assert_eq!(request_of(&harness, "one#2")["quorums"][0]["threshold"], 2);
    let records = harness.workflow(RUN)["status"]["steps"].clone();
    assert_eq!(records[0]["decision"]["phase"], "Superseded", "{records}");
    assert_eq!(harness.approvals().len(), 1, "nobody saw the first one");
    life.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_in_conflict_with_a_policy_is_refused_or_held() {
    let harness = Harness::new();
    apply_policy(&harness, unmeetable_policy());
    harness.apply(RUN, &two_gates());
    let life = harness.begin(OPERATOR);
    harness.wait_for_end(RUN).await;
    assert_eq!(harness.condition("Accepted"), ("False".to_owned(), "PolicyConflict".to_owned()));
    life.crash().await;

    let harness = Harness::new();
    harness.apply(RUN, &two_gates());
    let life = harness.begin(OPERATOR);
    harness.people().wait_for_gate("one").await;
    apply_policy(&harness, unmeetable_policy());
    harness.people().decide("alice", "one", 60, verdict("Approve")).await;
    harness.pass(48 * 3600).await;
    assert_eq!(harness.condition("Held"), ("True".to_owned(), "PolicyConflict".to_owned()));
    let held = harness.workflow(RUN);
    assert!(held["status"]["finishedAt"].is_null(), "{held}");
    assert!(held["status"]["message"].as_str().unwrap().contains("ClusterApprovalPolicy policy requires"), "{held}");
    assert_eq!(harness.events("Held").len(), 1);
    remove_policy(&harness);
    harness.people().decide("alice", "two", 60, verdict("Approve")).await;
    harness.wait_for_end(RUN).await;
    assert_eq!(harness.condition("Held"), Default::default());
    assert_eq!(harness.workflow(RUN)["status"]["phase"], "Succeeded");
    life.crash().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_begins_while_a_policy_cannot_be_read() {
    let harness = Harness::new();
    apply_policy(&harness, json!({"gates": {"minThreshold": "two"}}));
    harness.apply(RUN, &two_gates());
    let life = harness.begin(OPERATOR);
    harness.pass(3600).await;
    assert_eq!(harness.condition("Held"), ("True".to_owned(), "PolicyUnknown".to_owned()));
    assert!(harness.approvals().is_empty() && harness.workflow(RUN)["status"]["specDigest"].is_null());
    let writes = harness.operators_writes().len();
    harness.pass(3600).await;
    assert_eq!(harness.operators_writes().len(), writes, "waiting costs nothing");
    harness.server.edit(&policies(), "", "policy", |policy| policy["spec"] = policy_of_two_people()).unwrap();
    harness.people().wait_for_gate("one").await;
    assert_eq!(request_of(&harness, "one")["quorums"][0]["threshold"], 2);

    // A waiting run keeps waiting, and can be cancelled.
    harness.server.edit(&policies(), "", "policy", |policy| policy["spec"] = json!({"gates": 7})).unwrap();
    harness.pass(60).await;
    assert_eq!(harness.condition("Held").0, "True");
    harness.people().set_field(RUN, "cancel", true);
    harness.wait_for_end(RUN).await;
    assert_eq!(harness.workflow(RUN)["status"]["phase"], "Cancelled");
    life.crash().await;
}

#[tokio::test(start_paused = true)]
async fn added_gates_stay_in_an_accepted_run_when_the_policy_changes() {
    let harness = Harness::new();
    let hitl = gate("x", json!({}))["hitl"].clone();
    apply_policy(&harness, json!({"steps": [{"name": "last", "at": "End", "hitl": hitl}]}));
    harness.apply(RUN, &two_gates());
    harness.server.fault(On::writes_of(OPERATOR).nth(4), Fault::Crash(Crash::Applied));
    let scenario = async {
        harness.people().wait_for_gate("one").await;
        remove_policy(&harness);
        for path in ["one", "two", "last"] {
            harness.people().decide("alice", path, 5, verdict("Approve")).await;
        }
        let run = harness.wait_for_end(RUN).await;
        harness.pass(QUIET.as_secs()).await;
        run
    };
    let (run, _) = harness.keep_alive(&[OPERATOR], scenario).await;
    assert_eq!(run["status"]["addedSteps"][0]["source"], "ClusterApprovalPolicy policy");
    assert_eq!((&run["status"]["phase"], &run["status"]["outputs"]), (&json!("Succeeded"), &json!("done")));
    laws::hold(&harness, RUN).unwrap_or_else(|law| panic!("{law}\n{}", harness.server.story()));
}

#[tokio::test(start_paused = true)]
async fn a_call_is_not_repeated_if_a_policy_has_forbidden_it() {
    let harness = Harness::new();
    harness.world.crash_at_effect(1, OPERATOR, EffectCrash::NotDone);
    let put = json!({"name": "pay", "http": {"method": "PUT", "url": "http://pay.test/"}});
    harness.apply(RUN, &chain(json!([put])));
    let life = harness.begin(OPERATOR);
    harness.pass(60).await;
    life.crash().await;
    apply_policy(&harness, json!({"allowedHosts": ["other.test"]}));
    let life = harness.begin(OPERATOR);
    harness.wait_for_end(RUN).await;
    let run = harness.workflow(RUN);
    let pay = list(&run["status"]["steps"]).next().unwrap();
    assert_eq!((&pay["phase"], &pay["error"]["class"]), (&json!("Failed"), &json!("NotAllowed")), "{run}");
    assert_eq!(harness.world.effects().len(), 0, "{}", harness.server.story());
    life.crash().await;
}

impl Dice {
    /// Returns a decision that the request allows; after many decisions none that asks again.
    fn decision(&mut self, request: &Value, late: bool) -> Value {
        let again = ["Retry", "Defer", "Respond", "Modify"];
        let ends = ["Reject", "Abort", "Skip"];
        let allowed: Vec<&str> = list(&request["allowedVerdicts"])
            .filter_map(Value::as_str)
            .filter(|verdict| if late { !again.contains(verdict) } else { !ends.contains(verdict) })
            .collect();
        let word = allowed[self.below(allowed.len())];
        let mut decision = verdict(word);
        match word {
            "Defer" => decision["guidance"] = json!("another way"),
            "Respond" => decision["response"] = json!("a hint"),
            "Modify" => {
                let fields = request["parameters"]["Modify"]["properties"].as_object();
                let field = fields.and_then(|fields| fields.keys().next().cloned()).unwrap_or("response".to_owned());
                decision["parameters"] = json!({field: format!("http://other.test/{}", self.below(3))});
            }
            _ => {}
        }
        decision
    }
}

/// People decide at random, and the operator dies at times: nothing runs that the policy's people did not approve (a
/// law), whatever the author's own people change and repeat.
#[tokio::test(start_paused = true)]
async fn no_call_runs_without_the_policys_people_in_random_runs() {
    let mut calls = 0;
    for seed in 1..=24_u64 {
        let mut dice = Dice::new(seed);
        signoff_tests::tried(1, "random walks");
        let harness = Harness::new();
        let verdicts = json!(["Approve", "Modify", "Retry", "Skip", "Reject"]);
        let hitl = gate("x", json!({"allowedVerdicts": verdicts}))["hitl"].clone();
        apply_policy(&harness, json!({"steps": [{"name": "release", "before": {"kinds": ["egress"]}, "hitl": hitl}]}));
        for attempt in 1..=6 {
            let answer = match dice.below(4) {
                0 => signoff_tests::sim::Answer::value("{\"ok\": true}"),
                1 => signoff_tests::sim::Answer::value("nonsense"),
                _ => signoff_tests::sim::Answer::failure("Unreachable", "no route"),
            };
            harness.world.answers_attempt("refund/pay", attempt, answer.clone());
            harness.world.answers_attempt("refund/write", attempt, answer);
        }
        if seed.is_multiple_of(2) {
            harness.server.fault(On::writes_of(OPERATOR).nth(3 + seed), Fault::Crash(Crash::Applied));
        }
        let own = |type_: &str, verdicts: Value| json!({"name": type_.to_lowercase(), "type": type_, "hitl": gate("x", json!({"allowedVerdicts": verdicts}))["hitl"]});
        let mut pay = crate::scenarios::post("pay", "{{ steps.write.response }}", "escalate");
        pay["retry"] = json!({"limit": 2, "backoff": {"base": "1s"}});
        let write = json!({"name": "write", "agent": {"name": "writer", "input": "write"}, "onError": "escalate",
            "outputSchema": {"type": "object", "required": ["ok"]}, "retry": {"limit": 1}});
        let mut spec = chain(json!([write, pay]));
        spec["gates"] = json!([
            own("stepStart", json!(["Approve", "Modify", "Retry", "Skip"])),
            own("errorEscalation", json!(["Retry", "Modify", "Defer", "Respond", "Skip"])),
            own("outputValidation", json!(["Approve", "Defer", "Retry", "Respond"])),
        ]);
        harness.apply(RUN, &spec);
        let open = |harness: &Harness| {
            let approvals = harness.approvals();
            let open = |approval: &&Value| approval["status"]["outcome"].is_null();
            approvals.iter().find(open).cloned()
        };
        let ended = |harness: &Harness| harness.workflow(RUN)["status"]["finishedAt"].is_string();
        let scenario = async {
            for decided in 0.. {
                harness.server.until_all(|_| ended(&harness) || open(&harness).is_some()).await;
                let Some(approval) = open(&harness).filter(|_| !ended(&harness)) else { break };
                harness.pass(5).await;
                let name = crate::people::name(&approval);
                let decision = dice.decision(&approval["spec"]["request"], decided > 12);
                harness.people().vote("alice", &name, decision);
                let over = |harness: &Harness| {
                    let now = harness.approvals().into_iter().find(|other| crate::people::name(other) == name);
                    now.is_none_or(|now| !now["status"]["outcome"].is_null())
                };
                harness.server.until_all(|_| ended(&harness) || over(&harness)).await;
            }
            harness.pass(QUIET.as_secs()).await;
        };
        harness.keep_alive(&[OPERATOR], scenario).await;
        laws::hold(&harness, RUN).unwrap_or_else(|law| panic!("seed {seed}: {law}\n{}", harness.server.story()));
        calls += harness.world.effects().len();
    }
    assert!(calls > 24, "{calls} calls in all walks");
}
