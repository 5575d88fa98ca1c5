//! People who were asked after the deadline, because a quota refused the Approval, on a real control plane: no timeout
//! decides for them. In a namespace without that quota the same timeout does.

use std::time::Duration;

use k8s_openapi::api::core::v1::ResourceQuota;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams};
use kube::runtime::wait::await_condition;
use serde_json::json;
use signoff_api::approval::ApprovalPhase;
use signoff_api::workflow::WorkflowPhase;
use signoff_api::{Approval, Workflow};
use signoff_tests::control_plane::Cluster;
use signoff_tests::loopback::{Loopback, text};
use tokio::time::{sleep, timeout};

use crate::policies::harness::workflow;
use crate::runs::Runs;

/// The deadline of every wait.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The timeout of the gate.
const GATE_TIMEOUT: Duration = Duration::from_secs(20);

/// Creates a quota that forbids Approvals, and waits until the API server applies it.
async fn forbid_approvals(runs: &Runs) -> Api<ResourceQuota> {
    let quotas: Api<ResourceQuota> = runs.api();
    let quota = json!({"metadata": {"name": "people"}, "spec": {"hard": {"count/approvals.signoff.dev": "0"}}});
    quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
    let is_applied = |quota: Option<&ResourceQuota>| {
        quota.and_then(|quota| quota.status.as_ref()?.hard.as_ref()).is_some_and(|hard| !hard.is_empty())
    };
    timeout(TIMEOUT, await_condition(quotas.clone(), "people", is_applied)).await.unwrap().unwrap();
    quotas
}

#[tokio::test]
async fn a_gate_whose_approval_a_quota_refused_is_not_approved_by_timeout() {
    let server = Loopback::start(|_, _| text(200, "paid")).await.unwrap();
    let count_sent =
        |path: &str| server.received().iter().filter(|request| request.what == format!("POST /{path}")).count();
    let cluster = Cluster::operated().unwrap();
    let (runs, twin) = tokio::join!(Runs::on(cluster.clone(), "late"), Runs::on(cluster, "in-time"));
    let quotas = forbid_approvals(&runs).await;
    for (runs, path) in [(&runs, "late"), (&twin, "in-time")] {
        let steps = json!([
            {"name": "review", "hitl": {"prompt": "Go on?", "timeout": {"after": "20s", "action": "Approve"},
                "approvers": [{"kind": "User", "name": "alice@example.com"}]}},
            {"name": "pay", "http": {"method": "POST", "url": format!("{}/{path}", server.url()), "body": "42 EUR"}},
        ]);
        let dana: Api<Workflow> = runs.api_as("dana").await;
        let object = workflow("refund", json!({"steps": steps}));
        dana.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }
    // The deadline passes, and then the quota is removed.
    sleep(GATE_TIMEOUT + Duration::from_secs(5)).await;
    quotas.delete("people", &DeleteParams::default()).await.unwrap();

    let first = runs.wait_for_gate("refund").await.name_any();
    let is_over = |approval: Option<&Approval>| {
        approval.and_then(|approval| approval.status.as_ref()).is_some_and(|status| status.phase.is_end())
    };
    let first = runs.until(runs.api::<Approval>(), &first, "ends", is_over).await;
    let again = |run: &Workflow| {
        let steps = &run.status.as_ref()?.steps;
        steps.iter().find(|step| step.path == "review#2").and_then(|step| step.object.clone())
    };
    let run = runs.until(runs.api(), "refund", "asks again", |run| run.is_some_and(|run| again(run).is_some())).await;
    let second = again(&run).unwrap();
    let second = runs.until(runs.api::<Approval>(), &second, "is there", |approval| approval.is_some()).await;
    let outcome = first.status.unwrap().outcome.unwrap();
    assert_eq!((outcome.phase, outcome.verdict), (ApprovalPhase::Superseded, None));
    let created = second.metadata.creation_timestamp.unwrap().0;
    let left = second.spec.request.deadline.timestamp().duration_since(created);
    assert!(left.as_secs() + 2 >= GATE_TIMEOUT.as_secs().cast_signed(), "people have {left}");
    assert_eq!((count_sent("late"), count_sent("in-time")), (0, 1));
    twin.wait_for_end("refund").await;

    // This time no person votes, and the deadline decides.
    let run = runs.wait_for_end("refund").await;
    assert_eq!((run.status.unwrap().phase, count_sent("late")), (WorkflowPhase::Succeeded, 1));
}
