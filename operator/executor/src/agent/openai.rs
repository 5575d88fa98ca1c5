//! OpenAI's chat completions, as many endpoints speak them.
//!
//! It must not stream, or put prompts, answers or keys into an error: of an error body only the
//! provider's own sentence is quoted, and not even that where it quotes the prompt.

mod answer;
mod kept;

use std::collections::HashSet;

use serde::Serialize;
use serde_json::Value;
use signoff_api::{journal::Usage, turn::RequestedCall};
use signoff_engine::transition::{Message, Role, ToolCall, ToolOffer};

use self::answer::Completion;
use self::kept::KeptAnswer;
use super::requested::bounded;
use super::{TurnReply, TurnRequest};
use crate::error::{CallError, ErrorClass};
use crate::http::{ERROR_BODY_LIMIT, HttpClient, HttpRequest};
use crate::redact::{excerpt, on_a_line};
use crate::room::{AnswerRoom, MAX_TURN_ANSWER};
use crate::secrets::ExposeSecret as _;

/// A provider's message that holds this many characters of a prompt in a row quotes it.
const QUOTE: usize = 24;

/// Shorter texts within JSON are not looked for in a provider's message: too many of them are ordinary words.
const SHORTEST_VALUE: usize = 6;

#[derive(Serialize)]
struct Request<'a> {
    model: &'a str,
    messages: Vec<Said<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Typed<'a>>,
    // Not `max_completion_tokens`: that is the newer name, but this is the one every endpoint
    // knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
}

#[derive(Serialize)]
struct Said<'a> {
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
    /// Null only beside calls.
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Called<'a>>,
}

#[derive(Serialize)]
struct Called<'a> {
    id: &'a str,
    #[serde(flatten)]
    typed: Typed<'a>,
}

/// A function, as every tool is for these endpoints.
#[derive(Serialize)]
#[serde(tag = "type", content = "function")]
enum Typed<'a> {
    #[serde(rename = "function")]
    Offer(&'a ToolOffer),
    #[serde(rename = "function")]
    Call { name: &'a str, arguments: &'a str },
}

/// One turn at `{base_url}/chat/completions`.
pub(super) async fn turn(
    http: &HttpClient,
    base_url: &str,
    request: &TurnRequest,
    room: &dyn AnswerRoom,
) -> Result<TurnReply, CallError> {
    let mut call = call(base_url, request)?;
    let offers_tools = !request.tools.is_empty();
    let limit = if offers_tools { MAX_TURN_ANSWER.max(http.max_response()) } else { http.max_response() };
    let mut kept = KeptAnswer::new(room, limit);
    let answer = http.exchange(&mut call, &mut kept).await?;
    let target = format!("model {} at {}", excerpt(&request.model, []), call.place());
    if !answer.status.is_success() {
        return Err(answer.unexpected(&target, &reason(&answer.beginning, request)));
    }
    let broken = |what: String| CallError::new(ErrorClass::Protocol, true, format!("{target} {what}"));
    let completion: Completion = serde_json::from_slice(kept.bytes()).map_err(|error| {
        // serde's own message can quote the answer; its position cannot.
        let (line, column) = (error.line(), error.column());
        broken(format!("answered something other than a chat completion (JSON line {line}, column {column})"))
    })?;
    if completion.error.is_some() {
        return Err(broken(format!("answered an error: {}", reason(kept.bytes(), request))));
    }
    let choice =
        completion.choices.kept.into_iter().next().ok_or_else(|| broken("answered without any choice".to_owned()))?;
    let finish = choice.finish_reason.unwrap_or_default();
    let message = choice.message.ok_or_else(|| broken("answered a choice without a message".to_owned()))?;
    let text = message.content.filter(|text| !text.is_empty());
    if finish == "content_filter" || (text.is_none() && message.refusal.is_some_and(|refusal| !refusal.is_empty())) {
        return Err(CallError::new(ErrorClass::Refused, true, format!("{target} declined to answer ({finish})")));
    }
    // A model that calls what it was not offered has said only its text.
    let (calls, dropped) = match offers_tools {
        true => {
            let answer::AtMost { kept, dropped } = message.tool_calls;
            (bounded(kept.into_iter().map(RequestedCall::from)), dropped)
        }
        false => (Vec::new(), 0),
    };
    let text = match text {
        None if calls.is_empty() => {
            return Err(broken(format!("answered without text (finish reason {:?})", excerpt(&finish, []))));
        }
        text => text.unwrap_or_default(),
    };
    drop(kept);
    let usage = completion.usage.map(|tokens| Usage {
        input_tokens: count(tokens.prompt_tokens),
        output_tokens: count(tokens.completion_tokens),
    });
    Ok(TurnReply { text, calls, dropped, usage, truncated: finish == "length" })
}

/// Returns a number of tokens as the journal keeps it; a number too large for it is its largest.
fn count(tokens: u64) -> i64 {
    i64::try_from(tokens).unwrap_or(i64::MAX)
}

/// The HTTP call that makes the turn.
fn call(base_url: &str, request: &TurnRequest) -> Result<HttpRequest, CallError> {
    if base_url.contains(['?', '#']) {
        return Err(CallError::invalid(
            "the provider's baseURL has a query or a fragment: \
             give only the part before /chat/completions",
        ));
    }
    let system = request.system.as_deref().map(|content| Said::text("system", content));
    let body = serde_json::to_string(&Request {
        model: &request.model,
        messages: system.into_iter().chain(request.messages.iter().map(Said::of)).collect(),
        tools: request.tools.iter().map(Typed::Offer).collect(),
        max_tokens: request.max_tokens,
        temperature: request.temperature,
    })
    .map_err(|_| CallError::invalid("the turn cannot be written as JSON"))?;
    let mut headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    if let Some(key) = &request.key {
        // Keys read from files and Secrets often end in a line break, which no header may hold.
        headers.push(("authorization".to_owned(), format!("Bearer {}", key.expose_secret().trim())));
    }
    Ok(HttpRequest {
        method: "POST".to_owned(),
        url: format!("{}/chat/completions", base_url.trim_end_matches('/')),
        headers,
        body: Some(body),
        expect_status: Vec::new(),
        timeout: request.timeout,
    })
}

