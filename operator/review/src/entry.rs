//! A decision as an entry of `spec.decisions`: the entry that is sent, the patch that records it, and the differences
//! of the stored entry.
//!
//! Pure.
//!
//! **Invariant:** a decision is sent unchanged, or it is an error.

use serde_json::{Map, Value, json};
use signoff_api::{
    Approval, Decision,
    digest::{self, canonical},
};
use signoff_engine::{approval::eligibility, gate::parameters};
use signoff_expr::number::first_inexact;

use crate::voter::Me;

/// The heading of the differences between the stored and the sent entry.
pub const TAMPERED: &str = "WHAT WAS STORED IS NOT WHAT YOU SENT";

/// The sentence after the differences.
pub const TAMPERED_REMEDY: &str = "Something between you and the API server changes decisions (a webhook or a mutating policy). \
     Tell an administrator of this cluster, and do not rely on this Approval.";

/// The sentence after a trial, which records no decision.
pub const NOT_RECORDED: &str = "This was a trial: your decision is not recorded.";

/// A decision and its key in `spec.decisions`.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The user name of the voter, or `<person> via <voter>`.
    pub key: String,
    /// The entry as it is sent.
    pub decision: Decision,
}

impl Entry {
    /// Returns a decision as it is sent: under the key of its voter, with the digest of the request, the groups that
    /// the gate counts, and the number of the attempt.
    ///
    /// # Errors
    /// The decision has a number that JSON cannot represent exactly.
    pub fn new(
        decision: Decision,
        on_behalf_of: Option<&str>,
        approval: &Approval,
        me: &Me,
    ) -> Result<Self, digest::Error> {
        let mut decision = parameters::as_sent(&approval.spec.request, decision);
        decision.request_digest = Some(approval.spec.request.digest.to_string());
        let key = match on_behalf_of {
            Some(person) => {
                decision.on_behalf_of = Some(person.to_owned());
                format!("{person} via {}", me.user)
            }
            None => {
                decision.groups = approval.groups_of_voter(&me.groups);
                me.user.clone()
            }
        };
        // A first attempt is sent without a number.
        decision.attempt = eligibility::next_attempt(approval, &key).filter(|attempt| *attempt > 1);
        canonical(&decision)?;
        let parameters = decision.parameters.clone().map(|parameters| Value::Object(parameters.0)).unwrap_or_default();
        if let Some((pointer, _)) = first_inexact(&parameters) {
            return Err(digest::Error::Inexact(format!("parameters: the number at {pointer}")));
        }
        Ok(Self { key, decision })
    }
}

/// The patch that turns the recorded entry of a key into exactly another one.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// No patch: the entry is recorded already.
    Nothing,
    /// A merge patch (RFC 7396).
    Merge(Value),
    /// A JSON patch (RFC 6902), for an entry that contains null.
    Json(Value),
}

impl Change {
    /// Returns the type of the patch for `kubectl patch --type`, and its body. Without a change it is an empty merge
    /// patch.
    pub fn parts(&self) -> (&'static str, Value) {
        match self {
            Self::Nothing => ("merge", Value::Object(Map::new())),
            Self::Merge(body) => ("merge", body.clone()),
            Self::Json(body) => ("json", body.clone()),
        }
    }
}

/// Returns the patch that records an entry. `decisions`: the decisions that were read, if there were any.
///
/// # Errors
/// The decision cannot be represented as JSON.
pub fn change(entry: &Entry, decisions: Option<&Value>) -> Result<Change, serde_json::Error> {
    let wanted = serde_json::to_value(&entry.decision)?;
    let recorded = decisions.and_then(|decisions| decisions.get(&entry.key));
    if recorded == Some(&wanted) {
        return Ok(Change::Nothing);
    }
    if has_null(&wanted) {
        return Ok(Change::Json(json_patch(entry, wanted, decisions.is_some())));
    }
    let change = merge_difference(recorded.unwrap_or(&Value::Null), &wanted);
    Ok(change.map_or(Change::Nothing, |change| Change::Merge(json!({"spec": {"decisions": {&entry.key: change}}}))))
}

/// Returns the operations that put an entry into the map of decisions. If no map was read, the operations also create
/// the map, and fail if a map exists by then, so that the decisions of others are not replaced.
fn json_patch(entry: &Entry, wanted: Value, is_map_there: bool) -> Value {
    let path = format!("/spec/decisions/{}", entry.key.replace('~', "~0").replace('/', "~1"));
    let add = json!({"op": "add", "path": path, "value": wanted});
    if is_map_there {
        return json!([add]);
    }
    let map = "/spec/decisions";
    json!([{"op": "test", "path": map, "value": null}, {"op": "add", "path": map, "value": {}}, add])
}

/// Returns the merge patch (RFC 7396) that turns `old` into `new`, or `None` if they are equal.
fn merge_difference(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let removed = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let changed = after.iter().filter_map(|(key, value)| {
        merge_difference(before.get(key).unwrap_or(&Value::Null), value).map(|change| (key.clone(), change))
    });
    let change: Map<String, Value> = removed.chain(changed).collect();
    (!change.is_empty()).then_some(Value::Object(change))
}

/// Whether a part of the value is null. Null means `remove` in a merge patch, and the API server removes it from
/// objects in lists too.
fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.values().any(has_null),
        Value::Array(items) => items.iter().any(has_null),
        _ => false,
    }
}

/// Returns the differences of the stored entry from the sent entry, a sentence for each field.
///
/// The API server can fill in the groups that the gate counts, if they are groups of the voter.
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
        .map(|field| {
            format!("{field}: sent {}, stored {}", render_value(sent.get(field)), render_value(stored.get(field)))
        })
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
        // The canonical forms are compared, because the API server writes 420.0 as 420.
        (Some(sent), Some(stored)) => {
            matches!((canonical(sent), canonical(stored)), (Ok(sent), Ok(stored)) if sent == stored)
        }
        (None, None) => true,
        _ => false,
    }
}

fn render_value(value: Option<&Value>) -> String {
    value.map_or_else(|| "nothing".to_owned(), ToString::to_string)
}

#[cfg(test)]
#[path = "entry/tests.rs"]
mod tests;
