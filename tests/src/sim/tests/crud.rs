//! Creating, reading, replacing and deleting, as a real server answers it. Patches, selectors and watches have files of
//! their own.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use kube::core::ObjectMeta;
use serde_json::{Value, json};

use super::super::{ApiServer, EPOCH, Garbage};
use super::{configmap, configmaps, create_configmap, refusal, signoff_kind, stored, workflow, workflows};

#[tokio::test(start_paused = true)]
async fn a_created_object_has_the_servers_metadata() {
    let server = ApiServer::new();
    let created = create_configmap(&configmaps(server.client("test")), "a").await;
    assert_eq!(created.metadata.uid.as_deref(), Some("00000000-0000-4000-8000-000000000001"));
    assert_eq!(created.metadata.resource_version.as_deref(), Some("1"));
    assert_eq!(created.metadata.namespace.as_deref(), Some("default"));
    assert_eq!(created.metadata.creation_timestamp.unwrap().0, EPOCH);
    assert_eq!(created.metadata.generation, None);
}

#[tokio::test(start_paused = true)]
async fn a_name_is_taken_once_and_generated_names_differ() {
    let server = ApiServer::new();
    let api = configmaps(server.client("test"));
    create_configmap(&api, "a").await;
    assert_eq!(refusal(api.create(&PostParams::default(), &configmap("a", "2")).await), (409, "AlreadyExists".into()));
    let mut nameless = configmap("", "1");
    nameless.metadata = ObjectMeta { generate_name: Some("run-".into()), ..Default::default() };
    let first = api.create(&PostParams::default(), &nameless).await.unwrap();
    let second = api.create(&PostParams::default(), &nameless).await.unwrap();
    assert_ne!(first.metadata.name, second.metadata.name);
    assert!(first.metadata.name.unwrap().starts_with("run-"));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_exist_is_not_found() {
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
    let old = create_configmap(&api, "a").await;
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
    create_configmap(&core, "a").await;
    core.replace("a", &PostParams::default(), &configmap("a", "2")).await.expect("core kinds may");
}

#[tokio::test(start_paused = true)]
async fn a_replacement_under_another_uid_is_a_conflict() {
    let server = ApiServer::new();
    let api = configmaps(server.client("test"));
    let mut other = create_configmap(&api, "a").await;
    other.metadata.uid = Some("00000000-0000-4000-8000-999999999999".into());
    assert_eq!(refusal(api.replace("a", &PostParams::default(), &other).await), (409, "Conflict".into()));
}

#[tokio::test(start_paused = true)]
async fn a_write_changes_either_the_status_or_the_rest_of_an_object() {
    let server = ApiServer::new();
    let api = workflows(server.client("test"));
    let mut sent = workflow("w");
    sent.data["status"] = json!({"phase": "Succeeded"});
    let created = api.create(&PostParams::default(), &sent).await.unwrap();
    assert_eq!(
        created.data["status"],
        json!({"phase": "Pending", "seq": 0}),
        "a creation sets no status, the default does"
    );

    let mut both = created.clone();
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

/// Writes a status with this metadata and no other field, and accepts metadata alone as the answer.
async fn put_status(server: &ApiServer, metadata: Value, status: Value) -> kube::Result<Value> {
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
    let answer = put_status(&server, metadata.clone(), status.clone()).await.unwrap();

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

    assert_eq!(refusal(put_status(&server, metadata, status.clone()).await), (409, "Conflict".into()));
    let version = after.metadata.resource_version;
    let other = json!({"name": "w", "uid": "00000000-0000-4000-8000-999999999999", "resourceVersion": version});
    assert_eq!(refusal(put_status(&server, other, status.clone()).await), (409, "Conflict".into()));
    let unfenced = json!({"name": "w", "uid": uid});
    assert_eq!(refusal(put_status(&server, unfenced, status.clone()).await), (422, "Invalid".into()));
    let nameless = json!({"uid": uid, "resourceVersion": version});
    assert_eq!(refusal(put_status(&server, nameless, status).await), (400, "BadRequest".into()));
}

#[tokio::test(start_paused = true)]
async fn only_a_change_of_the_spec_is_a_new_generation() {
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
    let object = create_configmap(&api, "a").await;
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
async fn a_deletion_with_another_uid_is_refused() {
    let server = ApiServer::new();
    let api = configmaps(server.client("test"));
    let object = create_configmap(&api, "a").await;
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

fn configmap_of(name: &str, owner: &ConfigMap) -> ConfigMap {
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
async fn all_dependents_of_a_deleted_owner_are_collected() {
    let server = ApiServer::new();
    let api = configmaps(server.client("test"));
    let parent = create_configmap(&api, "parent").await;
    let child = api.create(&PostParams::default(), &configmap_of("child", &parent)).await.unwrap();
    api.create(&PostParams::default(), &configmap_of("grandchild", &child)).await.unwrap();
    create_configmap(&api, "bystander").await;
    api.delete("parent", &DeleteParams::default()).await.unwrap();
    let names: Vec<_> = api
        .list(&Default::default())
        .await
        .unwrap()
        .items
        .into_iter()
        .filter_map(|object| object.metadata.name)
        .collect();
    assert_eq!(names, ["bystander"]);
    api.create(&PostParams::default(), &configmap_of("late", &parent)).await.unwrap();
    assert!(stored(&server, "configmaps", "late").is_none(), "its owner was gone when it came");
}

#[tokio::test(start_paused = true)]
async fn the_garbage_collector_may_come_late_and_orphans_stay() {
    let server = ApiServer::new();
    server.garbage(Garbage::WhenTold);
    let api = configmaps(server.client("test"));
    let parent = create_configmap(&api, "parent").await;
    api.create(&PostParams::default(), &configmap_of("child", &parent)).await.unwrap();
    api.delete("parent", &DeleteParams::default()).await.unwrap();
    assert!(stored(&server, "configmaps", "child").is_some());
    assert_eq!(server.collect_garbage(), 1);
    assert!(stored(&server, "configmaps", "child").is_none());

    let parent = create_configmap(&api, "parent").await;
    api.create(&PostParams::default(), &configmap_of("child", &parent)).await.unwrap();
    let orphan = DeleteParams { propagation_policy: Some(kube::api::PropagationPolicy::Orphan), ..Default::default() };
    api.delete("parent", &orphan).await.unwrap();
    assert_eq!(server.collect_garbage(), 0);
}

#[tokio::test(start_paused = true)]
async fn cluster_scoped_kinds_subresources_and_the_version_are_served() {
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
    let created = create_configmap(&configmaps(server.client("test")), "a").await;
    assert_eq!(created.metadata.creation_timestamp.unwrap().0.to_string(), "2026-01-02T00:00:00Z");
    assert_eq!(clock.closure()(), clock.now());
}

#[tokio::test(start_paused = true)]
async fn a_decision_of_a_person_is_not_logged_and_a_request_of_their_client_is() {
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
