//! `suspend`, `resume`, `cancel`, `delete` and `rerun`: what a requester does with a run, without JSON patches.
//!
//! It must not decide an Approval.

use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Map, Value, json};
use signoff_api::{Workflow, names, workflow::WorkflowPhase};

use crate::{
    args::RunVerb,
    client::{Me, Session},
    error::Failure,
    sanitize::one_line,
    terminal,
};

/// The field manager of what the plugin writes.
const MANAGER: &str = "kubectl-approve";
/// The longest prefix of a generated name: the API server appends five characters.
const MAX_PREFIX: usize = names::MAX_WORKFLOW_NAME - 5;

/// Does one thing with each of the named runs, and prints a line for each. Asks on a terminal before a run ends for good,
/// unless `yes` is set.
///
/// # Errors
/// The first refusal; runs named before it were changed.
pub async fn run(session: &Session, verb: RunVerb, names: &[String], yes: bool) -> Result<(), Failure> {
    if verb.is_final() && !yes && terminal::is_manned() && !ask(verb, names, session)? {
        return Err(Failure::Unchanged);
    }
    for name in names {
        let line = one(session, verb, name).await?;
        terminal::print(&format!("{line}\n")).map_err(|error| Failure::Other(error.to_string()))?;
    }
    Ok(())
}

/// Asks before a run ends for good.
fn ask(verb: RunVerb, names: &[String], session: &Session) -> Result<bool, Failure> {
    let names = names.iter().map(|name| one_line(name, 253)).collect::<Vec<_>>().join(", ");
    let (word, effect) = match verb {
        RunVerb::Delete => ("Delete", "its Approvals, decisions and values are deleted too"),
        _ => ("Cancel", "the run ends and its open gates are closed"),
    };
    let question = format!("{word} {names} in namespace {} ({effect})?", one_line(&session.namespace, 63));
    terminal::ask(&question).map_err(|error| Failure::Other(error.to_string()))
}

async fn one(session: &Session, verb: RunVerb, name: &str) -> Result<String, Failure> {
    let api = Api::<DynamicObject>::namespaced_with(
        session.raw().clone(),
        &session.namespace,
        &ApiResource::erase::<Workflow>(&()),
    );
    let explain = |error| session.explain(error);
    let resource = format!("workflow.signoff.dev/{}", one_line(name, 253));
    let (patch, done) = match verb {
        RunVerb::Suspend => (json!({"spec": {"suspend": true}}), "suspended"),
        RunVerb::Resume => (json!({"spec": {"suspend": false}}), "resumed"),
        RunVerb::Cancel => (json!({"spec": {"cancel": true}}), "cancelled"),
        RunVerb::Delete => {
            api.delete(name, &DeleteParams::default()).await.map_err(explain)?;
            return Ok(format!("{resource} deleted"));
        }
        RunVerb::Rerun => {
            let (old, me) = (api.get(name).await.map_err(explain)?, session.me().await?);
            let copy = copy(&old, &me)?;
            let options = PostParams { field_manager: Some(MANAGER.into()), ..PostParams::default() };
            let created = api.create(&options, &copy).await.map_err(explain)?;
            let new = created.metadata.name.unwrap_or_default();
            let watch = session.call.kubectl(Some(&session.namespace), &["approve", "status", &new, "--watch"]);
            terminal::note(&format!("To watch it: {watch}"));
            return Ok(format!("workflow.signoff.dev/{} created", one_line(&new, 253)));
        }
    };
    let run = api.get(name).await.map_err(explain)?;
    if let Some(refused) = refusal(&run, verb) {
        return Err(Failure::Refused(format!("{resource} {refused}")));
    }
    if let Value::Object(fields) = &patch["spec"]
        && fields.iter().all(|(field, value)| run.data["spec"][field].as_bool().unwrap_or(false) == *value)
    {
        return Ok(format!("{resource} unchanged ({done} already)"));
    }
    let options = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
    api.patch(name, &options, &Patch::Merge(patch)).await.map_err(explain)?;
    Ok(format!("{resource} {done}"))
}

/// Returns why a verb has no effect on a run. Completes the sentence "`<name>` …".
fn refusal(run: &DynamicObject, verb: RunVerb) -> Option<String> {
    let phase: WorkflowPhase = serde_json::from_value(run.data["status"]["phase"].clone()).unwrap_or_default();
    if phase.is_end() {
        return Some(format!("has ended ({}): rerun creates it again", phase.name()));
    }
    let is_cancelled = run.data["spec"]["cancel"] == true;
    (is_cancelled && verb != RunVerb::Cancel).then(|| "is being cancelled: rerun creates it again".to_owned())
}

/// Returns a new Workflow with the spec of another: without its name, status, requester and switches.
fn copy(old: &DynamicObject, me: &Me) -> Result<DynamicObject, Failure> {
    let name = old.metadata.name.as_deref().unwrap_or_default();
    let Value::Object(spec) = &old.data["spec"] else {
        return Err(Failure::Other(format!("workflow {}: it has no spec", one_line(name, 253))));
    };
    let is_same_user = spec.get("requestedBy").and_then(Value::as_str) == Some(me.user.as_str());
    let mut spec: Map<String, Value> = spec.clone();
    for field in ["suspend", "cancel"] {
        spec.remove(field);
    }
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
    let mut metadata = json!({"generateName": prefix, "namespace": old.metadata.namespace});
    if let Some(labels) = &old.metadata.labels {
        metadata["labels"] = json!(labels);
    }
    let annotations = old.metadata.annotations.iter().flatten();
    // What kubectl apply remembers of the old object.
    let annotations: Map<String, Value> = annotations
        .filter(|(key, _)| !key.starts_with("kubectl.kubernetes.io/"))
        .map(|(key, value)| (key.clone(), Value::String(value.clone())))
        .collect();
    if !annotations.is_empty() {
        metadata["annotations"] = Value::Object(annotations);
    }
    let object = json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": metadata, "spec": spec});
    serde_json::from_value(object).map_err(|error| Failure::Other(error.to_string()))
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
            &json!({"name": "refund", "namespace": "finance", "uid": "u", "resourceVersion": "7", "labels": {"team": "a"},
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "ticket": "4711"}}),
            &json!({"requestedBy": "ci", "requestedFor": "erin", "suspend": true, "cancel": true, "steps": [{"name": "one"}], "later": 1}),
            &json!({"phase": "Failed"}),
        );
        let copy = serde_json::to_value(copy(&old, &sample::me("dana", &[])).unwrap()).unwrap();
        assert_eq!(
            copy,
            json!({
                "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow",
                "metadata": {"generateName": "refund-", "namespace": "finance", "labels": {"team": "a"}, "annotations": {"ticket": "4711"}},
                "spec": {"requestedBy": "dana", "steps": [{"name": "one"}], "later": 1},
            })
        );
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
        let ended = refusal(&run(json!({}), "Failed"), RunVerb::Suspend);
        assert_eq!(ended.as_deref(), Some("has ended (Failed): rerun creates it again"));
        assert_eq!(refusal(&run(json!({}), "Waiting"), RunVerb::Cancel), None);
        let cancelled = run(json!({"cancel": true}), "Waiting");
        assert_eq!(refusal(&cancelled, RunVerb::Cancel), None);
        assert!(refusal(&cancelled, RunVerb::Resume).is_some());
    }
}
