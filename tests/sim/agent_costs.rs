//! Counts the state writes of agents that call tools: two a turn, one if its calls only read and end within a second,
//! four more for a gate, one more for a call that must not be repeated.

use std::time::Duration;

use serde_json::{Value, json};
use signoff_tests::sim::{Answer, Verb, World};

use crate::{
    ending::list,
    harness::{Harness, NAMESPACE, OPERATOR, is_status_write, workflows},
    laws,
    people::verdict,
    scenarios::{RUN, chain, gate},
};

/// A call of a tool: its tool, and the seconds until its server answers.
type Call = (&'static str, u64);

/// Returns an agent with tools: `find` reads, `put` changes and can be repeated, `pay` and `tell` must not be repeated.
/// Gates ask about `pay` and `put`.
fn spec() -> Value {
    let mut spec = chain(json!([
        {"name": "handle", "agent": {"name": "writer", "input": "Help."}},
        {"name": "get-order", "timeout": "1h", "http": {"url": "http://orders.test/{{ args.id }}"}},
        {"name": "put-order", "http": {"method": "PUT", "url": "http://orders.test/{{ args.id }}"}},
        {"name": "post-refund", "http": {"method": "POST", "url": "http://pay.test/{{ args.id }}"}},
        {"name": "post-note", "http": {"method": "POST", "url": "http://notes.test/{{ args.id }}"}},
    ]));
    let tool = |name: &str, step: &str, effects: &str| json!({"name": name, "step": step, "description": name, "effects": effects, "parameters": {"type": "object"}});
    spec["agents"][0]["tools"] = json!(["find", "put", "pay", "tell"]);
    spec["agents"][0]["limits"] = json!({"turns": 100, "calls": 1000});
    spec["tools"] = json!([
        tool("find", "get-order", "read"),
        tool("put", "put-order", "write"),
        tool("pay", "post-refund", "irreversible"),
        tool("tell", "post-note", "write"),
    ]);
    spec["gates"] = json!([gate("changes", json!({"timeout": {"after": "168h", "action": "Reject"}}))]);
    spec["gates"][0]["type"] = json!("specificTools");
    spec["gates"][0]["tools"] = json!(["pay", "put"]);
    spec
}

fn step_of(tool: &str) -> &'static str {
    match tool {
        "find" => "get-order",
        "put" => "put-order",
        "pay" => "post-refund",
        _ => "post-note",
    }
}

/// Lets the model make these calls in each of `turns` turns, and then answer.
fn script_turns(world: &World, turns: usize, calls: &[Call]) {
    script_turns_at(world, &format!("{RUN}/handle"), turns, calls);
}

/// Lets the model of the step at a path make these calls in each of `turns` turns, and then answer.
fn script_turns_at(world: &World, step: &str, turns: usize, calls: &[Call]) {
    let second = Duration::from_secs(1);
    for turn in 1..=turns {
        let path = if turn == 1 { String::new() } else { format!("/.turn-{turn}") };
        let tool_call = |(number, (tool, _)): (i32, &Call)| {
            let arguments = format!("{{\"id\": {number}}}");
            json!({"id": format!("{turn}-{number}"), "tool": tool, "arguments": arguments})
        };
        let tool_calls: Vec<_> = (1..).zip(calls).map(tool_call).collect();
        let turn_answer = json!({"text": "", "calls": tool_calls});
        world.answers(format!("{step}{path}"), Answer::value(turn_answer).after(second));
        for (at, (tool, seconds)) in (1..).zip(calls) {
            let path = format!("{step}/.turn-{turn}/.call-{at}/{}", step_of(tool));
            world.answers(path, Answer::value("done").after(second * u32::try_from(*seconds).unwrap()));
        }
    }
    world.answers(format!("{step}/.turn-{}", turns + 1), Answer::value("all is done").after(second));
}

/// Returns the number of writes of Workflows and Approvals. Long values and segments of a long journal are Blobs, each
/// written once.
fn count_state_writes(harness: &Harness) -> usize {
    harness.server.count(|entry| entry.is_state_write() && entry.resource.plural != "blobs")
}

