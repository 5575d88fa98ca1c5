//! The chart by real helm on control planes of its own: installed, upgraded with Approvals pending, uninstalled. The
//! suite's cluster is not used, because its rules are shared.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use signoff_api::{Approval, Workflow};
use signoff_tests::control_plane::{Cluster, OPERATOR_NAMESPACE};

use crate::policies::harness::{approval, assert_refused, to_answer, workflow};

const OPERATOR_POD: &str = "signoff-operator-outside";

fn chart_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/signoff")
}

/// Writes the chart as an earlier release might have been: without a column, without a policy, with one rule less.
fn write_earlier_chart(folder: &Path) {
    for part in ["", "templates", "files"] {
        std::fs::create_dir_all(folder.join(part)).unwrap();
        for entry in std::fs::read_dir(chart_folder().join(part)).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                std::fs::copy(entry.path(), folder.join(part).join(entry.file_name())).unwrap();
            }
        }
    }
    let edit = |file: &str, from: &str, to: &str| {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        assert!(text.contains(from), "{file} no longer holds {from:?}");
        std::fs::write(folder.join(file), text.replacen(from, to, 1)).unwrap();
    };
    edit("Chart.yaml", "version: 0.1.0", "version: 0.0.9");
    edit("files/crd-approvals.yaml", "name: Decided by", "name: Deciders");
    edit("files/crd-approvals.yaml", "status.outcome is final", "status.outcome stays");
    edit("files/validating-approvals.yaml", "at most 24 labels", "at most 24 labels here");
    std::fs::remove_file(folder.join("files/validating-children-exec.yaml")).unwrap();
}

async fn run_helm(cluster: &Cluster, arguments: &[&str]) {
    cluster.helm(arguments).run().await.unwrap().ok().unwrap();
}

async fn vote(
    cluster: &Cluster,
    namespace: &str,
    who: &str,
    approval: &Approval,
    verdict: Value,
) -> Result<Approval, String> {
    let api: Api<Approval> = Api::namespaced(cluster.token_client(who).await.unwrap(), namespace);
    let patch = Patch::Merge(json!({"spec": {"decisions": {format!("{who}@example.com"): verdict}}}));
    to_answer(api.patch(&approval.name_any(), &PatchParams::default(), &patch).await)
}

async fn read_columns(admin: &Client) -> Vec<String> {
    let crds: Api<CustomResourceDefinition> = Api::all(admin.clone());
    let crd = crds.get("approvals.signoff.dev").await.unwrap();
    crd.spec.versions[0].additional_printer_columns.iter().flatten().map(|column| column.name.clone()).collect()
}

async fn read_generations(admin: &Client) -> Vec<(String, Option<String>, Option<i64>)> {
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(admin.clone());
    let list = policies.list(&ListParams::default()).await.unwrap();
    list.into_iter().map(|policy| (policy.name_any(), policy.uid(), policy.metadata.generation)).collect()
}

#[tokio::test]
async fn an_upgrade_does_not_change_pending_approvals() {
    let cluster = Cluster::own().await.unwrap();
    let admin = cluster.admin().await.unwrap();
    let earlier = tempfile::tempdir().unwrap();
    write_earlier_chart(earlier.path());
    let path = earlier.path().display().to_string();
    let install = [
        "install",
        "signoff",
        &path,
        "-n",
        OPERATOR_NAMESPACE,
        "--create-namespace",
        "--set",
        "operator.enabled=false",
    ];
    run_helm(&cluster, &install).await;
    cluster.in_force().await.unwrap();
    cluster.operator_identity(OPERATOR_POD).await.unwrap();
    assert!(read_columns(&admin).await.contains(&"Deciders".to_owned()));

    let namespace = cluster.namespace("upgrade").await.unwrap().name;
    let operator: Api<Approval> = Api::namespaced(cluster.operator_client().await.unwrap(), &namespace);
    let ask = async |prompt: &str| {
        let approvers =
            json!([{"kind": "User", "name": "alice@example.com"}, {"kind": "User", "name": "bob@example.com"}]);
        let asked = approval(json!({"prompt": prompt, "approvers": approvers, "threshold": 2}));
        operator.create(&PostParams::default(), &asked).await.unwrap()
    };
    let untouched = ask("Not voted on?").await;
    let voted = ask("Voted on?").await;
    let voted =
        vote(&cluster, &namespace, "alice", &voted, json!({"verdict": "Approve", "reason": "before"})).await.unwrap();
    let unchanged_before = read_generations(&admin).await;

    // `helm upgrade` to the current chart, as every test installs the chart.
    cluster.install(&[]).await.unwrap();
    let columns = read_columns(&admin).await;
    assert!(columns.contains(&"Decided by".to_owned()) && !columns.contains(&"Deciders".to_owned()), "{columns:?}");
    for before in [&untouched, &voted] {
        let after = operator.get(&before.name_any()).await.unwrap();
        assert_eq!((after.uid(), &after.spec, &after.status), (before.uid(), &before.spec, &before.status));
        assert_eq!(after.resource_version(), before.resource_version(), "an upgrade writes no Approval");
    }
    // helm does not write a policy whose text is the same, so the guard does not start again.
    let after = read_generations(&admin).await;
    let moved: Vec<_> =
        unchanged_before.iter().filter(|policy| !after.contains(policy)).map(|(name, ..)| name.as_str()).collect();
    assert_eq!(moved, ["signoff-approvals"]);
    assert!(after.iter().any(|(name, ..)| name == "signoff-children-exec"), "a policy that is new was not installed");

    assert_refused(
        vote(&cluster, &namespace, "alice", &voted, json!({"verdict": "Reject"})).await,
        "a decision is final",
    );
    assert_refused(vote(&cluster, &namespace, "mallory", &voted, json!({"verdict": "Approve"})).await, "forbidden");
    vote(&cluster, &namespace, "bob", &voted, json!({"verdict": "Approve"})).await.unwrap();
    vote(&cluster, &namespace, "alice", &untouched, json!({"verdict": "Approve"})).await.unwrap();
    let status = Patch::Merge(json!({"status": {"tally": {"needed": 2, "have": 2}}}));
    operator.patch_status(&voted.name_any(), &PatchParams::default(), &status).await.unwrap();
}

