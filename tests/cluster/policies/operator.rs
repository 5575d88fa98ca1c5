//! The rights of the operator by its roles: it reports, and decides nothing.

use super::harness::Harness;

#[tokio::test]
async fn the_operator_holds_no_verb_that_decides() {
    let harness = Harness::open("operator").await;
    for (verb, resource) in [
        ("approve", "approvals"),
        ("grant", "approvals"),
        ("delegate", "people"),
        ("patch", "approvals"),
        ("update", "workflows"),
        ("get", "secrets"),
        ("list", "secrets"),
        ("delete", "blobs"),
        ("list", "blobs"),
        ("update", "blobs"),
        ("get", "configmaps"),
        ("create", "configmaps"),
        ("delete", "configmaps"),
        ("update", "pods"),
        ("patch", "pods"),
        ("deletecollection", "pods"),
    ] {
        let asked = harness
            .cluster
            .kubectl([
                "auth",
                "can-i",
                verb,
                &format!(
                    "{resource}{}",
                    if ["secrets", "pods", "configmaps"].contains(&resource) { "" } else { ".signoff.dev" }
                ),
                "-n",
                &harness.namespace.name,
            ])
            .kubeconfig(&harness.cluster.operator_kubeconfig().unwrap())
            .run()
            .await
            .unwrap();
        assert_eq!(asked.stdout.trim(), "no", "the operator may {verb} {resource}");
    }
}
