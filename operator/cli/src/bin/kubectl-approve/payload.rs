//! What was typed, as the entry of `spec.decisions` that is sent, and as the patch that puts it there.
//!
//! Pure: it must not read files or the cluster. What it cannot send unchanged it refuses, instead of sending less.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use signoff_api::{
    Approval, ApprovalRequest, Decision, Verdict,
    approval::Answer,
    digest::canonical,
    gate::{Subject, SubjectKind},
    values::JsonObject,
};

use signoff_engine::{approval::eligibility, gate::parameters};

use crate::{
    args::{DecisionArgs, Payload},
    client::Me,
    error::Failure,
    sanitize::one_line,
};

/// A decision and the key it goes under.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// One's own user name, or `<person> via <me>`.
    pub key: String,
    /// The entry as it is sent.
    pub decision: Decision,
}

/// The entry for a args. `file` is the content of the file that the args names, if it names one.
///
/// # Errors
/// What was typed makes no decision.
pub fn entry(args: &DecisionArgs, file: Option<&str>, approval: &Approval, me: &Me) -> Result<Entry, Failure> {
    let request = &approval.spec.request;
    let mut decision = payload(args, file, request)?;
    decision.reason.clone_from(&args.common.reason);
    decision.request_digest = Some(request.digest.to_string());
    let key = match &args.common.on_behalf_of {
        Some(person) => {
            decision.on_behalf_of = Some(person.clone());
            format!("{person} via {}", me.user)
        }
        None => {
            decision.groups = approval.groups_of_voter(&me.groups);
            me.user.clone()
        }
    };
    // A first attempt has no number.
    decision.attempt = eligibility::next_attempt(approval, &key).filter(|attempt| *attempt > 1);
    canonical(&decision).map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(Entry { key, decision })
}

fn payload(args: &DecisionArgs, file: Option<&str>, request: &ApprovalRequest) -> Result<Decision, Failure> {
    let mut decision = Decision::new(args.verdict);
    match &args.payload {
        // What is edited is sent as parameters.
        Payload::Nothing | Payload::Edited => {}
        Payload::Parameters { set, set_string, .. } => {
            let takes =
                parameters::schema(request, args.verdict).map(|schema| one_line(&parameters::shape(&schema), 1000));
            let takes = takes.unwrap_or_else(|| "no parameters".into());
            let parameters = given(set, set_string, file, &takes)?;
            if parameters.is_empty() && args.verdict == Verdict::Modify {
                let how = "--set KEY=VALUE or --from-file FILE";
                return Err(Failure::Usage(format!("modify needs parameters, here {takes}: {how}")));
            }
            decision.parameters = (!parameters.is_empty()).then_some(JsonObject(parameters));
        }
        Payload::Response(text) => decision.response = Some(text.clone()),
        // The line end that editors and echo put at the end of a file is no part of an answer.
        Payload::ResponseFile(_) => {
            decision.response = file.map(|text| text.strip_suffix('\n').unwrap_or(text).to_owned())
        }
        Payload::Answers { texts, options } => decision.answers = Some(answers(texts, options)?),
        Payload::Guidance(text) => decision.guidance = Some(text.clone()),
        Payload::To(whom) => decision.escalate_to = whom.iter().map(|typed| subject(typed, request)).collect(),
    }
    Ok(decision)
}

fn given(
    set: &[(String, String)],
    set_string: &[(String, String)],
    file: Option<&str>,
    takes: &str,
) -> Result<Map<String, Value>, Failure> {
    let mut parameters = match file {
        None => Map::new(),
        Some(text) => {
            let value: Value = serde_saphyr::from_str(text)
                .map_err(|error| Failure::Usage(format!("--from-file is neither JSON nor YAML: {error}")))?;
            match value {
                Value::Object(fields) => fields,
                _ => return Err(Failure::Usage(format!("--from-file must hold an object: this gate takes {takes}"))),
            }
        }
    };
    for (key, text) in set {
        parameters.insert(key.clone(), serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.clone())));
    }
    for (key, text) in set_string {
        parameters.insert(key.clone(), Value::String(text.clone()));
    }
    if parameters.values().any(holds_null) {
        return Err(Failure::Usage("null cannot be sent: a merge patch takes it for `remove`; leave the parameter out, or use kubectl patch --type=json".into()));
    }
    Ok(parameters)
}

