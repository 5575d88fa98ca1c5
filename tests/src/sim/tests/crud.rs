//! Creating, reading, replacing and deleting, as a real server answers it. Patches, selectors and watches have files of
//! their own.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use kube::core::ObjectMeta;
use serde_json::{Value, json};

use super::super::{ApiServer, EPOCH, Garbage};
use super::{configmap, configmaps, made, refusal, signoff_kind, stored, workflow, workflows};

#[tokio::test(start_paused = true)]
async fn a_created_object_has_the_servers_metadata() {
    let server = ApiServer::new();
    let made = made(&configmaps(server.client("test")), "a").await;
    assert_eq!(made.metadata.uid.as_deref(), Some("00000000-0000-4000-8000-000000000001"));
    assert_eq!(made.metadata.resource_version.as_deref(), Some("1"));
    assert_eq!(made.metadata.namespace.as_deref(), Some("default"));
    assert_eq!(made.metadata.creation_timestamp.unwrap().0, EPOCH);
    assert_eq!(made.metadata.generation, None);
}

#[tokio::test(start_paused = true)]
async fn a_name_is_taken_once_and_generated_names_differ() {
    let server = ApiServer::new();
    let api = configmaps(server.client("test"));
    made(&api, "a").await;
    assert_eq!(refusal(api.create(&PostParams::default(), &configmap("a", "2")).await), (409, "AlreadyExists".into()));
    let mut nameless = configmap("", "1");
    nameless.metadata = ObjectMeta { generate_name: Some("run-".into()), ..Default::default() };
    let first = api.create(&PostParams::default(), &nameless).await.unwrap();
    let second = api.create(&PostParams::default(), &nameless).await.unwrap();
    assert_ne!(first.metadata.name, second.metadata.name);
    assert!(first.metadata.name.unwrap().starts_with("run-"));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_there_is_not_found() {
    let server = ApiServer::new();
    let api = workflows(server.client("test"));
    let status = match api.get("x").await {
        Err(kube::Error::Api(status)) => status,
        other => panic!("{other:?}"),
    };
    assert_eq!(status.message, "workflows.signoff.dev \"x\" not found");
    assert_eq!(status.details.as_ref().unwrap().kind, "workflows");
    assert!(api.get_opt("x").await.unwrap().is_none());
    assert_eq!(refusal(api.delete("x", &DeleteParams::default()).await), (404, "NotFound".into()));
    assert_eq!(refusal(api.replace("x", &PostParams::default(), &workflow("x")).await), (404, "NotFound".into()));
}

#[tokio::test(start_paused = true)]
async fn replacing_a_stale_version_is_a_conflict_and_changes_nothing() {
    let server = ApiServer::new();
    let api = configmaps(server.client("test"));
    let old = made(&api, "a").await;
    let mut newer = old.clone();
    newer.data = configmap("a", "2").data;
    api.replace("a", &PostParams::default(), &newer).await.unwrap();
    assert_eq!(refusal(api.replace("a", &PostParams::default(), &old).await), (409, "Conflict".into()));
    assert_eq!(stored(&server, "configmaps", "a").unwrap()["data"]["value"], "2");
}

#[tokio::test(start_paused = true)]
async fn a_custom_resource_is_never_replaced_without_its_version() {
    let server = ApiServer::new();
    let api = workflows(server.client("test"));
    api.create(&PostParams::default(), &workflow("w")).await.unwrap();
    assert_eq!(refusal(api.replace("w", &PostParams::default(), &workflow("w")).await), (422, "Invalid".into()));
    let core = configmaps(server.client("test"));
    made(&core, "a").await;
    core.replace("a", &PostParams::default(), &configmap("a", "2")).await.expect("core kinds may");
}

#[tokio::test(start_paused = true)]
async fn a_replacement_under_another_uid_is_a_conflict() {
    let server = ApiServer::new();
    let api = configmaps(server.client("test"));
    let mut other = made(&api, "a").await;
    other.metadata.uid = Some("00000000-0000-4000-8000-999999999999".into());
    assert_eq!(refusal(api.replace("a", &PostParams::default(), &other).await), (409, "Conflict".into()));
}

#[tokio::test(start_paused = true)]
async fn status_and_the_rest_are_written_apart() {
    let server = ApiServer::new();
    let api = workflows(server.client("test"));
    let mut sent = workflow("w");
    sent.data["status"] = json!({"phase": "Succeeded"});
    let made = api.create(&PostParams::default(), &sent).await.unwrap();
    assert_eq!(
        made.data["status"],
        json!({"phase": "Pending", "seq": 0}),
        "a creation sets no status, the default does"
    );

    let mut both = made.clone();
    both.data = json!({"spec": {"suspend": true}, "status": {"phase": "Running", "seq": 1}});
    both.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    let after_status = api.replace_status("w", &PostParams::default(), &both).await.unwrap();
    assert_eq!(after_status.data["status"]["phase"], "Running");
    assert_eq!(after_status.data["spec"]["suspend"], false);
    assert_eq!((after_status.metadata.generation, after_status.metadata.labels), (Some(1), None));

    both.metadata.resource_version = after_status.metadata.resource_version;
    both.data["status"]["phase"] = json!("Failed");
    let after_main = api.replace("w", &PostParams::default(), &both).await.unwrap();
    assert_eq!(after_main.data["status"]["phase"], "Running");
    assert_eq!(after_main.data["spec"]["suspend"], true);
}

/// Sends a status with this metadata and nothing else, and accepts metadata as the answer.
async fn puts_status(server: &ApiServer, metadata: Value, status: Value) -> kube::Result<Value> {
    let body =
        json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": metadata, "status": status});
    let request = http::Request::put("/apis/signoff.dev/v1alpha1/namespaces/default/workflows/w/status")
        .header("content-type", "application/json")
        .header("accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json");
    server.client("test").request(request.body(body.to_string().into_bytes()).unwrap()).await
}

#[tokio::test(start_paused = true)]
async fn a_status_is_written_without_the_rest_and_answered_with_metadata() {
    let server = ApiServer::new();
    let api = workflows(server.client("test"));
    let mut sent = workflow("w");
    sent.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    sent.metadata.finalizers = Some(vec!["example.com/held".to_owned()]);
    let before = api.create(&PostParams::default(), &sent).await.unwrap();
    let (uid, version) = (before.uid().unwrap(), before.resource_version().unwrap());
    let metadata = json!({"name": "w", "namespace": "default", "uid": uid, "resourceVersion": version});
    let status = json!({"phase": "Running", "seq": 1});
    let answer = puts_status(&server, metadata.clone(), status.clone()).await.unwrap();

    let after = api.get("w").await.unwrap();
    assert_eq!(after.data["status"], status);
    assert_eq!(after.data["spec"], before.data["spec"]);
    let mut expected = before.metadata.clone();
    expected.resource_version = after.metadata.resource_version.clone();
    assert_eq!(after.metadata, expected, "nothing but the version moved on");
    assert_ne!(after.metadata.resource_version, before.metadata.resource_version);
    assert_eq!(
        answer,
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": after.metadata})
    );

    assert_eq!(refusal(puts_status(&server, metadata, status.clone()).await), (409, "Conflict".into()));
    let version = after.metadata.resource_version;
    let other = json!({"name": "w", "uid": "00000000-0000-4000-8000-999999999999", "resourceVersion": version});
    assert_eq!(refusal(puts_status(&server, other, status.clone()).await), (409, "Conflict".into()));
    let unfenced = json!({"name": "w", "uid": uid});
    assert_eq!(refusal(puts_status(&server, unfenced, status.clone()).await), (422, "Invalid".into()));
    let nameless = json!({"uid": uid, "resourceVersion": version});
    assert_eq!(refusal(puts_status(&server, nameless, status).await), (400, "BadRequest".into()));
}

#[tokio::test(start_paused = true)]
async fn only_a_change_of_what_is_wanted_is_a_new_generation() {
    let server = ApiServer::new();
    let api = workflows(server.client("test"));
    let mut object = api.create(&PostParams::default(), &workflow("w")).await.unwrap();
    object.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    let mut object = api.replace("w", &PostParams::default(), &object).await.unwrap();
    assert_eq!(object.metadata.generation, Some(1));
    object.data["spec"]["suspend"] = json!(true);
    let object = api.replace("w", &PostParams::default(), &object).await.unwrap();
    assert_eq!(object.metadata.generation, Some(2));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_changes_nothing_makes_no_version() {
    let server = ApiServer::new();
    let api = configmaps(server.client("test"));
    let object = made(&api, "a").await;
    let same = api.replace("a", &PostParams::default(), &object).await.unwrap();
    assert_eq!(same.metadata.resource_version, object.metadata.resource_version);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_is_answered_and_not_stored() {
    let server = ApiServer::new();
    let api = configmaps(server.client("test"));
    let params = PostParams { dry_run: true, ..Default::default() };
    api.create(&params, &configmap("a", "1")).await.unwrap();
    assert!(api.get_opt("a").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn deleting_holds_to_its_preconditions() {
    let server = ApiServer::new();
    let api = configmaps(server.client("test"));
    let object = made(&api, "a").await;
    let only = |uid: &str| {
        let preconditions = Preconditions { uid: Some(uid.into()), resource_version: None };
        DeleteParams { preconditions: Some(preconditions), ..Default::default() }
    };
    let other = only("00000000-0000-4000-8000-999999999999");
    assert_eq!(refusal(api.delete("a", &other).await), (409, "Conflict".into()));
    let gone = api.delete("a", &only(&object.metadata.uid.unwrap())).await.unwrap();
    assert!(gone.right().expect("a Status").is_success());
    assert!(stored(&server, "configmaps", "a").is_none());
}

#[tokio::test(start_paused = true)]
async fn finalizers_hold_an_object_until_the_last_is_gone() {
    let server = ApiServer::new();
    let api = configmaps(server.client("test"));
    let mut object = configmap("a", "1");
    object.metadata.finalizers = Some(vec!["example.com/hold".into()]);
    api.create(&PostParams::default(), &object).await.unwrap();
    let mut marked = api.delete("a", &DeleteParams::default()).await.unwrap().left().expect("still there");
    assert!(marked.metadata.deletion_timestamp.is_some());
    marked.metadata.finalizers = None;
    api.replace("a", &PostParams::default(), &marked).await.unwrap();
    assert!(stored(&server, "configmaps", "a").is_none());
}

fn owned(name: &str, owner: &ConfigMap) -> ConfigMap {
    let mut object = configmap(name, "1");
    object.metadata.owner_references = Some(vec![
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": owner.metadata.name, "uid": owner.metadata.uid,
        }))
        .unwrap(),
    ]);
    object
}

#[tokio::test(start_paused = true)]
async fn what_an_owner_leaves_behind_is_collected_to_the_last_generation() {
    let server = ApiServer::new();
    let api = configmaps(server.client("test"));
    let parent = made(&api, "parent").await;
    let child = api.create(&PostParams::default(), &owned("child", &parent)).await.unwrap();
    api.create(&PostParams::default(), &owned("grandchild", &child)).await.unwrap();
    made(&api, "bystander").await;
    api.delete("parent", &DeleteParams::default()).await.unwrap();
    let left: Vec<_> = api
        .list(&Default::default())
        .await
        .unwrap()
        .items
        .into_iter()
        .filter_map(|object| object.metadata.name)
        .collect();
    assert_eq!(left, ["bystander"]);
    api.create(&PostParams::default(), &owned("late", &parent)).await.unwrap();
    assert!(stored(&server, "configmaps", "late").is_none(), "its owner was gone when it came");
}

#[tokio::test(start_paused = true)]
async fn the_garbage_collector_may_come_late_and_orphans_stay() {
    let server = ApiServer::new();
    server.garbage(Garbage::WhenTold);
    let api = configmaps(server.client("test"));
    let parent = made(&api, "parent").await;
    api.create(&PostParams::default(), &owned("child", &parent)).await.unwrap();
    api.delete("parent", &DeleteParams::default()).await.unwrap();
    assert!(stored(&server, "configmaps", "child").is_some());
    assert_eq!(server.collect_garbage(), 1);
    assert!(stored(&server, "configmaps", "child").is_none());

    let parent = made(&api, "parent").await;
    api.create(&PostParams::default(), &owned("child", &parent)).await.unwrap();
    let orphan = DeleteParams { propagation_policy: Some(kube::api::PropagationPolicy::Orphan), ..Default::default() };
    api.delete("parent", &orphan).await.unwrap();
    assert_eq!(server.collect_garbage(), 0);
}

#[tokio::test(start_paused = true)]
async fn cluster_scoped_kinds_subresources_and_the_version_have_their_paths() {
    let server = ApiServer::new();
    let client = server.client("test");
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace: Namespace =
        serde_json::from_value(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "finance"}}))
            .unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    assert_eq!(namespaces.get("finance").await.unwrap().metadata.namespace, None);
    assert_eq!(client.apiserver_version().await.unwrap().minor, "36");

    let pods: Api<Pod> = Api::namespaced(client, "finance");
    let pod: Pod = serde_json::from_value(
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []}}),
    )
    .unwrap();
    let mut pod = pods.create(&PostParams::default(), &pod).await.unwrap();
    pod.status.as_mut().unwrap().phase = Some("Succeeded".into());
    let pod = pods.replace_status("p", &PostParams::default(), &pod).await.unwrap();
    assert_eq!(pod.status.unwrap().phase.as_deref(), Some("Succeeded"));
    assert_eq!(refusal(pods.logs("p", &Default::default()).await), (400, "BadRequest".into()), "nothing ran in it");
    assert_eq!(refusal(pods.get_scale("p").await), (501, "NotImplemented".into()));
}

