//! The built-in tool by which an agent asks a person: its schema, its form, and the answer for the model.
//!
//! **Invariant:** every id of the form is generated here, every text is cleaned and bounded, and an answer approves
//! nothing.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use signoff_api::{
    approval::Answer,
    gate::{Choice, Form, Question},
};
use signoff_expr::text::{clean, display, is_invisible};

use super::{
    arguments::Arguments,
    names::{HANDOFF, REQUEST},
};

/// The notice above every question of an agent.
pub const NOTICE: &str = "This answers the agent; it approves nothing. Do not enter secrets.";

/// The maximum sizes of the form, as in the API types.
const MAX_QUESTIONS: usize = 16;
const MAX_OPTIONS: usize = 32;
const MAX_QUESTION_CHARS: usize = 1024;
const MAX_LABEL_CHARS: usize = 253;
const MAX_DESCRIPTION_CHARS: usize = 1024;
const MAX_ID_CHARS: usize = 63;

/// The maximum length of the context that a model adds to its questions, in characters.
const MAX_CONTEXT_CHARS: usize = 4096;

/// The answer for the model to a single question that the person skipped.
const SKIPPED: &str = "The person skipped the question.";

/// Returns the JSON Schema of the arguments for the model.
pub(crate) fn parameters(tool: &str) -> Value {
    let prompt = json!({"type": "string", "minLength": 1, "maxLength": MAX_QUESTION_CHARS, "description": "The question, complete in itself"});
    let label = json!({"type": "string", "minLength": 1, "maxLength": MAX_LABEL_CHARS});
    match tool {
        REQUEST => json!({
            "type": "object", "required": ["prompt", "options"], "additionalProperties": false,
            "properties": {
                "prompt": prompt,
                "options": {"type": "array", "minItems": 1, "maxItems": MAX_OPTIONS, "items": label, "description": "The choices, one of which is the answer"},
                "context": {"type": "object", "description": "Facts that help to decide"}
            }
        }),
        HANDOFF => json!({
            "type": "object", "required": ["message"], "additionalProperties": false,
            "properties": {
                "message": prompt,
                "breakout_of_loop": {"type": "boolean", "description": "Has no effect: the answer always comes back to you"}
            }
        }),
        _ => json!({
            "type": "object", "required": ["questions"], "additionalProperties": false,
            "properties": {
                "questions": {"type": "array", "minItems": 1, "maxItems": MAX_QUESTIONS, "items": {
                    "type": "object", "required": ["question"], "additionalProperties": false,
                    "properties": {
                        "id": {"type": "string", "minLength": 1, "maxLength": MAX_ID_CHARS, "description": "The key of the answer"},
                        "question": prompt,
                        "options": {"type": "array", "maxItems": MAX_OPTIONS, "items": {
                            "type": "object", "required": ["label"], "additionalProperties": false,
                            "properties": {
                                "id": {"type": "string", "minLength": 1, "maxLength": MAX_ID_CHARS},
                                "label": label,
                                "description": {"type": "string", "maxLength": MAX_DESCRIPTION_CHARS}
                            }
                        }},
                        "multiple": {"type": "boolean", "description": "Whether several options can be chosen"},
                        "allowText": {"type": "boolean", "description": "Whether free text is an answer too"},
                        "allowSkip": {"type": "boolean", "description": "Whether the question can be skipped"}
                    }
                }},
                "context": {"type": "string", "maxLength": MAX_CONTEXT_CHARS, "description": "Facts that help to answer"}
            }
        }),
    }
}

/// Returns the description of the tool for the model.
pub(crate) fn description(tool: &str) -> &'static str {
    match tool {
        REQUEST => {
            "Asks a person to choose one of the options and returns the chosen one. The answer approves nothing."
        }
        HANDOFF => "Asks a person with a message and returns the answer as text. The answer approves nothing.",
        _ => {
            "Asks a person up to 16 questions, with options or as free text, and returns the answers. The answers approve nothing. Never ask for secrets."
        }
    }
}

/// The questions of one call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AgentQuestions {
    /// The form that people fill in, with generated ids.
    pub(crate) form: Form,
    /// The context that the model adds, in its own words.
    pub(crate) context: Option<String>,
    /// The key of each answer for the model, in the order of the form: the model's id, or a generated one.
    keys: Vec<String>,
}