/// Within a list null is sent as it is.
fn holds_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.values().any(holds_null),
        _ => false,
    }
}

fn answers(texts: &[(String, String)], options: &[(String, String)]) -> Result<BTreeMap<String, Answer>, Failure> {
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

/// One of the gate's own targets where exactly one is called so; else what the text says, for the API server to judge.
fn subject(typed: &str, request: &ApprovalRequest) -> Subject {
    let mut called = request.escalate_to.iter().filter(|subject| subject.name == typed);
    if let (Some(subject), None) = (called.next(), called.next()) {
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

/// The merge patch that makes exactly this entry out of what is recorded under its key; empty when it is recorded.
///
/// # Errors
/// A decision that is not JSON.
pub fn patch(entry: &Entry, recorded: Option<&Value>) -> Result<Value, Failure> {
    let wanted = serde_json::to_value(&entry.decision).map_err(|error| Failure::Usage(error.to_string()))?;
    let change = difference(recorded.unwrap_or(&Value::Null), &wanted);
    Ok(match change {
        Some(change) => serde_json::json!({"spec": {"decisions": {&entry.key: change}}}),
        None => Value::Object(Map::new()),
    })
}

/// RFC 7396: what has to be merged into `old` so that it becomes `new`.
fn difference(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let gone = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let changed = after.iter().filter_map(|(key, value)| {
        difference(before.get(key).unwrap_or(&Value::Null), value).map(|change| (key.clone(), change))
    });
    let change: Map<String, Value> = gone.chain(changed).collect();
    (!change.is_empty()).then_some(Value::Object(change))
}

/// In what the stored entry differs from the one that was sent, one sentence a field; empty when it does not.
///
/// The API server may fill in the groups that the gate counts, if they are the voter's.
pub fn differences(sent: &Entry, stored: Option<&Value>, me: &Me) -> Vec<String> {
    let Some(stored) = stored.and_then(Value::as_object) else {
        return vec!["it is not there".into()];
    };
    let sent = serde_json::to_value(&sent.decision).unwrap_or_default();
    let nothing = Map::new();
    let sent = sent.as_object().unwrap_or(&nothing);
    let mut fields: Vec<_> = sent.keys().chain(stored.keys().filter(|key| !sent.contains_key(*key))).collect();
    fields.sort();
    fields
        .into_iter()
        .filter(|field| !is_same(field, sent.get(*field), stored.get(*field), me))
        .map(|field| format!("{field}: sent {}, stored {}", written(sent.get(field)), written(stored.get(field))))
        .collect()
}

fn is_same(field: &str, sent: Option<&Value>, stored: Option<&Value>, me: &Me) -> bool {
    if field == "groups" {
        let names = |list: Option<&Value>| -> Vec<String> {
            list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let (sent, stored) = (names(sent), names(stored));
        return sent.iter().all(|group| stored.contains(group)) && stored.iter().all(|group| me.groups.contains(group));
    }
    match (sent, stored) {
        // Canonical, because the API server writes 420.0 as 420.
        (Some(sent), Some(stored)) => {
            matches!((canonical(sent), canonical(stored)), (Ok(sent), Ok(stored)) if sent == stored)
        }
        (None, None) => true,
        _ => false,
    }
}

fn written(value: Option<&Value>) -> String {
    value.map_or_else(|| "nothing".to_owned(), ToString::to_string)
}

#[cfg(test)]
#[path = "payload/tests.rs"]
mod tests;
