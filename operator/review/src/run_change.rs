//! Changes of a run: it is suspended, resumed, cancelled, or created again as a new run.
//!
//! Pure: computes the patch or the copy, and the reason why a change would have no effect. The API server checks the
//! rights of the user.

use std::collections::BTreeSet;

use kube::api::DynamicObject;
use serde_json::{Map, Value, json};
use signoff_api::{
    Digest, names,
    workflow::{RerunOf, WorkflowPhase},
};

use crate::{text::one_line, voter::Me};

/// The longest prefix of a generated name: the API server appends five characters.
const MAX_PREFIX: usize = names::MAX_WORKFLOW_NAME - 5;
/// The number of hex digits at the end of a name that [`copy_name`] makes.
const SUFFIX: usize = 8;
/// The fields of the spec that can change after the creation.
const MUTABLE: [&str; 3] = ["suspend", "cancel", "ttlAfterFinished"];

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

    /// Returns the effect of the change on a run.
    #[must_use]
    pub fn effect(self) -> &'static str {
        match self {
            Self::Suspend => "nothing new starts; open gates can be decided, and their deadlines run",
            Self::Resume => "the run continues",
            Self::Cancel => "the run ends and its open gates are closed",
        }
    }

    /// Returns a run as it is after the change.
    #[must_use]
    pub fn changed(self, run: &DynamicObject) -> DynamicObject {
        let (field, value) = self.field();
        let mut changed = run.clone();
        if let Some(Value::Object(spec)) = changed.data.get_mut("spec") {
            spec.insert(field.to_owned(), Value::Bool(value));
        }
        changed
    }

    /// Whether a run already has the new value.
    #[must_use]
    pub fn is_done(self, run: &DynamicObject) -> bool {
        let (field, value) = self.field();
        spec(run, field).as_bool().unwrap_or(false) == value
    }

    /// Returns the reason why the change would have no effect on a run, or `None`.
    #[must_use]
    pub fn refusal(self, run: &DynamicObject) -> Option<Ineffective> {
        let phase = phase(run);
        if phase.is_end() {
            return Some(Ineffective::Ended(phase.name()));
        }
        if self == Self::Cancel {
            return None;
        }
        if *spec(run, "restored") == true {
            return Some(Ineffective::Restored);
        }
        (*spec(run, "cancel") == true).then_some(Ineffective::Cancelled)
    }
}

/// The reason why a change would have no effect on a run. Completes the sentence "`<name>` …".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ineffective {
    /// The run has ended, with this phase.
    #[error("has ended ({0})")]
    Ended(&'static str),
    /// The run is a copy from a backup.
    #[error("is a copy from a backup, which never starts or continues anything")]
    Restored,
    /// The run is being cancelled.
    #[error("is being cancelled")]
    Cancelled,
}

/// The reason why a run cannot be created again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotCopied {
    /// The Workflow has no spec.
    #[error("workflow {0}: it has no spec")]
    NoSpec(String),
    /// The list of earlier requesters would be too long. A gate would let requesters decide who are missing in a
    /// shorter list.
    #[error(
        "workflow.signoff.dev/{0}: a new run can name {max} earlier requesters of {length} characters, and this one would need more: create it from its file",
        max = RerunOf::MAX_REQUESTERS,
        length = RerunOf::MAX_NAME
    )]
    TooManyRequesters(String),
    /// The copy is not a valid Kubernetes object.
    #[error("workflow {name}: {why}")]
    Invalid {
        /// The name of the run.
        name: String,
        /// The error of the parser.
        why: String,
    },
}

/// Returns the phase of a run, or the first phase if it has no status.
#[must_use]
pub fn phase(run: &DynamicObject) -> WorkflowPhase {
    let phase = run.data.pointer("/status/phase").cloned().unwrap_or_default();
    serde_json::from_value(phase).unwrap_or_default()
}

/// Returns a field of the spec, or `null`.
fn spec<'r>(run: &'r DynamicObject, field: &str) -> &'r Value {
    run.data.get("spec").and_then(|spec| spec.get(field)).unwrap_or(&Value::Null)
}

