//! Tools of MCP servers: a server whose definition changes while people decide, operators that die with a call in
//! flight, and servers that are gone. The effects in the world are the server's own log.

use std::time::Duration;

use futures::FutureExt;
use serde_json::{Value, json};
use signoff_api::{Digest, catalogue::Catalogue};
use signoff_tests::sim::{Answer, Crash, Effect, EffectCrash, EffectKey};

use crate::{
    crash_at_every_step::Death,
    harness::{Harness, OPERATOR, QUIET},
    laws,
    people::verdict,
    scenario_runner::{ALONE, Endings, FinishedPlay, PlaySettings, play},
    scenarios::{RUN, Scenario, chain, gate, set},
    two_operators::{BOTH, cut_off},
};

const TURN: &str = "refund/handle";
const FIRST_GATE: &str = "handle/.turn-1/.call-2/.gate";
const SECOND_GATE: &str = "handle/.turn-2/.call-1/.gate";

/// The ways in which an operator dies at a write or an effect.
const DEATHS: [Death; 4] = [
    Death::Write(Crash::NotApplied),
    Death::Write(Crash::Applied),
    Death::Effect(EffectCrash::NotDone),
    Death::Effect(EffectCrash::Done),
];

/// Returns the tools of the server in a version of its definitions.
fn tools(version: u32) -> Value {
    let schema = json!({"type": "object", "properties": {"id": {"type": "string"}}});
    json!({"tools": [
        {"name": "get_customer", "description": "Finds.", "inputSchema": schema},
        {"name": "refund", "description": format!("Refunds, version {version}."), "inputSchema": schema},
    ]})
}

/// Returns the definition of the tool `refund` in a version.
fn definition(version: u32) -> Digest {
    let catalogue: Catalogue = serde_json::from_value(tools(version)).unwrap();
    catalogue.tool("refund").unwrap().digest()
}

/// Returns the number of the list that a path requests, from 1.
fn visit(path: &str) -> u32 {
    path.rsplit_once('#').map_or(1, |(_, visit)| visit.parse().unwrap_or(1))
}

/// Returns the answer of a server whose definitions are those of `version`, with the comparison that the client makes
/// right before a call. `listed`: the version that a list has.
fn answer(input: &Value, listed: u32, version: u32) -> Option<Answer> {
    let what = &input["what"];
    if what["catalogue"].is_object() {
        return Some(Answer::value(tools(listed)).after(Duration::from_secs(1)));
    }
    let call = what.get("call")?;
    let now = definition(version);
    let is_changed = call["tool"] == "refund" && what["isCompared"] == true && call["definition"] != *now.as_str();
    let answer = match call["tool"].as_str()? {
        _ if is_changed => Answer::failure("ToolChanged", format!("crm.refund {now}")),
        "refund" => Answer::value("receipt 7"),
        _ => Answer::value("ACME"),
    };
    Some(answer.after(Duration::from_secs(2)))
}

/// Returns the answer of a server whose definitions change right after the first list.
fn changes_once(key: &EffectKey, input: &Value) -> Option<Answer> {
    answer(input, visit(&key.path).min(2), 2)
}

fn call(id: &str, tool: &str, order: &str) -> Value {
    json!({"id": id, "tool": tool, "arguments": json!({"id": order}).to_string()})
}

/// Returns a turn that makes these calls.
fn calls(calls: &[Value]) -> Answer {
    Answer::value(json!({"text": "", "calls": calls})).after(Duration::from_secs(1))
}

/// Returns an agent that can call every tool of the server; people are asked about all but lookups.
fn agent_spec() -> Value {
    let mut spec = chain(json!([{"name": "handle", "agent": {"name": "writer", "input": "Refund order 7."}}]));
    spec["agents"][0]["tools"] = json!(["crm.*"]);
    spec["servers"] = json!([{"name": "crm", "url": "http://crm.test/mcp", "read": ["get_*"]}]);
    spec["gates"] = json!([gate("changes", json!({"timeout": {"after": "168h"}}))]);
    spec["gates"][0]["type"] = json!("toolExecution");
    spec["gates"][0]["allowedTools"] = json!(["crm.get_*"]);
    spec
}

/// An agent that looks up and refunds; the refund's definition changes while people decide, and it is proposed again.
const AGENT: Scenario = Scenario {
    name: "an agent with a server whose definition changes",
    spec: agent_spec,
    world: |world| {
        world.responds(changes_once);
        world.answers(TURN, calls(&[call("c1", "crm__get_customer", "7"), call("c2", "crm__refund", "7")]));
        world.answers(format!("{TURN}/.turn-2"), calls(&[call("c3", "crm__refund", "7")]));
        world.answers(format!("{TURN}/.turn-3"), Answer::value("all is done").after(Duration::from_secs(1)));
    },
    people: |people| {
        async move {
            people.decide("alice", FIRST_GATE, 30, verdict("Approve")).await;
            if people.wait_for_gate_or_end(RUN, SECOND_GATE).await.is_some() {
                people.decide("bob", SECOND_GATE, 60, verdict("Approve")).await;
            }
        }
        .boxed()
    },
};

