//! One decision checked against its request: its payload, or the reason why it is invalid.
//!
//! Reads only the request and the decision, so that every process gets the same result.

use std::collections::BTreeMap;

use serde_json::Value;
use signoff_api::{
    ApprovalRequest, Decision, JsonObject, Verdict,
    approval::{ARGUMENTS, Answer, Grant},
    gate::{Form, Question},
    verdict::PayloadPart,
};
use signoff_expr::{budget, endless, json, number, re2, text};

use crate::{
    gate::parameters::{self, shape},
    schema::Schema,
    tools::arguments::Arguments,
};

/// The payload of a decision in a canonical form. Two votes agree if verdict and payload are equal.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub(crate) struct Payload {
    pub(crate) answers: Option<BTreeMap<String, Answer>>,
    pub(crate) parameters: Option<JsonObject>,
    pub(crate) guidance: Option<String>,
}

/// Parses the payload of a decision.
///
/// # Errors
/// One sentence for the author of the decision: the problem and the remedy.
pub(crate) fn parse(request: &ApprovalRequest, decision: &Decision) -> Result<Payload, String> {
    if decision.grant.is_some() {
        return Err(Grant::REFUSED.to_owned());
    }
    // A decision that was stored without the policies in force has the same limit.
    if let Some(why) = decision.too_large(request, &BTreeMap::new()) {
        return Err(why.to_owned());
    }
    let mut payload = Payload::default();
    for (part, _) in decision.verdict.rules().payload {
        match part {
            PayloadPart::Parameters => payload.parameters = check_parameters(request, decision)?,
            PayloadPart::Answer => {
                let answers = check_answers(request.form.as_ref(), decision)?;
                payload.answers = Some(check_response(request, answers)?);
            }
            PayloadPart::Guidance => payload.guidance = decision.guidance.as_deref().map(text::clean),
            PayloadPart::EscalateTo | PayloadPart::Grant => {}
        }
    }
    Ok(payload)
}

/// Checks the parameters of a verdict against the request, and returns the form in which they are stored. Modify
/// requires parameters.
fn check_parameters(request: &ApprovalRequest, decision: &Decision) -> Result<Option<JsonObject>, String> {
    let verdict = decision.verdict;
    let schemas = request.parameters.as_ref().map(|schemas| &schemas.0);
    let schema = schemas.and_then(|schemas| schemas.get(verdict.name()));
    match (schema, &decision.parameters) {
        (None, _) if verdict == Verdict::Modify => check_replacement(decision).map(Some),
        (None, None) => Ok(None),
        (None, Some(_)) => Err("Retry asks this gate again and takes no parameters: leave them out".to_owned()),
        (Some(_), None) if verdict == Verdict::Retry => Ok(None),
        (Some(schema), None) => Err(format!("{verdict} needs parameters: {}", text::display(&shape(schema), 300))),
        (Some(schema), Some(given)) => {
            let parsed = match given.0.get(ARGUMENTS).filter(|_| request.is_about_call()) {
                Some(arguments) => with_arguments(given, arguments)?,
                None => given.clone(),
            };
            if let Err((place, problem)) = Schema::of_value(schema)?.check(&Value::Object(parsed.0.clone())) {
                let place = place.replace('/', ".");
                let problem = text::display(&problem, 300);
                return Err(format!("parameters{}: {problem}: give {}", text::display(&place, 120), shape(schema)));
            }
            check_exact(given)?;
            Ok(Some(parameters::to_stored(&parsed)))
        }
    }
}

/// Returns parameters with the arguments as an object, whether they were given as an object or as one JSON text.
fn with_arguments(given: &JsonObject, arguments: &Value) -> Result<JsonObject, String> {
    let arguments = Arguments::edited(arguments).map_err(|why| format!("parameters.{ARGUMENTS}: {why}"))?;
    let mut parsed = given.clone();
    parsed.0.insert(ARGUMENTS.to_owned(), Value::Object(arguments.value().clone()));
    Ok(parsed)
}

