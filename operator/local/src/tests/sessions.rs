//! Tests of the files of sessions: locks, and damaged, edited, missing and unwritten files. A crash and a full disk
//! count as the same, because both leave what was written before.

use std::{fs, path::PathBuf};

use signoff_api::rules::RULES;

use super::*;
use crate::{atomic_file::full_disk, object};

#[test]
fn a_workflow_with_a_container_is_refused_and_leaves_no_session() {
    let folder = tempfile::tempdir().unwrap();
    let workflow = chain("{name: draft, set: {value: x}}, {name: build, pod: {image: 'tool:1'}}");
    let Err(Error::NeedsCluster { step }) = local(&folder).begin(workflow) else { panic!("it began") };
    assert_eq!(step, "build");
    assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
}

#[test]
fn an_unconfirmed_command_is_refused_and_leaves_no_session() {
    let folder = tempfile::tempdir().unwrap();
    let workflow = || {
        from_yaml(
            "{kind: Workflow, metadata: {name: w}, spec: {servers: [{name: files, command: [sh, -c, 'exit 1'], read: [list]}], \
             steps: [{name: look, mcp: {server: files, tool: list}}]}}",
            "dana",
        )
        .unwrap()
    };
    let Err(Error::Invalid(errors)) = local(&folder).begin(workflow()) else { panic!("it began") };
    assert!(errors[0].message.contains("signoff run --allow-commands"), "{errors:?}");
    let confirmed = WorkflowCommand::of_spec(&workflow().spec).unwrap();
    let Err(Error::Unconfirmed { server }) = local(&folder).commands(Vec::new()).begin(workflow()) else {
        panic!("it began")
    };
    assert_eq!(server, "files");
    let mut other = workflow();
    other.spec.servers[0].command[2] = "exit 2".to_owned();
    let refused = local(&folder).commands(confirmed.clone()).begin(other);
    assert!(matches!(refused, Err(Error::Unconfirmed { .. })), "the command of another text was confirmed");
    assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
    assert!(local(&folder).commands(confirmed).begin(workflow()).is_ok());
}

#[tokio::test]
async fn a_second_process_cannot_use_a_session_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = local(&folder).begin(chain(GATE)).unwrap();
    assert_eq!(run.go().await.unwrap(), RunOutcome::Paused);
    let id = run.id().to_owned();
    let why = local(&folder).resume(&id).await.err().unwrap();
    assert!(why.to_string().contains(&format!("in use by process {}", std::process::id())), "{why}");
    assert!(matches!(Sessions::new(folder.path()).delete(&id), Err(Error::Busy { .. })));
    assert!(Sessions::new(folder.path()).read(&id).is_ok(), "anybody may look");
    drop(run);
    assert!(local(&folder).resume(&id).await.is_ok());
}

#[tokio::test]
async fn a_torn_or_edited_file_is_refused_and_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let (id, gate) = begin_until_paused(&local(&folder), chain(GATE)).await;
    for file in ["workflow.yaml".to_owned(), format!("approvals/{gate}.yaml")] {
        let file = folder.path().join(&id).join(file);
        let whole = fs::read_to_string(&file).unwrap();
        let half = whole[..whole.len() / 2].to_owned();
        for damaged in [half, String::new(), whole.replace("finance", "hackers"), format!("{whole}\n")] {
            fs::write(&file, &damaged).unwrap();
            let refused = local(&folder).resume(&id).await.err().unwrap();
            assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
            assert!(Sessions::new(folder.path()).read(&id).is_err());
            assert_eq!(fs::read_to_string(&file).unwrap(), damaged);
        }
        fs::write(&file, whole).unwrap();
        assert!(local(&folder).resume(&id).await.is_ok());
    }
}

