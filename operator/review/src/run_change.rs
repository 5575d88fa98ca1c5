//! Changes of a run: suspended, resumed, cancelled, or created again as a new run.
//!
//! Pure: it says what is sent and why it would have no effect. The API server says who may.

use kube::api::DynamicObject;
use serde_json::{Map, Value, json};
use signoff_api::{
    names,
    workflow::{RerunOf, WorkflowPhase},
};

use crate::{text::one_line, voter::Me};

/// The longest prefix of a generated name: the API server appends five characters.
const MAX_PREFIX: usize = names::MAX_WORKFLOW_NAME - 5;

/// A change of one mutable field of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunChange {
    /// No new step starts.
    Suspend,
    /// The run continues.
    Resume,
    /// The run ends.
    Cancel,
}

impl RunChange {
    /// Returns the field of the spec, and its new value.
    #[must_use]
    pub fn field(self) -> (&'static str, bool) {
        match self {
            Self::Suspend => ("suspend", true),
            Self::Resume => ("suspend", false),
            Self::Cancel => ("cancel", true),
        }
    }

    /// Returns the merge patch of a Workflow.
    #[must_use]
    pub fn patch(self) -> Value {
        let (field, value) = self.field();
        json!({"spec": {field: value}})
    }

    /// Returns the word for a run that was changed.
    #[must_use]
    pub fn done(self) -> &'static str {
        match self {
            Self::Suspend => "suspended",
            Self::Resume => "resumed",
            Self::Cancel => "cancelled",
        }
    }

    /// Returns what the change does to a run.
    #[must_use]
    pub fn effect(self) -> &'static str {
        match self {
            Self::Suspend => "nothing new starts; open gates can be decided, and their deadlines run",
            Self::Resume => "the run continues",
            Self::Cancel => "the run ends and its open gates are closed",
        }
    }

    /// Whether a run already has the value.
    #[must_use]
    pub fn is_done(self, run: &DynamicObject) -> bool {
        let (field, value) = self.field();
        spec(run, field).as_bool().unwrap_or(false) == value
    }

    /// Returns why the change would have no effect on a run. Completes the sentence "`<name>` …".
    #[must_use]
    pub fn refusal(self, run: &DynamicObject) -> Option<String> {
        let phase = phase(run);
        if phase.is_end() {
            return Some(format!("has ended ({}): status says how to go on", phase.name()));
        }
        if *spec(run, "restored") == true && self != Self::Cancel {
            let ways = "cancel it, or run it again (rerun)";
            return Some(format!("is a copy from a backup, which never starts or continues anything: {ways}"));
        }
        let is_cancelled = *spec(run, "cancel") == true;
        (is_cancelled && self != Self::Cancel)
            .then(|| "is being cancelled: when it has ended, status says how to go on".to_owned())
    }
}

/// The reason why a run cannot be created again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotCopied {
    /// The Workflow has no spec.
    #[error("workflow {0}: it has no spec")]
    NoSpec(String),
    /// The list of earlier requesters would be too long: a gate would let those decide whom it leaves out.
    #[error(
        "workflow.signoff.dev/{0}: a new run can name {max} earlier requesters of {length} characters, and this one would need more: create it from its file",
        max = RerunOf::MAX_REQUESTERS,
        length = RerunOf::MAX_NAME
    )]
    TooManyRequesters(String),
    /// The copy is no object.
    #[error("workflow {name}: {why}")]
    Invalid {
        /// The name of the run.
        name: String,
        /// The reason.
        why: String,
    },
}

/// Returns the phase of a run; of one without a status the first.
#[must_use]
pub fn phase(run: &DynamicObject) -> WorkflowPhase {
    let phase = run.data.pointer("/status/phase").cloned().unwrap_or_default();
    serde_json::from_value(phase).unwrap_or_default()
}

/// Returns a field of the spec, or `null`.
fn spec<'r>(run: &'r DynamicObject, field: &str) -> &'r Value {
    run.data.get("spec").and_then(|spec| spec.get(field)).unwrap_or(&Value::Null)
}

/// Returns a new Workflow with the spec of another: without its name, status, requester and switches. Of its metadata only
/// the prefix of the name is kept: by labels and annotations other tools would take the copy for their own object.
///
/// # Errors
/// The Workflow has no spec, or too many requesters.
pub fn copy(old: &DynamicObject, me: &Me) -> Result<DynamicObject, NotCopied> {
    let name = old.metadata.name.as_deref().unwrap_or_default();
    let Some(Value::Object(spec)) = old.data.get("spec") else {
        return Err(NotCopied::NoSpec(one_line(name, 253)));
    };
    let is_same_user = spec.get("requestedBy").and_then(Value::as_str) == Some(me.user.as_str());
    let mut spec: Map<String, Value> = spec.clone();
    for field in ["suspend", "cancel", "restored"] {
        spec.remove(field);
    }
    let uid = old.metadata.uid.as_deref().unwrap_or_default();
    spec.insert("rerunOf".to_owned(), json!({"name": name, "uid": uid, "requesters": earlier_requesters(old, me)?}));
    if !is_same_user {
        // Only a user who may delegate for that person can name them.
        spec.remove("requestedFor");
    }
    // From Kubernetes 1.36 on the API server fills it in; before, it accepts no other name than the creator's.
    spec.insert("requestedBy".to_owned(), Value::String(me.user.clone()));
    let prefix = match old.metadata.generate_name.as_deref() {
        Some(prefix) if !prefix.is_empty() => prefix.to_owned(),
        _ => format!("{}-", names::cut(name, MAX_PREFIX - 1)),
    };
    let metadata = json!({"generateName": prefix, "namespace": old.metadata.namespace});
    let object = json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": metadata, "spec": spec});
    serde_json::from_value(object)
        .map_err(|error| NotCopied::Invalid { name: one_line(name, 253), why: error.to_string() })
}