/// Returns a new Workflow that repeats `old`, with `me` as its requester: the spec without `suspend`, `cancel` and
/// `restored`, and with `rerunOf`. Of the metadata, only the namespace and the prefix of the name are kept, because
/// other tools recognize their objects by labels and annotations.
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
        // Only a user with the right to delegate for the person in `requestedFor` can name this person.
        spec.remove("requestedFor");
    }
    // From Kubernetes 1.36 on the API server fills the field in. Before, it accepts only the name of the creator.
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

/// Returns a name for a copy of a run: the prefix of its generated name, and hex digits of a seed. With a fixed name, a
/// copy that is sent twice is created once.
#[must_use]
pub fn copy_name(copy: &DynamicObject, seed: &str) -> String {
    format!("{}{}", name_prefix(copy), Digest::of_bytes(seed.as_bytes()).short(SUFFIX))
}

/// Whether a name can be one that [`copy_name`] returns for a copy.
#[must_use]
pub fn is_copy_name(copy: &DynamicObject, name: &str) -> bool {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    name.strip_prefix(&name_prefix(copy)).is_some_and(|rest| rest.len() == SUFFIX && rest.bytes().all(is_hex))
}

fn name_prefix(copy: &DynamicObject) -> String {
    let prefix = copy.metadata.generate_name.as_deref().unwrap_or_default();
    format!("{}-", names::cut(prefix, names::MAX_WORKFLOW_NAME - SUFFIX - 1))
}

/// Returns the fields of the spec in which an answer of the API server differs from the expected run, such as
/// `spec.inputs, spec.steps`, or `None`.
#[must_use]
pub fn altered(expected: &DynamicObject, answer: &DynamicObject) -> Option<String> {
    let fields = altered_fields(expected, answer);
    let named: Vec<_> = fields.iter().map(|field| format!("spec.{}", one_line(field, 63))).collect();
    (!named.is_empty()).then(|| named.join(", "))
}

/// Whether a stored run is the one that was sent. Its mutable fields may have changed since.
#[must_use]
pub fn is_same_run(sent: &DynamicObject, stored: &DynamicObject) -> bool {
    altered_fields(sent, stored).iter().all(|field| MUTABLE.contains(field))
}

fn altered_fields<'r>(left: &'r DynamicObject, right: &'r DynamicObject) -> Vec<&'r str> {
    let fields = |run: &'r DynamicObject| run.data.get("spec").and_then(Value::as_object).into_iter().flatten();
    let names: BTreeSet<&str> = fields(left).chain(fields(right)).map(|(name, _)| name.as_str()).collect();
    let value = |run: &'r DynamicObject, name: &str| run.data.get("spec").and_then(|spec| spec.get(name));
    names.into_iter().filter(|&name| value(left, name) != value(right, name)).collect()
}

/// Returns the creator of a run, and the run that it says it repeats. Only the creator is verified by the API server: a
/// run can name another run and have other steps.
#[must_use]
pub fn origin(run: &DynamicObject) -> String {
    let user = |field: &str| spec(run, field).as_str().filter(|name| !name.is_empty()).map(|name| one_line(name, 253));
    let creator = user("requestedBy").unwrap_or_else(|| "an unknown user".to_owned());
    let person = user("requestedFor").map(|name| format!(" for {name}")).unwrap_or_default();
    let (created, says) = if *spec(run, "restored") == true {
        (format!("restored from a backup, which says that {creator} created it{person}"), " and that")
    } else {
        (format!("created by {creator}{person}"), ", who says that")
    };
    let rerun = spec(run, "rerunOf");
    if rerun.is_null() {
        return created;
    }
    let name = || one_line(rerun.get("name").and_then(Value::as_str).unwrap_or_default(), 63);
    let repeats = earlier(run).map_or_else(|| format!("run {}", name()), |users| format!("runs of {users}"));
    format!("{created}{says} it repeats {repeats}; its steps may differ")
}