#[tokio::test]
async fn a_spec_changed_during_a_pause_is_refused_with_a_valid_file_digest() {
    let folder = tempfile::tempdir().unwrap();
    let (id, _) = begin_until_paused(&local(&folder), chain(GATE)).await;
    let file = folder.path().join(&id).join("workflow.yaml");
    let mut workflow: Workflow = object::read(&file).unwrap().unwrap();
    workflow.spec.requested_by = "mallory".into();
    object::write(&file, &workflow).unwrap();
    let refused = local(&folder).resume(&id).await.err().unwrap();
    assert!(matches!(refused, Error::SpecChanged { .. }), "{refused}");
    assert!(refused.to_string().contains("run the changed Workflow again"));
}

#[tokio::test]
async fn a_changed_approval_is_refused_with_a_valid_file_digest() {
    let folder = tempfile::tempdir().unwrap();
    let (id, gate) = begin_until_paused(&local(&folder), chain(GATE)).await;
    let file = folder.path().join(&id).join(format!("approvals/{gate}.yaml"));
    let mut approval: signoff_api::Approval = object::read(&file).unwrap().unwrap();
    approval.spec.request.quorums[0].threshold = 0;
    object::write(&file, &approval).unwrap();
    let refused = local(&folder).resume(&id).await.err().unwrap();
    assert!(refused.to_string().contains("does not match its digest"), "{refused}");
}

#[tokio::test]
async fn a_deleted_approval_is_created_again_with_the_same_request() {
    let folder = tempfile::tempdir().unwrap();
    let (id, gate) = begin_until_paused(&local(&folder), chain(GATE)).await;
    let file = folder.path().join(&id).join(format!("approvals/{gate}.yaml"));
    let was: signoff_api::Approval = object::read(&file).unwrap().unwrap();
    fs::remove_file(&file).unwrap();
    let run = local(&folder).resume(&id).await.unwrap();
    assert_eq!(run.pending()[0].spec.request, was.spec.request);
}

#[tokio::test]
async fn a_session_of_a_later_version_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (id, _) = begin_until_paused(&local(&folder), chain(GATE)).await;
    let file = folder.path().join(&id).join("workflow.yaml");
    let mut workflow: Workflow = object::read(&file).unwrap().unwrap();
    workflow.status.as_mut().unwrap().journal_version = Some(99);
    object::write(&file, &workflow).unwrap();
    assert!(matches!(local(&folder).resume(&id).await, Err(Error::TooNew { version: 99, .. })));
}

#[tokio::test]
async fn a_session_of_other_rules_is_refused_with_the_remedy_and_can_be_deleted() {
    for rules in [None, Some(RULES + 1)] {
        let folder = tempfile::tempdir().unwrap();
        let (id, gate) = begin_until_paused(&local(&folder), chain(GATE)).await;
        let file = folder.path().join(&id).join("workflow.yaml");
        let mut workflow: Workflow = object::read(&file).unwrap().unwrap();
        let pinned = workflow.status.as_mut().unwrap();
        assert_eq!(pinned.rules, Some(RULES), "the number is pinned at acceptance");
        pinned.rules = rules;
        object::write(&file, &workflow).unwrap();
        let approval = fs::read(folder.path().join(&id).join(format!("approvals/{gate}.yaml"))).unwrap();
        let refused = local(&folder).resume(&id).await.err().unwrap();
        assert!(matches!(refused, Error::OtherRules { own: RULES, .. }), "{refused}");
        assert!(refused.to_string().contains(&format!("signoff sessions delete {id}")), "{refused}");
        assert_eq!(fs::read(folder.path().join(&id).join(format!("approvals/{gate}.yaml"))).unwrap(), approval);
        Sessions::new(folder.path()).delete(&id).unwrap();
    }
}

