//! Answers to gates, from the command line or from a file: decisions, each for one gate.
//!
//! **Invariant:** each answer is given out once, so that one answer never satisfies two gates.

pub mod form;
pub mod lines;
pub mod menu;
pub mod page;
pub mod person;

use std::collections::{BTreeMap, VecDeque};

use serde::Deserialize;
use serde_json::{Map, Value};
use signoff_api::{
    Approval, ApprovalRequest, Decision, JsonObject, Verdict, approval::Answer, gate::Subject, verdict::Word,
};
use signoff_cli::sanitize::one_line;
use signoff_expr::number::{self, inexact};
use signoff_local::{decision_of, mistyped};
use signoff_manifest::source;

/// Answers whose gates have not asked yet.
#[derive(Debug, Default)]
pub struct Answers {
    entries: Vec<Entry>,
    /// The name of the file with the answers for messages, or `None` for answers of the command line.
    file: Option<String>,
}

/// The answers for a gate, in the order in which it asks for them.
#[derive(Debug)]
struct Entry {
    /// The gate's name, its path, or the name of its Approval.
    gate: String,
    given: VecDeque<GivenAnswer>,
}

/// One answer.
#[derive(Clone, Debug, PartialEq)]
pub enum GivenAnswer {
    /// A text of the command line: a word for a verdict, or an answer.
    Text {
        /// The text.
        text: String,
        /// The reason.
        reason: Option<String>,
    },
    /// A text of a file. It is read as a text of the command line, but a single word is always a verdict at a gate that
    /// asks for a verdict.
    Word(String),
    /// A verdict with its payload.
    Decision(Box<Decision>),
}

impl GivenAnswer {
    /// Returns the decision that the answer means at a gate.
    ///
    /// # Errors
    /// The answer has no meaning that the gate allows.
    pub fn decision(self, request: &ApprovalRequest) -> Result<Decision, String> {
        match self {
            Self::Decision(decision) => Ok(*decision),
            Self::Text { text, reason } => {
                let decision = decision_of(request, &text).map_err(|why| {
                    let is_mistyped = takes_answers(request) && mistyped(request, &text, false).is_some();
                    let remedy = " (`--verdict respond` with it takes the text as the answer)";
                    why + if is_mistyped { remedy } else { "" }
                })?;
                Ok(Decision { reason, ..decision })
            }
            Self::Word(text) => match mistyped(request, &text, true) {
                Some(why) if takes_answers(request) => {
                    Err(format!("{why} (`{{response: {}}}` takes the text as the answer)", one_line(text.trim(), 100)))
                }
                Some(why) => Err(why),
                None => decision_of(request, &text),
            },
        }
    }
}

impl Answers {
    /// Returns the only answer of a command line, for one Approval.
    pub fn single(approval: &str, given: GivenAnswer) -> Self {
        Self { entries: vec![Entry { gate: approval.to_owned(), given: VecDeque::from([given]) }], file: None }
    }

    /// Parses the answers of a file: a map from a gate's name, path or Approval to a text, a decision, or a list of
    /// texts and decisions. `name`: the file, for messages.
    ///
    /// # Errors
    /// The text is not such a map.
    pub fn of_file(name: &str, text: &str) -> Result<Self, String> {
        let value = parse_yaml(text)?;
        let Value::Object(gates) = value else {
            return Err("not a map from gates to answers, such as `review: approve`".to_owned());
        };
        let mut entries = Vec::new();
        for (gate, value) in gates {
            let list = match value {
                Value::Array(items) => items,
                single => vec![single],
            };
            let given: Result<VecDeque<GivenAnswer>, String> = list.into_iter().map(parse_given).collect();
            entries.push(Entry { given: given.map_err(|why| format!("{gate}: {why}"))?, gate });
        }
        Ok(Self { entries, file: Some(name.to_owned()) })
    }

    /// Takes the next answer for an Approval: by its own name, otherwise by its gate's path, otherwise by its gate's
    /// name.
    pub fn take(&mut self, approval: &Approval) -> Option<GivenAnswer> {
        let gate = &approval.spec.request.gate;
        let names = [approval.metadata.name.as_deref().unwrap_or_default(), &gate.path, &gate.name];
        let index = names
            .iter()
            .find_map(|name| self.entries.iter().position(|entry| entry.gate == **name && !entry.given.is_empty()))?;
        self.entries.get_mut(index)?.given.pop_front()
    }

    /// Returns the name of the file with the answers, if they are from a file.
    pub fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }

    /// Returns the gates with answers that are left.
    pub fn unused(&self) -> Vec<&str> {
        self.entries.iter().filter(|entry| !entry.given.is_empty()).map(|entry| entry.gate.as_str()).collect()
    }
}