/// Runs an agent without gates to its end. Returns the number of state writes, without those of the beginning and the
/// end.
async fn count_turn_writes(count: usize, calls: &[Call]) -> usize {
    let harness = Harness::new();
    script_turns(&harness.world, count, calls);
    harness.apply(RUN, &spec());
    let _life = harness.begin(OPERATOR);
    let ended = harness.wait_for_end(RUN).await;
    harness.pass(600).await;
    assert_eq!(ended["status"]["outputs"], "all is done", "{}", ended["status"]["message"]);
    assert_eq!(harness.world.effects().len(), count + 1 + count * calls.len());
    laws::hold(&harness, RUN).unwrap();
    count_state_writes(&harness) - 2
}

#[tokio::test(start_paused = true)]
async fn a_turn_with_calls_costs_two_state_writes_whenever_they_end() {
    for calls in
        [&[("find", 3)][..], &[("find", 2), ("find", 5), ("find", 9)], &[("find", 0), ("find", 0), ("find", 3)]]
    {
        for count in [1, 5, 20] {
            assert_eq!(count_turn_writes(count, calls).await, 2 * count, "{count} turns, each with {calls:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_whose_calls_only_read_and_end_within_a_second_costs_one_state_write() {
    for calls in [&[("find", 0)][..], &[("find", 0), ("find", 0), ("find", 0)]] {
        for count in [1, 5, 20] {
            assert_eq!(count_turn_writes(count, calls).await, count, "{count} turns, each with {calls:?}");
        }
    }
    assert_eq!(
        count_turn_writes(5, &[("find", 0), ("tell", 0)]).await,
        10,
        "a call that changes something is stored first"
    );
}

/// Starts a run whose first turn has ended, and whose read is in flight and not stored.
async fn begin_with_unstored_read(spec: &Value) -> (Harness, crate::harness::Life) {
    let harness = Harness::new();
    script_turns(&harness.world, 2, &[("find", 0)]);
    let slow = Answer::value("done").after(Duration::from_millis(800));
    harness.world.answers(format!("{RUN}/handle/.turn-1/.call-1/get-order"), slow);
    harness.apply(RUN, spec);
    let life = harness.begin(OPERATOR);
    harness.world.until(|world| world.effects().iter().any(|effect| effect.key.path.ends_with("get-order"))).await;
    assert_eq!(stored_phases(&harness), [] as [&str; 0], "{}", harness.server.story());
    (harness, life)
}

#[tokio::test(start_paused = true)]
async fn the_work_of_an_unstored_read_begins_at_the_end_of_its_turn() {
    let (harness, _life) = begin_with_unstored_read(&spec()).await;
    let ended = harness.wait_for_end(RUN).await;
    let time = |path: &str, field: &str| {
        let record = list(&ended["status"]["steps"]).find(|step| step["path"] == path).unwrap();
        record[field].as_str().unwrap().parse::<jiff::Timestamp>().unwrap()
    };
    let read = "handle/.turn-1/.call-1/get-order";
    assert_eq!(time(read, "at"), time("handle", "finishedAt"), "{ended:#}");
    assert_eq!(time(read, "finishedAt").duration_since(time(read, "at")).as_millis(), 800);
}

#[tokio::test(start_paused = true)]
async fn a_crash_before_the_reads_of_a_turn_are_stored_repeats_that_turn_and_nothing_else() {
    let (harness, life) = begin_with_unstored_read(&spec()).await;
    life.crash().await;
    let _life = harness.begin(OPERATOR);
    assert_eq!(harness.wait_for_end(RUN).await["status"]["outputs"], "all is done");
    harness.pass(600).await;
    let repeated: Vec<_> = harness.world.repeated().into_keys().map(|key| key.path).collect();
    assert_eq!(repeated, [format!("{RUN}/handle"), format!("{RUN}/handle/.turn-1/.call-1/get-order")]);
    laws::hold(&harness, RUN).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_stores_its_unstored_turn() {
    let (harness, _life) = begin_with_unstored_read(&spec()).await;
    harness.server.edit(&workflows(), NAMESPACE, RUN, |object| object["spec"]["cancel"] = json!(true));
    let ended = harness.wait_for_end(RUN).await;
    assert_eq!(ended["status"]["phase"], "Cancelled");
    let turn = list(&ended["status"]["steps"]).find(|step| step["path"] == "handle").unwrap();
    assert_eq!(turn["phase"], "Succeeded", "{ended:#}");
    harness.pass(600).await;
    laws::hold(&harness, RUN).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_suspended_run_stores_its_turn_and_reads_when_it_is_resumed() {
    let (harness, _life) = begin_with_unstored_read(&spec()).await;
    harness.server.edit(&workflows(), NAMESPACE, RUN, |object| object["spec"]["suspend"] = json!(true));
    harness.pass(600).await;
    assert_eq!(stored_phases(&harness), [] as [&str; 0], "{}", harness.server.story());
    let suspended = harness.workflow(RUN);
    let turn = list(&suspended["status"]["steps"]).find(|step| step["path"] == "handle").unwrap();
    assert_eq!(
        (turn["phase"].as_str(), harness.world.effects().len()),
        (Some("Succeeded"), 2),
        "the turn and its read"
    );
    harness.server.edit(&workflows(), NAMESPACE, RUN, |object| object["spec"]["suspend"] = json!(false));
    assert_eq!(harness.wait_for_end(RUN).await["status"]["outputs"], "all is done");
    harness.pass(600).await;
    laws::hold(&harness, RUN).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_gate_that_opens_with_the_result_of_an_unstored_read_is_asked() {
    let mut spec = spec();
    let steps = spec["steps"].as_array_mut().unwrap();
    steps.push(json!({"name": "look", "branch": "other", "http": {"url": "http://orders.test/all"}}));
    steps.push(gate("review", json!({})));
    steps[0]["branch"] = json!("one");
    steps[6]["branch"] = json!("other");
    spec["pattern"] = json!({"parallel": {}});
    let harness = Harness::new();
    script_turns_at(&harness.world, &format!("{RUN}/one/handle"), 1, &[("find", 0)]);
    // Both results come at the same moment, so that one transition takes both.
    let after = |millis| Answer::value("done").after(Duration::from_millis(millis));
    harness.world.answers(format!("{RUN}/one/handle/.turn-1/.call-1/get-order"), after(500));
    harness.world.answers(format!("{RUN}/other/look"), after(1500));
    // The next turn never ends by itself: only the transition that takes both results can ask.
    harness.world.answers(format!("{RUN}/one/handle/.turn-2"), Answer::value("late").after(Duration::from_secs(3000)));
    harness.apply(RUN, &spec);
    let _life = harness.begin(OPERATOR);
    harness.pass(60).await;
    assert_eq!(harness.approvals().len(), 1, "{:#}\n{}", harness.workflow(RUN)["status"], harness.server.story());
}

#[tokio::test(start_paused = true)]
async fn many_reads_within_a_second_all_get_results() {
    let harness = Harness::new();
    script_turns(&harness.world, 3, &[("find", 0); 32]);
    for turn in 1..=3 {
        // Equal calls are made one after the other, each with a result of its own.
        let call = |at: i32| json!({"id": format!("{turn}-{at}"), "tool": "find", "arguments": "{\"id\": 1}"});
        let asked = json!({"text": "", "calls": (1..=32).map(call).collect::<Vec<_>>()});
        let path = if turn == 1 { String::new() } else { format!("/.turn-{turn}") };
        harness.world.answers(format!("{RUN}/handle{path}"), Answer::value(asked).after(Duration::from_secs(1)));
        for at in 1..=32 {
            let answer = Answer::value("done").after(Duration::from_millis(10));
            harness.world.answers(format!("{RUN}/handle/.turn-{turn}/.call-{at}/get-order"), answer);
        }
    }
    harness.apply(RUN, &spec());
    let _life = harness.begin(OPERATOR);
    assert_eq!(harness.wait_for_end(RUN).await["status"]["outputs"], "all is done", "{}", harness.server.story());
    harness.pass(600).await;
    laws::hold(&harness, RUN).unwrap();
}

#[tokio::test(start_paused = true)]
async fn long_answers_of_a_turn_and_its_reads_are_stored_with_them() {
    let harness = Harness::new();
    script_turns(&harness.world, 3, &[("find", 0), ("find", 0)]);
    let long = Answer::value("y".repeat(5_000));
    harness.world.answers(format!("{RUN}/handle/.turn-2/.call-1/get-order"), long);
    let text = json!({"text": "x".repeat(5_000), "calls": [{"id": "2-1", "tool": "find", "arguments": "{\"id\": 1}"}, {"id": "2-2", "tool": "find", "arguments": "{\"id\": 2}"}]});
    harness.world.answers(format!("{RUN}/handle/.turn-2"), Answer::value(text).after(Duration::from_secs(1)));
    harness.apply(RUN, &spec());
    let _life = harness.begin(OPERATOR);
    assert_eq!(harness.wait_for_end(RUN).await["status"]["outputs"], "all is done", "{}", harness.server.story());
    harness.pass(600).await;
    assert_eq!(count_state_writes(&harness) - 2, 3);
    laws::hold(&harness, RUN).unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_call_that_must_not_be_repeated_is_stored_at_once() {
    // The end of a turn's last call is stored with the start of the next turn, whatever the call is.
    for (calls, more) in [
        (&[("tell", 3)][..], 0),
        (&[("tell", 1), ("tell", 5), ("tell", 9)], 2),
        (&[("find", 1), ("tell", 5), ("find", 9)], 1),
        (&[("find", 1), ("find", 5), ("tell", 9)], 0),
    ] {
        assert_eq!(count_turn_writes(5, calls).await, 5 * (2 + more), "{calls:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_gate_of_a_turn_costs_at_most_four_state_writes_more() {
    for (calls, expected) in [
        (&[("pay", 3)][..], 5),
        (&[("find", 1), ("find", 9), ("pay", 3)], 6),
        (&[("pay", 3), ("pay", 3)], 9),
        (&[("find", 1), ("find", 9), ("pay", 3), ("put", 3)], 10),
    ] {
        let gated: Vec<_> = (1..).zip(calls).filter(|(_, (tool, _))| ["pay", "put"].contains(tool)).collect();
        let harness = Harness::new();
        script_turns(&harness.world, 1, calls);
        harness.apply(RUN, &spec());
        let _life = harness.begin(OPERATOR);
        for (at, _) in &gated {
            // Half a day passes before each decision, and costs nothing.
            harness.people().wait_for_gate(&format!("handle/.turn-1/.call-{at}/.gate")).await;
            harness.pass(60).await;
            let before = count_state_writes(&harness);
            harness.pass(12 * 3600).await;
            assert_eq!(count_state_writes(&harness), before, "{}", harness.server.story());
            harness.people().decide("alice", &format!("handle/.turn-1/.call-{at}/.gate"), 1, verdict("Approve")).await;
        }
        assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded");
        harness.pass(600).await;
        let writes = count_state_writes(&harness) - 2;
        assert!(writes <= 2 + 4 * gated.len(), "{calls:?}: {writes} writes");
        assert_eq!(writes, expected, "{calls:?}:\n{}", harness.server.story());
    }
}

/// Returns the phases of the calls of the first turn as they are stored, in order.
fn stored_phases(harness: &Harness) -> Vec<String> {
    let workflow = harness.workflow(RUN);
    let calls = list(&workflow["status"]["steps"]).filter(|step| step["kind"] == "http");
    calls.map(|step| step["phase"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_call_waits_for_its_siblings_at_most_half_a_minute() {
    let harness = Harness::new();
    script_turns(&harness.world, 1, &[("find", 1), ("find", 3), ("find", 1800)]);
    harness.apply(RUN, &spec());
    let _life = harness.begin(OPERATOR);
    harness.pass(15).await;
    let before = count_state_writes(&harness);
    assert_eq!(stored_phases(&harness), ["Started", "Started", "Started"]);
    harness.pass(30).await;
    assert_eq!(stored_phases(&harness), ["Succeeded", "Succeeded", "Started"]);
    harness.pass(1200).await;
    assert_eq!(count_state_writes(&harness), before + 1, "one write for both, and none while a call lasts");
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn an_end_beside_gates_alone_is_stored_at_once() {
    let harness = Harness::new();
    script_turns(&harness.world, 1, &[("find", 1), ("pay", 1)]);
    harness.apply(RUN, &spec());
    let _life = harness.begin(OPERATOR);
    harness.people().wait_for_gate("handle/.turn-1/.call-2/.gate").await;
    harness.pass(2).await;
    assert_eq!(stored_phases(&harness), ["Succeeded"], "a person can take days");
    assert_eq!(harness.workflow(RUN)["status"]["phase"], "Waiting");
}

#[tokio::test(start_paused = true)]
async fn long_results_are_not_kept_in_memory_alone() {
    let harness = Harness::new();
    script_turns(&harness.world, 1, &[("find", 1), ("find", 2), ("find", 20)]);
    for (at, bytes) in [(1, 200_000), (2, 100_000)] {
        let answer = Answer::value("x".repeat(bytes)).after(Duration::from_secs(at));
        harness.world.answers(format!("{RUN}/handle/.turn-1/.call-{at}/get-order"), answer);
    }
    harness.apply(RUN, &spec());
    let _life = harness.begin(OPERATOR);
    harness.pass(10).await;
    assert_eq!(stored_phases(&harness), ["Succeeded", "Succeeded", "Started"], "both together are too long to wait");
}

#[tokio::test(start_paused = true)]
async fn an_operator_stores_waiting_results_when_it_shuts_down() {
    let harness = Harness::new();
    script_turns(&harness.world, 1, &[("find", 1), ("find", 15)]);
    harness.apply(RUN, &spec());
    let life = harness.server.incarnation(OPERATOR);
    let clock = harness.server.clock();
    let shutdown = async move { clock.pass(Duration::from_secs(8)).await };
    let process = tokio::spawn(harness.operator_until(&life, shutdown));
    harness.pass(7).await;
    assert_eq!(stored_phases(&harness), ["Started", "Started"]);
    harness.pass(2).await;
    assert_eq!(stored_phases(&harness), ["Succeeded", "Started"], "{}", harness.server.story());
    process.await.unwrap();
    assert_eq!(stored_phases(&harness), ["Succeeded", "Succeeded"], "{}", harness.server.story());
}

#[tokio::test(start_paused = true)]
async fn a_crash_repeats_only_calls_whose_end_was_not_stored() {
    let harness = Harness::new();
    script_turns(&harness.world, 1, &[("find", 1), ("tell", 2), ("find", 4), ("find", 9)]);
    harness.apply(RUN, &spec());
    let life = harness.begin(OPERATOR);
    harness.pass(8).await;
    assert_eq!(
        stored_phases(&harness),
        ["Succeeded", "Succeeded", "Started", "Started"],
        "the second end took the first along"
    );
    life.crash().await;
    let _life = harness.begin(OPERATOR);
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded");
    harness.pass(600).await;
    let repeated: Vec<_> = harness.world.repeated().into_keys().map(|key| key.path).collect();
    assert_eq!(repeated, [3, 4].map(|at| format!("{RUN}/handle/.turn-1/.call-{at}/get-order")));
    laws::hold(&harness, RUN).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_turn_costs_no_requests_that_read() {
    let harness = Harness::new();
    script_turns(&harness.world, 5, &[("find", 1), ("find", 5)]);
    harness.apply(RUN, &spec());
    let _life = harness.begin_and_settle(OPERATOR).await;
    harness.wait_for_end(RUN).await;
    assert_eq!(harness.server.count(|entry| entry.verb == Verb::Get), 0, "{}", harness.server.story());
    assert_eq!(harness.server.count(is_status_write), 12);
}