/// Returns the answers unchanged if their text matches the schema of the response in the request.
fn check_response(
    request: &ApprovalRequest,
    answers: BTreeMap<String, Answer>,
) -> Result<BTreeMap<String, Answer>, String> {
    let schemas = request.parameters.as_ref().map(|schemas| &schemas.0);
    let Some(schema) = schemas.and_then(|schemas| schemas.get(Verdict::Respond.name())) else { return Ok(answers) };
    let text = as_text(request.form.as_ref(), &answers);
    match Schema::of_value(schema)?.check_text(&text) {
        Ok(()) => Ok(answers),
        Err(why) => {
            let why = text::display(&why, 300);
            Err(format!("the response does not fit the schema of the step ({why}): give {}", shape(schema)))
        }
    }
}

/// Checks the parameters of a Modify at a gate without a schema, where Modify replaces the response of the reviewed
/// step, and returns them unchanged.
fn check_replacement(decision: &Decision) -> Result<JsonObject, String> {
    let remedy = "give parameters: {response: …}, the text to go on with";
    let Some(parameters) = &decision.parameters else { return Err(format!("Modify needs parameters: {remedy}")) };
    if let Some(unknown) = parameters.0.keys().find(|key| *key != "response") {
        return Err(format!("parameters.{} is not known here: {remedy}", text::display(unknown, 63)));
    }
    if !parameters.0.contains_key("response") {
        return Err(format!("parameters.response is missing: {remedy}"));
    }
    check_exact(parameters)?;
    Ok(parameters.clone())
}

/// Checks that JSON readers agree on every number in the parameters.
fn check_exact(parameters: &JsonObject) -> Result<(), String> {
    match number::problem(&Value::Object(parameters.0.clone())) {
        Some(why) => Err(format!("parameters: {why}")),
        None => Ok(()),
    }
}

/// Checks the answer to each question of the form, and returns the answers by the ids of the questions. Questions that
/// are left out have none.
fn check_answers(form: Option<&Form>, decision: &Decision) -> Result<BTreeMap<String, Answer>, String> {
    let Some(form) = form else { return Err("this gate has no question: leave response and answers out".to_owned()) };
    let given = match (&decision.response, &decision.answers) {
        (Some(response), None) => match form.questions.as_slice() {
            [only] => BTreeMap::from([(only.id.clone(), Answer { options: Vec::new(), text: Some(response.clone()) })]),
            many => {
                let ids: Vec<_> = many.iter().map(|q| q.id.as_str()).collect();
                return Err(format!(
                    "response answers a single question and this gate asks {}: give answers for {}",
                    many.len(),
                    ids.join(", ")
                ));
            }
        },
        (None, Some(answers)) => answers.clone(),
        _ => return Err("give response or answers, and not both".to_owned()),
    };
    if let Some(unknown) = given.keys().find(|id| !form.questions.iter().any(|q| q.id == **id)) {
        return Err(format!("answers.{}: this gate has no such question; leave it out", text::display(unknown, 63)));
    }
    let mut checked = BTreeMap::new();
    for question in &form.questions {
        let answer = given.get(&question.id).filter(|answer| !answer.options.is_empty() || answer.text.is_some());
        let is_blank = |answer: &Answer| {
            answer.options.is_empty() && answer.text.as_ref().is_some_and(|text| text.trim().is_empty())
        };
        match answer {
            Some(answer) if is_blank(answer) && !question.may_be_left_out() => {
                return Err(format!("answers.{} is empty, and it is required", question.id));
            }
            Some(answer) => {
                let answer = check_answer(question, answer).map_err(|why| format!("answers.{}: {why}", question.id))?;
                checked.insert(question.id.clone(), answer);
            }
            None if question.may_be_left_out() => {}
            None => return Err(format!("answers.{} is missing, and it is required", question.id)),
        }
    }
    Ok(checked)
}

/// Checks an answer, and returns it with its chosen options in the order of the form. A text that names an option
/// chooses that option.
fn check_answer(question: &Question, answer: &Answer) -> Result<Answer, String> {
    let mut checked = Answer::default();
    for chosen in &answer.options {
        match question.options.iter().find(|o| o.id == *chosen) {
            Some(option) if !checked.options.contains(&option.id) => checked.options.push(option.id.clone()),
            Some(_) => {}
            None => {
                return Err(format!(
                    "{} is not an option: choose from {}",
                    text::display(chosen, 63),
                    option_ids(question)
                ));
            }
        }
    }
    if let Some(given) = &answer.text {
        match question.option_named(given.trim()) {
            Some(option) if !checked.options.contains(&option.id) => checked.options.push(option.id.clone()),
            Some(_) => {}
            None => {
                // The checked text is the same that is stored and read later.
                let given = text::clean(given);
                check_text(question, &given)?;
                checked.text = Some(given);
            }
        }
    }
    if checked.options.len() > 1 && question.multiple != Some(true) {
        return Err(format!("choose one of {}", option_ids(question)));
    }
    let position = |id: &String| question.options.iter().position(|o| o.id == *id);
    checked.options.sort_by_key(position);
    Ok(checked)
}

