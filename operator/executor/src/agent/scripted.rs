//! The scripted provider: replies that the author of a Workflow wrote.
//!
//! Deterministic: no clock, no randomness, no memory of earlier turns. A script without a reply for a turn is an error.
//! The work of a search is charged, so that a search ends when its evaluation is stopped.

use std::collections::HashSet;

use signoff_api::{
    journal::Usage,
    turn::{RequestedArguments, RequestedCall, TurnCalls},
    workflow::{ScriptedCall, ScriptedReply},
};
use signoff_engine::transition::ToolCall;
use signoff_expr::budget;

use super::{TurnReply, TurnRequest, requested::bound_calls};
use crate::error::{CallError, ErrorClass};

/// Answers a turn with the first reply of the script that matches. Usage is counted in words instead of tokens.
///
/// # Errors
/// No reply matches, the reply is an error or invalid, or it calls tools of an agent without tools.
pub(super) fn answer(replies: &[ScriptedReply], request: &TurnRequest) -> Result<TurnReply, CallError> {
    // A search that is stopped by the budget finds nothing, and its result is not used.
    let is_contained = |part: &str| {
        let mut messages = request.unanswered().iter();
        messages.any(|message| budget::charge(message.text.len()).is_ok() && message.text.contains(part))
    };
    let Some(reply) = replies.iter().find(|reply| reply.contains.as_deref().is_none_or(is_contained)) else {
        return Err(CallError::invalid(format!(
            "none of the {} scripted replies fits this turn: add one without `contains`, \
             or one whose `contains` occurs in a message after the model's last answer",
            replies.len()
        )));
    };
    if !reply.calls.is_empty() && request.tools.is_empty() {
        return Err(CallError::invalid(
            "a scripted reply calls tools, and the agent has none: give it tools, or remove `calls` from the reply",
        ));
    }
    match (&reply.text, &*reply.calls, &reply.error) {
        // Like a failure of a provider, so that an author can try out retries and `onError`.
        (None, [], Some(error)) => {
            Err(CallError::new(ErrorClass::Status(500), true, format!("scripted error: {error}")))
        }
        (None, [], _) | (_, _, Some(_)) => {
            Err(CallError::invalid("a scripted reply needs either `text`, `calls` or both, or `error`"))
        }
        (text, calls, None) => Ok(reply_of(text.clone().unwrap_or_default(), calls, request)),
    }
}

/// Returns the reply with a text and calls. Its usage is counted in words.
fn reply_of(text: String, calls: &[ScriptedCall], request: &TurnRequest) -> TurnReply {
    let calls = request_calls(calls, request);
    let words_of_calls = calls.iter().map(|call| match &call.arguments {
        RequestedArguments::Text(arguments) => count_words(arguments),
        RequestedArguments::TooLong(_) => 0,
    });
    let usage = Usage {
        input_tokens: request.prompts().map(count_words).sum(),
        output_tokens: count_words(&text) + words_of_calls.sum::<i64>(),
        ..Usage::default()
    };
    let dropped = calls.len().saturating_sub(TurnCalls::MAX_CALLS);
    TurnReply { text, calls: bound_calls(calls), dropped, opaque: None, usage: Some(usage), truncated: false }
}

/// Returns the calls as a provider would: with the names of tools that are sent to providers, and with ids that are new
/// in the conversation.
fn request_calls(calls: &[ScriptedCall], request: &TurnRequest) -> Vec<RequestedCall> {
    let earlier = || request.messages.iter().flat_map(|message| &message.calls);
    let taken: HashSet<&str> = earlier().map(|ToolCall { id, .. }| id.as_str()).collect();
    let ids = (earlier().count() + 1..).map(|number| format!("call_{number}"));
    let ids = ids.filter(|id| !taken.contains(id.as_str()));
    let calls = ids.zip(calls).map(|(id, call)| RequestedCall {
        id,
        tool: call.tool.replace('.', "__"),
        arguments: RequestedArguments::Text(serde_json::Value::Object(arguments(call)).to_string()),
    });
    calls.collect()
}

