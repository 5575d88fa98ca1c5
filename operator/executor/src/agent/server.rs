//! One turn at a server: write -> send -> read, and again without each optional field that the server refuses by name.

use std::{collections::HashSet, time::Duration};

use serde_json::Value;
use signoff_api::turn::OpaqueParts;

use super::{
    TurnReply, TurnRequest,
    collected::{Collected, Finish},
    dialect::{Dialects, MOST_FIELDS, ServerKey, refused_field},
    documents::{Documents, is_page},
    protocol::{ModelList, Protocol, Unreadable, Written, printable_word},
    requested::bound_calls,
};
use crate::{
    error::{CallError, ErrorClass},
    http::{Answer, ERROR_BODY_LIMIT, Http as _, HttpClient, HttpRequest},
    redact::{excerpt, iter_one_line},
    room::{AnswerRoom, MAX_TURN_ANSWER},
    secrets::{ExposeSecret as _, SecretText},
};

/// The maximum number of listed models.
const MOST_OFFERED: usize = 1000;

/// The number of consecutive characters of a prompt in a provider's message that count as a quote.
const QUOTE: usize = 24;

/// The minimum length of a prompt, in characters, that can be quoted: shorter texts occur in every message.
const SHORTEST_QUOTE: usize = 4;

/// The end of an error about a page of HTML.
const PAGE: &str = ": an HTML page, not JSON; is baseURL right?";

/// The minimum length of a text within JSON that is searched in a provider's message, because many shorter texts are
/// ordinary words.
const SHORTEST_VALUE: usize = 6;

/// A server of models.
pub(super) struct ModelServer<'a> {
    pub(super) http: &'a HttpClient,
    pub(super) dialects: &'a Dialects,
    pub(super) protocol: &'a dyn Protocol,
    pub(super) base_url: &'a str,
}

