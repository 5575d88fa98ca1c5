//! `suspend`, `resume`, `cancel`, `delete` and `rerun`: what a requester does with a run, without JSON patches.

mod backup;

use std::path::Path;

use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions},
};
use signoff_api::Workflow;
use signoff_cli::{sanitize::one_line, status::deletion, terminal};
use signoff_review::{
    run::Repetition,
    run_change::{Ineffective, NotCopied, RunChange, copy},
};

use crate::{args::RunVerb, cluster::client::Session, error::Failure, status::fetch};

/// The field manager of what the plugin writes.
const MANAGER: &str = "kubectl-approve";

/// Applies a verb to each of the named runs, and prints a line for each. On a terminal, asks before a verb that cannot
/// be undone, unless `yes` is set. Runs are read before the question about their deletion, and a newer run with
/// such a name is not deleted.
///
/// # Errors
/// The first failure. The runs that are named before it are changed already.
pub async fn run(
    session: &Session,
    verb: RunVerb,
    names: &[String],
    yes: bool,
    backup: Option<&Path>,
) -> Result<(), Failure> {
    let api = api(session);
    let backup = backup.map(backup::read).transpose()?;
    let mut to_delete = Vec::new();
    if verb == RunVerb::Delete {
        for name in names {
            to_delete.push(api.get(name).await.map_err(|error| session.explain(error))?);
        }
    }
    if verb.is_final() && !yes && terminal::is_stdin_terminal() {
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
    let mut to_delete = to_delete.into_iter();
    for name in names {
        let line = match to_delete.next() {
            Some(run) => delete(session, &api, name, &run).await?,
            None => apply(session, &api, verb, name, backup.as_deref()).await?,
        };
        terminal::print(&format!("{line}\n")).map_err(|error| Failure::Other(error.to_string()))?;
    }
    Ok(())
}

/// Asks whether to cancel or delete the runs.
fn ask(verb: RunVerb, names: &[String], session: &Session) -> Result<bool, Failure> {
    let names = names.iter().map(|name| one_line(name, 253)).collect::<Vec<_>>().join(", ");
    let (word, effect) = match verb {
        RunVerb::Delete => ("Delete", "its Approvals, decisions and values are deleted too"),
        _ => ("Cancel", RunChange::Cancel.effect()),
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

/// Deletes exactly this run, and returns the line about it. Refuses to delete a newer run with the name.
async fn delete(
    session: &Session,
    api: &Api<DynamicObject>,
    name: &str,
    run: &DynamicObject,
) -> Result<String, Failure> {
    match api.delete(name, &delete_options(run)).await {
        Ok(answer) => Ok(answer.left().as_ref().map_or_else(|| format!("{} deleted", resource(name)), deletion_line)),
        Err(kube::Error::Api(status)) if status.code == 409 => Err(Failure::Refused(format!(
            "{}: another run has this name since the command read it ({}); run the command again",
            resource(name),
            one_line(&status.message, 1024)
        ))),
        Err(error) => Err(session.explain(error)),
    }
}

/// Returns the line about a run whose deletion has begun. A finalizer of another program can hold it.
fn deletion_line(run: &DynamicObject) -> String {
    let resource = resource(run.metadata.name.as_deref().unwrap_or_default());
    match deletion(&run.metadata).filter(|_| run.metadata.finalizers.iter().flatten().next().is_some()) {
        Some(held) => format!("{resource} is {held}"),
        None => format!("{resource} deleted"),
    }
}

/// Returns the options that delete exactly this run, by its UID and in any state.
fn delete_options(run: &DynamicObject) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions { uid: run.metadata.uid.clone(), resource_version: None }),
        ..DeleteParams::default()
    }
}

/// Applies a verb to a run, and returns the line about it.
async fn apply(
    session: &Session,
    api: &Api<DynamicObject>,
    verb: RunVerb,
    name: &str,
    backup: Option<&[Workflow]>,
) -> Result<String, Failure> {
    let explain = |error| session.explain(error);
    let resource = resource(name);
    let change = match verb {
        RunVerb::Suspend => RunChange::Suspend,
        RunVerb::Resume => RunChange::Resume,
        RunVerb::Cancel => RunChange::Cancel,
        RunVerb::Delete => {
            let run = api.get(name).await.map_err(explain)?;
            return delete(session, api, name, &run).await;
        }
        RunVerb::Rerun { despite_unknown } => return rerun(session, api, name, despite_unknown, backup).await,
    };
    let run = api.get(name).await.map_err(explain)?;
    if let Some(refused) = change.refusal(&run) {
        return Err(Failure::Refused(format!("{resource} {refused}{}", remedy(refused))));
    }
    if change.is_done(&run) {
        return Ok(format!("{resource} unchanged ({} already)", change.done()));
    }
    let options = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
    api.patch(name, &options, &Patch::Merge(change.patch())).await.map_err(explain)?;
    Ok(format!("{resource} {}", change.done()))
}

