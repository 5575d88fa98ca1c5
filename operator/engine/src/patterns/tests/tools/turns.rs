//! Turns of an agent that calls tools, for tests, and the messages that the agent receives.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use signoff_api::turn::{OpaqueParts, TurnCalls};

use crate::{
    Fact,
    tests::test_run::TestRun,
    transition::{CallContent, Command, Message, Reply},
};

/// Finishes a turn with calls, each an id, a tool and arguments.
pub(in crate::patterns::tests) fn turn(run: &mut TestRun, path: &str, calls: &[(&str, &str, &str)]) {
    let list_of_calls: Vec<_> =
        calls.iter().map(|(id, tool, arguments)| json!({"id": id, "tool": tool, "arguments": arguments})).collect();
    raw_turn(run, path, json!({"text": "let me see", "calls": list_of_calls}));
}

pub(super) fn raw_turn(run: &mut TestRun, path: &str, response: Value) {
    turn_with(run, path, response, None);
}

pub(super) fn turn_with(run: &mut TestRun, path: &str, response: Value, opaque: Option<OpaqueParts>) {
    // The turn in the form in which the executor records it. The ids of the model are kept.
    let model_turn: TurnCalls = serde_json::from_value(response).unwrap();
    let response =
        json!(TurnCalls::recorded(model_turn.text, model_turn.calls, model_turn.truncated, model_turn.dropped));
    let count = response["calls"].as_array().unwrap().len();
    let facts = BTreeMap::from([("calls".to_owned(), count.to_string())]);
    let reply = Reply { response, facts, opaque: opaque.map(Box::new), ..Reply::default() };
    let at = run.clock;
    run.take(vec![Fact::CallFinished { path: path.into(), attempt: 1, result: Ok(reply), at }]);
}

/// Returns the messages that the agent receives at a path.
pub(super) fn messages_to_agent(run: &TestRun, path: &str) -> Vec<Message> {
    let messages = run.transition.commands.iter().find_map(|command| match command {
        Command::Call(call) if call.path == path => match &call.content {
            CallContent::Agent(agent) => Some(agent.messages.clone()),
            _ => None,
        },
        _ => None,
    });
    messages.unwrap_or_else(|| panic!("{path} is not called: {:?}", run.calls()))
}

/// Returns the result under a call id that the agent receives at a path.
pub(super) fn result(run: &TestRun, path: &str, id: &str) -> String {
    let results: Vec<_> =
        messages_to_agent(run, path).into_iter().filter(|m| m.answers.as_deref() == Some(id)).collect();
    assert_eq!(results.len(), 1, "exactly one result for {id}");
    results[0].text.clone()
}
