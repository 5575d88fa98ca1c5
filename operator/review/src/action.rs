//! The action of a request as lines of facts, and the arguments of a call with line ends and spaces.
//!
//! Pure.
//!
//! **Invariant:** the facts have no words of the agent.

use std::borrow::Cow;

use serde_json::Value;
use signoff_api::{
    ApprovalRequest, RecordPath,
    approval::{Action, ActionKind, AskingGate},
    digest::canonical,
    gate::GateType,
    sent_method,
    tool::{Effects, MAX_TOOL_NAME},
};

pub use signoff_api::turn::turn_of;

use crate::{indented::MOST_INDENTED, text::one_line};

/// The heading of the agent's own words.
pub const SAYS: &str = "The agent's own words (text of a model: no fact, not checked)";
/// The heading of the prompt of a question.
pub const ASKS: &str = "An agent asks";
/// The notice above every question of an agent. The operator begins the prompt of a question with it.
pub const NOTICE: &str = signoff_engine::tools::QUESTION_NOTICE;

/// The number of lines about the call with which the context begins at a gate before the step of a tool.
const LINES_OF_CALL: usize = 4;

/// The longest value of an argument in a list, in characters.
const LONGEST_BRIEF: usize = 24;

/// The target of a call whose step is a text (`set`).
const TEXT: &str = "a text of this run";

/// A label and its lines.
pub type Fact = (&'static str, Vec<String>);

/// Whether the request is a question of an agent. An answer to a question approves nothing.
pub fn is_question(request: &ApprovalRequest) -> bool {
    request.action.as_ref().is_some_and(|action| action.kind == ActionKind::Question)
}

/// Whether the gate asks about the call of a tool, or about the step that carries out the call.
pub(crate) fn is_at_tool(request: &ApprovalRequest) -> bool {
    RecordPath::new(&request.gate.path).is_in_call()
}

/// Returns the call that the request is about, if it is about one.
pub fn call(request: &ApprovalRequest) -> Option<&Action> {
    request.action.as_ref().filter(|action| action.kind == ActionKind::ToolCall)
}

/// Whether the call of a request was made before, so that only people can let it be made again. The request is about
/// the call itself, or about the step of its tool before it starts.
pub fn is_repeated(request: &ApprovalRequest) -> bool {
    match &request.action {
        Some(action) => action.is_repeated(),
        // The context begins with the facts about the call. The words of others follow.
        None if is_at_tool(request) && request.gate.type_ == GateType::StepStart => {
            let mut facts = request.context.iter().flat_map(|context| context.lines().take(LINES_OF_CALL));
            facts.any(|line| line == Action::BY_PEOPLE)
        }
        None => false,
    }
}

/// Returns the tool and the target of a call, in a line: `refund: POST https://bank.example/refunds`.
pub fn line(request: &ApprovalRequest) -> Option<String> {
    let call = call(request)?;
    let target = call.target.as_ref().map(|target| format!(": {}", one_line(target, 2048)));
    Some(format!("{}{}", one_line(&call.tool, MAX_TOOL_NAME), target.unwrap_or_default()))
}

/// Returns the arguments of a call as a line, without the comments above them. `response`: the reviewed text of the
/// request.
pub fn arguments_line(response: &str, most: usize) -> String {
    let lines: Vec<_> = response.lines().skip_while(|line| line.starts_with("# ")).collect();
    one_line(&lines.join("\n"), most)
}

/// Returns the tool of a call with its arguments in a few words, such as `refund amount=420 customer=ACME`, so that the
/// calls of one tool differ in a list. Returns `None` if the request is about no call.
pub fn brief(request: &ApprovalRequest, most: usize) -> Option<String> {
    let tool = one_line(&call(request)?.tool, MAX_TOOL_NAME);
    let shown = request.reviews.as_ref().map(|review| review.response.as_str()).unwrap_or_default();
    let json: String = shown.lines().skip_while(|line| line.starts_with("# ")).collect();
    let arguments: String = match serde_json::from_str::<Value>(&json) {
        Ok(Value::Object(fields)) => fields
            .iter()
            .map(|(name, value)| format!(" {}={}", word(name, LONGEST_BRIEF), brief_value(value)))
            .collect(),
        _ => format!(" {}", word(&arguments_line(shown, most), most)),
    };
    Some(one_line(&format!("{tool}{arguments}"), most))
}

/// Returns a value of an argument as a short word.
fn brief_value(value: &Value) -> String {
    match value {
        Value::String(text) => word(text, LONGEST_BRIEF),
        other => one_line(&other.to_string(), LONGEST_BRIEF),
    }
}

/// Returns a text of a model as one word of a line. A text with other characters than [`is_word`] allows is quoted, so
/// that it cannot look like another argument, or like the end of the arguments.
pub(crate) fn word(text: &str, most: usize) -> String {
    let shown = one_line(text, most);
    if is_word(&shown) { shown } else { Value::from(shown).to_string() }
}

/// Whether a text has only letters, digits, and the punctuation of names and amounts.
pub(crate) fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "-_.@/+%#€$£".contains(c))
}