/// A step that calls the tool without a model, behind a gate of its author.
const STEP: Scenario = Scenario {
    name: "a step of a server whose definition changes",
    spec: || {
        let mcp = json!({"server": "crm", "tool": "refund", "arguments": {"id": "7"}});
        let mut spec = chain(json!([{"name": "pay", "mcp": mcp}, set("note", "{{ steps.pay.response }}")]));
        spec["servers"] = json!([{"name": "crm", "url": "http://crm.test/mcp"}]);
        spec["gates"] = json!([gate("sure", json!({"timeout": {"after": "168h"}}))]);
        spec["gates"][0]["type"] = json!("stepStart");
        spec["gates"][0]["steps"] = json!(["pay"]);
        spec
    },
    world: |world| world.responds(changes_once),
    people: |people| {
        async move {
            people.decide("alice", "pay/.start", 30, verdict("Approve")).await;
            if people.wait_for_gate_or_end(RUN, "pay/.start#2").await.is_some() {
                people.decide("bob", "pay/.start#2", 60, verdict("Approve")).await;
            }
        }
        .boxed()
    },
};

/// Returns the calls of a tool that reached the server.
fn sent_calls(harness: &Harness, tool: &str) -> Vec<Effect> {
    let is_sent = |effect: &Effect| effect.input["what"]["call"]["tool"] == tool && effect.answer.is_ok();
    harness.world.effects().into_iter().filter(is_sent).collect()
}

/// Returns the number of requests for the tools of the server.
fn count_lists(harness: &Harness) -> usize {
    harness.world.effects().iter().filter(|effect| effect.input["what"]["catalogue"].is_object()).count()
}

