//! Who the operator is: one service account with a token bound to a Pod, and nobody who could become it.
//! These tests may not start an operator.

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, Secret, ServiceAccount};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use signoff_api::Approval;
use signoff_tests::control_plane::{Disguise, OPERATOR_ACCOUNT, OPERATOR_NAMESPACE};

use super::stage::{self, Answer, Stage, refused, said};

fn dry_run() -> PostParams {
    PostParams { dry_run: true, ..PostParams::default() }
}

/// A client that sends this bearer token.
async fn with_token(stage: &Stage, token: &str) -> Client {
    let mut file = kube::config::Kubeconfig::read_from(stage.cluster.kubeconfig()).unwrap();
    let login: kube::config::AuthInfo = serde_json::from_value(json!({"token": token})).unwrap();
    for named in &mut file.auth_infos {
        named.auth_info = Some(login.clone());
    }
    let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// The status of an Approval that awaits nothing, written by whoever this is.
async fn writes_status(client: Client, approval: &Approval) -> Answer<Approval> {
    let api: Api<Approval> = Api::namespaced(client, &approval.namespace().unwrap());
    let status = Patch::Merge(json!({"status": {"reminders": 1}}));
    said(api.patch_status(&approval.name_any(), &PatchParams::default(), &status).await)
}

#[tokio::test]
async fn a_token_that_is_bound_to_no_pod_is_not_the_operator() {
    let stage = Stage::open("operator").await;
    let approval = stage.ask(json!({})).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(stage.client("admin").await, OPERATOR_NAMESPACE);
    let request = TokenRequest { spec: Some(TokenRequestSpec::default()), ..TokenRequest::default() };
    let answer = accounts.create_token_request(OPERATOR_ACCOUNT, &PostParams::default(), &request).await.unwrap();
    let unbound = with_token(&stage, &answer.status.and_then(|status| status.token).unwrap()).await;
    refused(writes_status(unbound.clone(), &approval).await, "only the operator, from its pod, writes status");
    let forged = Api::<Approval>::namespaced(unbound, &stage.namespace.name);
    let answer = said(forged.create(&dry_run(), &stage::approval(json!({"prompt": "Forged?"}))).await);
    refused(answer, "only the operator creates Approvals");
    writes_status(stage.operator.clone(), &approval).await.unwrap();
}

#[tokio::test]
async fn impersonating_the_service_account_is_not_being_it() {
    let stage = Stage::open("operator").await;
    let approval = stage.ask(json!({})).await;
    let disguise = Disguise {
        user: format!("system:serviceaccount:{OPERATOR_NAMESPACE}:{OPERATOR_ACCOUNT}"),
        groups: vec!["system:serviceaccounts".into(), "system:authenticated".into()],
        extra: Vec::new(),
    };
    let impostor = stage.cluster.disguised(disguise).await.unwrap();
    refused(writes_status(impostor, &approval).await, "only the operator, from its pod, writes status");
    writes_status(stage.operator.clone(), &approval).await.unwrap();
}

#[tokio::test]
async fn only_the_operator_creates_approvals_and_without_decisions() {
    let stage = Stage::open("operator").await;
    let approval = stage::approval(json!({}));
    let admin = stage.approvals("admin").await;
    refused(said(admin.create(&PostParams::default(), &approval).await), "only the operator creates Approvals");
    let mut decided = approval.clone();
    let vote = signoff_api::Decision::new(signoff_api::Verdict::Approve);
    decided.spec.decisions.insert("alice@example.com".into(), vote);
    let operator = stage.approvals_of_operator();
    refused(
        said(operator.create(&PostParams::default(), &decided).await),
        "only the operator creates Approvals, and without decisions",
    );
    operator.create(&PostParams::default(), &approval).await.unwrap();
}

#[tokio::test]
async fn the_operator_holds_no_verb_that_decides() {
    let stage = Stage::open("operator").await;
    for (verb, resource) in [
        ("approve", "approvals"),
        ("grant", "approvals"),
        ("delegate", "people"),
        ("patch", "approvals"),
        ("update", "workflows"),
        ("list", "secrets"),
        ("create", "pods"),
    ] {
        let asked = stage
            .cluster
            .kubectl([
                "auth",
                "can-i",
                verb,
                &format!("{resource}{}", if resource == "secrets" || resource == "pods" { "" } else { ".signoff.dev" }),
                "-n",
                &stage.namespace.name,
            ])
            .kubeconfig(&stage.cluster.operator_kubeconfig().unwrap())
            .run()
            .await
            .unwrap();
        assert_eq!(asked.stdout.trim(), "no", "the operator may {verb} {resource}");
    }
}

/// Somebody with the built-in role admin in the operator's namespace.
async fn namespace_admin(stage: &Stage, user: &str) -> Client {
    let binding = json!({
        "metadata": {"generateName": "admin-"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    let bindings: Api<k8s_openapi::api::rbac::v1::RoleBinding> =
        Api::namespaced(stage.client("admin").await, OPERATOR_NAMESPACE);
    bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
    let client = stage.cluster.client(user, &["system:authenticated"]).await.unwrap();
    let configmaps: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(client.clone(), OPERATOR_NAMESPACE);
    for _ in 0..1000 {
        if configmaps.list(&Default::default()).await.is_ok() {
            return client;
        }
    }
    panic!("{user} is still not admin in {OPERATOR_NAMESPACE}");
}

#[tokio::test]
async fn who_administers_the_operators_namespace_does_not_become_the_operator() {
    let stage = Stage::open("operator").await;
    let user = format!("{}@example.com", stage.namespace.name);
    let client = namespace_admin(&stage, &user).await;
    let words = "lacks the verb administer on installations.signoff.dev";
    let pods: Api<Pod> = Api::namespaced(client.clone(), OPERATOR_NAMESPACE);
    let secrets: Api<Secret> = Api::namespaced(client.clone(), OPERATOR_NAMESPACE);
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), OPERATOR_NAMESPACE);
    let deployments: Api<k8s_openapi::api::apps::v1::Deployment> = Api::namespaced(client.clone(), OPERATOR_NAMESPACE);
    let jobs: Api<k8s_openapi::api::batch::v1::CronJob> = Api::namespaced(client, OPERATOR_NAMESPACE);

    let spec = json!({"serviceAccountName": OPERATOR_ACCOUNT, "containers": [{"name": "shell", "image": "shell"}], "restartPolicy": "Never"});
    let labels = json!({"app": "shell"});
    let template = json!({"metadata": {"labels": labels}, "spec": spec});
    let mut forever = template.clone();
    forever["spec"]["restartPolicy"] = json!("Always");
    let pod = object(json!({"metadata": {"name": "shell"}, "spec": spec}));
    let deployment = object(
        json!({"metadata": {"name": "shell"}, "spec": {"selector": {"matchLabels": labels}, "template": forever}}),
    );
    let job = object(
        json!({"metadata": {"name": "shell"}, "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}}}),
    );
    refused(said(pods.create(&dry_run(), &pod).await), words);
    refused(said(deployments.create(&dry_run(), &deployment).await), words);
    refused(said(jobs.create(&dry_run(), &job).await), words);

    let token = json!({"metadata": {"name": "stolen", "annotations": {"kubernetes.io/service-account.name": OPERATOR_ACCOUNT}}, "type": "kubernetes.io/service-account-token"});
    refused(said(secrets.create(&dry_run(), &object(token)).await), words);
    let request = TokenRequest { spec: Some(TokenRequestSpec::default()), ..TokenRequest::default() };
    refused(said(accounts.create_token_request(OPERATOR_ACCOUNT, &dry_run(), &request).await), words);
    let shell = [
        "exec",
        "signoff-operator-outside",
        "-n",
        OPERATOR_NAMESPACE,
        "--as",
        &user,
        "--as-group",
        "system:authenticated",
        "--",
        "sh",
    ];
    let shell = stage.cluster.kubectl(shell).run().await.unwrap().refused().unwrap();
    assert!(shell.contains(words), "{shell}");

    // The honest twins: what does not make one the operator, and whoever holds the verb.
    secrets.create(&dry_run(), &object(json!({"metadata": {"name": "mine"}, "stringData": {"a": "b"}}))).await.unwrap();
    let admin: Api<Pod> = Api::namespaced(stage.client("admin").await, OPERATOR_NAMESPACE);
    admin.create(&dry_run(), &pod).await.unwrap();
}

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}