/// Returns the facts above the arguments: the agent, the tool and its target.
pub fn facts_before(action: &Action) -> Vec<Fact> {
    let mut facts = vec![("Agent", vec![one_line(&action.agent, 63)])];
    facts.push(("Tool", vec![one_line(&action.tool, MAX_TOOL_NAME)]));
    facts.extend(action.target.as_ref().map(|target| ("Target", vec![one_line(target, 2048)])));
    facts
}

/// Returns the facts below the arguments: the effects, the other calls of the turn, the earlier calls of the run, and
/// the gates that ask. A question has no effects, and the calls only if there are any.
pub fn facts_after(request: &ApprovalRequest) -> Vec<Fact> {
    let Some(action) = &request.action else { return Vec::new() };
    let mut facts = effects_of(request, action);
    let is_call = action.kind == ActionKind::ToolCall;
    if is_call || !action.siblings.is_empty() {
        let siblings =
            action.siblings.iter().map(|call| format!("{} ({})", one_line(&call.tool, 64), one_line(&call.path, 512)));
        facts.push(("Same turn", or_none(siblings.collect(), "no other calls")));
    }
    if is_call || !action.done.is_empty() {
        let done = action.done.iter().map(|call| one_line(call, 256)).collect();
        facts.push(("Earlier", or_none(done, "no calls of tools in this run")));
    }
    facts.extend(asked_by(action));
    facts
}

/// Returns the facts below the arguments on a page that shows the calls of a turn together: the effects, and the gates
/// that ask.
pub fn facts_of_call(request: &ApprovalRequest) -> Vec<Fact> {
    let Some(action) = &request.action else { return Vec::new() };
    effects_of(request, action).into_iter().chain(asked_by(action)).collect()
}

fn effects_of(request: &ApprovalRequest, action: &Action) -> Vec<Fact> {
    let mut facts = Vec::new();
    if action.kind == ActionKind::ToolCall {
        facts.push(("Effects", vec![effects_line(request, action)]));
        facts.extend(action.attempts.map(|attempts| ("Attempts", vec![attempts_line(attempts)])));
        facts.extend(action.definition.as_ref().map(|digest| ("Definition", vec![digest.to_string()])));
    }
    facts
}

fn asked_by(action: &Action) -> Option<Fact> {
    (!action.gates.is_empty()).then(|| ("Asked by", action.gates.iter().map(gate_line).collect()))
}

/// Returns the arguments of a call with line ends and spaces. Returns the text itself if the request is about no call,
/// if the text is not canonical JSON, or if the indented form would be far longer.
pub fn arguments<'t>(request: &ApprovalRequest, text: &'t str) -> Cow<'t, str> {
    if call(request).is_none() {
        return Cow::Borrowed(text);
    }
    let indent = || {
        let value: Value = serde_json::from_str(text).ok()?;
        let is_same = canonical(&value).is_ok_and(|bytes| bytes == text.as_bytes());
        let pretty = serde_json::to_string_pretty(&value).ok().filter(|_| is_same)?;
        (pretty.len() <= MOST_INDENTED * text.len()).then_some(pretty)
    };
    indent().map_or(Cow::Borrowed(text), Cow::Owned)
}

