//! The input of a step as people see it: every value rendered, JSON as a structure.
//!
//! **Invariant:** a body is shown as a structure only if the structure, written as JSON, is the same text but for white
//! space.

use serde_json::{Map, Value, json};
use signoff_api::{Digest, journal::StepKind};

use super::{
    excerpt::Fields,
    kinds::{kind, render_input},
};
use crate::{
    evaluation::{Part, within},
    replay::{
        activity::{ActivityKey, Start, input_digest},
        origins::Origins,
        run::{RenderError, Run},
        step_invocation::StepInvocation,
        tool_turn::is_left_out,
    },
    transition::{AgentCall, Call, CallContent, HttpCall, McpCall, McpRequest, Message, Role, SentSecret},
};

/// Returns all fields of a call: the target first, long values last.
pub(super) fn of_call(call: &Call) -> Result<Fields, RenderError> {
    match &call.content {
        CallContent::Pod(pod) => {
            let long = ["command", "args", "env", "files", "podTemplate"];
            Ok(Fields::of(&pod.spec, &["image"], "image")?.with_last(&long))
        }
        CallContent::Http(http) => of_http(http),
        CallContent::Mcp(mcp) => of_mcp(mcp),
        CallContent::Agent(agent) => {
            Fields::of(agent, &["agent", "provider", "key", "model", "messages", "system"], "messages")
        }
    }
}

/// Returns the input of a step for the people who decide about a call or its result. The input of an agent is its
/// model, its prompts and the names of its tools, without the earlier conversation.
pub(super) fn of_input(start: &Start) -> Result<Option<Fields>, RenderError> {
    match start {
        Start::Call(Call { content: CallContent::Agent(agent), .. }) => of_agent(agent).map(Some),
        Start::Call(call) => of_call(call).map(Some),
        Start::Immediate(text) => Fields::of(&fields_of_text("value", text), &[], "value").map(Some),
        _ => Ok(None),
    }
}

/// Returns the input of an attempt, and the origins of the input. Returns `None` for a `set` step, and if the input
/// that is rendered now differs from the recorded one.
pub(super) async fn of_attempt<'a>(
    run: &Run<'a>,
    invocation: &StepInvocation<'a>,
    path: &str,
    attempt: i32,
) -> Option<(Fields, Origins)> {
    let record = run.state.borrow().journal.get(path, attempt).cloned()?;
    let kind = kind(invocation.step);
    if kind == StepKind::Set {
        return None;
    }
    let key = ActivityKey { path: path.to_owned(), attempt, kind };
    let render = || {
        let (start, origins) = run.origins.collect(|| render_input(run, invocation, record.seq, &key));
        let start = start?;
        let is_same = match &start {
            Start::Call(call) => input_digest(call).ok() == record.input_digest,
            _ => false,
        };
        let fields = if is_same { of_input(&start)? } else { None };
        Ok(fields.map(|fields| (fields, origins)))
    };
    let part = || Part::step(path, attempt);
    run.render(|| within(part, render)).await.ok().flatten()
}

fn of_http(http: &HttpCall) -> Result<Fields, RenderError> {
    let mut fields = Map::from_iter([("url".to_owned(), json!(http.url)), ("method".to_owned(), json!(http.method))]);
    if let Some(body) = &http.body {
        fields.extend(fields_of_text("body", body));
    }
    fields.insert("headers".to_owned(), json!(http.headers));
    if !http.secret_headers.is_empty() {
        let shown = http.secret_headers.iter().map(|header| (header.header.clone(), json!(secret_header(header))));
        fields.insert("secretHeaders".to_owned(), Value::Object(shown.collect()));
    }
    if !http.expect_status.is_empty() {
        fields.insert("expectStatus".to_owned(), json!(http.expect_status));
    }
    Fields::of(&fields, &["url", "method"], "url")
}

/// Renders a header whose value is a key of a Secret, without the value.
fn secret_header(header: &SentSecret) -> String {
    let SentSecret { header: _, prefix, entry } = header;
    format!("{prefix}‹Secret {}/{}› (its value is not covered by the approval)", entry.secret, entry.key)
}

fn of_mcp(mcp: &McpCall) -> Result<Fields, RenderError> {
    let call = match &mcp.request {
        McpRequest::Call(call) => Some(call),
        McpRequest::Catalogue { .. } => None,
    };
    let mut fields = Map::new();
    for (name, value) in [
        ("server", json!(mcp.server)),
        ("url", json!(mcp.url)),
        ("command", json!(mcp.command)),
        ("tool", json!(call.map(|call| &call.tool))),
        ("definition", json!(call.map(|call| &call.definition))),
        ("key", json!(mcp.key)),
        ("header", json!(mcp.header)),
        ("arguments", json!(call.map(|call| &call.arguments))),
        // The description by the server comes after all sent fields.
        ("describedByTheServer", json!(call.map(|call| &*call.described))),
    ] {
        if !(value.is_null() || value.as_array().is_some_and(Vec::is_empty)) {
            fields.insert(name.to_owned(), value);
        }
    }
    Fields::of(&fields, &[], "arguments")
}

fn of_agent(agent: &AgentCall) -> Result<Fields, RenderError> {
    let is_input = |message: &&Message| message.role == Role::User && !is_left_out(message);
    let input = agent.messages.iter().rfind(is_input).map(|message| &message.text);
    let mut fields = Map::new();
    for (name, value) in [
        ("agent", json!(agent.agent)),
        ("provider", json!(agent.provider)),
        ("key", json!(agent.key)),
        ("model", json!(agent.model)),
        ("input", json!(input)),
        ("system", json!(agent.system)),
        ("temperature", json!(agent.temperature)),
        ("maxTokens", json!(agent.max_tokens)),
        ("tools", json!(agent.tools.iter().map(|tool| &tool.name).collect::<Vec<_>>())),
    ] {
        if !value.is_null() {
            fields.insert(name.to_owned(), value);
        }
    }
    Fields::of(&fields, &[], "input")
}

/// Returns the fields for a text: JSON as a structure, with the size and the digest of the original text.
fn fields_of_text(name: &str, text: &str) -> Map<String, Value> {
    let Some(structure) = structure(text) else { return Map::from_iter([(name.to_owned(), json!(text))]) };
    Map::from_iter([
        (name.to_owned(), structure),
        (format!("{name}Bytes"), json!(text.len())),
        (format!("{name}Digest"), json!(Digest::of_bytes(text.as_bytes()))),
    ])
}

/// Returns the object or list of a text, if the text is nothing but its JSON. A text with duplicate names, numbers that
/// would be rounded, or escaped letters stays a text.
fn structure(text: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(text).ok().filter(|value: &Value| value.is_object() || value.is_array())?;
    (serde_json::to_string(&value).ok()? == without_spaces(text)).then_some(value)
}

/// Returns a JSON text without the white space between its tokens.
fn without_spaces(text: &str) -> String {
    let (mut in_string, mut is_escaped) = (false, false);
    let is_kept = |c: &char| {
        let is_space = !in_string && matches!(c, ' ' | '\t' | '\n' | '\r');
        match c {
            '"' if !is_escaped => in_string = !in_string,
            _ => {}
        }
        is_escaped = in_string && *c == '\\' && !is_escaped;
        !is_space
    };
    text.chars().filter(is_kept).collect()
}

#[cfg(test)]
#[path = "sent_tests.rs"]
mod tests;
