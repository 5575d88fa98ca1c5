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
    let list: Vec<_> =
        calls.iter().map(|(id, tool, arguments)| json!({"id": id, "tool": tool, "arguments": arguments})).collect();
    raw_turn(run, path, json!({"text": "let me see", "calls": list}));
}

pub(super) fn raw_turn(run: &mut TestRun, path: &str, response: Value) {
    turn_with(run, path, response, None);
}

pub(super) fn turn_with(run: &mut TestRun, path: &str, response: Value, opaque: Option<OpaqueParts>) {
    // The form in which the caller records it, with any ids of the model.
    let given: TurnCalls = serde_json::from_value(response).unwrap();
    let response = json!(TurnCalls::recorded(given.text, given.calls, given.truncated, given.dropped));
    let count = response["calls"].as_array().unwrap().len();
    let facts = BTreeMap::from([("calls".to_owned(), count.to_string())]);
    let reply = Reply { response, facts, opaque: opaque.map(Box::new), ..Reply::default() };
    let at = run.clock;
    run.take(vec![Fact::CallFinished { path: path.into(), attempt: 1, result: Ok(reply), at }]);
}

/// Returns the messages that the agent receives at a path.
pub(super) fn told(run: &TestRun, path: &str) -> Vec<Message> {
    let found = run.transition.commands.iter().find_map(|command| match command {
        Command::Call(call) if call.path == path => match &call.content {
            CallContent::Agent(agent) => Some(agent.messages.clone()),
            _ => None,
        },
        _ => None,
    });
    found.unwrap_or_else(|| panic!("{path} is not called: {:?}", run.calls()))
}

/// Returns the result under a call id that the agent receives at a path.
pub(super) fn result(run: &TestRun, path: &str, id: &str) -> String {
    let all: Vec<_> = told(run, path).into_iter().filter(|m| m.answers.as_deref() == Some(id)).collect();
    assert_eq!(all.len(), 1, "exactly one result for {id}");
    all[0].text.clone()
}