#[tokio::test(start_paused = true)]
async fn names_and_labels_that_a_real_server_refuses_are_refused() {
    let server = ApiServer::new();
    let api = configmaps(server.client("test"));
    assert_eq!(
        refusal(api.create(&PostParams::default(), &configmap("Not_a_Name", "1")).await),
        (422, "Invalid".into())
    );
    let mut labelled = configmap("a", "1");
    labelled.metadata.labels = Some([("a".to_owned(), "x".repeat(64))].into());
    assert_eq!(refusal(api.create(&PostParams::default(), &labelled).await), (422, "Invalid".into()));
}

#[tokio::test(start_paused = true)]
async fn timestamps_follow_virtual_time() {
    let server = ApiServer::new();
    let clock = server.clock();
    clock.pass(std::time::Duration::from_secs(24 * 3600)).await;
    let made = made(&configmaps(server.client("test")), "a").await;
    assert_eq!(made.metadata.creation_timestamp.unwrap().0.to_string(), "2026-01-02T00:00:00Z");
    assert_eq!(clock.closure()(), clock.now());
}

#[tokio::test(start_paused = true)]
async fn people_decide_beside_the_log_and_their_clients_in_it() {
    let server = ApiServer::new();
    let alice = server.as_person("alice@example.com");
    assert_eq!(alice.decides("default", "gate", json!({"verdict": "Approve"})).unwrap_err().code, 404);
    server.insert(json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Approval", "metadata": {"name": "gate", "namespace": "default"}, "spec": {"request": {}}})).unwrap();
    let decided = alice.decides("default", "gate", json!({"verdict": "Approve"})).unwrap();
    assert_eq!(decided["spec"]["decisions"]["alice@example.com"]["verdict"], "Approve");
    assert_eq!(decided["metadata"]["generation"], 2);
    assert!(server.log().is_empty());
    let approvals: Api<kube::api::DynamicObject> =
        Api::namespaced_with(alice.client(), "default", &signoff_kind("Approval"));
    approvals.get("gate").await.unwrap();
    assert_eq!(server.count(|entry| &*entry.actor == "alice@example.com"), 1);
}
