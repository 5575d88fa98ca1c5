//! The reports of the guard to people: on the run, in an Event, by the plugin, the doctor and the operator's own check.

use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use signoff_tests::control_plane::{OPERATOR_NAMESPACE, program};

use super::harness::Harness;

#[tokio::test]
async fn each_command_reports_a_changed_rule_and_the_remedy() {
    let harness = Harness::open().await;
    let operator = harness.start_operator_with_lease().await;
    harness.request("run", 1).await;
    let approval = harness.wait_for_gate("run", "review").await;
    let (approval, namespace) = (approval.metadata.name.unwrap(), harness.namespace.name.as_str());
    let plugin = crate::asked::plugin();
    let kubectl = async |who: &str, words: &[&str]| {
        // With a namespace, doctor checks the requests there.
        let of = if words.contains(&"doctor") { &[][..] } else { &["--namespace", namespace][..] };
        let words = [words, of].concat();
        harness.cluster.kubectl(words).search(plugin.parent().unwrap()).person(who).run().await.unwrap()
    };
    let check = async || {
        let program = program("signoff-controller", "signoff-operator").unwrap();
        let kubeconfig = harness.cluster.kubeconfig_of("viktor").unwrap().display().to_string();
        let words = ["guard", "check", "--kubeconfig", &kubeconfig, "--namespace", OPERATOR_NAMESPACE];
        harness.cluster.run(&program, words).run().await.unwrap()
    };

    // Doctor names the role that allows reading the rules to users who cannot read them.
    let doctor = kubectl("viktor", &["approve", "doctor"]).await;
    assert_eq!(doctor.code, 1);
    assert!(
        doctor.stderr.contains("the ClusterRole signoff-guard-reader lets you read the rules"),
        "{}",
        doctor.stderr
    );
    let bind = [
        "create",
        "clusterrolebinding",
        "viktor-reads",
        "--clusterrole=signoff-guard-reader",
        "--user=viktor@example.com",
    ];
    harness.cluster.kubectl(bind).run().await.unwrap().ok().unwrap();
    let doctor = harness
        .repeat_until_accepted("viktor's look", async || {
            let doctor = kubectl("viktor", &["approve", "doctor"]).await;
            if doctor.code == 0 { Ok(doctor) } else { Err(doctor.stdout + &doctor.stderr) }
        })
        .await;
    assert!(doctor.stdout.contains("In force: the API server verifies votes."), "{}", doctor.stdout);
    let unknown = "Who could impersonate the operator is unknown: you cannot list clusterroles";
    assert!(doctor.stdout.contains(unknown), "{}", doctor.stdout);
    assert!(doctor.stdout.starts_with("Operator: alive: the operator signoff-operator-outside"), "{}", doctor.stdout);
    let edit = ["create", "rolebinding", "neighbors", "--clusterrole=edit", "--user=eve@example.com"];
    let edit = [&edit[..], &["--namespace", OPERATOR_NAMESPACE]].concat();
    harness.cluster.kubectl(edit).run().await.unwrap().ok().unwrap();
    let doctor = kubectl("admin", &["approve", "doctor"]).await;
    // Long lines are wrapped.
    let words = doctor.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for grant in [
        "User eve@example.com, by RoleBinding neighbors of signoff-system (ClusterRole edit)",
        "Group system:masters, by ClusterRoleBinding cluster-admin (ClusterRole cluster-admin)",
    ] {
        assert!(words.contains(grant), "{}", doctor.stdout);
    }
    assert!(!doctor.stdout.contains("viktor"), "{}", doctor.stdout);
    let page = check().await;
    assert_eq!(page.code, 0, "{}{}", page.stdout, page.stderr);

    let binding = "ValidatingAdmissionPolicyBinding";
    let audit = |object: &mut serde_json::Value| {
        object["spec"]["validationActions"] = json!(["Audit"]);
        true
    };
    let before = harness.change_or_delete(binding, "signoff-approvals", audit).await;
    let said = harness.wait_for_condition("run", "Guarded", "False").await;
    assert!(said.contains("signoff-approvals") && said.contains("install the chart"), "{said}");
    let shown = kubectl("alice", &["approve", "show", &approval]).await;
    assert!(shown.stdout.contains("NOT GUARDED:"), "{}{}", shown.stdout, shown.stderr);
    assert!(operator.get("/metrics").await.unwrap().contains("signoff_guard_in_force 0"));
    for page in [kubectl("viktor", &["approve", "doctor"]).await, check().await] {
        assert_eq!(page.code, 1, "{}{}", page.stdout, page.stderr);
        assert!(page.stdout.contains("DIFFERS at spec.validationActions"), "{}", page.stdout);
        assert!(page.stdout.contains("NOT in force"), "{}", page.stdout);
    }
    let events: Api<Event> = Api::namespaced(harness.admin.clone(), namespace);
    harness
        .repeat_until_accepted("the Event", async || {
            let all = events.list(&ListParams::default()).await.unwrap();
            let told = all.iter().any(|event| event.reason.as_deref() == Some("Unguarded"));
            if told { Ok(()) } else { Err(format!("{:?}", all.items)) }
        })
        .await;

    harness.restore(binding, before).await;
    harness.wait_for_no_condition("run", "Guarded").await;
    let shown = kubectl("alice", &["approve", "show", &approval]).await;
    assert!(!shown.stdout.contains("NOT GUARDED"), "{}", shown.stdout);
    drop(operator);
}