/// Checks a scenario again for each point at which the first operator can die.
async fn check_every_death(scenario: &Scenario, settings: PlaySettings) {
    let endings = Endings::of(scenario).await;
    for death in DEATHS {
        for n in 1.. {
            let set = |harness: &Harness| death.set(harness, settings.actors[0], n);
            if endings.check(scenario, settings, &format!("{death:?} no. {n}"), set).await == 0 {
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_is_sent_only_by_the_definition_that_people_approved() {
    for (scenario, outputs, lookups) in [(&AGENT, "all is done", 1), (&STEP, "receipt 7", 0)] {
        let FinishedPlay { harness, ending, .. } = play(scenario, ALONE, |_| {}).await;
        assert_eq!((&ending.0["phase"], &ending.0["outputs"]), (&json!("Succeeded"), &json!(outputs)));
        let [refund] = &sent_calls(&harness, "refund")[..] else { panic!("{}: one refund", scenario.name) };
        let sent = &refund.input["what"]["call"];
        assert_eq!((&sent["definition"], &sent["arguments"]), (&json!(definition(2)), &json!({"id": "7"})));
        assert_eq!((count_lists(&harness), sent_calls(&harness, "get_customer").len()), (2, lookups));
        assert_eq!(harness.approvals().len(), 2, "each definition was asked about");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_answer_was_lost_is_unknown_and_is_not_sent_again() {
    for scenario in [&AGENT, &STEP] {
        let Endings { undisturbed, lost } = Endings::of(scenario).await;
        assert_eq!((&undisturbed.0["phase"], lost.len()), (&json!("Succeeded"), 2), "{}", scenario.name);
        for lost in &lost {
            assert_eq!(lost.0["phase"], "Failed", "{}: its outcome is unknown", scenario.name);
            let steps = lost.0["steps"].as_array().unwrap();
            assert_eq!(steps.iter().filter(|step| step["phase"] == "Unknown").count(), 1);
        }
        // The last call is the one that was approved again.
        let effects = play(scenario, ALONE, |_| {}).await.harness.world.effects();
        let last = effects.iter().rposition(|effect| effect.input["what"]["call"]["tool"] == "refund").unwrap();
        let finished = play(scenario, ALONE, |harness| {
            harness.world.crash_after_effect(last as u64 + 1, OPERATOR);
        })
        .await;
        assert_eq!((finished.deaths, sent_calls(&finished.harness, "refund").len()), (1, 1), "{}", scenario.name);
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_with_a_server_ends_the_same_wherever_its_operator_dies() {
    check_every_death(&AGENT, ALONE).await;
}

#[tokio::test(start_paused = true)]
async fn a_step_of_a_server_ends_the_same_wherever_its_operator_dies() {
    check_every_death(&STEP, ALONE).await;
}

#[tokio::test(start_paused = true)]
async fn a_second_operator_does_not_repeat_recorded_requests_to_a_server() {
    check_every_death(&AGENT, BOTH).await;
    let endings = Endings::of(&AGENT).await;
    for n in 1..=12 {
        for applied in [true, false] {
            let set = |harness: &Harness| cut_off(harness, n, applied);
            endings.check(&AGENT, BOTH, &format!("cut off at write {n}, applied: {applied}"), set).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_days_is_sent_once_after_five_crashes() {
    let harness = Harness::new();
    (AGENT.world)(&harness.world);
    // The definitions stay as they were listed.
    harness.world.responds(|_, input| answer(input, 1, 1));
    harness.world.answers(format!("{TURN}/.turn-2"), Answer::value("all is done"));
    harness.apply(RUN, &agent_spec());
    for day in 0..5 {
        let life = harness.begin_and_settle(OPERATOR).await;
        harness.people().wait_for_gate(FIRST_GATE).await;
        if day == 0 {
            harness.world.until(|world| world.times("refund/handle/.turn-1/.call-1/crm.get_customer") == 1).await;
            harness.pass(60).await;
        }
        harness.pass(24 * 3600).await;
        life.crash().await;
        assert_eq!(harness.world.effects().len(), 3, "the list, a turn and the lookup: {}", harness.server.story());
    }
    let _life = harness.begin_and_settle(OPERATOR).await;
    harness.people().decide("alice", FIRST_GATE, 1, verdict("Approve")).await;
    let run = harness.wait_for_end(RUN).await;
    assert_eq!(run["status"]["phase"], "Succeeded", "{}", harness.server.story());
    assert_eq!((count_lists(&harness), sent_calls(&harness, "refund").len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_definition_changes_at_every_call_fails_the_step_after_four_lists() {
    let harness = Harness::new();
    // A call of the n-th turn finds the definition that only the next list has.
    let turn = |path: &str| path.split("/.turn-").nth(1).and_then(|rest| rest.split('/').next()?.parse::<u32>().ok());
    harness.world.responds(move |key, input| {
        let number = turn(&key.path).unwrap_or(1);
        if input["what"]["messages"].is_array() {
            return Some(calls(&[call(&format!("c{number}"), "crm__refund", &number.to_string())]));
        }
        answer(input, visit(&key.path), number + 1)
    });
    harness.apply(RUN, &agent_spec());
    let _life = harness.begin_and_settle(OPERATOR).await;
    for number in 1..=4 {
        let gate = format!("handle/.turn-{number}/.call-1/.gate");
        harness.people().decide("alice", &gate, 1, verdict("Approve")).await;
    }
    let run = harness.wait_for_end(RUN).await;
    assert_eq!(run["status"]["phase"], "Failed", "{}", harness.server.story());
    let message = run["status"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("the tools of the server crm changed 4 times in this run"), "{message}");
    assert_eq!((count_lists(&harness), sent_calls(&harness, "refund").len()), (4, 0), "nothing was sent");
}

#[tokio::test(start_paused = true)]
async fn a_policys_gate_asks_again_about_a_changed_definition_after_crashes() {
    let harness = Harness::new();
    let boss = json!([{"kind": "User", "name": "boss"}]);
    let hitl = json!({"prompt": "Release?", "approvers": boss, "timeout": {"after": "168h"}});
    let step = json!({"name": "release", "before": {"kinds": ["mcp"]}, "hitl": hitl});
    let policy = json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "ClusterApprovalPolicy", "metadata": {"name": "prod"},
        "spec": {"steps": [step]},
    });
    harness.server.insert(policy).unwrap();
    (STEP.world)(&harness.world);
    harness.apply(RUN, &(STEP.spec)());
    for (user, gate, next) in [
        ("alice", "pay/.start", "release-pay"),
        ("boss", "release-pay", "pay/.start#2"),
        ("alice", "pay/.start#2", "release-pay#2"),
    ] {
        let life = harness.begin(OPERATOR);
        harness.people().decide(user, gate, 10, verdict("Approve")).await;
        harness.people().wait_for_gate(next).await;
        life.crash().await;
    }
    assert!(sent_calls(&harness, "refund").is_empty(), "the new definition waits for both");
    let _life = harness.begin(OPERATOR);
    harness.people().decide("boss", "release-pay#2", 10, verdict("Approve")).await;
    let run = harness.wait_for_end(RUN).await;
    assert_eq!(run["status"]["outputs"], "receipt 7", "{}", harness.server.story());
    harness.pass(QUIET.as_secs()).await;
    laws::hold(&harness, RUN).unwrap_or_else(|law| panic!("{law}\n{}", harness.server.story()));
    let effects = sent_calls(&harness, "refund");
    let sent: Vec<_> = effects.iter().map(|effect| &effect.input["what"]["call"]).collect();
    assert_eq!((sent.len(), &sent[0]["definition"]), (1, &json!(definition(2))));
}