impl<'a> Said<'a> {
    fn text(role: &'static str, content: &'a str) -> Self {
        Self { role, tool_call_id: None, content: Some(content), tool_calls: Vec::new() }
    }

    fn of(message: &'a Message) -> Self {
        let text = message.text.as_str();
        match message.role {
            Role::User => Self::text("user", text),
            Role::Assistant => Self {
                content: (message.calls.is_empty() || !text.is_empty()).then_some(text),
                tool_calls: message.calls.iter().map(Called::of).collect(),
                ..Self::text("assistant", text)
            },
            Role::Tool => Self { tool_call_id: message.answers.as_deref(), ..Self::text("tool", text) },
        }
    }
}

impl<'a> Called<'a> {
    fn of(call: &'a ToolCall) -> Self {
        Self { id: &call.id, typed: Typed::Call { name: &call.tool, arguments: &call.arguments } }
    }
}

/// Returns the provider's reason of a failure; it is empty if the answer gives none, or is too long to be one.
fn reason(body: &[u8], request: &TurnRequest) -> String {
    if body.len() > ERROR_BODY_LIMIT {
        return String::new();
    }
    match serde_json::from_slice::<Value>(body) {
        Ok(body) => sentence(body.get("error").unwrap_or(&body), request),
        // A page of HTML or a cut answer explains nothing and may hold anything.
        Err(_) => String::new(),
    }
}

/// The provider's sentence about an error, unless it quotes what it was sent.
fn sentence(error: &Value, request: &TurnRequest) -> String {
    let text = ["message", "detail", "code", "type"]
        .iter()
        .filter_map(|field| error.get(field).and_then(Value::as_str))
        .chain(error.as_str())
        .find(|text| !text.is_empty())
        .unwrap_or_default();
    let keys = || request.key.iter().map(|key| key.expose_secret().trim());
    // Only what is shown is looked through: a message may be as long as a whole answer.
    let shown = excerpt(text, keys());
    if request.prompts().any(|prompt| quotes(&shown, prompt) || values(prompt).iter().any(|part| quotes(&shown, part)))
    {
        return "(the provider's message quotes the prompt and is left out)".to_owned();
    }
    shown
}

/// Returns the texts within a prompt that is JSON, as arguments and results often are: a provider may quote one of them, in
/// other notation.
fn values(prompt: &str) -> Vec<String> {
    if !prompt.trim_start().starts_with(['{', '[']) {
        return Vec::new();
    }
    let (mut texts, mut open) = (Vec::new(), Vec::from_iter(serde_json::from_str::<Value>(prompt)));
    while let Some(value) = open.pop() {
        match value {
            Value::String(text) if text.chars().count() >= SHORTEST_VALUE => texts.push(text),
            Value::Array(list) => open.extend(list),
            Value::Object(fields) => open.extend(fields.into_values()),
            _ => {}
        }
    }
    texts
}

/// Whether what is shown holds a stretch of `prompt`, or all of a shorter one.
fn quotes(shown: &str, prompt: &str) -> bool {
    let prompt = comparable(prompt);
    let stretch = QUOTE.min(prompt.len());
    if stretch < 4 {
        return false;
    }
    let shown = comparable(shown);
    let stretches: HashSet<&[char]> = shown.windows(stretch).collect();
    prompt.windows(stretch).any(|part| stretches.contains(part))
}

/// Returns the characters of a text on one line, without the backslashes by which JSON within JSON differs from the original.
fn comparable(text: &str) -> Vec<char> {
    on_a_line(text.trim()).filter(|character| *character != '\\').collect()
}

#[cfg(test)]
mod tests {
    use super::{quotes, values};

    #[test]
    fn a_message_that_quotes_the_prompt_is_recognised() {
        let prompt = "Refund 420 EUR to ACME, account 12-345, at once";
        assert!(quotes("invalid input: 'to ACME, account 12-345, at on'", prompt));
        assert!(quotes("bad prompt: ping", "ping"));
        assert!(!quotes("The model `small` does not exist", prompt));
        assert!(!quotes("", prompt));
        assert!(!quotes("anything", ""));
        assert!(quotes("bad: Refund 420 EUR to ACME, account", "Refund  420\nEUR to ACME, account 12"));
        assert!(quotes("… ünïcödé ünïcödé ünïcödé …", "ünïcödé ünïcödé ünïcödé"));
    }

    #[test]
    fn a_message_that_quotes_json_is_recognised_in_other_notation() {
        let arguments = r#"{"to":["ACME Ltd"],"text":"line\nbreak","n":1}"#;
        assert!(quotes(r#"invalid call: {\"to\":[\"ACME Ltd\"],\"text\":\"line"#, arguments));
        assert_eq!(values(arguments), ["line\nbreak", "ACME Ltd"]);
        let quoted = |shown: &str| values(arguments).iter().any(|value| quotes(shown, value));
        assert!(quoted("bad input {'to': ['ACME Ltd']}"));
        assert!(quoted("bad input 'line break'"));
        assert!(!quoted("the model does not exist"));
        assert!(values("ACME Ltd").is_empty() && values("{ACME Ltd").is_empty() && values(r#"["short"]"#).is_empty());
    }
}
