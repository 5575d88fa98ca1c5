//! The fields of the form of a request as they were typed, and the decision that they make.
//!
//! Pure.
//!
//! **Invariant:** a text that cannot be sent unchanged is a problem of its field.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use signoff_api::{ApprovalRequest, Decision, JsonObject, Verdict, approval::Answer, gate::Question};
use signoff_engine::gate::parameters;
use signoff_expr::{json, number};
use signoff_review::{
    edit::parameters_to_edit,
    refusal::{self, Refusal},
    text::is_hidden,
};

/// The field of a button that repeats one part of an earlier result.
const PART: &str = "part";

/// The longest reason of a decision, in characters.
const LONGEST_REASON: usize = 2048;

/// The fields of a sent form, in their order.
#[derive(Clone, Debug, Default)]
pub struct Typed(pub Vec<(String, String)>);

/// The problems of a form by field. The problem of the whole form has an empty name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(pub BTreeMap<String, String>);

/// The text of a field of a form, and its problem.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FormField {
    /// The text as it was typed, or the default of the field.
    pub value: String,
    /// The reason why the text cannot be sent.
    pub problem: Option<String>,
}

impl Typed {
    /// Returns the last value of a field.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// Returns all values of a field.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// Returns a text with LF as line ends, which browsers send as CR LF.
    pub fn text(&self, name: &str) -> Option<String> {
        self.get(name).map(plain_lines)
    }

    /// Returns the verdict of the pressed button. The field `part` has the verdict of the button that repeats a part.
    pub fn verdict(&self) -> Option<Verdict> {
        serde_json::from_value(Value::from(self.get("verdict").or_else(|| self.get(PART))?)).ok()
    }

    /// Returns the fields of the form with those of other verdicts, so that nothing that was typed is lost after Back.
    pub fn own_fields(&self) -> Vec<(String, String)> {
        let is_own = |(name, _): &&(String, String)| {
            ["digest", "verdict", PART, "reason", "guidance", "to"].contains(&name.as_str())
                || ["parameters.", "retry.", "option.", "answers."].iter().any(|part| name.starts_with(part))
        };
        self.0.iter().filter(is_own).cloned().collect()
    }

    /// Whether Back was pressed: nothing is sent, and the form is shown again as it was typed.
    pub fn goes_back(&self) -> bool {
        self.get("back").is_some()
    }
}

impl Typed {
    /// Returns the name of the part of the form that was sent; empty without a verdict.
    pub fn sent_part(&self) -> &'static str {
        match self.verdict() {
            Some(Verdict::Respond) => "respond",
            Some(Verdict::Modify) => "modify",
            Some(Verdict::Defer) => "defer",
            Some(Verdict::Escalate) => "escalate",
            Some(Verdict::Retry) if self.get(PART).is_some() => "retry",
            Some(_) => "plain",
            None => "",
        }
    }
}

impl Problems {
    /// Returns the sentence above the request: the problem of the whole form, or a note that a field has a problem; or
    /// `None` without a problem.
    pub fn of_page(&self) -> Option<String> {
        let at_field = || (!self.0.is_empty()).then(|| "what is wrong is told at its field below".to_owned());
        self.at("").cloned().or_else(at_field)
    }

    /// Whether each problem has a field, so that no problem is of the whole form.
    pub fn are_of_fields(&self) -> bool {
        !self.0.contains_key("")
    }

    /// Returns a problem of the whole form.
    pub fn of_form(why: impl Into<String>) -> Self {
        Self(BTreeMap::from([(String::new(), why.into())]))
    }

    /// Returns a problem of the engine at the field that it names, or of the whole form if the form has no such field.
    pub fn at_named_field(why: &str, fields: &[String]) -> Self {
        let at = fields
            .iter()
            .find(|field| why.strip_prefix(field.as_str()).is_some_and(|rest| rest.starts_with([':', ' ', '.', '['])));
        match at {
            Some(field) => {
                let rest = why[field.len()..].trim_start_matches([':', ' ']);
                Self(BTreeMap::from([(field.clone(), rest.to_owned())]))
            }
            None => Self::of_form(why),
        }
    }

    /// Adds problems at fields that have none.
    pub fn add(&mut self, more: Self) {
        for (field, why) in more.0 {
            self.0.entry(field).or_insert(why);
        }
    }

    /// Returns the problem of a field.
    pub fn at(&self, field: &str) -> Option<&String> {
        self.0.get(field)
    }
}