/// Returns the words of the gate's author: the prompt, without the notice of the operator above a question.
pub fn authors_words(request: &ApprovalRequest) -> &str {
    let own = request.prompt.strip_prefix(NOTICE).filter(|_| is_question(request));
    own.map_or(request.prompt.as_str(), str::trim_start)
}

/// Returns the agent's own words, or `None` if the agent said nothing.
pub fn says(request: &ApprovalRequest) -> Option<&str> {
    request.says.as_deref().filter(|words| !words.trim().is_empty())
}

fn effects_line(request: &ApprovalRequest, action: &Action) -> String {
    let words = match action.effects {
        Some(Effects::Read) => match can_change(request, action) {
            None => "read: it changes nothing, as the author of the Workflow declares",
            Some(why) => return format!("read, as the author of the Workflow declares, but {why}"),
        },
        Some(Effects::Write) => "write: it changes something",
        Some(Effects::Irreversible) => "irreversible: what it changes cannot be taken back",
        None => "unknown, which counts as irreversible",
    };
    words.to_owned()
}

/// Returns the reason why a call can change something although its author declares that it reads, or `None`. Two calls
/// are certain to read: a GET or a HEAD without a body and without a header that names another method, and a text of
/// the run, which is sent nowhere.
fn can_change(request: &ApprovalRequest, action: &Action) -> Option<String> {
    let target = action.target.as_deref().unwrap_or_default();
    let method = match target.split_once(' ') {
        Some(("image", _)) => return Some("what a container does is not known".to_owned()),
        Some(("tool", _)) => return Some("its server decides what the tool does".to_owned()),
        Some(("agent", _)) => return Some("what an agent does is not known: its own calls are asked about".to_owned()),
        Some((method, _)) if !method.is_empty() && method.chars().all(|c| c.is_ascii_uppercase()) => method,
        _ if target == TEXT => return None,
        _ => return Some("what it sends is not known".to_owned()),
    };
    if !matches!(method, "GET" | "HEAD") {
        return Some(format!("it sends {method}, which can change something"));
    }
    let sent = request.sends.as_ref().and_then(|sent| serde_saphyr::from_str::<Value>(&sent.text).ok());
    let Some(sent) = sent else { return Some("what it sends is not shown".to_owned()) };
    if !sent["body"].is_null() {
        return Some(format!("it sends a body with {method}, which can change something"));
    }
    let is_cut = sent.get("…").is_some() || sent["headers"].is_string();
    let header = sent["headers"].as_object().into_iter().flatten().find(|(name, _)| names_a_method(name));
    let header = header.map(|(name, _)| format!("its header {} can name another method", one_line(name, 64)));
    header.or_else(|| is_cut.then(|| "not all of its headers are shown here".to_owned()))
}

/// Whether a header can name another method. A header whose name is cut can.
fn names_a_method(header: &str) -> bool {
    header.contains('…') || sent_method::names_a_method(header)
}

fn attempts_line(attempts: i32) -> String {
    match attempts {
        1 => "1".to_owned(),
        more => format!("up to {more}; another one follows only on a known failure"),
    }
}

fn gate_line(gate: &AskingGate) -> String {
    let source = gate.source.as_ref().map(|source| format!(", added by {}", one_line(source, 253)));
    format!("{}{}: {}", one_line(&gate.name, 95), source.unwrap_or_default(), one_line(&gate.because, 512))
}

fn or_none(lines: Vec<String>, none: &str) -> Vec<String> {
    if lines.is_empty() { vec![none.to_owned()] } else { lines }
}

#[cfg(test)]
#[path = "action/tests.rs"]
mod tests;
