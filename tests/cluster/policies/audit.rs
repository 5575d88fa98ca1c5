//! Votes in the API server's audit log. The control plane is the test's own, because the suite's writes no such log.

use std::path::Path;

use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use signoff_api::Approval;
use signoff_tests::control_plane::{Cluster, Options};

use super::harness::{approval, to_answer};

const POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, resources: [{group: signoff.dev, resources: [approvals]}]}
- {level: None}
";

/// Returns the annotation `decision` of every request about this Approval, with the code of its answer.
fn logged_decisions(log: &Path, name: &str) -> Vec<(i64, Option<String>)> {
    let text = std::fs::read_to_string(log).unwrap();
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let votes = events.filter(|event| event["verb"] == "patch" && event["objectRef"]["name"] == name);
    votes
        .map(|event| {
            let decision = event["annotations"]["signoff-approvals/decision"].as_str().map(str::to_owned);
            (event["responseStatus"]["code"].as_i64().unwrap(), decision)
        })
        .collect()
}

async fn vote(client: Client, namespace: &str, asked: &Approval, params: &PatchParams) -> Result<Approval, String> {
    let api: Api<Approval> = Api::namespaced(client, namespace);
    let vote = Patch::Merge(json!({"spec": {"decisions": {"alice@example.com": {"verdict": "Approve"}}}}));
    to_answer(api.patch(&asked.name_any(), params, &vote).await)
}

#[tokio::test]
async fn a_vote_is_in_the_audit_log_and_a_dry_run_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let (policy, log) = (folder.path().join("policy.yaml"), folder.path().join("audit.log"));
    std::fs::write(&policy, POLICY).unwrap();
    let apiserver = vec![
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", log.display()),
        "--audit-log-mode=blocking".to_owned(),
    ];
    let cluster = Cluster::own_with(Options { apiserver, ..Options::default() }).await.unwrap();
    cluster.install(&[]).await.unwrap();
    let namespace = cluster.namespace("audit").await.unwrap().name;
    let operator: Api<Approval> = Api::namespaced(cluster.operator_client().await.unwrap(), &namespace);
    let asked = operator.create(&PostParams::default(), &approval(json!({}))).await.unwrap();
    let alice = cluster.token_client("alice").await.unwrap();

    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let tried = vote(alice.clone(), &namespace, &asked, &dry).await.unwrap();
    assert_eq!(tried.spec.decisions.len(), 1, "the dry run was no vote");
    assert_eq!(logged_decisions(&log, &asked.name_any()), [(200, None)]);

    vote(alice, &namespace, &asked, &PatchParams::default()).await.unwrap();
    let decision = format!("alice@example.com=Approve digest={}", asked.spec.request.digest);
    assert_eq!(logged_decisions(&log, &asked.name_any()), [(200, None), (200, Some(decision))]);
}
