//! The servers of the demo of agents: a model that speaks OpenAI's protocol, and the HTTP tools that its agent calls.
//! The model knows only the results that it gets, as every model does.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use signoff_tests::chat_completions::{Told, completion, told};
use signoff_tests::loopback::{self, Loopback};

pub(super) const QUESTION: &str = "Order 4711 arrived damaged. What shall I offer to ACME?";
pub(super) const LETTER: &str = "Dear ACME, the refund for order 4711 is on its way.";

/// Starts the model.
pub(super) async fn start_model() -> Result<Loopback> {
    Loopback::start(|_, request| {
        let body = serde_json::from_str(&request.body).unwrap_or_default();
        match told(&body) {
            Ok(turns) => loopback::json(&next_turn(&turns)),
            Err(why) => loopback::text(400, format!("{why:#}")),
        }
    })
    .await
}

/// Returns the turn of the model that follows `turns`.
fn next_turn(turns: &[Vec<Told>]) -> Value {
    let arguments = |value: Value| value.to_string();
    let calls = |text: &str, calls: &[(&str, &str, String)]| {
        let calls: Vec<_> = calls.iter().map(|(id, tool, arguments)| (*id, *tool, arguments.as_str())).collect();
        completion(Some(text), &calls, "tool_calls")
    };
    let late = || arguments(json!({"amount": 80, "order": "4712"}));
    match turns.len() {
        0 => {
            let question = json!({"id": "offer", "options": ["A refund", "A new one"], "question": QUESTION});
            calls(
                "I look at the customer and the order, and ask what to offer.",
                &[
                    ("call_0", "crm__get_customer", arguments(json!({"name": "ACME"}))),
                    ("call_1", "lookup", arguments(json!({"order": "4711"}))),
                    ("call_2", "ask-human", arguments(json!({"questions": [question]}))),
                ],
            )
        }
        1 => calls(
            "They want a refund. Finance will surely agree.",
            &[("call_3", "crm__refund", arguments(json!({"amount": 420, "order": "4711"})))],
        ),
        2 => calls("I also refund something for the delay.", &[("call_4", "crm__refund", late())]),
        3 => calls(
            "I try that once more, and write to ACME.",
            &[("call_5", "crm__refund", late()), ("call_6", "letter", arguments(json!({"text": LETTER})))],
        ),
        _ => completion(Some("ACME has a refund for order 4711 and a letter."), &[], "stop"),
    }
}

/// Starts the tools that are called by HTTP.
pub(super) async fn start_tools() -> Result<Loopback> {
    Loopback::start(|_, request| match request.what.as_str() {
        "GET /orders/4711" => loopback::text(200, "order 4711: 420 EUR, delivered on Monday"),
        "POST /letters" => loopback::text(201, "the letter is sent"),
        _ => loopback::text(404, "there is no such tool"),
    })
    .await
}

/// Returns the calls of all turns with the results that the model got in its last request.
pub(super) fn read_last_calls(model: &Loopback) -> Result<Vec<Told>> {
    let requests = model.received();
    let last = requests.last().context("the model was not asked")?;
    Ok(told(&serde_json::from_str(&last.body)?)?.into_iter().flatten().collect())
}
