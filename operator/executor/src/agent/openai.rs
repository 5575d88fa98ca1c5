//! OpenAI's chat completions, as many endpoints speak them.
//!
//! It must not offer tools, stream, or put prompts, answers or keys into an error: of an error body
//! only the provider's own sentence is quoted, and not even that where it quotes the prompt.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use signoff_api::journal::Usage;
use signoff_engine::transition::Role;

use super::{TurnReply, TurnRequest};
use crate::error::{CallError, ErrorClass};
use crate::http::{Answer, HttpClient, HttpRequest};
use crate::redact::{excerpt, on_a_line};
use crate::secrets::ExposeSecret as _;

/// A provider's message that holds this many characters of a prompt in a row quotes it.
const QUOTE: usize = 24;

#[derive(Serialize)]
struct Request<'a> {
    model: &'a str,
    messages: Vec<Said<'a>>,
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
    content: &'a str,
}

#[derive(Deserialize)]
struct Reply {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Tokens>,
    /// Some gateways answer 200 and put the failure here.
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    message: Option<Answered>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Answered {
    content: Option<Content>,
    refusal: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
struct Part {
    #[serde(default)]
    text: String,
}

#[derive(Deserialize)]
struct Tokens {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
}

/// One turn at `{base_url}/chat/completions`.
pub(super) async fn turn(http: &HttpClient, base_url: &str, request: &TurnRequest) -> Result<TurnReply, CallError> {
    let call = call(base_url, request)?;
    let answer = http.exchange(&call).await?;
    let target = format!("model {} at {}", excerpt(&request.model, []), call.place());
    if !answer.status.is_success() {
        return Err(answer.unexpected(&target, &reason(&answer, request)));
    }
    let broken = |what: String| CallError::new(ErrorClass::Protocol, true, format!("{target} {what}"));
    let reply: Reply = serde_json::from_slice(&answer.body).map_err(|error| {
        // serde's own message can quote the answer; its position cannot.
        let (line, column) = (error.line(), error.column());
        broken(format!("answered something other than a chat completion (JSON line {line}, column {column})"))
    })?;
    if let Some(error) = &reply.error {
        return Err(broken(format!("answered an error: {}", sentence(error, request))));
    }
    let choice = reply.choices.into_iter().next().ok_or_else(|| broken("answered without any choice".to_owned()))?;
    let finish = choice.finish_reason.unwrap_or_default();
    let message = choice.message.ok_or_else(|| broken("answered a choice without a message".to_owned()))?;
    let text = message.content.map(Content::into_text).filter(|text| !text.is_empty());
    if finish == "content_filter" || (text.is_none() && message.refusal.is_some()) {
        return Err(CallError::new(ErrorClass::Refused, true, format!("{target} declined to answer ({finish})")));
    }
    let text =
        text.ok_or_else(|| broken(format!("answered without text (finish reason {:?})", excerpt(&finish, []))))?;
    let usage = reply.usage.map(|tokens| Usage {
        input_tokens: count(tokens.prompt_tokens),
        output_tokens: count(tokens.completion_tokens),
    });
    Ok(TurnReply { text, usage, truncated: finish == "length" })
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
    let system = request.system.as_deref().map(|content| Said { role: "system", content });
    let messages = request.messages.iter().map(|message| Said {
        role: match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        },
        content: &message.text,
    });
    let body = serde_json::to_string(&Request {
        model: &request.model,
        messages: system.into_iter().chain(messages).collect(),
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

/// Returns the provider's reason of a failure.
fn reason(answer: &Answer, request: &TurnRequest) -> String {
    match serde_json::from_slice::<Value>(&answer.body) {
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
    if request.prompts().any(|prompt| quotes(&shown, prompt)) {
        return "(the provider's message quotes the prompt and is left out)".to_owned();
    }
    shown
}

/// Whether what is shown holds a stretch of `prompt`, or all of a shorter one.
fn quotes(shown: &str, prompt: &str) -> bool {
    let prompt: Vec<char> = on_a_line(prompt.trim()).collect();
    let stretch = QUOTE.min(prompt.len());
    if stretch < 4 {
        return false;
    }
    let shown: Vec<char> = shown.chars().collect();
    let stretches: HashSet<&[char]> = shown.windows(stretch).collect();
    prompt.windows(stretch).any(|part| stretches.contains(part))
}

impl Content {
    fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Parts(parts) => parts.into_iter().map(|part| part.text).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::quotes;

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
}