impl ModelServer<'_> {
    /// Makes one turn. Sends the request again without each optional field that the server refuses by name, and
    /// remembers these fields if the turn then succeeds.
    pub(super) async fn turn(&self, request: &TurnRequest, room: &dyn AnswerRoom) -> Result<TurnReply, CallError> {
        let server = ServerKey::new(&request.namespace, self.protocol, self.base_url, &request.model);
        let known = self.dialects.fields_left_out(&server);
        let mut left_out = known.clone();
        // Each round leaves out one more field, up to a limit.
        loop {
            let written = self.protocol.write(request, &left_out)?;
            let optional = written.optional.clone();
            match self.send(request, written, room).await? {
                RequestResult::Answered(reply) => {
                    if left_out != known {
                        self.dialects.learn(server, left_out);
                    }
                    return Ok(reply);
                }
                RequestResult::Refused(answer, error) => {
                    let status = answer.status.as_u16();
                    let field = refused_field(status, &answer.beginning, &optional);
                    let Some(field) = field.filter(|_| left_out.len() < MOST_FIELDS) else {
                        if left_out == known && matches!(status, 400 | 422) {
                            self.dialects.forget(&server);
                        }
                        return Err(error);
                    };
                    left_out.insert(field.clone());
                }
            }
        }
    }

    /// Returns the names of the models that the server offers.
    pub(super) async fn list_models(
        &self,
        key: Option<&SecretText>,
        timeout: Duration,
    ) -> Result<Vec<String>, CallError> {
        let ModelList { path, list, name } = self.protocol.models();
        let request = HttpRequest {
            method: "GET".to_owned(),
            url: self.url(path),
            headers: self.protocol.headers(key),
            secret_headers: Vec::new(),
            body: None,
            expect_status: Vec::new(),
            timeout,
        };
        let place = request.place();
        let reply = self.http.call(request).await?;
        let listed: Option<Vec<String>> = serde_json::from_str::<Value>(&reply.body).ok().and_then(|body| {
            let names = body.get(list)?.as_array()?.iter().filter_map(|model| model.get(name)?.as_str());
            Some(names.take(MOST_OFFERED).map(str::to_owned).collect())
        });
        listed.ok_or_else(|| {
            let page = if is_page(reply.body.as_bytes()) { PAGE } else { "" };
            CallError::new(
                ErrorClass::Protocol,
                true,
                format!("{place} answered something other than a list of models{page}"),
            )
        })
    }

    /// Sends a turn and reads the answer.
    async fn send(
        &self,
        request: &TurnRequest,
        written: Written,
        room: &dyn AnswerRoom,
    ) -> Result<RequestResult, CallError> {
        let mut call = self.to_http_request(request, written);
        let offers_tools = !request.tools.is_empty();
        let max_response = self.http.max_response();
        let limit = if offers_tools { MAX_TURN_ANSWER.max(max_response) } else { max_response };
        let mut documents = Documents::new(room, self.protocol.reading(), self.protocol.has_lines(), limit);
        let target = format!("model {} at {}", excerpt(&request.model, []), call.place());
        let unreadable = |why| self.unreadable_error(request, &target, why);
        let answer = match self.http.exchange(&mut call, &mut documents).await {
            Ok(answer) => answer,
            Err(error) => return Err(documents.take_failure().map_or(error, unreadable)),
        };
        if !answer.status.is_success() {
            let reason = with_hint(answer.status.as_u16(), read_reason(&answer.beginning, request));
            let error = answer.unexpected(&target, &reason);
            return Ok(RequestResult::Refused(answer, error));
        }
        let collected = documents.end().map_err(unreadable)?;
        to_reply(collected, request, &target).map(RequestResult::Answered)
    }

    /// Returns the URL of a path at the server.
    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base_url.trim_end_matches('/'))
    }

    /// Returns the HTTP call for the turn.
    fn to_http_request(&self, request: &TurnRequest, written: Written) -> HttpRequest {
        let mut headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        headers.extend(written.headers);
        HttpRequest {
            method: "POST".to_owned(),
            url: self.url(&written.path),
            headers,
            secret_headers: Vec::new(),
            body: Some(written.body),
            expect_status: Vec::new(),
            timeout: request.timeout,
        }
    }

    /// Returns the error of an answer that is not used.
    fn unreadable_error(&self, request: &TurnRequest, target: &str, why: Unreadable) -> CallError {
        let class = match why {
            Unreadable::Form(..) | Unreadable::Page | Unreadable::Because(_) | Unreadable::Failed(_) => {
                ErrorClass::Protocol
            }
            Unreadable::Refused(_) => ErrorClass::Refused,
        };
        let problem = match why {
            Unreadable::Form(line, column) => {
                format!("answered something other than {} (JSON line {line}, column {column})", self.protocol.answer())
            }
            Unreadable::Page => format!("answered something other than {}{PAGE}", self.protocol.answer()),
            Unreadable::Because(why) | Unreadable::Refused(why) => why,
            Unreadable::Failed(body) => format!("answered an error: {}", read_reason(body.as_bytes(), request)),
        };
        CallError::new(class, true, format!("{target} {problem}"))
    }
}

/// The result of one request.
enum RequestResult {
    Answered(TurnReply),
    /// An answer with another status than success.
    Refused(Answer, CallError),
}

/// Converts an answer to a reply: bounds its calls, and keeps its opaque parts only beside calls.
///
/// # Errors
/// The model declined, or the opaque parts are too long to be sent back.
fn to_reply(collected: Collected, request: &TurnRequest, target: &str) -> Result<TurnReply, CallError> {
    let finish = collected.finish.clone().unwrap_or_default();
    if let Finish::Declined(word) = &finish {
        let word = printable_word(word);
        return Err(CallError::new(ErrorClass::Refused, true, format!("{target} declined to answer ({word})")));
    }
    let mut collected = collected;
    let (text, usage) = (std::mem::take(&mut collected.text), collected.usage);
    let (calls, dropped, opaque) = collected.into_parts();
    // The calls of a model without offered tools are ignored.
    let (calls, dropped) = if request.tools.is_empty() { (Vec::new(), 0) } else { (bound_calls(calls), dropped) };
    let opaque = match opaque {
        _ if calls.is_empty() => None,
        Ok(parts) if parts.is_empty() => None,
        Ok(parts) => {
            let (provider, model) = (request.provider.name.clone(), request.model.clone());
            Some(OpaqueParts { provider, model, parts })
        }
        // Without the parts the next turn would fail, after the calls of this turn were made.
        Err(bytes) => {
            return Err(CallError::new(
                ErrorClass::TooLarge,
                true,
                format!(
                    "{target} answered with {bytes} bytes of reasoning and signatures that it wants back, and a turn can keep 131072: ask for less reasoning"
                ),
            ));
        }
    };
    Ok(TurnReply { text, calls, dropped, opaque, usage, truncated: finish == Finish::Cut })
}