/// Creates a run again under a new name, and returns the line about the new run. Prints the command that watches it.
///
/// # Errors
/// As [`check_repetition`], or a request fails.
async fn rerun(
    session: &Session,
    api: &Api<DynamicObject>,
    name: &str,
    despite_unknown: bool,
    backup: Option<&[Workflow]>,
) -> Result<String, Failure> {
    check_repetition(session, name, despite_unknown, backup).await?;
    let explain = |error| session.explain(error);
    let (old, me) = (api.get(name).await.map_err(explain)?, session.me().await?);
    let copy = copy(&old, &me).map_err(copy_failure)?;
    let options = PostParams { field_manager: Some(MANAGER.into()), ..PostParams::default() };
    let created = api.create(&options, &copy).await.map_err(explain)?;
    let new = created.metadata.name.unwrap_or_default();
    let watch = session.call.kubectl(Some(&session.namespace), &["approve", "status", &new, "--watch"]);
    terminal::note(&format!("To watch it: {watch}"));
    Ok(format!("workflow.signoff.dev/{} created", one_line(&new, 253)))
}

/// Returns the end of a refusal: how the user can continue.
fn remedy(why: Ineffective) -> &'static str {
    match why {
        Ineffective::Ended(_) => ": status says how to go on",
        Ineffective::Restored => ": cancel it, or run it again (rerun)",
        Ineffective::Cancelled => ": when it has ended, status says how to go on",
    }
}

fn copy_failure(why: NotCopied) -> Failure {
    match why {
        NotCopied::TooManyRequesters(_) => Failure::Refused(why.to_string()),
        NotCopied::NoSpec(_) | NotCopied::Invalid { .. } => Failure::Other(why.to_string()),
    }
}

/// The warning about every copy from a backup.
const BACKUP_ENDS: &str = "Warning: the backup cannot tell what the run did after it was made";

/// Refuses to repeat a run in which the outcome of a call is unknown, unless `despite_unknown` is set. Warns about
/// calls that succeeded and must not be repeated.
async fn check_repetition(
    session: &Session,
    name: &str,
    despite_unknown: bool,
    backup: Option<&[Workflow]>,
) -> Result<(), Failure> {
    let mut run = fetch::fetch_workflow(session, name).await?;
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
            fetch::restore_segments(session, &mut run, &mut fetch::Segments::new()).await;
            if run.is_restored() {
                // The run was restored together with its status.
                terminal::note(BACKUP_ENDS);
                Repetition::of_restored(Some(&run))
            } else {
                Repetition::of(&run)
            }
        }
    };
    if let Some(why) = repetition.refusal().filter(|_| !despite_unknown) {
        let is_lost = backup.is_none() && run.spec.restored == Some(true);
        let backup = if is_lost { ", or give the backup (--backup FILE)" } else { "" };
        return Err(Failure::Refused(format!(
            "{}: {why}{backup}; to run every step again all the same, use --despite-unknown",
            resource(name)
        )));
    }
    if let Some(warning) = repetition.warning() {
        terminal::note(&format!("Warning: {warning}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn object(metadata: &Value, spec: &Value, status: &Value) -> DynamicObject {
        let object = json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": metadata, "spec": spec, "status": status});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_run_is_deleted_by_its_uid_in_any_state() {
        let run = object(&json!({"name": "r", "uid": "u", "resourceVersion": "7"}), &json!({}), &Value::Null);
        let options = serde_json::to_value(delete_options(&run)).unwrap();
        assert_eq!(options["preconditions"], json!({"uid": "u"}));
    }

    #[test]
    fn only_a_run_with_a_finalizer_is_reported_as_being_deleted() {
        let line = |finalizers: Value| {
            let metadata = json!({"name": "r", "deletionTimestamp": "2026-11-22T09:30:00Z", "finalizers": finalizers});
            deletion_line(&object(&metadata, &json!({}), &Value::Null))
        };
        assert_eq!(
            line(json!(["other.example/hold"])),
            "workflow.signoff.dev/r is being deleted, held by other.example/hold"
        );
        assert_eq!(line(json!([])), "workflow.signoff.dev/r deleted");
    }
}
