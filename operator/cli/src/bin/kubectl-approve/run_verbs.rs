//! `suspend`, `resume`, `cancel`, `delete` and `rerun`: what a requester does with a run, without JSON patches.
//!
//! It must not decide an Approval.

use std::path::Path;

use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::{Map, Value, json};
use signoff_api::{
    Workflow, names,
    workflow::{RerunOf, WorkflowPhase},
};
use signoff_review::{run::Repetition, voter::Me};

use signoff_cli::status::deletion;

use crate::{args::RunVerb, backup, client::Session, error::Failure, sanitize::one_line, status::fetch, terminal};

/// The field manager of what the plugin writes.
const MANAGER: &str = "kubectl-approve";
/// The longest prefix of a generated name: the API server appends five characters.
const MAX_PREFIX: usize = names::MAX_WORKFLOW_NAME - 5;

/// Does one thing with each of the named runs, and prints a line for each. Asks on a terminal before a run ends for good,
/// unless `yes` is set. Runs to be deleted are read before the question, and only those are deleted.
///
/// # Errors
/// The first refusal; runs named before it were changed.
pub async fn run(
    session: &Session,
    verb: RunVerb,
    names: &[String],
    yes: bool,
    backup: Option<&Path>,
) -> Result<(), Failure> {
    let api = api(session);
    let backup = backup.map(backup::read).transpose()?;
    let mut doomed = Vec::new();
    if verb == RunVerb::Delete {
        for name in names {
            doomed.push(api.get(name).await.map_err(|error| session.explain(error))?);
        }
    }
    if verb.is_final() && !yes && terminal::is_manned() {
        if !terminal::can_ask() {
            return Err(Failure::Refused(
                "standard error is not a terminal, so there is no confirmation: use --yes, or do not redirect it"
                    .to_owned(),
            ));
        }
        if !ask(verb, names, session)? {
            return Err(Failure::Unchanged);
        }
    }
    let mut doomed = doomed.into_iter();
    for name in names {
        let line = match doomed.next() {
            Some(run) => delete(session, &api, name, &run).await?,
            None => one(session, &api, verb, name, backup.as_deref()).await?,
        };
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

fn api(session: &Session) -> Api<DynamicObject> {
    let resource = ApiResource::erase::<Workflow>(&());
    Api::namespaced_with(session.raw().clone(), &session.namespace, &resource)
}

fn resource(name: &str) -> String {
    format!("workflow.signoff.dev/{}", one_line(name, 253))
}

/// Deletes a run, and no other that has its name by now.
async fn delete(
    session: &Session,
    api: &Api<DynamicObject>,
    name: &str,
    run: &DynamicObject,
) -> Result<String, Failure> {
    match api.delete(name, &of_run(run)).await {
        Ok(answer) => Ok(answer.left().as_ref().map_or_else(|| format!("{} deleted", resource(name)), deleted)),
        Err(kube::Error::Api(status)) if status.code == 409 => Err(Failure::Refused(format!(
            "{}: another run has this name since the command read it ({}); run the command again",
            resource(name),
            one_line(&status.message, 1024)
        ))),
        Err(error) => Err(session.explain(error)),
    }
}

/// Returns the line about a run whose deletion has begun: a finalizer of others may hold it.
fn deleted(run: &DynamicObject) -> String {
    let resource = resource(run.metadata.name.as_deref().unwrap_or_default());
    match deletion(&run.metadata).filter(|_| run.metadata.finalizers.iter().flatten().next().is_some()) {
        Some(held) => format!("{resource} is {held}"),
        None => format!("{resource} deleted"),
    }
}

/// Returns the options that delete exactly this run, whatever its state is by now.
fn of_run(run: &DynamicObject) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions { uid: run.metadata.uid.clone(), resource_version: None }),
        ..DeleteParams::default()
    }
}

