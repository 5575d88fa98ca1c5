//! A tool of an agent that is a container, behind a gate: after its approval it runs once or never, wherever the
//! operator dies.

use std::{cell::Cell, time::Duration};

use futures::FutureExt;
use serde_json::json;
use signoff_tests::sim::Answer;

use super::{
    crashes::{check_unknown_end, play_every_death},
    starts,
};
use crate::{
    disturbances, laws,
    people::verdict,
    scenario_runner::{ALONE, FinishedPlay, play},
    scenarios::{RUN, Scenario, chain, gate, pod},
};

const GATE: &str = "handle/.turn-1/.call-1/.gate";
const CALL: &str = "handle/.turn-1/.call-1/scan";

const POD_CALL: Scenario = Scenario {
    name: "an agent with a gated tool that is a container",
    spec: || {
        let mut spec = chain(json!([
            {"name": "handle", "agent": {"name": "writer", "input": "Is it healthy?"}},
            pod("scan", json!({"env": [{"name": "VOLUME", "value": "{{ args.volume }}"}]})),
        ]));
        spec["agents"][0]["tools"] = json!(["scan"]);
        let parameters = json!({"type": "object"});
        spec["tools"] = json!([{"name": "scan", "step": "scan", "description": "scan", "effects": "read", "parameters": parameters}]);
        spec["gates"] = json!([gate("every", json!({}))]);
        spec["gates"][0]["type"] = json!("toolExecution");
        spec
    },
    world: |world| {
        let after = |answer: Answer, seconds| answer.after(Duration::from_secs(seconds));
        let calls = json!([{"id": "c1", "tool": "scan", "arguments": r#"{"volume": "data-7"}"#}]);
        world.answers("refund/handle", after(Answer::value(json!({"text": "", "calls": calls})), 1));
        world.answers(format!("refund/{CALL}"), after(Answer::value("it is healthy"), 20));
        world.answers("refund/handle/.turn-2", after(Answer::value("all is well"), 1));
    },
    people: |people| async move { people.decide("alice", GATE, 60, verdict("Approve")).await }.boxed(),
};

#[tokio::test(start_paused = true)]
async fn a_container_tool_runs_at_most_once_wherever_the_operator_dies() {
    let FinishedPlay { harness, ending: undisturbed, .. } = play(&POD_CALL, ALONE, |_| {}).await;
    laws::hold(&harness, RUN).unwrap_or_else(|broken| panic!("{broken}\n{}", harness.server.story()));
    let run = &undisturbed.0;
    assert_eq!((&run["phase"], &run["outputs"]), (&json!("Succeeded"), &json!("all is well")));
    assert_eq!(starts(&harness, CALL, 1), 1);
    let conversation = harness.world.effects().pop().unwrap().input["what"]["messages"].to_string();
    assert!(conversation.contains("it is healthy"), "{conversation}");
    let unknown = Cell::new(0);
    let check = async |what: &str, finished: FinishedPlay, death| {
        let is_unknown = check_unknown_end(what, &finished, death, &undisturbed);
        unknown.set(unknown.get() + usize::from(is_unknown));
    };
    play_every_death(&POD_CALL, ALONE, disturbances::NONE, check).await;
    // Between the commit that begins the step and the creation of its Pod, in each of two ways to die.
    assert!(unknown.get() >= 2, "only {} ended as not known", unknown.get());
}