/// A field of the editor: one parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// The name of the field in the form: `parameters.NAME`, or `retry.NAME` for a Retry.
    pub field: String,
    /// The name of the parameter.
    pub name: String,
    /// The value with which the editor begins.
    pub before: Value,
    /// Whether a Modify must have this parameter.
    pub is_required: bool,
    /// The schema in words.
    pub shape: String,
    /// An example, if there is no value that could be changed.
    pub example: Option<String>,
}

impl Parameter {
    /// Whether the parameter is edited as text. Any other value is edited as JSON.
    pub fn is_text(&self) -> bool {
        self.before.is_string()
    }

    /// Returns the text with which the editor begins; empty if there is only an example.
    pub fn text(&self) -> String {
        if self.example.is_some() { String::new() } else { self.text_of_value() }
    }

    /// Whether a text differs from the one with which the editor begins.
    pub fn is_changed(&self, text: &str) -> bool {
        let is_empty = self.example.is_some() && text.trim().is_empty();
        !is_empty && text != self.text()
    }

    fn text_of_value(&self) -> String {
        match &self.before {
            Value::String(text) => plain_lines(text),
            other => pretty(other),
        }
    }
}

/// Returns JSON with line ends and spaces. Characters that an editor would not show as themselves are escaped.
pub fn pretty(value: &Value) -> String {
    let mut text = String::new();
    for c in serde_json::to_string_pretty(value).unwrap_or_default().chars() {
        if c != '\n' && is_hidden(c) {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| text.push_str(&format!("\\u{unit:04x}")));
        } else {
            text.push(c);
        }
    }
    text
}

/// Returns the parameters of a verdict for the editor. `reviewed`: the whole reviewed text.
pub fn parameters_of(request: &ApprovalRequest, verdict: Verdict, reviewed: Option<&str>) -> Vec<Parameter> {
    let Some(schema) = parameters::schema(request, verdict) else { return Vec::new() };
    let is_required =
        |name: &str| schema["required"].as_array().is_some_and(|all| all.iter().any(|required| required == name));
    let shape = |name: &str| parameters::shape(&schema["properties"][name]);
    let example = parameters::example(&schema);
    let initial = match verdict {
        Verdict::Modify => parameters_to_edit(&schema, reviewed),
        _ => example.clone(),
    };
    let is_example = initial == example && reviewed.is_none_or(|text| !example.values().any(|value| value == text));
    let to_parameter = |(name, before): (String, Value)| {
        let mut parameter = Parameter {
            field: format!("{}.{name}", if verdict == Verdict::Retry { "retry" } else { "parameters" }),
            is_required: is_required(&name),
            shape: shape(&name),
            before,
            name,
            example: None,
        };
        parameter.example = is_example.then(|| parameter.text_of_value());
        parameter
    };
    initial.into_iter().map(to_parameter).collect()
}

/// Reads the decision of a form. `reviewed`: the whole reviewed text.
///
/// # Errors
/// The problems of the form by field: no verdict, a reason that is too long, invalid or unchanged parameters, no
/// answer, or missing guidance.
pub fn read_decision(typed: &Typed, request: &ApprovalRequest, reviewed: Option<&str>) -> Result<Decision, Problems> {
    let Some(verdict) = typed.verdict() else {
        return Err(Problems::of_form("no verdict was chosen: use one of the buttons"));
    };
    let mut decision = Decision::new(verdict);
    decision.reason = typed.text("reason").filter(|reason| !reason.trim().is_empty());
    if let Some(reason) = decision.reason.as_ref().filter(|reason| reason.chars().count() > LONGEST_REASON) {
        let why = format!("it has {} characters; the maximum is 2048", reason.chars().count());
        return Err(Problems(BTreeMap::from([("reason".to_owned(), why)])));
    }
    match verdict {
        Verdict::Modify => {
            decision.parameters = Some(changed_parameters(typed, &parameters_of(request, verdict, reviewed))?)
        }
        Verdict::Retry if typed.get(PART).is_some() => {
            decision.parameters = Some(changed_parameters(typed, &parameters_of(request, verdict, reviewed))?);
        }
        Verdict::Respond => decision.answers = Some(read_answers(typed, request)?),
        Verdict::Defer => {
            decision.guidance = typed.text("guidance").filter(|text| !text.trim().is_empty());
            if decision.guidance.is_none() {
                let why = "say what shall be done differently".to_owned();
                return Err(Problems(BTreeMap::from([("guidance".to_owned(), why)])));
            }
        }
        Verdict::Escalate => {
            let chosen = typed.all("to").filter_map(|at| request.escalate_to.get(at.parse::<usize>().ok()?));
            decision.escalate_to = chosen.cloned().collect();
        }
        Verdict::Approve | Verdict::Reject | Verdict::Abort | Verdict::Skip | Verdict::Retry => {}
    }
    Ok(decision)
}