/// Returns the names of all requesters of a run and of those that it repeats, in the order in which they came.
#[must_use]
pub fn requesters(run: &DynamicObject) -> Vec<String> {
    let before = spec(run, "rerunOf").get("requesters").and_then(Value::as_array).into_iter().flatten();
    let all = before.chain([spec(run, "requestedBy"), spec(run, "requestedFor")]).filter_map(Value::as_str);
    let mut names: Vec<String> = Vec::new();
    for name in all {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// Returns the requesters of a run and of those that it repeats, without the user who repeats it. A list that a new run cannot hold is
/// refused.
fn earlier_requesters(old: &DynamicObject, me: &Me) -> Result<Vec<String>, NotCopied> {
    let names: Vec<String> = requesters(old).into_iter().filter(|name| *name != me.user).collect();
    let is_too_long = names.iter().any(|name| name.chars().count() > RerunOf::MAX_NAME);
    if names.len() > RerunOf::MAX_REQUESTERS || is_too_long {
        let name = old.metadata.name.as_deref().unwrap_or_default();
        return Err(NotCopied::TooManyRequesters(one_line(name, 253)));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sample;

    fn object(metadata: &Value, spec: &Value, status: &Value) -> DynamicObject {
        let object = json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": metadata, "spec": spec, "status": status});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_copy_has_the_spec_and_neither_state_nor_requester() {
        let old = object(
            &json!({"name": "refund", "namespace": "finance", "uid": "u", "resourceVersion": "7",
                "labels": {"argocd.argoproj.io/instance": "a", "app.kubernetes.io/managed-by": "Helm"},
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "meta.helm.sh/release-name": "a",
                    "argocd.argoproj.io/tracking-id": "a:signoff.dev/Workflow:finance/refund"},
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "v"}], "finalizers": ["a/b"]}),
            &json!({"requestedBy": "ci", "requestedFor": "erin", "suspend": true, "cancel": true, "restored": true,
                "steps": [{"name": "one"}], "later": 1}),
            &json!({"phase": "Failed"}),
        );
        let copy = serde_json::to_value(copy(&old, &sample::me("dana", &[])).unwrap()).unwrap();
        assert_eq!(
            copy,
            json!({
                "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow",
                "metadata": {"generateName": "refund-", "namespace": "finance"},
                "spec": {"requestedBy": "dana", "steps": [{"name": "one"}], "later": 1,
                    "rerunOf": {"name": "refund", "uid": "u", "requesters": ["ci", "erin"]}},
            })
        );
    }

    #[test]
    fn a_copy_names_every_earlier_requester_once_and_too_many_are_refused() {
        let old = |earlier: Value| {
            let spec = json!({"requestedBy": "bob", "requestedFor": "erin", "rerunOf": {"name": "r", "uid": "v", "requesters": earlier}});
            object(&json!({"name": "refund", "uid": "u"}), &spec, &Value::Null)
        };
        let me = sample::me("dana", &[]);
        let again = copy(&old(json!(["dana", "erin", "ci"])), &me).unwrap();
        assert_eq!(again.data["spec"]["rerunOf"]["requesters"], json!(["erin", "ci", "bob"]));
        let seven: Vec<_> = (0..7).map(|at| format!("user-{at}")).collect();
        assert!(copy(&old(json!(seven[..6])), &me).is_ok());
        let why = copy(&old(json!(seven)), &me).unwrap_err().to_string();
        assert!(why.contains("create it from its file"), "{why}");
        assert!(copy(&old(json!(["x".repeat(254)])), &me).is_err());
    }

    #[test]
    fn a_restored_run_is_cancelled_and_never_suspended_or_resumed() {
        let run = object(&json!({"name": "r"}), &json!({"restored": true}), &json!({"phase": "Pending"}));
        for verb in [RunChange::Suspend, RunChange::Resume] {
            assert!(verb.refusal(&run).unwrap().contains("cancel it, or run it again"));
        }
        assert_eq!(RunChange::Cancel.refusal(&run), None);
    }

    #[test]
    fn a_copy_by_the_same_user_is_for_the_same_person() {
        let old = object(&json!({"name": "r"}), &json!({"requestedBy": "ci", "requestedFor": "erin"}), &Value::Null);
        assert_eq!(copy(&old, &sample::me("ci", &[])).unwrap().data["spec"]["requestedFor"], "erin");
    }

    #[test]
    fn generated_names_do_not_grow_and_fit() {
        let prefix = |metadata: &Value| {
            let copy = copy(&object(metadata, &json!({}), &Value::Null), &sample::me("dana", &[])).unwrap();
            copy.metadata.generate_name.unwrap()
        };
        assert_eq!(prefix(&json!({"name": "refund-abcde", "generateName": "refund-"})), "refund-");
        assert_eq!(prefix(&json!({"name": "x".repeat(63)})).len(), MAX_PREFIX);
    }

    #[test]
    fn a_run_that_has_ended_is_neither_suspended_nor_cancelled() {
        let run = |spec: Value, phase: &str| object(&json!({"name": "r"}), &spec, &json!({"phase": phase}));
        let ended = RunChange::Suspend.refusal(&run(json!({}), "Failed"));
        assert_eq!(ended.as_deref(), Some("has ended (Failed): status says how to go on"));
        assert_eq!(RunChange::Cancel.refusal(&run(json!({}), "Waiting")), None);
        let cancelled = run(json!({"cancel": true}), "Waiting");
        assert_eq!(RunChange::Cancel.refusal(&cancelled), None);
        assert!(RunChange::Resume.refusal(&cancelled).is_some());
    }
}