/// A decision as a file writes it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenDecision {
    verdict: Option<String>,
    reason: Option<String>,
    response: Option<Value>,
    answers: Option<BTreeMap<String, Value>>,
    parameters: Option<Map<String, Value>>,
    guidance: Option<String>,
    #[serde(default)]
    escalate_to: Vec<Subject>,
}

fn takes_answers(request: &ApprovalRequest) -> bool {
    request.allowed_verdicts.contains(&Verdict::Respond)
}

fn parse_given(value: Value) -> Result<GivenAnswer, String> {
    match value {
        Value::Object(fields) => {
            let written: WrittenDecision =
                serde_json::from_value(Value::Object(fields)).map_err(|why| why.to_string())?;
            build_decision(written).map(|decision| GivenAnswer::Decision(Box::new(decision)))
        }
        other => parse_scalar(other).map(GivenAnswer::Word),
    }
}

fn build_decision(written: WrittenDecision) -> Result<Decision, String> {
    let verdict = match &written.verdict {
        Some(word) => parse_verdict(word)?,
        None if written.response.is_some() || written.answers.is_some() => Verdict::Respond,
        None if written.parameters.is_some() => Verdict::Modify,
        None if written.guidance.is_some() => Verdict::Defer,
        None => return Err("it needs a verdict".to_owned()),
    };
    let answers = written.answers.map(|answers| answers.into_iter().map(|(id, value)| Ok((id, parse_answer(value)?))));
    Ok(Decision {
        reason: written.reason,
        response: written.response.map(parse_scalar).transpose()?,
        answers: answers.map(Iterator::collect::<Result<_, String>>).transpose()?,
        parameters: written.parameters.map(check_numbers).transpose()?,
        guidance: written.guidance,
        escalate_to: written.escalate_to,
        ..Decision::new(verdict)
    })
}

fn parse_answer(value: Value) -> Result<Answer, String> {
    match value {
        Value::Object(_) => serde_json::from_value(value).map_err(|why| why.to_string()),
        Value::Array(ids) => {
            let options = ids.into_iter().map(parse_scalar).collect::<Result<_, _>>()?;
            Ok(Answer { options, text: None })
        }
        other => Ok(Answer { options: Vec::new(), text: Some(parse_scalar(other)?) }),
    }
}

/// Returns a text, also one that YAML reads as a number or a boolean.
fn parse_scalar(value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Bool(_) => Ok(value.to_string()),
        // Only fractions can lose digits; an integer is kept as it was written.
        Value::Number(ref number) if number.is_f64() && inexact(number).is_some() => {
            Err(number::problem(&value).unwrap_or_default())
        }
        Value::Number(number) => Ok(number.to_string()),
        _ => Err("an answer is a text, or an object with a verdict".to_owned()),
    }
}

/// Parses a verdict by its name, or by a word for it.
///
/// # Errors
/// The text is not a verdict. The message lists all verdicts.
pub fn parse_verdict(word: &str) -> Result<Verdict, String> {
    if word.trim().eq_ignore_ascii_case(Verdict::Respond.name()) {
        return Ok(Verdict::Respond);
    }
    match Word::read(word) {
        Word::Verdict(verdict) => Ok(verdict),
        Word::Trust => Err(format!("{}: use approve for this one", Word::NO_TRUST)),
        Word::Answer(_) => {
            let names: Vec<_> = Verdict::ALL.iter().map(|verdict| verdict.name().to_lowercase()).collect();
            Err(format!("no verdict: use one of {}", names.join(", ")))
        }
    }
}

/// Parses YAML or JSON in which `yes` and `no` stay words.
fn parse_yaml(text: &str) -> Result<Value, String> {
    source::typed(text, true).map_err(|why| format!("neither YAML nor JSON: {why}"))
}

/// Parses an object in YAML or JSON.
///
/// # Errors
/// The text is not an object, or it has a number that JSON readers round differently.
pub fn parse_object(text: &str) -> Result<JsonObject, String> {
    match parse_yaml(text)? {
        Value::Object(fields) => check_numbers(fields),
        _ => Err("no object, such as '{response: the better text}'".to_owned()),
    }
}