#[tokio::test]
async fn an_invalid_workflow_leaves_no_session() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = chain("{name: a, set: {value: '{{ steps.b.response }}'}}, {name: c, set: {value: '{{ nope }}'}}");
    let Err(Error::Invalid(errors)) = local(&folder).begin(wrong) else { panic!("it was accepted") };
    assert!(errors.len() >= 2, "{errors:?}");
    let mut unnamed = chain(GATE);
    for name in ["", "../x", "A", ".x", "x/y", "-"] {
        unnamed.metadata.name = Some(name.into());
        assert!(matches!(local(&folder).begin(unnamed.clone()), Err(Error::Invalid(_))), "{name:?}");
    }
    let mut nowhere = chain(GATE);
    for namespace in ["", "../x", "A", "a.b", "-"] {
        nowhere.metadata.namespace = Some(namespace.into());
        let Err(Error::Invalid(why)) = local(&folder).begin(nowhere.clone()) else { panic!("{namespace:?}") };
        assert_eq!(why[0].field, "metadata.namespace");
    }
    assert_eq!(Sessions::new(folder.path()).ids().unwrap(), [""; 0]);
}

#[tokio::test]
async fn suspend_and_restored_are_refused_in_local_runs() {
    let folder = tempfile::tempdir().unwrap();
    let mut workflow = chain(GATE);
    workflow.spec.suspend = Some(true);
    let Err(Error::Invalid(why)) = local(&folder).begin(workflow.clone()) else { panic!("it was accepted") };
    assert_eq!(why[0].field, "spec.suspend");
    assert!(why[0].message.contains("leave it out"), "{}", why[0]);
    assert_eq!(Sessions::new(folder.path()).ids().unwrap(), [""; 0]);
    workflow.spec.suspend = Some(false);
    workflow.spec.restored = Some(true);
    let Err(Error::Invalid(why)) = local(&folder).begin(workflow.clone()) else { panic!("it was accepted") };
    assert_eq!(why[0].field, "spec.restored");
    workflow.spec.restored = None;
    assert!(local(&folder).begin(workflow).is_ok());
}

#[tokio::test]
async fn no_id_leads_out_of_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    for id in ["", ".", "..", "../x", "/etc", "a/b", "w-\u{1b}[2J"] {
        let refused = local(&folder).resume(id).await.err().unwrap();
        assert!(matches!(refused, Error::Missing { .. }), "{id:?}: {refused}");
        assert!(!refused.to_string().contains('\u{1b}'));
    }
}

#[tokio::test]
async fn long_values_are_stored_as_blobs_and_verified() {
    let folder = tempfile::tempdir().unwrap();
    let steps = format!(
        "{{name: long, set: {{value: '{}'}}}}, {GATE}, {{name: done, set: {{value: '{{{{ steps.long.response }}}}'}}}}",
        "x".repeat(6000)
    );
    let (id, gate) = begin_until_paused(&local(&folder), chain(&steps)).await;
    let mut run = local(&folder).resume(&id).await.unwrap();
    run.decide(&gate, "dana", approve()).await.unwrap();
    assert_eq!(run.go().await.unwrap(), succeeded(&"x".repeat(6000)));
    assert!(run.snapshot().workflow.status.unwrap().outputs_ref.is_some());

    let (id, _) = begin_until_paused(&local(&folder), chain(&steps)).await;
    let blobs: Vec<PathBuf> = list_files(&folder.path().join(&id).join("blobs"));
    fs::write(&blobs[0], "y".repeat(6000)).unwrap();
    let refused = match local(&folder).resume(&id).await {
        Err(error) => error,
        Ok(mut run) => {
            let gate = run.pending()[0].metadata.name.clone().unwrap();
            run.decide(&gate, "dana", approve()).await.unwrap();
            run.go().await.unwrap_err()
        }
    };
    assert!(matches!(refused, Error::Blob(_)), "{refused}");
}

