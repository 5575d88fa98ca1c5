//! The entry of `spec.decisions` that is sent for a decision typed on the command line.
//!
//! Pure. **Invariant:** input that cannot be sent unchanged is refused, never shortened.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use signoff_api::{
    Approval, ApprovalRequest, Decision, Verdict,
    approval::{ARGUMENTS, Answer},
    gate::{Subject, SubjectKind},
    values::JsonObject,
};
use signoff_cli::sanitize::one_line;
use signoff_engine::{gate::parameters, tools::read_object};
use signoff_expr::{json, number};
use signoff_manifest::source;
use signoff_review::{action::call, entry::Entry, voter::Me};

use crate::{
    args::{DecisionArgs, Payload},
    error::Failure,
};

/// Returns the entry for these arguments. `file`: the content of the file that the options name, if they name one.
///
/// # Errors
/// The arguments are not a valid payload of the verdict.
pub fn build_entry(args: &DecisionArgs, file: Option<&str>, approval: &Approval, me: &Me) -> Result<Entry, Failure> {
    let mut decision = build_decision(args, file, &approval.spec.request)?;
    decision.reason.clone_from(&args.common.reason);
    let on_behalf_of = args.common.on_behalf_of.as_deref();
    Entry::new(decision, on_behalf_of, approval, me).map_err(|error| Failure::Usage(error.to_string()))
}

fn build_decision(args: &DecisionArgs, file: Option<&str>, request: &ApprovalRequest) -> Result<Decision, Failure> {
    let mut decision = Decision::new(args.verdict);
    match &args.payload {
        // Edited parameters arrive here as `Payload::Parameters`.
        Payload::Nothing | Payload::Edited => {}
        Payload::Parameters { set, set_string, .. } => {
            let expected =
                parameters::schema(request, args.verdict).map(|schema| one_line(&parameters::shape(&schema), 1000));
            let expected = expected.unwrap_or_else(|| "no parameters".into());
            let parameters = collect_parameters(set, set_string, file, &expected, call(request).is_some())?;
            if parameters.is_empty() && args.verdict == Verdict::Modify {
                let options = "--set KEY=VALUE or --from-file FILE";
                return Err(Failure::Usage(format!("modify needs parameters, here {expected}: {options}")));
            }
            decision.parameters = (!parameters.is_empty()).then_some(JsonObject(parameters));
        }
        Payload::Response(text) => decision.response = Some(text.clone()),
        // Editors and echo end a file with a line end, which is no part of the answer.
        Payload::ResponseFile(_) => {
            decision.response = file.map(|text| text.strip_suffix('\n').unwrap_or(text).to_owned())
        }
        Payload::Answers { texts, options } => decision.answers = Some(collect_answers(texts, options)?),
        Payload::Guidance(text) => decision.guidance = Some(text.clone()),
        Payload::To(whom) => decision.escalate_to = whom.iter().map(|typed| parse_subject(typed, request)).collect(),
    }
    Ok(decision)
}

/// Returns the parameters of the file, and those of `--set` and `--set-string`, which replace parameters of the file.
/// `expected`: the parameters that the gate takes, for messages.
fn collect_parameters(
    set: &[(String, String)],
    set_string: &[(String, String)],
    file: Option<&str>,
    expected: &str,
    is_call: bool,
) -> Result<Map<String, Value>, Failure> {
    let mut parameters = match file {
        None => Map::new(),
        Some(text) => {
            let value = source::typed(text, false).map_err(|why| {
                Failure::Usage(format!("--from-file is neither JSON nor YAML: {}", yaml_problem(&why)))
            })?;
            if let Some(why) = number::problem(&value) {
                return Err(Failure::Usage(format!("--from-file: {why}")));
            }
            match value {
                Value::Object(fields) => fields,
                _ => {
                    return Err(Failure::Usage(format!("--from-file must hold an object: this gate takes {expected}")));
                }
            }
        }
    };
    for (key, text) in set {
        if is_call && key == ARGUMENTS {
            parameters.insert(key.clone(), Value::Object(read_arguments(text)?));
            continue;
        }
        parameters.insert(key.clone(), json::read(text).unwrap_or_else(|_| Value::String(text.clone())));
    }
    for (key, text) in set_string {
        parameters.insert(key.clone(), Value::String(text.clone()));
    }
    Ok(parameters)
}

/// Reads the arguments of a call, as strictly as the arguments that a model gives.
fn read_arguments(text: &str) -> Result<Map<String, Value>, Failure> {
    if let (Err(_), Err(why)) = (json::read(text), serde_json::from_str::<Value>(text)) {
        return Err(Failure::Usage(format!("--set {ARGUMENTS}: not JSON: {why}; write --set {ARGUMENTS}='{{…}}'")));
    }
    read_object(text).map_err(|why| Failure::Usage(format!("--set {ARGUMENTS}: {why}")))
}

/// Returns the YAML reader's message without its advice to programmers.
fn yaml_problem(error: &str) -> String {
    let end = [", set DuplicateKeyPolicy", "; set DuplicateKeyPolicy", " set DuplicateKeyPolicy"];
    let end = end.iter().find_map(|mark| error.find(mark)).unwrap_or(error.len());
    one_line(&error[..end], 300)
}

fn collect_answers(
    texts: &[(String, String)],
    options: &[(String, String)],
) -> Result<BTreeMap<String, Answer>, Failure> {
    let mut answers: BTreeMap<String, Answer> = BTreeMap::new();
    for (id, text) in texts {
        if answers.entry(id.clone()).or_default().text.replace(text.clone()).is_some() {
            return Err(Failure::Usage(format!("--answer {id} is a duplicate: give each question one answer")));
        }
    }
    for (id, option) in options {
        let chosen = &mut answers.entry(id.clone()).or_default().options;
        if !chosen.contains(option) {
            chosen.push(option.clone());
        }
    }
    Ok(answers)
}

/// Returns the gate's own target of this name if there is exactly one; otherwise the subject that the text describes,
/// which the API server judges.
fn parse_subject(typed: &str, request: &ApprovalRequest) -> Subject {
    let mut named = request.escalate_to.iter().filter(|subject| subject.name == typed);
    if let (Some(subject), None) = (named.next(), named.next()) {
        return subject.clone();
    }
    if let Some(group) = typed.strip_prefix("group:") {
        return Subject::group(group);
    }
    match typed.strip_prefix("serviceaccount:").and_then(|rest| rest.split_once('/')) {
        Some((namespace, name)) => {
            Subject { kind: SubjectKind::ServiceAccount, name: name.to_owned(), namespace: Some(namespace.to_owned()) }
        }
        None => Subject::user(typed.strip_prefix("user:").unwrap_or(typed)),
    }
}

#[cfg(test)]
mod tests;
