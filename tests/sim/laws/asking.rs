//! A second implementation of which gates ask about a call and which calls policies forbid, for comparison with the
//! operator.
//!
//! **Invariant:** no code of the engine is used except for the language of conditions.

use serde_json::{Value, json};
use signoff_expr::{Condition, Scope};

use crate::ending::list;

/// A call of a tool, as rules and gates see it.
pub struct ToolCall<'a> {
    pub agent: &'a str,
    pub tool: &'a Value,
    /// The step that the tool runs, from the spec; null if the spec has none of that name.
    pub step: &'a Value,
    pub arguments: &'a Value,
}

/// A gate that asks, with the name in its request.
pub struct AskingGate<'a> {
    pub name: String,
    /// The policy that added it; null for the author's gate.
    pub source: &'a Value,
    pub hitl: &'a Value,
}

/// Returns the gates that ask about a call: those of the spec, and those that policies added.
pub fn gates<'a>(spec: &'a Value, added: &'a Value, call: &ToolCall<'_>) -> Vec<AskingGate<'a>> {
    let of_entry = |gate: &'a Value| {
        let parts = parts(gate).into_iter();
        let asks = parts.filter(|part| asks(part, call));
        asks.map(|part| AskingGate { name: part.name, source: &Value::Null, hitl: &gate["hitl"] })
    };
    let of_policy = |added: &'a Value| {
        let (step, before) = (&added["step"], &added["step"]["before"]);
        let asks = list(&before["kinds"]).any(|kind| kind == "tool") && is_meant(&before["calls"], call);
        let name = step["name"].as_str().unwrap_or_default().to_owned();
        asks.then_some(AskingGate { name, source: &added["source"], hitl: &step["hitl"] })
    };
    list(&spec["gates"]).flat_map(of_entry).chain(list(added).filter_map(of_policy)).collect()
}

/// Returns whether a rule of a policy matches a call: by its kind, method, host and image, and by what it can change.
pub fn is_meant(rule: &Value, call: &ToolCall<'_>) -> bool {
    let step = call.step;
    let kind = ["http", "pod", "agent", "set"].into_iter().find(|kind| step[*kind].is_object()).unwrap_or_default();
    let method = if kind == "http" { step["http"]["method"].as_str().unwrap_or("GET") } else { "" };
    let url = step["http"]["url"].as_str().unwrap_or_default();
    let url = url.replace("{{ args.host }}", call.arguments["host"].as_str().unwrap_or_default());
    let host = url.split('/').nth(2).unwrap_or_default();
    let reads = matches!(method, "GET" | "HEAD") && call.tool["effects"] == "read";
    let matches_field =
        |field: &str, value: &str| rule[field].is_null() || list(&rule[field]).any(|entry| entry == value);
    let image = step["pod"]["image"].as_str();
    let globs = || list(&rule["images"]).filter_map(Value::as_str);
    let of_image = rule["images"].is_null() || image.is_some_and(|image| globs().any(|glob| matches(glob, image)));
    matches_field("kinds", kind)
        && matches_field("methods", method)
        && matches_field("hosts", host)
        && of_image
        && !(rule["changes"] == true && reads)
}

/// A gate that is an entry of the spec, or one of the gates that the preset of an entry stands for.
struct Part<'a> {
    name: String,
    type_: &'a str,
    tools: Vec<&'a str>,
    allowed: Vec<&'a str>,
    condition: Option<&'a str>,
}

/// Returns the gates that an entry of the spec stands for: itself, or those of its preset.
fn parts(gate: &Value) -> Vec<Part<'_>> {
    let texts = |field: &str| list(&gate[field]).filter_map(Value::as_str).collect::<Vec<_>>();
    let name = gate["name"].as_str().unwrap_or_default();
    let condition = gate["condition"].as_str();
    let of_preset = |part: &str, type_: &'static str| {
        let name = format!("{name}.{part}");
        Part { name, type_, tools: Vec::new(), allowed: texts("allowedTools"), condition: None }
    };
    match gate["preset"].as_str() {
        None => {
            let type_ = gate["type"].as_str().unwrap_or_default();
            vec![Part {
                name: name.to_owned(),
                type_,
                tools: texts("tools"),
                allowed: texts("allowedTools"),
                condition,
            }]
        }
        Some("minimal") => vec![of_preset("destructive", "destructiveActions")],
        Some("standard") => {
            let specific = of_preset("specific", "specificTools");
            let tools = vec!["web_search", "send_email", "api_call"];
            vec![of_preset("destructive", "destructiveActions"), Part { tools, ..specific }]
        }
        Some(_) => vec![of_preset("tools", "toolExecution")],
    }
}

fn asks(gate: &Part<'_>, call: &ToolCall<'_>) -> bool {
    let tool = call.tool["name"].as_str().unwrap_or_default();
    let named = |entries: &[&str], mark: &str| {
        entries.iter().filter_map(|entry| entry.strip_prefix(mark)).any(|glob| matches(glob, tool))
    };
    let plain = |entries: &[&str]| entries.iter().any(|entry| !entry.starts_with('!') && matches(entry, tool));
    let excluded = named(&gate.allowed, "!");
    let is_allowed = plain(&gate.allowed) && !excluded;
    let by_type = match gate.type_ {
        "toolExecution" => !is_allowed,
        "specificTools" => plain(&gate.tools) && !named(&gate.tools, "!"),
        "destructiveActions" => excluded || (call.tool["effects"] != "read" && !is_allowed),
        "custom" => true,
        _ => false,
    };
    by_type && gate.condition.is_none_or(|condition| may_hold(condition, call))
}

/// Returns whether a condition is true or has no value: an error asks.
fn may_hold(condition: &str, call: &ToolCall<'_>) -> bool {
    let mut scope = Scope::new();
    scope.set("args", call.arguments.clone()).set("tool", call.tool["name"].clone());
    scope.set("effects", call.tool["effects"].as_str().unwrap_or("irreversible").into());
    scope.set("agent", call.agent.into()).set("inputs", json!({}));
    Condition::parse(condition, "condition").and_then(|condition| condition.evaluate(&scope)).unwrap_or(true)
}

/// Returns whether a glob matches a whole name: `*` is any text.
pub fn matches(glob: &str, name: &str) -> bool {
    match glob.split_once('*') {
        None => glob == name,
        Some((before, after)) => name
            .strip_prefix(before)
            .is_some_and(|rest| (0..=rest.len()).any(|at| rest.get(at..).is_some_and(|rest| matches(after, rest)))),
    }
}