fn option_ids(question: &Question) -> String {
    question.options.iter().map(|o| o.id.as_str()).collect::<Vec<_>>().join(", ")
}

/// Checks a text against its question: an option, or a free text with limits of length, pattern and schema.
///
/// # Errors
/// One sentence for the author of the answer.
pub(crate) fn check_text(question: &Question, given: &str) -> Result<(), String> {
    if question.option_named(given.trim()).is_some() {
        return Ok(());
    }
    if !question.takes_text() {
        return Err(format!("choose one of {}", option_ids(question)));
    }
    endless::meet("answer", given);
    let length = given.chars().count();
    if let Some(most) = question.max_length.and_then(|most| usize::try_from(most).ok()).filter(|most| length > *most) {
        return Err(format!("it has {length} characters; the maximum is {most}"));
    }
    budget::charge(given.len()).map_err(|stopped| stopped.to_string())?;
    if let Some(pattern) = &question.pattern
        && !re2::whole(pattern)?.is_match(given)
    {
        return Err(question.error_message.clone().unwrap_or_else(|| format!("the whole answer must match {pattern}")));
    }
    if let Some(schema) = &question.schema {
        let parsed = json::read(given).or_else(|_| serde_json::from_str(given));
        let value = parsed.map_err(|why| format!("it must be JSON: {why}"))?;
        if let Err((place, problem)) = Schema::compile(schema)?.check(&value) {
            let place = if place.is_empty() { "the answer".to_owned() } else { place };
            return Err(format!("{}: {}", text::display(&place, 120), text::display(&problem, 400)));
        }
    }
    Ok(())
}

/// Returns the answers of a timeout with the action Default: `default` for the only question, or the default of each
/// question.
///
/// # Errors
/// One sentence about a question without a valid default.
pub(crate) fn default_answers(form: Option<&Form>, default: Option<&str>) -> Result<BTreeMap<String, Answer>, String> {
    let questions = form.map_or(&[][..], |form| form.questions.as_slice());
    if default.is_some() && questions.len() > 1 {
        return Err("it answers a single question: give each question its own default".to_owned());
    }
    let mut answers = BTreeMap::new();
    for question in questions {
        match default.or(question.default.as_deref()) {
            Some(given) => {
                let given = Answer { options: Vec::new(), text: Some(given.to_owned()) };
                let answer =
                    check_answer(question, &given).map_err(|why| format!("question {}: {why}", question.id))?;
                answers.insert(question.id.clone(), answer);
            }
            None if question.may_be_left_out() => {}
            None => return Err(format!("question {} has no default: give it one", question.id)),
        }
    }
    Ok(answers)
}

/// Renders the answers as one text: a choice by its label, several choices joined by `, `, and several questions as
/// lines.
pub(crate) fn as_text(form: Option<&Form>, answers: &BTreeMap<String, Answer>) -> String {
    let questions = form.map_or(&[][..], |form| form.questions.as_slice());
    let answer_text = |question: &Question, answer: &Answer| {
        let labels = answer.options.iter().map(|id| {
            question.options.iter().find(|o| o.id == *id).map_or(id.as_str(), signoff_api::gate::Choice::label)
        });
        labels.chain(answer.text.as_deref()).collect::<Vec<_>>().join(", ")
    };
    let answered: Vec<_> =
        questions.iter().filter_map(|q| answers.get(&q.id).map(|answer| (q, answer_text(q, answer)))).collect();
    match (questions.len(), answered.as_slice()) {
        (1, [(_, text)]) => text.clone(),
        _ => answered.iter().map(|(q, text)| format!("{}: {text}", q.id)).collect::<Vec<_>>().join("\n"),
    }
}

#[cfg(test)]
#[path = "edit_tests.rs"]
mod edit_tests;
#[cfg(test)]
#[path = "payload_tests.rs"]
mod tests;