impl AgentQuestions {
    /// Parses the arguments of a call.
    ///
    /// # Errors
    /// One sentence for the model.
    pub(crate) fn read(tool: &str, arguments: &Arguments) -> Result<Self, String> {
        let fields = arguments.value();
        let single = |name: &str| {
            Ok::<_, String>(Question {
                question: Some(required_text(fields, "", name, MAX_QUESTION_CHARS)?),
                ..Question::default()
            })
        };
        let (mut questions, ids) = match tool {
            REQUEST => {
                check_known_fields(fields, "", &["prompt", "options", "context"])?;
                let options = parse_options(fields, "")?;
                if options.is_empty() {
                    return Err("options: at least one is needed".to_owned());
                }
                (vec![Question { options, ..single("prompt")? }], vec![None])
            }
            HANDOFF => {
                check_known_fields(fields, "", &["message", "breakout_of_loop"])?;
                optional_flag(fields, "", "breakout_of_loop")?;
                (vec![single("message")?], vec![None])
            }
            _ => {
                check_known_fields(fields, "", &["questions", "context"])?;
                let items = optional_list(fields, "", "questions", MAX_QUESTIONS)?;
                if items.is_empty() {
                    return Err("questions: at least one is needed".to_owned());
                }
                let parsed: Result<Vec<_>, String> = items
                    .iter()
                    .enumerate()
                    .map(|(at, item)| parse_question(&format!("questions[{at}]"), item))
                    .collect();
                parsed?.into_iter().unzip()
            }
        };
        let mut keys: Vec<String> = Vec::new();
        for (at, (question, id)) in questions.iter_mut().zip(ids).enumerate() {
            question.id = format!("q{}", at + 1);
            let key = id.unwrap_or_else(|| question.id.clone());
            if keys.contains(&key) {
                return Err(format!(
                    "questions[{at}].id: {} is there twice; give each question its own id",
                    display(&key, 63)
                ));
            }
            keys.push(key);
        }
        Ok(Self { form: Form { questions }, context: parse_context(fields)?, keys })
    }

    /// Returns the answer for the model: the text of a single answer, or JSON with the answers by the model's ids, with
    /// null for a question without an answer.
    pub(crate) fn answer(&self, answers: &BTreeMap<String, Answer>) -> String {
        let answer_text = |question: &Question| {
            let answer = answers.get(&question.id)?;
            let labels = answer
                .options
                .iter()
                .map(|id| question.options.iter().find(|option| option.id == *id).map_or(id.as_str(), Choice::label));
            let parts: Vec<&str> = labels.chain(answer.text.as_deref()).collect();
            (!parts.is_empty()).then(|| parts.join(", "))
        };
        if let [only] = self.form.questions.as_slice() {
            return answer_text(only).unwrap_or_else(|| SKIPPED.to_owned());
        }
        let by_key: Map<_, _> =
            self.keys.iter().zip(&self.form.questions).map(|(key, q)| (key.clone(), json!(answer_text(q)))).collect();
        json!({ "answers": by_key }).to_string()
    }
}

/// Parses one question and the model's id for it.
fn parse_question(at: &str, item: &Value) -> Result<(Question, Option<String>), String> {
    let Value::Object(fields) = item else { return Err(format!("{at}: must be an object with the field question")) };
    check_known_fields(fields, at, &["id", "question", "options", "multiple", "allowText", "allowSkip"])?;
    let options = parse_options(fields, at)?;
    let (multiple, allow_text) = (optional_flag(fields, at, "multiple")?, optional_flag(fields, at, "allowText")?);
    if options.is_empty() && multiple == Some(true) {
        return Err(format!("{at}.multiple: needs options; add options or leave multiple out"));
    }
    if options.is_empty() && allow_text == Some(false) {
        return Err(format!("{at}.allowText: without options the answer is text; add options or leave allowText out"));
    }
    let id = optional_text(fields, at, "id", MAX_ID_CHARS)?;
    let question = Question {
        question: Some(required_text(fields, at, "question", MAX_QUESTION_CHARS)?),
        multiple: multiple.filter(|_| !options.is_empty()),
        options,
        allow_text,
        allow_skip: optional_flag(fields, at, "allowSkip")?,
        ..Question::default()
    };
    Ok((question, id))
}

