//! Tests of the page of the policies, with lists that the reader must not read.
#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;
use crate::history::tests::{forbidden, list_of, server};

fn policy(name: &str, host: &str) -> serde_json::Value {
    json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "ApprovalPolicy", "metadata": {"name": name, "namespace": "finance"}, "spec": {"allowedHosts": [host]}})
}

fn render(cluster: Listed, own: Listed) -> String {
    let shell = Shell { user: Some("alice@example.com".into()), here: "policies", ..Shell::of_nobody("Policies") };
    PoliciesPage { shell, cluster, own, namespaces: Some(vec!["finance".into()]) }.render().unwrap()
}

#[tokio::test]
async fn refusal_of_cluster_policies_is_shown_with_the_other_policies() {
    let (client, _) = server(|address| match address {
        one if one.contains("/clusterapprovalpolicies") => forbidden(),
        _ => list_of(
            vec![
                policy("pay", "<b>.example.com"),
                json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "ApprovalPolicy", "metadata": {"name": "odd", "namespace": "finance"}, "spec": {"allowedHosts": 7}}),
            ],
            Some("more"),
        ),
    });
    let cluster = accept_refusal(list(&client, None, cluster_card).await).unwrap();
    let own = accept_refusal(list(&client, Some("finance"), own_card).await).unwrap();
    let page = render(cluster, own);
    for said in [
        "You may not list ClusterApprovalPolicies",
        "approvals is forbidden",
        "may connect to: &#60;b&#62;.example.com",
        "kubectl get approvalpolicies pay --namespace finance -o yaml",
        "this version cannot read it",
        "kubectl get approvalpolicies odd --namespace finance -o yaml",
        "There are more policies than are shown here",
        "only finance is looked at",
    ] {
        assert!(page.contains(said), "{said} is missing:\n{page}");
    }
    assert!(!page.contains("<b>"));
}

#[tokio::test]
async fn error_other_than_a_refusal_is_returned() {
    let (client, _) = server(|_| {
        (
            401,
            json!({"kind": "Status", "status": "Failure", "message": "Unauthorized", "reason": "Unauthorized", "code": 401}),
        )
    });
    assert_eq!(accept_refusal(list(&client, None, cluster_card).await).unwrap_err(), PageError::SignIn);
}

#[test]
fn page_without_policies_says_that_there_are_none() {
    let page = render(Listed::default(), Listed::default());
    assert!(page.contains("There is no ClusterApprovalPolicy.") && page.contains("No ApprovalPolicy is shown."));
}
