//! Excess: endless changes of labels, and too many labels. Only rights of an approver or requester are used.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use futures::future::join_all;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use signoff_api::Approval;
use signoff_api::Workflow;
use signoff_api::workflow::WorkflowPhase;
use signoff_tests::control_plane::Cluster;

use crate::policies::harness::{assert_refused, to_answer};
use crate::runs::Runs;

/// Changes a label as often as the API server accepts it, until it is stopped. Returns the number of changes.
async fn change_labels<K>(api: Api<K>, name: String, stop: &AtomicBool) -> u32
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let mut taken = 0;
    for n in 0_u32.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let patch = Patch::Merge(json!({"metadata": {"labels": {"spam": n.to_string()}}}));
        taken += u32::from(api.patch(&name, &PatchParams::default(), &patch).await.is_ok());
    }
    taken
}

#[tokio::test]
async fn labels_that_change_without_end_do_not_starve_a_commit() {
    let runs = Runs::on(Cluster::operated().unwrap(), "spam").await;
    let (approvals, workflows) = (runs.api_as::<Approval>("alice").await, runs.api_as::<Workflow>("dana").await);
    let spammed = AtomicU32::new(0);
    for run in ["one", "two", "three"] {
        runs.request(run, json!({})).await;
        let approval = runs.wait_for_gate(run).await;
        let stop = AtomicBool::new(false);
        let spams = async {
            let of_approval = (0..3).map(|_| change_labels(approvals.clone(), approval.name_any(), &stop));
            let of_workflow = (0..3).map(|_| change_labels(workflows.clone(), run.to_owned(), &stop));
            let (one, other) = tokio::join!(join_all(of_approval), join_all(of_workflow));
            spammed.fetch_add(one.into_iter().chain(other).sum(), Ordering::Relaxed);
        };
        let decide = async {
            runs.other_gates_are_decided_while(&format!("beside-{run}"), async {
                runs.alice_approves(&approval).await.unwrap();
                let ended = runs.wait_for_end(run).await;
                assert_eq!(ended.status.unwrap().phase, WorkflowPhase::Succeeded);
            })
            .await;
            stop.store(true, Ordering::Relaxed);
        };
        tokio::join!(spams, decide);
    }
    let spammed = spammed.into_inner();
    assert!(spammed > 60, "only {spammed} labels were changed meanwhile: that disturbs nobody");
}

#[tokio::test]
async fn ten_thousand_labels_are_refused_and_delay_no_other_run() {
    let runs = Runs::on(Cluster::operated().unwrap(), "labels").await;
    runs.request("labelled", json!({})).await;
    let approval = runs.wait_for_gate("labelled").await;
    let labels = |count: usize| -> Value {
        let labels: BTreeMap<_, _> = (0..count).map(|n| (format!("label-{n}"), "x")).collect();
        json!({"metadata": {"labels": labels}})
    };
    let workflows = runs.api_as::<Workflow>("dana").await;
    let approvals = runs.api_as::<Approval>("alice").await;
    let params = PatchParams::default();
    let tries = async {
        for _ in 0..5 {
            let patch = Patch::Merge(labels(10_000));
            assert_refused(to_answer(workflows.patch("labelled", &params, &patch).await), "at most 64 labels");
            assert_refused(
                to_answer(approvals.patch(&approval.name_any(), &params, &patch).await),
                "at most 24 labels",
            );
        }
    };
    runs.other_gates_are_decided_while("beside", tries).await;
    // A few labels are accepted.
    to_answer(workflows.patch("labelled", &params, &Patch::Merge(labels(20))).await).unwrap();
    to_answer(approvals.patch(&approval.name_any(), &params, &Patch::Merge(labels(20))).await).unwrap();
    runs.alice_approves(&approval).await.unwrap();
    assert_eq!(runs.wait_for_end("labelled").await.status.unwrap().phase, WorkflowPhase::Succeeded);
}
