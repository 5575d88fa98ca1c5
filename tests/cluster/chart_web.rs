//! The page of the chart on a control plane of its own: upgrades, and the effect of its rights. The tests send the
//! requests that the page would send.

use http::{Method, Request};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, Client, Error, ResourceExt};
use serde_json::{Value, json};
use signoff_api::Approval;
use signoff_tests::control_plane::{Cluster, OPERATOR_NAMESPACE};

use crate::policies::harness::approval;

const ALICE: [(&str, &str); 2] = [("impersonate-user", "alice@example.com"), ("impersonate-group", "finance")];
const CHANNEL: &str = "impersonate-extra-signoff.dev%2fchannel";

/// Connects with the token of the page's account, as its Pod would have it.
async fn connect_as_page(cluster: &Cluster) -> Client {
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.admin().await.unwrap(), OPERATOR_NAMESPACE);
    let request = TokenRequest { spec: Some(TokenRequestSpec::default()), ..TokenRequest::default() };
    let token = accounts.create_token_request("signoff-web", &PostParams::default(), &request).await.unwrap();
    let mut file = kube::config::Kubeconfig::read_from(cluster.kubeconfig()).unwrap();
    let login = json!({"token": token.status.and_then(|status| status.token).unwrap()});
    for named in &mut file.auth_infos {
        named.auth_info = Some(serde_json::from_value(login.clone()).unwrap());
    }
    let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// Sends a request with these headers. Returns the answer, or the message of the API server's refusal.
async fn send(
    client: &Client,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: Value,
) -> Result<Value, String> {
    let content = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let mut request = Request::builder().method(method).uri(path).header("content-type", content);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(&body).unwrap() };
    match client.request_text(request.body(body).unwrap()).await {
        Ok(text) => Ok(serde_json::from_str(&text).unwrap()),
        Err(Error::Api(status)) => Err(status.message),
        Err(other) => panic!("{path}: {other}"),
    }
}

async fn read_cookie_key(cluster: &Cluster) -> Vec<u8> {
    let secrets: Api<Secret> = Api::namespaced(cluster.admin().await.unwrap(), OPERATOR_NAMESPACE);
    secrets.get("signoff-web-cookie-key").await.unwrap().data.unwrap()["cookie-key"].0.clone()
}

#[tokio::test]
async fn an_impersonating_page_acts_only_as_people_and_keeps_its_cookie_key() {
    let cluster = Cluster::own().await.unwrap();
    let page_of = [("web.enabled", "true"), ("web.url", "https://signoff.example.com")];
    cluster.install(&page_of).await.unwrap();
    let key = read_cookie_key(&cluster).await;
    assert!(key.len() >= 64);

    let namespace = cluster.namespace("page").await.unwrap().name;
    let approvals = format!("/apis/signoff.dev/v1alpha1/namespaces/{namespace}/approvals");
    let client = connect_as_page(&cluster).await;
    let refused = send(&client, Method::GET, &approvals, &ALICE, Value::Null).await.unwrap_err();
    assert!(refused.contains("impersonate"), "passing tokens through, it impersonates nobody: {refused}");
    let refused = send(&client, Method::GET, &approvals, &[], Value::Null).await.unwrap_err();
    assert!(refused.contains("signoff-web\" cannot list"), "and has no right of its own: {refused}");

    let oidc = [
        ("web.auth", "impersonation"),
        ("web.oidc.issuer", "https://login.example.com"),
        ("web.oidc.clientId", "signoff"),
    ];
    cluster.install(&[&page_of[..], &oidc].concat()).await.unwrap();
    assert_eq!(read_cookie_key(&cluster).await, key, "an upgrade ends all sessions");

    let operator: Api<Approval> = Api::namespaced(cluster.operator_client().await.unwrap(), &namespace);
    let asked = approval(json!({"approvers": [{"kind": "User", "name": "alice@example.com"}]}));
    let asked = operator.create(&PostParams::default(), &asked).await.unwrap().name_any();
    let client = connect_as_page(&cluster).await;
    let alice = [&ALICE[..], &[(CHANNEL, "web")]].concat();
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let me = send(&client, Method::POST, reviews, &alice, review.clone()).await.unwrap();
    assert_eq!(me["status"]["userInfo"]["username"], "alice@example.com");
    let listed = send(&client, Method::GET, &approvals, &alice, Value::Null).await.unwrap();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    let vote = json!({"spec": {"decisions": {"alice@example.com": {"verdict": "Approve"}}}});
    let one = format!("{approvals}/{asked}");
    let voted = send(&client, Method::PATCH, &one, &alice, vote.clone()).await.unwrap();
    assert_eq!(voted["spec"]["decisions"]["alice@example.com"]["verdict"], "Approve");

    let mallory = [("impersonate-user", "mallory@example.com"), (CHANNEL, "web")];
    let masters = [("impersonate-user", "alice@example.com"), ("impersonate-group", "system:masters")];
    let operators = format!("system:serviceaccount:{OPERATOR_NAMESPACE}:signoff-operator");
    let account = [("impersonate-user", &*operators)];
    let other_channel = [&ALICE[..], &[(CHANNEL, "cli")]].concat();
    let other_extra = [&ALICE[..], &[("impersonate-extra-example.com%2fx", "web")]].concat();
    let secrets = format!("/api/v1/namespaces/{namespace}/secrets");
    let workflows = format!("/apis/signoff.dev/v1alpha1/namespaces/{namespace}/workflows");
    for (what, method, path, headers, body, words) in [
        ("as a user without rights", Method::PATCH, &one, &mallory[..], vote, "\"mallory@example.com\" cannot patch"),
        (
            "as the cluster's administrators",
            Method::GET,
            &approvals,
            &masters,
            Value::Null,
            "system:masters group is not allowed",
        ),
        ("as the operator", Method::GET, &approvals, &account, Value::Null, "cannot impersonate"),
        ("by another channel", Method::GET, &approvals, &other_channel, Value::Null, "cannot impersonate:user-info"),
        ("with another extra", Method::GET, &approvals, &other_extra, Value::Null, "cannot impersonate:user-info"),
        ("Secrets", Method::GET, &secrets, &alice, Value::Null, "cannot impersonate-on:user-info:list"),
        ("a new Workflow", Method::POST, &workflows, &alice, json!({}), "cannot impersonate-on:user-info:create"),
        ("deleting", Method::DELETE, &one, &alice, Value::Null, "cannot impersonate-on:user-info:delete"),
        (
            "an outcome",
            Method::PATCH,
            &format!("{one}/status"),
            &alice,
            json!({}),
            "cannot impersonate-on:user-info:patch",
        ),
    ] {
        let refused = send(&client, method, path, headers, body).await.unwrap_err();
        assert!(refused.contains(words), "{what}: {refused}");
    }
}