#[tokio::test]
async fn a_session_is_private_in_a_readable_folder() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let run = local(&folder).begin(chain(GATE)).unwrap();
    let session = fs::metadata(folder.path().join(run.id())).unwrap();
    assert_eq!(session.permissions().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn leftovers_of_crashed_processes_are_no_sessions_and_are_swept() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = Sessions::new(folder.path());
    let (id, _) = begin_until_paused(&local(&folder), chain(GATE)).await;
    for left in [".w-aaaaaa.new", ".w-bbbbbb.deleted"] {
        fs::create_dir(folder.path().join(left)).unwrap();
        fs::write(folder.path().join(left).join("lock"), "1").unwrap();
    }
    let busy = fs::File::create(folder.path().join(".w-aaaaaa.new/lock")).unwrap();
    busy.lock().unwrap();
    fs::create_dir(folder.path().join(".somebody-elses")).unwrap();
    assert_eq!(sessions.ids().unwrap(), [&*id]);
    assert_eq!(sessions.sweep().unwrap(), 1, "one is being made");
    drop(busy);
    assert_eq!((sessions.sweep().unwrap(), sessions.sweep().unwrap()), (1, 0));
    assert_eq!(sessions.ids().unwrap(), [&*id]);
    assert!(folder.path().join(".somebody-elses").is_dir() && sessions.read(&id).is_ok());
}

fn list_files(folder: &std::path::Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { list_files(&path) } else { vec![path] }).collect()
}

#[tokio::test]
async fn a_disk_that_is_full_at_any_write_loses_nothing_that_was_written() {
    let steps = format!(
        "{{name: draft, agent: {{name: writer, input: Hello}}}}, {GATE}, \
         {{name: send, http: {{method: POST, url: 'http://x.example', body: '{{{{ steps.draft.response }}}}'}}}}"
    );
    let workflow = || {
        let mut workflow = chain(&steps);
        let agents = serde_json::json!([{"name": "writer"}]);
        let providers = serde_json::json!([{"name": "p", "scripted": {"replies": [{"text": "-"}]}}]);
        workflow.spec.agents = serde_json::from_value(agents).unwrap();
        workflow.spec.providers = serde_json::from_value(providers).unwrap();
        workflow
    };
    let mut unknown = 0;
    for writes in 0.. {
        let (folder, echo) = (tempfile::tempdir().unwrap(), Echo::default());
        let local = local(&folder).caller(echo.clone()).handler(|_: &signoff_api::ApprovalRequest| Some(approve()));
        full_disk::fill_after(writes);
        let begun = local.begin(workflow());
        if writes == 0 {
            full_disk::fill_after(usize::MAX);
            assert!(matches!(begun, Err(Error::File { .. })), "it began without a write");
            assert!(fs::read_dir(folder.path()).unwrap().next().is_none(), "something is left of it");
            continue;
        }
        let mut run = begun.unwrap();
        let id = run.id().to_owned();
        let ended = run.go().await;
        full_disk::fill_after(usize::MAX);
        drop(run);
        let posts = || echo.inputs().iter().filter(|input| input.starts_with("POST")).count();
        match ended {
            Ok(ended) => {
                assert_eq!(ended, succeeded("POST Hello"));
                assert!(writes > 6, "a run of three steps takes more than {writes} writes");
                break;
            }
            Err(error) => assert!(matches!(error, Error::File { .. }), "{error}"),
        }
        match local.resume(&id).await {
            Ok(mut run) => match run.go().await.unwrap() {
                RunOutcome::Over(End::Failed(why)) => {
                    assert!(why.contains("send"), "{why}");
                    unknown += 1;
                }
                ended => assert_eq!(ended, succeeded("POST Hello"), "after {writes} writes"),
            },
            // Only the very last writes follow the end of the run.
            Err(error) => assert!(matches!(error, Error::Over { .. }), "{error}"),
        }
        assert!(posts() <= 1, "a call that must not be repeated was repeated after {writes} writes");
        assert!(echo.inputs().iter().all(|input| ["Hello", "POST Hello"].contains(&input.as_str())));
    }
    assert_eq!(unknown, 1, "only where the call had begun and its result was not written is its outcome unknown");
}