/// Parses the options of a question: each is a text, or an object with a label. Ids are generated.
fn parse_options(fields: &Map<String, Value>, at: &str) -> Result<Vec<Choice>, String> {
    let mut choices: Vec<Choice> = Vec::new();
    let mut ids: Vec<String> = Vec::new();
    for (index, item) in optional_list(fields, at, "options", MAX_OPTIONS)?.iter().enumerate() {
        let at = format!("{}[{index}]", join_path(at, "options"));
        let (label, description) = match item {
            Value::Object(option) => {
                check_known_fields(option, &at, &["id", "label", "description"])?;
                if let Some(id) = optional_text(option, &at, "id", MAX_ID_CHARS)? {
                    if ids.contains(&id) {
                        return Err(format!("{at}.id: {} is there twice", display(&id, 63)));
                    }
                    ids.push(id);
                }
                let label = required_text(option, &at, "label", MAX_LABEL_CHARS)?;
                (label, optional_text(option, &at, "description", MAX_DESCRIPTION_CHARS)?)
            }
            other => (bounded_text(other, &at, MAX_LABEL_CHARS)?, None),
        };
        // A label is one line, so that it cannot look like several options.
        let label = label.split_whitespace().collect::<Vec<_>>().join(" ");
        let id = format!("o{}", index + 1);
        if choices.iter().any(|other| other.label() == label) {
            return Err(format!("{at}: the label {} is there twice", display(&label, 63)));
        }
        // A person can answer with an id or a label: a label must not be the id of another option.
        if label != id && (1..=MAX_OPTIONS).any(|n| label == format!("o{n}")) {
            return Err(format!("{at}: the label {label} is reserved; use a word"));
        }
        choices.push(Choice { id, label: Some(label), description });
    }
    Ok(choices)
}

/// Parses the context: a text, or an object as JSON text.
fn parse_context(fields: &Map<String, Value>) -> Result<Option<String>, String> {
    match fields.get("context") {
        Some(object @ Value::Object(_)) => {
            bounded_text(&json!(object.to_string()), "context", MAX_CONTEXT_CHARS).map(Some)
        }
        _ => optional_text(fields, "", "context", MAX_CONTEXT_CHARS),
    }
}

fn join_path(at: &str, name: &str) -> String {
    if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") }
}

/// Checks that an object has no other fields than `names`. `at` is the path of the object in messages.
fn check_known_fields(fields: &Map<String, Value>, at: &str, names: &[&str]) -> Result<(), String> {
    match fields.keys().find(|key| !names.contains(&key.as_str())) {
        Some(unknown) => {
            Err(format!("{}: unknown field; use {}", join_path(at, &display(unknown, 63)), names.join(", ")))
        }
        None => Ok(()),
    }
}

fn optional_list<'a>(fields: &'a Map<String, Value>, at: &str, name: &str, most: usize) -> Result<&'a [Value], String> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(items)) if items.len() <= most => Ok(items),
        Some(Value::Array(items)) => {
            Err(format!("{}: has {} entries; the maximum is {most}", join_path(at, name), items.len()))
        }
        Some(_) => Err(format!("{}: must be a list", join_path(at, name))),
    }
}

fn optional_flag(fields: &Map<String, Value>, at: &str, name: &str) -> Result<Option<bool>, String> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(value)) => Ok(Some(*value)),
        Some(_) => Err(format!("{}: must be true or false", join_path(at, name))),
    }
}

fn required_text(fields: &Map<String, Value>, at: &str, name: &str, most: usize) -> Result<String, String> {
    match fields.get(name) {
        None | Some(Value::Null) => Err(format!("{}: is missing", join_path(at, name))),
        Some(value) => bounded_text(value, &join_path(at, name), most),
    }
}

fn optional_text(fields: &Map<String, Value>, at: &str, name: &str, most: usize) -> Result<Option<String>, String> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => bounded_text(value, &join_path(at, name), most).map(Some),
    }
}

/// Returns the cleaned text of a value. Another value, a blank text and a text of more than `most` characters are
/// errors.
fn bounded_text(value: &Value, at: &str, most: usize) -> Result<String, String> {
    let Value::String(value) = value else { return Err(format!("{at}: must be a text")) };
    let cleaned = clean(value).trim().to_owned();
    if cleaned.chars().all(|c| c.is_whitespace() || is_invisible(c)) {
        return Err(format!("{at}: must not be empty"));
    }
    match cleaned.chars().count() {
        length if length > most => Err(format!("{at}: has {length} characters; the maximum is {most}")),
        _ => Ok(cleaned),
    }
}

#[cfg(test)]
#[path = "question_tests.rs"]
mod tests;