/// Returns the earlier requesters that a run names, in a line, or `None`.
#[must_use]
pub fn earlier(run: &DynamicObject) -> Option<String> {
    let names = spec(run, "rerunOf").get("requesters").and_then(Value::as_array).into_iter().flatten();
    let names: Vec<_> = names.filter_map(Value::as_str).map(|name| one_line(name, 253)).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Returns the requesters of a run and of the runs that it repeats, each once, the earliest first.
fn requesters(run: &DynamicObject) -> Vec<String> {
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

/// Returns the requesters of a run and of the runs that it repeats, without the user `me` who repeats it now. Fails if
/// a new run cannot hold the list: too many names, or a name that is too long.
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
            assert_eq!(verb.refusal(&run), Some(Ineffective::Restored));
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
    fn the_name_of_a_copy_has_its_prefix_and_a_valid_length() {
        let copy =
            |metadata: &Value| copy(&object(metadata, &json!({}), &Value::Null), &sample::me("dana", &[])).unwrap();
        let refund = copy(&json!({"name": "refund-abcde", "generateName": "refund-"}));
        let name = copy_name(&refund, "seed");
        assert!(name.starts_with("refund-") && name.len() == "refund-".len() + SUFFIX, "{name}");
        assert_eq!(name, copy_name(&refund, "seed"));
        assert_ne!(name, copy_name(&refund, "another"));
        assert!(is_copy_name(&refund, &name));
        for other in ["", "refund-", "other-01234567", "refund-0123456", "refund-0123456G", "refund-01234567-"] {
            assert!(!is_copy_name(&refund, other), "{other}");
        }
        let long = copy(&json!({"name": "x".repeat(63)}));
        let name = copy_name(&long, "seed");
        assert!(name.len() == names::MAX_WORKFLOW_NAME && is_copy_name(&long, &name), "{name}");
    }

    #[test]
    fn an_altered_field_is_named_and_mutable_fields_do_not_make_another_run() {
        let run = |spec: Value| object(&json!({"name": "r"}), &spec, &Value::Null);
        let sent = run(json!({"requestedBy": "dana", "steps": [{"name": "a"}]}));
        assert_eq!(altered(&sent, &sent), None);
        let other = run(json!({"requestedBy": "dana", "steps": [{"name": "a"}, {"name": "b"}], "cancel": true}));
        assert_eq!(altered(&sent, &other).as_deref(), Some("spec.cancel, spec.steps"));
        assert!(!is_same_run(&sent, &other));
        let later =
            run(json!({"steps": [{"name": "a"}], "requestedBy": "dana", "suspend": true, "ttlAfterFinished": "1h"}));
        assert!(is_same_run(&sent, &later));
        assert_eq!(altered(&RunChange::Suspend.changed(&sent), &later).as_deref(), Some("spec.ttlAfterFinished"));
    }

    #[test]
    fn an_origin_has_the_verified_creator_and_the_claims_of_the_run() {
        let origin_of = |spec: Value| origin(&object(&json!({"name": "r"}), &spec, &Value::Null));
        assert_eq!(origin_of(json!({"requestedBy": "ci", "requestedFor": "erin"})), "created by ci for erin");
        let rerun = json!({"name": "refund", "uid": "u", "requesters": ["erin"]});
        assert_eq!(
            origin_of(json!({"requestedBy": "mallory", "rerunOf": rerun})),
            "created by mallory, who says that it repeats runs of erin; its steps may differ"
        );
        assert_eq!(
            origin_of(json!({"requestedBy": "dana", "rerunOf": {"name": "refund", "uid": "u"}})),
            "created by dana, who says that it repeats run refund; its steps may differ"
        );
        assert_eq!(
            origin_of(json!({"requestedBy": "erin", "restored": true})),
            "restored from a backup, which says that erin created it"
        );
    }

    #[test]
    fn a_run_that_has_ended_is_neither_suspended_nor_cancelled() {
        let run = |spec: Value, phase: &str| object(&json!({"name": "r"}), &spec, &json!({"phase": phase}));
        let ended = RunChange::Suspend.refusal(&run(json!({}), "Failed"));
        assert_eq!(ended.map(|why| why.to_string()).as_deref(), Some("has ended (Failed)"));
        assert_eq!(RunChange::Cancel.refusal(&run(json!({}), "Waiting")), None);
        let cancelled = run(json!({"cancel": true}), "Waiting");
        assert_eq!(RunChange::Cancel.refusal(&cancelled), None);
        assert_eq!(RunChange::Resume.refusal(&cancelled), Some(Ineffective::Cancelled));
    }
}