/// Returns the problem of a required reason that is missing, or `None`.
pub fn reason_problem(seen: &signoff_review::seen::Seen, typed: &Typed) -> Option<Problems> {
    refusal::is_reason_missing(&seen.approval, typed.text("reason").as_deref()).then(|| {
        let why = format!("{} [{}]", Refusal::NoReason, Refusal::NoReason.code());
        Problems(BTreeMap::from([("reason".to_owned(), why)]))
    })
}

/// Returns a text with LF as line ends.
pub fn plain_lines(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n")
}

/// Parses JSON. Numbers that parsers read differently are an error.
fn parse_json(text: &str) -> Result<Value, String> {
    match json::read(text) {
        Ok(value) => number::problem(&value).map_or(Ok(value), Err),
        Err(_) => serde_json::from_str(text).map_err(|why| format!("it is not JSON: {why}")),
    }
}

/// Returns the values of the changed parameters and of the required ones. A value that is not JSON is a problem of its
/// field, and a form without a change is a problem of the form.
fn changed_parameters(typed: &Typed, parameters: &[Parameter]) -> Result<JsonObject, Problems> {
    let (mut values, mut problems) = (Map::new(), BTreeMap::new());
    let mut is_changed = false;
    for parameter in parameters {
        let Some(text) = typed.text(&parameter.field) else { continue };
        if parameter.example.is_some() && text.trim().is_empty() {
            continue;
        }
        if text == parameter.text() {
            if parameter.is_required {
                values.insert(parameter.name.clone(), parameter.before.clone());
            }
            continue;
        }
        is_changed = true;
        match if parameter.is_text() { Ok(Value::from(text)) } else { parse_json(&text) } {
            Ok(value) => {
                values.insert(parameter.name.clone(), value);
            }
            Err(why) => {
                problems.insert(parameter.field.clone(), why);
            }
        }
    }
    if !problems.is_empty() {
        return Err(Problems(problems));
    }
    if !is_changed {
        return Err(Problems::of_form("nothing was changed: change a field, or give another verdict"));
    }
    Ok(JsonObject(values))
}

/// Returns the name of the field for the options of a question.
pub fn option_field(question: &Question) -> String {
    format!("option.{}", question.id)
}

/// Returns the name of the field for the text of a question, which is also its name in problems of the engine.
pub fn text_field(question: &Question) -> String {
    format!("answers.{}", question.id)
}

/// Returns the answer to a question, if one was typed or chosen.
pub fn read_answer(typed: &Typed, question: &Question) -> Option<Answer> {
    let options: Vec<String> =
        typed.all(&option_field(question)).filter(|id| !id.is_empty()).map(str::to_owned).collect();
    let text = typed.text(&text_field(question)).filter(|text| !text.is_empty());
    (!options.is_empty() || text.is_some()).then_some(Answer { options, text })
}

/// Reads the answers to the questions of a request. A form without any answer is a problem.
fn read_answers(typed: &Typed, request: &ApprovalRequest) -> Result<BTreeMap<String, Answer>, Problems> {
    let mut answers = BTreeMap::new();
    for question in request.form.iter().flat_map(|form| &form.questions) {
        answers.extend(read_answer(typed, question).map(|answer| (question.id.clone(), answer)));
    }
    if answers.is_empty() {
        return Err(Problems::of_form("nothing was answered: answer a question, or give another verdict"));
    }
    Ok(answers)
}