fn arguments(call: &ScriptedCall) -> serde_json::Map<String, serde_json::Value> {
    call.arguments.clone().unwrap_or_default().0
}

fn count_words(text: &str) -> i64 {
    i64::try_from(text.split_whitespace().count()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use serde_json::{Value, json};
    use signoff_api::workflow::Provider;
    use signoff_engine::transition::{Message, Role, ToolOffer};

    use super::*;

    fn turn(messages: Vec<Message>) -> TurnRequest {
        TurnRequest {
            provider: Provider::default(),
            namespace: "finance".into(),
            model: "any".into(),
            system: Some("be kind".into()),
            messages,
            tools: vec![],
            max_tokens: None,
            temperature: None,
            timeout: Duration::from_secs(1),
            key: None,
        }
    }

    fn request_with_text(text: &str) -> TurnRequest {
        turn(vec![Message::text(Role::User, text)])
    }

    fn with_tools(messages: Vec<Message>) -> TurnRequest {
        let offer = ToolOffer { name: "letter".into(), description: "Send a letter.".into(), parameters: json!({}) };
        TurnRequest { tools: vec![offer], ..turn(messages) }
    }

    fn assistant_with(calls: &[(&str, &str)]) -> Message {
        let call = |(id, arguments): &(&str, &str)| ToolCall {
            id: (*id).into(),
            tool: "letter".into(),
            arguments: (*arguments).into(),
        };
        Message { calls: calls.iter().map(call).collect(), ..Message::text(Role::Assistant, "") }
    }

    fn script(replies: Value) -> Vec<ScriptedReply> {
        serde_json::from_value(replies).unwrap()
    }

    fn text(script: &[ScriptedReply], request: &TurnRequest) -> String {
        answer(script, request).unwrap().text
    }

    fn calls(script: &[ScriptedReply], request: &TurnRequest) -> Vec<(String, String, RequestedArguments)> {
        let calls = answer(script, request).unwrap().calls;
        calls.into_iter().map(|call| (call.id, call.tool, call.arguments)).collect()
    }

    fn call(id: &str, tool: &str, arguments: &str) -> (String, String, RequestedArguments) {
        (id.into(), tool.into(), RequestedArguments::Text(arguments.into()))
    }

    #[test]
    fn the_first_reply_that_fits_an_unanswered_message_is_used() {
        let script = script(json!([{"contains": "refund", "text": "Dear customer"}, {"text": "hello"}]));
        let request = turn(vec![
            Message::text(Role::User, "a refund please"),
            Message::text(Role::Assistant, "refund"),
            Message::text(Role::User, "hi there"),
        ]);
        assert_eq!(text(&script, &request), "hello");
        assert_eq!(text(&script, &request_with_text("a refund")), "Dear customer");
        // The same turn again has the same reply.
        assert_eq!(text(&script, &request), "hello");
    }

    #[test]
    fn the_result_of_any_call_of_the_last_turn_selects_a_reply() {
        let script = script(json!([{"contains": "sent", "text": "done"}, {"text": "hello"}]));
        let results = |first: &str, second: &str| {
            with_tools(vec![
                Message::text(Role::User, "sent?"),
                assistant_with(&[("call_1", "{}"), ("call_2", "{}")]),
                Message::result("call_1", first),
                Message::result("call_2", second),
            ])
        };
        assert_eq!(text(&script, &results("sent", "rejected")), "done");
        assert_eq!(text(&script, &results("rejected", "sent")), "done");
        assert_eq!(text(&script, &results("rejected", "rejected")), "hello");
        // An earlier result does not match.
        let mut later = results("sent", "sent");
        later.messages.push(assistant_with(&[("call_3", "{}")]));
        later.messages.push(Message::result("call_3", "rejected"));
        assert_eq!(text(&script, &later), "hello");
    }

    #[test]
    fn calls_with_or_without_text_have_the_names_sent_to_providers() {
        let calls_only = script(json!([{"calls": [
            {"tool": "letter", "arguments": {"to": "ACME", "n": 1}},
            {"tool": "human_intervention.request"},
        ]}]));
        let request = with_tools(vec![Message::text(Role::User, "write")]);
        let expected =
            [call("call_1", "letter", r#"{"to":"ACME","n":1}"#), call("call_2", "human_intervention__request", "{}")];
        assert_eq!(calls(&calls_only, &request), expected);
        assert_eq!(text(&calls_only, &request), "");
        // The same turn again has the same calls.
        assert_eq!(calls(&calls_only, &request), expected);
        let both = script(json!([{"text": "I write.", "calls": [{"tool": "letter"}]}]));
        assert_eq!(text(&both, &request), "I write.");
        assert_eq!(calls(&both, &request), [call("call_1", "letter", "{}")]);
    }

    #[test]
    fn ids_continue_the_numbers_of_the_conversation_and_are_unique() {
        let script = script(json!([{"calls": [{"tool": "letter"}, {"tool": "letter"}]}]));
        let after = |earlier: &[(&str, &str)]| {
            let request = with_tools(vec![assistant_with(earlier)]);
            calls(&script, &request).into_iter().map(|call| call.0).collect::<Vec<_>>()
        };
        assert_eq!(after(&[("call_1", "{}")]), ["call_2", "call_3"]);
        // A conversation without its oldest turns has fewer calls than numbers.
        assert_eq!(after(&[("call_2", "{}")]), ["call_3", "call_4"]);
        assert_eq!(after(&[("call_3", "{}")]), ["call_2", "call_4"]);
        assert_eq!(after(&[("other", "{}"), ("another", "{}")]), ["call_3", "call_4"]);
    }

    #[test]
    fn calls_of_an_agent_without_tools_are_refused() {
        let script = script(json!([{"text": "I write.", "calls": [{"tool": "letter"}]}]));
        let error = answer(&script, &request_with_text("write")).unwrap_err();
        assert_eq!(error.class, ErrorClass::Invalid);
        assert!(error.message.contains("give it tools, or remove `calls`"), "{error}");
        assert!(answer(&script, &with_tools(vec![Message::text(Role::User, "write")])).is_ok());
    }

    #[test]
    fn usage_counts_words_of_system_messages_calls_results_and_answer() {
        let reply = answer(&script(json!([{"text": "one two three"}])), &request_with_text(" a  b\nc ")).unwrap();
        assert_eq!(reply.usage, Some(Usage { input_tokens: 5, output_tokens: 3, ..Usage::default() }));
        let script = script(json!([{"text": "one", "calls": [{"tool": "letter", "arguments": {"to": "a b"}}]}]));
        let messages = vec![assistant_with(&[("call_1", r#"{"to": "me"}"#)]), Message::result("call_1", "sent it")];
        let reply = answer(&script, &with_tools(messages)).unwrap();
        assert_eq!(reply.usage, Some(Usage { input_tokens: 6, output_tokens: 3, ..Usage::default() }));
    }

    #[test]
    fn a_script_without_a_fitting_reply_is_an_error_with_a_remedy() {
        let error = answer(&script(json!([{"contains": "x", "text": "y"}])), &request_with_text("abc")).unwrap_err();
        assert_eq!(error.class, ErrorClass::Invalid);
        assert!(error.message.contains("none of the 1 scripted replies fits"), "{error}");
        assert!(!error.retryable(true));
        assert!(answer(&[], &turn(vec![])).is_err());
    }

    #[test]
    fn a_scripted_error_fails_the_turn_as_a_provider_would() {
        let error = answer(&script(json!([{"error": "overloaded"}])), &turn(vec![])).unwrap_err();
        assert_eq!(error.message, "scripted error: overloaded");
        assert!(error.retryable(true));
    }

    #[test]
    fn a_reply_with_neither_answer_nor_error_or_with_both_is_refused() {
        for reply in [
            json!({}),
            json!({"text": "a", "error": "b"}),
            json!({"calls": [{"tool": "letter"}], "error": "b"}),
            json!({"text": "a", "calls": [{"tool": "letter"}], "error": "b"}),
        ] {
            let error = answer(&script(json!([reply])), &with_tools(vec![])).unwrap_err();
            assert!(error.message.contains("needs either"), "{error}");
        }
    }
}