#[tokio::test]
async fn an_uninstall_keeps_crds_and_objects_for_the_next_install() {
    let cluster = Cluster::own().await.unwrap();
    cluster.install(&[]).await.unwrap();
    let admin = cluster.admin().await.unwrap();
    let namespace = cluster.namespace("uninstall").await.unwrap().name;
    let operator: Api<Approval> = Api::namespaced(cluster.operator_client().await.unwrap(), &namespace);
    let asked = approval(
        json!({"approvers": [{"kind": "User", "name": "alice@example.com"}, {"kind": "User", "name": "bob@example.com"}]}),
    );
    let asked = operator.create(&PostParams::default(), &asked).await.unwrap();
    let voted = vote(&cluster, &namespace, "alice", &asked, json!({"verdict": "Approve"})).await.unwrap();
    let workflows: Api<Workflow> = Api::namespaced(cluster.token_client("dana").await.unwrap(), &namespace);
    let refund = serde_json::from_value(workflow("refund", json!({}))).unwrap();
    let refund = workflows.create(&PostParams::default(), &refund).await.unwrap();

    run_helm(&cluster, &["uninstall", "signoff", "-n", OPERATOR_NAMESPACE]).await;
    assert!(read_generations(&admin).await.is_empty(), "the policies went with the release");
    let approvals: Api<Approval> = Api::namespaced(admin.clone(), &namespace);
    let kept: Api<Workflow> = Api::namespaced(admin, &namespace);
    assert_eq!(approvals.get(&voted.name_any()).await.unwrap().spec, voted.spec);
    assert_eq!(kept.get("refund").await.unwrap().uid(), refund.uid());

    cluster.install(&[]).await.unwrap();
    assert_eq!(approvals.get(&voted.name_any()).await.unwrap().uid(), voted.uid());
    assert_refused(
        vote(&cluster, &namespace, "alice", &voted, json!({"verdict": "Reject"})).await,
        "a decision is final",
    );
    vote(&cluster, &namespace, "bob", &voted, json!({"verdict": "Approve"})).await.unwrap();
}

#[tokio::test]
async fn the_operator_is_admitted_under_restricted_pod_security() {
    const ELSEWHERE: &str = "judges";
    let cluster = Cluster::own().await.unwrap();
    let admin = cluster.admin().await.unwrap();
    let restricted =
        json!({"metadata": {"name": ELSEWHERE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    let restricted: Namespace = serde_json::from_value(restricted).unwrap();
    Api::all(admin.clone()).create(&PostParams::default(), &restricted).await.unwrap();
    let path = chart_folder().display().to_string();
    run_helm(&cluster, &["install", "signoff", &path, "-n", ELSEWHERE, "--set", "serviceAccount.name=judge"]).await;
    cluster.in_force().await.unwrap();

    let pods: Api<Pod> = Api::namespaced(admin.clone(), ELSEWHERE);
    let mut made = std::pin::pin!(watcher(pods, watcher::Config::default()).applied_objects());
    let pod = tokio::time::timeout(Duration::from_secs(60), made.try_next()).await.unwrap().unwrap().unwrap();
    assert_eq!(pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref()), Some("judge"));

    let token = cluster.kubectl([
        "create",
        "token",
        "judge",
        "-n",
        ELSEWHERE,
        "--bound-object-kind",
        "Pod",
        "--bound-object-name",
        &pod.name_any(),
        "--bound-object-uid",
        &pod.uid().unwrap(),
    ]);
    let token = token.run().await.unwrap().ok().unwrap();
    let asked = serde_json::to_string(&approval(json!({}))).unwrap();
    let create = async |arguments: &[&str]| {
        let all = [&["create", "-n", "default", "-f", "-"], arguments].concat();
        cluster.kubectl(all).input(&asked).run().await.unwrap()
    };
    let by_admin = create(&[]).await.refused().unwrap();
    assert!(by_admin.contains("only the operator can create Approvals"), "{by_admin}");
    // kubectl would prefer the certificate or the token of its kubeconfig, so this kubeconfig has no user.
    let anonymous = cluster.folder().join("nobody.yaml");
    let mut file: Value = serde_saphyr::from_str(&std::fs::read_to_string(cluster.kubeconfig()).unwrap()).unwrap();
    file["users"] = json!([{"name": "judge", "user": {"token": token.trim()}}]);
    for context in file["contexts"].as_array_mut().unwrap() {
        context["context"]["user"] = json!("judge");
    }
    std::fs::write(&anonymous, serde_json::to_string(&file).unwrap()).unwrap();
    let by_judge = cluster
        .kubectl(["create", "-n", "default", "-f", "-"])
        .kubeconfig(&anonymous)
        .input(&asked)
        .run()
        .await
        .unwrap();
    by_judge.ok().unwrap();
}