/// Returns the parameters, if every JSON reader reads the same numbers.
fn check_numbers(parameters: Map<String, Value>) -> Result<JsonObject, String> {
    match number::problem(&Value::Object(parameters.clone())) {
        Some(why) => Err(format!("parameters: {why}")),
        None => Ok(JsonObject(parameters)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use serde_json::json;

    use super::*;

    pub fn approval(name: &str, gate: &str, path: &str) -> Approval {
        serde_json::from_value(json!({
            "apiVersion": "signoff.dev/v1alpha1", "kind": "Approval", "metadata": {"name": name},
            "spec": {"request": {
                "workflow": {"name": "w", "uid": "u"}, "gate": {"name": gate, "type": "step", "path": path, "visit": 1},
                "specDigest": "sha256:0", "guardEpoch": "local", "deadline": "2030-01-01T00:00:00Z", "prompt": "?",
                "allowedVerdicts": ["Approve", "Respond"], "requestedBy": "dana",
                "quorums": [{"source": "gate", "approvers": [{"kind": "User", "name": "erin"}], "threshold": 1}],
                "timeout": {}, "digest": "sha256:0"}},
        }))
        .unwrap()
    }

    fn text(text: &str) -> GivenAnswer {
        GivenAnswer::Word(text.to_owned())
    }

    #[test]
    fn each_answer_is_given_once_and_to_the_closest_name() {
        let mut answers =
            Answers::of_file("answers.yaml", "{review: [one, two], 'review#2': path, w-review-3: own}").unwrap();
        assert_eq!(answers.take(&approval("w-review-1", "review", "review")), Some(text("one")));
        assert_eq!(answers.take(&approval("w-review-2", "review", "review#2")), Some(text("path")));
        assert_eq!(answers.take(&approval("w-review-3", "review", "review#3")), Some(text("own")));
        assert_eq!(answers.unused(), ["review"]);
        assert_eq!(answers.take(&approval("w-review-4", "review", "review#4")), Some(text("two")));
        assert_eq!(answers.take(&approval("w-review-5", "review", "review#5")), None);
        assert!(answers.unused().is_empty());
    }

    #[test]
    fn a_file_can_have_every_payload_of_a_verdict() {
        let file = "a: {verdict: reject, reason: no}\nb: {parameters: {response: x}}\nc: 5\nd: true\n\
                    e: {answers: {one: yes, two: [x, y], three: {text: z}}}";
        let answers = Answers::of_file("answers.yaml", file).unwrap();
        let given: Vec<_> = answers.entries.iter().map(|entry| entry.given[0].clone()).collect();
        let GivenAnswer::Decision(reject) = &given[0] else { panic!("{given:?}") };
        assert_eq!((reject.verdict, reject.reason.as_deref()), (Verdict::Reject, Some("no")));
        let GivenAnswer::Decision(modify) = &given[1] else { panic!("{given:?}") };
        assert_eq!(modify.verdict, Verdict::Modify);
        assert_eq!((&given[2], &given[3]), (&text("5"), &text("true")));
        let GivenAnswer::Decision(respond) = &given[4] else { panic!("{given:?}") };
        let answers = respond.answers.as_ref().unwrap();
        assert_eq!(answers["one"].text.as_deref(), Some("yes"));
        assert_eq!(answers["two"].options, ["x", "y"]);
    }

    #[test]
    fn a_file_without_a_clear_meaning_is_refused() {
        for (file, why) in [
            ("[]", "not a map"),
            ("{", "neither YAML nor JSON"),
            ("a: {}", "needs a verdict"),
            ("a: {verdict: maybe}", "no verdict"),
            ("a: {verdict: approve, resaon: x}", "unknown field"),
            ("a: {verdict: approve, parameters: 1}", "invalid type"),
            ("a: null", "an answer is a text"),
            (
                "a: {verdict: modify, parameters: {arguments: {n: [1e400]}}}",
                "a: parameters: the number at /arguments/n/0 is beyond ±2^53, where JSON readers round differently; write it as a text",
            ),
            ("a: {parameters: {n: 1e-400}}", "a: parameters: the number at /n is too close to 0"),
            ("a: 1e-400", "a: the number is too close to 0"),
            ("a: 1e400", "a: the number is beyond ±2^53"),
        ] {
            let found = Answers::of_file("answers.yaml", file).unwrap_err();
            assert!(found.contains(why), "{file}: {found}");
        }
    }

    #[test]
    fn parameters_with_an_inexact_number_are_refused() {
        let why = parse_object("{n: 1e-400}").unwrap_err();
        assert!(why.starts_with("parameters: the number at /n is too close to 0"), "{why}");
        let why = parse_object(r#"{"a": {"n": 1e400}}"#).unwrap_err();
        assert!(why.starts_with("parameters: the number at /a/n is beyond ±2^53"), "{why}");
        assert_eq!(
            parse_object("{n: 0.5, id: '1e400'}").unwrap().0,
            *json!({"n": 0.5, "id": "1e400"}).as_object().unwrap()
        );
    }

    #[test]
    fn a_verdict_is_parsed_from_its_name_or_a_word() {
        assert_eq!(parse_verdict("Respond"), Ok(Verdict::Respond));
        assert_eq!(parse_verdict("APPROVE"), Ok(Verdict::Approve));
        assert_eq!(parse_verdict("y"), Ok(Verdict::Approve));
        assert!(parse_verdict("trust").unwrap_err().starts_with(Word::NO_TRUST));
    }
}
