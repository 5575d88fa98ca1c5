//! `kubectl approve doctor` by the real kubectl: an operator that is gone, approvers without bindings, an installation
//! that was removed. The operator is the test's own, because it is killed.

use std::time::Duration;

use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use signoff_api::Workflow;
use signoff_api::gate::{RequiredFrom, Subject};
use signoff_tests::control_plane::{Cluster, Finished, OPERATOR_NAMESPACE, OperatorOptions, OperatorProcess};

use crate::asked::Place;
use crate::policies::harness::workflow;

/// The duration of the operator's Lease.
const LEASE: Duration = Duration::from_secs(15);

/// Runs `kubectl approve doctor` in no particular namespace.
async fn run_doctor(cluster: &Cluster, person: &str, words: &[&str]) -> Finished {
    let plugin = crate::asked::plugin();
    let words = [&["approve", "doctor"], words].concat();
    cluster.kubectl(words).search(plugin.parent().unwrap()).person(person).run().await.unwrap()
}

/// Returns the page without its line breaks.
fn unwrapped(finished: &Finished) -> String {
    finished.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn doctor_reports_a_missing_operator_and_an_uninstall() {
    let cluster = Cluster::own().await.unwrap();
    cluster.install(&[]).await.unwrap();
    let place = Place::on(cluster, "doctor").await;
    let (cluster, namespace) = (&place.cluster, place.namespace.name.as_str());

    let never = run_doctor(cluster, "admin", &[]).await;
    assert_eq!(never.code, 1, "{never:?}");
    let sentence = "Operator: GONE: no operator has taken the Lease signoff-system/signoff-operator.";
    assert!(unwrapped(&never).contains(sentence), "{never:?}");

    let operator = OperatorProcess::start(cluster, OperatorOptions::default()).await.unwrap();
    let alive = run_doctor(cluster, "admin", &[]).await;
    assert_eq!(alive.code, 0, "{alive:?}");
    assert!(alive.stdout.starts_with("Operator: alive: the operator signoff-operator-outside"), "{alive:?}");
    assert!(alive.stdout.contains("objects are as shipped (--verbose lists them).\n"), "{alive:?}");
    let every = run_doctor(cluster, "admin", &["--verbose"]).await;
    assert!(every.stdout.lines().count() > alive.stdout.lines().count() + 20, "{every:?}");

    operator.kill();
    tokio::time::sleep(LEASE + Duration::from_secs(2)).await;
    let gone = run_doctor(cluster, "admin", &[]).await;
    assert_eq!(gone.code, 1, "{gone:?}");
    for sentence in ["Operator: GONE: no operator has renewed its Lease for", "(the last was signoff-operator-outside"]
    {
        assert!(unwrapped(&gone).contains(sentence), "{gone:?}");
    }
    assert!(gone.stderr.contains("no run continues and no vote is counted; start the operator"), "{gone:?}");

    // A requester, who can read neither policies nor bindings.
    let runs: Api<Workflow> = Api::namespaced(cluster.token_client("dana").await.unwrap(), namespace);
    let run = serde_json::from_value(workflow("report", json!({}))).unwrap();
    runs.create(&PostParams::default(), &run).await.unwrap();
    let dana = place.approve("dana", &["doctor", "report"]).await;
    assert_eq!(dana.code, 1, "{dana:?}");
    assert!(dana.stdout.starts_with("Workflow report: Pending\n"), "{dana:?}");
    assert!(unwrapped(&dana).contains("it does not continue: no operator has renewed its Lease for"), "{dana:?}");

    let operator = OperatorProcess::start(cluster, OperatorOptions::default()).await.unwrap();
    // The next operator waits for the whole duration of the Lease. Each doctor reads a stale Lease twice, seconds
    // apart.
    let mut again = run_doctor(cluster, "admin", &[]).await;
    for _ in 0..10 {
        if again.code != 0 {
            again = run_doctor(cluster, "admin", &[]).await;
        }
    }
    assert_eq!(again.code, 0, "{again:?}");
    operator.kill();

    // The commands with which docs/guides/install.md removes everything.
    let crds = ["workflows", "approvals", "blobs", "approvalpolicies", "clusterapprovalpolicies"];
    let crds = crds.map(|plural| format!("crd/{plural}.signoff.dev"));
    let of_operator = ["lease/signoff-operator", "configmap/signoff-guard", "-n", OPERATOR_NAMESPACE];
    cluster.kubectl(["delete", "workflows", "-A", "--all"]).run().await.unwrap().ok().unwrap();
    cluster.helm(["uninstall", "signoff", "-n", OPERATOR_NAMESPACE]).run().await.unwrap().ok().unwrap();
    cluster
        .kubectl([&["delete"], &crds.each_ref().map(String::as_str)[..]].concat())
        .run()
        .await
        .unwrap()
        .ok()
        .unwrap();
    cluster.kubectl([&["delete"], &of_operator[..]].concat()).run().await.unwrap().ok().unwrap();
    let removed = run_doctor(cluster, "admin", &[]).await;
    assert_eq!(removed.code, 1, "{removed:?}");
    let page = unwrapped(&removed);
    assert!(page.contains("5 CustomResourceDefinitions are MISSING: approvalpolicies.signoff.dev,"), "{removed:?}");
    assert_eq!(page.matches("install the chart of this operator's version again").count(), 1, "{removed:?}");
    assert!(removed.stdout.lines().count() < 40, "{removed:?}");
    assert!(removed.stdout.lines().all(|line| line.len() < 110), "{removed:?}");
}

#[tokio::test]
async fn doctor_reports_a_misspelt_group_with_the_remedy() {
    let place = Place::shared("doctor").await;
    let namespace = place.namespace.name.as_str();
    let bind = ["create", "rolebinding", "approvers", "--clusterrole=signoff-approver", "--group=finance"];
    let bind = [&bind[..], &["--namespace", namespace]].concat();
    place.cluster.kubectl(bind).run().await.unwrap().ok().unwrap();
    let misspelt = place.ask(|request| request.quorums[0].approvers = vec![Subject::group("finanec")]).await;
    let right = place.ask(|request| request.quorums[0].approvers = vec![Subject::group("finance")]).await;

    let told = place.approve("admin", &["doctor", &misspelt]).await;
    assert_eq!(told.code, 1, "{told:?}");
    let page = unwrapped(&told);
    for sentence in [
        "group finanec: NO binding of the verb approve covers it; is Group finance meant?",
        "Group finance (RoleBinding approvers of",
        "kubectl create rolebinding further-approvers --clusterrole signoff-approver --group finanec -n",
        "after that it counts as rejected",
    ] {
        assert!(page.contains(sentence), "{sentence}: {told:?}");
    }
    assert!(
        told.stderr.contains(&format!("no binding grants the verb approve to an approver of {misspelt}")),
        "{told:?}"
    );

    let told = place.approve("admin", &["doctor", &format!("approval/{right}")]).await;
    assert!(unwrapped(&told).contains("group finance: may approve, by RoleBinding approvers of"), "{told:?}");
    assert!(!told.stderr.contains("no binding grants"), "{told:?}");
    let all = place.approve("admin", &["doctor"]).await;
    assert!(all.stdout.contains(&misspelt) && all.stdout.contains(&right), "{all:?}");

    // Users who cannot read bindings get that as the reason, and not that there are no bindings.
    let alice = place.approve("alice", &["doctor", &misspelt]).await;
    assert!(unwrapped(&alice).contains("whether a binding covers it is unknown: you cannot list"), "{alice:?}");
    assert!(!alice.stderr.contains("no binding grants"), "{alice:?}");
    let nothing = place.approve("admin", &["doctor", "nothing"]).await;
    assert_eq!(nothing.code, 3, "{nothing:?}");
    assert!(nothing.stderr.contains("nothing: no Workflow and no Approval of the namespace"), "{nothing:?}");
    let no_run = place.approve("admin", &["doctor", &format!("wf/{right}")]).await;
    assert_eq!(no_run.code, 3, "{no_run:?}");
    let hint = format!("; an Approval has this name: kubectl approve doctor {right} -n {namespace}");
    assert!(no_run.stderr.contains(&hint), "{no_run:?}");
}

#[tokio::test]
async fn doctor_reports_missing_rights_and_no_false_misspelling() {
    let place = Place::shared("missing").await;
    let namespace = place.namespace.name.as_str();
    let groups = |request: &mut signoff_api::ApprovalRequest| {
        request.quorums[0].approvers = vec![Subject::group("finance"), Subject::group("leads")];
        request.quorums[0].required_from = vec![RequiredFrom { group: "leads".into(), min: 1 }];
    };
    let approval = place.ask(groups).await;
    // Every person of these tests is bound by name.
    let bound = ["delete", "rolebindings", "--all", "--namespace", namespace];
    place.cluster.kubectl(bound).run().await.unwrap().ok().unwrap();

    let bind = async |name: &str, subject: &str| {
        let bind = ["create", "rolebinding", name, "--clusterrole=signoff-approver", subject, "--namespace", namespace];
        place.cluster.kubectl(bind).run().await.unwrap().ok().unwrap();
    };
    bind("a-group", "--group=finance").await;
    let groups = place.approve("admin", &["doctor", &approval]).await;
    let perhaps = "Missing: 1 of group leads: unknown: no binding names this group; its members may be in a bound group (finance)";
    assert!(unwrapped(&groups).contains(perhaps), "{groups:?}");
    assert!(!groups.stderr.contains("no binding grants"), "{groups:?}");
    bind("misspelt", "--group=lead").await;
    let told = place.approve("admin", &["doctor", &approval]).await;
    assert!(
        unwrapped(&told).contains("Missing: 1 of group leads: NO binding of the verb approve covers it"),
        "{told:?}"
    );
    assert!(told.stderr.contains(&format!("{approval} takes 1 of group leads, and no binding grants")), "{told:?}");
    let unbind = ["delete", "rolebinding", "misspelt", "--namespace", namespace];
    place.cluster.kubectl(unbind).run().await.unwrap().ok().unwrap();

    for user in ["olga", "pia"] {
        bind(user, &format!("--user={user}@example.com")).await;
    }
    let users = place.approve("admin", &["doctor", &approval]).await;
    assert!(unwrapped(&users).contains("Missing: 1 of group leads: unknown: 2 users are bound"), "{users:?}");
    assert!(!users.stderr.contains("no binding grants"), "{users:?}");
    bind("leads", "--group=leads").await;
    let bound = place.approve("admin", &["doctor", &approval]).await;
    assert!(unwrapped(&bound).contains("Missing: 1 of group leads: may approve, by RoleBinding leads"), "{bound:?}");
}