/// Returns the provider's reason of a failure, or an empty text if there is none or it is too long.
fn read_reason(body: &[u8], request: &TurnRequest) -> String {
    if body.len() > ERROR_BODY_LIMIT {
        return String::new();
    }
    match serde_json::from_slice::<Value>(body) {
        Ok(body) => read_sentence(body.get("error").unwrap_or(&body), request),
        // A page of HTML or a cut answer explains nothing and may hold anything.
        Err(_) => String::new(),
    }
}

/// Returns the provider's reason of a status, with a hint if a wrong path is the likely cause.
fn with_hint(status: u16, reason: String) -> String {
    let is_bare = matches!(reason.as_str(), "" | "Not Found" | "Method Not Allowed");
    if is_bare && matches!(status, 404 | 405) { "is baseURL right?".to_owned() } else { reason }
}

/// Returns the provider's sentence about an error, unless it quotes the request.
fn read_sentence(error: &Value, request: &TurnRequest) -> String {
    let text = ["message", "detail", "code", "type"]
        .iter()
        .filter_map(|field| error.get(field).and_then(Value::as_str))
        .chain(error.as_str())
        .find(|text| !text.is_empty())
        .unwrap_or_default();
    let keys = || request.key.iter().map(|key| key.expose_secret().trim());
    // Only the shown part is searched, because a message can be as long as a whole answer.
    let shown = excerpt(text, keys());
    let prompt = |prompt: &str| quotes(&shown, prompt) || texts_within(prompt).iter().any(|part| quotes(&shown, part));
    // Short words of opaque parts belong to the protocol, and errors may name them.
    let reasoning = |json: &str| texts_within(json).iter().any(|part| part.len() >= QUOTE && quotes(&shown, part));
    if request.prompts().any(prompt) || request.opaque().any(reasoning) {
        return "(the provider's message quotes the prompt and is left out)".to_owned();
    }
    shown
}

/// Returns the texts within a prompt that is JSON, like many arguments and results, because a provider can quote such a
/// text in another notation.
fn texts_within(prompt: &str) -> Vec<String> {
    if !prompt.trim_start().starts_with(['{', '[']) {
        return Vec::new();
    }
    let (mut texts, mut unread) = (Vec::new(), Vec::from_iter(serde_json::from_str::<Value>(prompt)));
    while let Some(value) = unread.pop() {
        match value {
            Value::String(text) if text.chars().count() >= SHORTEST_VALUE => texts.push(text),
            Value::Array(list) => unread.extend(list),
            Value::Object(fields) => unread.extend(fields.into_values()),
            _ => {}
        }
    }
    texts
}

/// Whether the shown text contains [`QUOTE`] consecutive characters of `prompt`, or all of a shorter prompt.
fn quotes(shown: &str, prompt: &str) -> bool {
    let prompt = comparable_chars(prompt);
    let stretch = QUOTE.min(prompt.len());
    if stretch < SHORTEST_QUOTE {
        return false;
    }
    let shown = comparable_chars(shown);
    let stretches: HashSet<&[char]> = shown.windows(stretch).collect();
    prompt.windows(stretch).any(|part| stretches.contains(part))
}

/// Returns the characters of a text on one line, without the backslashes by which JSON within JSON differs from the
/// original.
fn comparable_chars(text: &str) -> Vec<char> {
    iter_one_line(text.trim()).filter(|character| *character != '\\').collect()
}

#[cfg(test)]
mod tests {
    use super::{quotes, texts_within};

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
        assert_eq!(texts_within(arguments), ["line\nbreak", "ACME Ltd"]);
        let quoted = |shown: &str| texts_within(arguments).iter().any(|value| quotes(shown, value));
        assert!(quoted("bad input {'to': ['ACME Ltd']}"));
        assert!(quoted("bad input 'line break'"));
        assert!(!quoted("the model does not exist"));
        assert!(["ACME Ltd", "{ACME Ltd", r#"["short"]"#].iter().all(|text| texts_within(text).is_empty()));
    }
}