async fn one(
    session: &Session,
    api: &Api<DynamicObject>,
    verb: RunVerb,
    name: &str,
    backup: Option<&[Workflow]>,
) -> Result<String, Failure> {
    let explain = |error| session.explain(error);
    let resource = resource(name);
    let (patch, done) = match verb {
        RunVerb::Suspend => (json!({"spec": {"suspend": true}}), "suspended"),
        RunVerb::Resume => (json!({"spec": {"suspend": false}}), "resumed"),
        RunVerb::Cancel => (json!({"spec": {"cancel": true}}), "cancelled"),
        RunVerb::Delete => {
            let run = api.get(name).await.map_err(explain)?;
            return delete(session, api, name, &run).await;
        }
        RunVerb::Rerun { despite_unknown } => {
            check_repetition(session, name, despite_unknown, backup).await?;
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

/// The warning about every copy from a backup.
const BACKUP_ENDS: &str = "Warning: the backup cannot tell what the run did after it was made";

/// Refuses to repeat a run in which the outcome of a call is unknown, unless people say that they have checked it. Warns about calls that
/// succeeded and must not be repeated.
async fn check_repetition(
    session: &Session,
    name: &str,
    despite_unknown: bool,
    backup: Option<&[Workflow]>,
) -> Result<(), Failure> {
    let mut run = fetch::workflow(session, name).await?;
    let repetition = match backup {
        Some(_) if !run.is_restored() => {
            let why = "is not a copy from a backup, so its own status says what it has done: remove --backup";
            return Err(Failure::Refused(format!("{} {why}", resource(name))));
        }
        Some(backup) => {
            let old = backup::find(backup, &run);
            let old = old.map_err(|why| Failure::Refused(format!("{}: {why}", resource(name))))?;
            terminal::note(BACKUP_ENDS);
            Repetition::of_restored(Some(old))
        }
        None if run.spec.restored == Some(true) => Repetition::of_restored(None),
        None => {
            fetch::complete(session, &mut run, &mut fetch::Segments::new()).await;
            if run.is_restored() {
                // It came with its status.
                terminal::note(BACKUP_ENDS);
                Repetition::of_restored(Some(&run))
            } else {
                Repetition::of(&run)
            }
        }
    };
    if let Some(why) = repetition.refusal().filter(|_| !despite_unknown) {
        return Err(Failure::Refused(format!(
            "{}: {why}; to run every step again all the same, use --despite-unknown",
            resource(name)
        )));
    }
    if let Some(warning) = repetition.warning() {
        terminal::note(&format!("Warning: {warning}"));
    }
    Ok(())
}

/// Returns why a verb has no effect on a run. Completes the sentence "`<name>` …".
fn refusal(run: &DynamicObject, verb: RunVerb) -> Option<String> {
    let phase: WorkflowPhase = serde_json::from_value(run.data["status"]["phase"].clone()).unwrap_or_default();
    if phase.is_end() {
        return Some(format!("has ended ({}): status says how to go on", phase.name()));
    }
    if run.data["spec"]["restored"] == true && verb != RunVerb::Cancel {
        let ways = "cancel it, or run it again (rerun)";
        return Some(format!("is a copy from a backup, which never starts or continues anything: {ways}"));
    }
    let is_cancelled = run.data["spec"]["cancel"] == true;
    (is_cancelled && verb != RunVerb::Cancel)
        .then(|| "is being cancelled: when it has ended, status says how to go on".to_owned())
}

/// Returns a new Workflow with the spec of another: without its name, status, requester and switches. Of its metadata only
/// the prefix of the name is kept: by labels and annotations other tools would take the copy for their own object.
fn copy(old: &DynamicObject, me: &Me) -> Result<DynamicObject, Failure> {
    let name = old.metadata.name.as_deref().unwrap_or_default();
    let Value::Object(spec) = &old.data["spec"] else {
        return Err(Failure::Other(format!("workflow {}: it has no spec", one_line(name, 253))));
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
    serde_json::from_value(object).map_err(|error| Failure::Other(error.to_string()))
}

/// Returns the requesters of a run and of those that it repeats, without the user who repeats it. A list that a new run cannot hold is
/// refused, because a gate would let those decide whom it leaves out.
fn earlier_requesters(old: &DynamicObject, me: &Me) -> Result<Vec<String>, Failure> {
    let spec = &old.data["spec"];
    let before = spec["rerunOf"]["requesters"].as_array().into_iter().flatten();
    let all = before.chain([&spec["requestedBy"], &spec["requestedFor"]]).filter_map(Value::as_str);
    let mut names: Vec<String> = Vec::new();
    for name in all.filter(|name| *name != me.user) {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    let is_too_long = names.iter().any(|name| name.chars().count() > RerunOf::MAX_NAME);
    if names.len() > RerunOf::MAX_REQUESTERS || is_too_long {
        return Err(Failure::Refused(format!(
            "{}: a new run can name {} earlier requesters of {} characters, and this one would need more: create it from its file",
            resource(old.metadata.name.as_deref().unwrap_or_default()),
            RerunOf::MAX_REQUESTERS,
            RerunOf::MAX_NAME
        )));
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
        for verb in [RunVerb::Suspend, RunVerb::Resume] {
            assert!(refusal(&run, verb).unwrap().contains("cancel it, or run it again"));
        }
        assert_eq!(refusal(&run, RunVerb::Cancel), None);
    }

    #[test]
    fn a_run_is_deleted_by_its_uid_in_any_state() {
        let run = object(&json!({"name": "r", "uid": "u", "resourceVersion": "7"}), &json!({}), &Value::Null);
        let options = serde_json::to_value(of_run(&run)).unwrap();
        assert_eq!(options["preconditions"], json!({"uid": "u"}));
    }

    #[test]
    fn a_run_that_a_finalizer_holds_is_being_deleted_and_no_other() {
        let of = |finalizers: Value| {
            let metadata = json!({"name": "r", "deletionTimestamp": "2026-11-22T09:30:00Z", "finalizers": finalizers});
            deleted(&object(&metadata, &json!({}), &Value::Null))
        };
        assert_eq!(
            of(json!(["other.example/hold"])),
            "workflow.signoff.dev/r is being deleted, held by other.example/hold"
        );
        assert_eq!(of(json!([])), "workflow.signoff.dev/r deleted");
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
        assert_eq!(ended.as_deref(), Some("has ended (Failed): status says how to go on"));
        assert_eq!(refusal(&run(json!({}), "Waiting"), RunVerb::Cancel), None);
        let cancelled = run(json!({"cancel": true}), "Waiting");
        assert_eq!(refusal(&cancelled, RunVerb::Cancel), None);
        assert!(refusal(&cancelled, RunVerb::Resume).is_some());
    }
}