/// Returns the names of all fields that can have a problem.
pub fn fields_with_problems(request: &ApprovalRequest) -> Vec<String> {
    let questions = request.form.iter().flat_map(|form| &form.questions).map(text_field);
    let parameters = parameters::schema(request, Verdict::Modify);
    let names = parameters.iter().filter_map(|schema| schema["properties"].as_object()).flat_map(Map::keys);
    questions
        .chain(names.map(|name| format!("parameters.{name}")))
        .chain(["reason".to_owned(), "guidance".to_owned()])
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;
    use signoff_review::sample;

    use super::*;

    fn typed(fields: &[(&str, &str)]) -> Typed {
        Typed(fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    fn request() -> ApprovalRequest {
        let mut request = sample::approval().spec.request;
        request.parameters = Some(JsonObject(
            json!({"Modify": {"type": "object", "minProperties": 1, "properties": {"url": {"type": "string"}, "body": {"type": "string"}}}})
                .as_object().unwrap().clone(),
        ));
        request
    }

    const CALL: &str = "POST to the bank\nurl: https://bank.example/refunds\nbody: '{\"amount\": 420}'\n";

    #[test]
    fn modify_sends_only_changed_parameters() {
        let typed = typed(&[
            ("verdict", "Modify"),
            ("parameters.url", "https://bank.example/refunds"),
            ("parameters.body", "{\"amount\": 400}"),
        ]);
        let decision = read_decision(&typed, &request(), Some(CALL)).unwrap();
        assert_eq!(Value::Object(decision.parameters.unwrap().0), json!({"body": "{\"amount\": 400}"}));
    }

    #[test]
    fn line_ends_of_browsers_are_no_change() {
        let mut request = request();
        request.parameters = None;
        let modify = |text: &str| {
            read_decision(&typed(&[("verdict", "Modify"), ("parameters.response", text)]), &request, Some("a\nb"))
        };
        assert!(modify("a\r\nb").unwrap_err().at("").unwrap().contains("nothing was changed"));
        let changed = modify("a\r\nc").unwrap().parameters.unwrap();
        assert_eq!(changed.0["response"], "a\nc");
    }

    #[test]
    fn json_value_is_parsed_and_an_invalid_one_is_a_problem_of_its_field() {
        let mut request = request();
        request.parameters = None;
        let modify = |text: &str| {
            read_decision(&typed(&[("verdict", "Modify"), ("parameters.response", text)]), &request, Some("{\"a\": 1}"))
        };
        assert_eq!(modify("{\"a\": 2}").unwrap().parameters.unwrap().0["response"], json!({"a": 2}));
        assert!(modify("{a: 2}").unwrap_err().at("parameters.response").unwrap().contains("not JSON"));
        assert_eq!(modify("{\"a\": null}").unwrap().parameters.unwrap().0["response"], json!({"a": null}));
        for (text, why) in [
            ("{\"a\": 1e-400}", "the number at /a is too close to 0"),
            ("{\"a\": [1e400]}", "the number at /a/0 is beyond ±2^53"),
            ("{\"a\": 9007199254740993}", "the number at /a is beyond ±2^53"),
        ] {
            let problems = modify(text).unwrap_err();
            assert!(problems.at("parameters.response").unwrap().starts_with(why), "{problems:?}");
        }
    }

    #[test]
    fn hidden_characters_are_escaped_in_json_and_keep_their_value() {
        let value = json!({"note": "a\u{202e}b\u{e0001}c\u{1f600}", "tab": "\t"});
        let text = pretty(&value);
        assert!(text.contains(r"a\u202eb\udb40\udc01c"), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }

    #[test]
    fn answers_are_options_and_texts_of_the_forms_own_questions() {
        let mut request = request();
        request.form = Some(
            serde_json::from_value(json!({"questions": [
                {"id": "size", "options": [{"id": "small"}, {"id": "large"}]}, {"id": "why", "required": false},
            ]}))
            .unwrap(),
        );
        let typed_answers = typed(&[
            ("verdict", "Respond"),
            ("option.size", "small"),
            ("answers.why", "a\r\nb"),
            ("answers.other", "x"),
        ]);
        let given = read_decision(&typed_answers, &request, None).unwrap().answers.unwrap();
        assert_eq!(given["size"].options, ["small"]);
        assert_eq!(given["why"].text.as_deref(), Some("a\nb"));
        assert_eq!(given.len(), 2);
        let nothing = read_decision(&typed(&[("verdict", "Respond")]), &request, None).unwrap_err();
        assert!(nothing.at("").unwrap().contains("nothing was answered"));
    }

    #[test]
    fn problems_stand_at_the_field_that_they_name() {
        let fields = ["answers.size".to_owned(), "parameters.url".to_owned()];
        assert_eq!(
            Problems::at_named_field("answers.size: choose one of a, b", &fields).at("answers.size").unwrap(),
            "choose one of a, b"
        );
        assert_eq!(
            Problems::at_named_field("parameters.url is missing", &fields).at("parameters.url").unwrap(),
            "is missing"
        );
        assert_eq!(Problems::at_named_field("answers.sizes: x", &fields).at("").unwrap(), "answers.sizes: x");
    }

    #[test]
    fn unknown_verdict_and_empty_guidance_are_refused() {
        assert!(read_decision(&typed(&[("verdict", "Maybe")]), &request(), None).unwrap_err().at("").is_some());
        assert!(
            read_decision(&typed(&[("verdict", "Defer"), ("guidance", " ")]), &request(), None)
                .unwrap_err()
                .at("guidance")
                .is_some()
        );
    }
}
