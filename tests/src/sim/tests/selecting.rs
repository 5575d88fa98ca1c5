//! Lists: selectors, pages, and metadata alone. The selectors of watches are tested with the watches.

use kube::api::{Api, ListParams, PostParams};
use kube::core::{Expression, Selector};

use super::super::ApiServer;
use super::{configmap, configmaps, create_configmap, refusal, workflow, workflows};

fn names<K: kube::ResourceExt + Clone>(list: kube::core::ObjectList<K>) -> Vec<String> {
    list.items.iter().map(K::name_any).collect()
}

async fn create_three_labelled(server: &ApiServer) -> Api<k8s_openapi::api::core::v1::ConfigMap> {
    let api = configmaps(server.client("test"));
    for (name, team) in [("a", "red"), ("b", "blue"), ("c", "red")] {
        let mut object = configmap(name, "1");
        object.metadata.labels = Some([("team".to_owned(), team.to_owned())].into());
        api.create(&PostParams::default(), &object).await.unwrap();
    }
    create_configmap(&api, "d").await;
    api
}

#[tokio::test(start_paused = true)]
async fn labels_select_by_value_set_and_presence() {
    let server = ApiServer::new();
    let api = create_three_labelled(&server).await;
    for (selector, expected) in [
        ("team=red", vec!["a", "c"]),
        ("team==blue", vec!["b"]),
        ("team!=red", vec!["b", "d"]),
        ("team", vec!["a", "b", "c"]),
        ("!team", vec!["d"]),
        ("team in (red,blue),team!=blue", vec!["a", "c"]),
        ("team notin (red)", vec!["b", "d"]),
    ] {
        assert_eq!(names(api.list(&ListParams::default().labels(selector)).await.unwrap()), expected, "{selector}");
    }
    let typed: Selector = Expression::In("team".into(), ["blue".to_owned()].into()).into();
    assert_eq!(names(api.list(&ListParams::default().labels_from(&typed)).await.unwrap()), ["b"]);
    assert_eq!(refusal(api.list(&ListParams::default().labels("team in red")).await), (400, "BadRequest".into()));
}

#[tokio::test(start_paused = true)]
async fn fields_select_by_name_and_by_phase() {
    let server = ApiServer::new();
    let api = workflows(server.client("test"));
    for name in ["a", "b"] {
        api.create(&PostParams::default(), &workflow(name)).await.unwrap();
    }
    assert_eq!(names(api.list(&ListParams::default().fields("metadata.name=b")).await.unwrap()), ["b"]);
    assert_eq!(names(api.list(&ListParams::default().fields("status.phase=Pending")).await.unwrap()), ["a", "b"]);
    assert_eq!(names(api.list(&ListParams::default().fields("status.phase!=Pending")).await.unwrap()), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn pages_show_the_list_as_it_was_at_the_first_page() {
    let server = ApiServer::new();
    let api = create_three_labelled(&server).await;
    let first = api.list(&ListParams::default().limit(3)).await.unwrap();
    assert_eq!(first.metadata.remaining_item_count, Some(1));
    let (token, version) = (first.metadata.continue_.clone().unwrap(), first.metadata.resource_version.clone());
    assert_eq!(names(first), ["a", "b", "c"]);
    api.delete("d", &Default::default()).await.unwrap();
    let second = api.list(&ListParams::default().limit(3).continue_token(&token)).await.unwrap();
    assert_eq!(
        (second.metadata.continue_.as_deref().unwrap_or_default(), second.metadata.resource_version.clone()),
        ("", version)
    );
    assert_eq!(names(second), ["d"]);

    let token = api.list(&ListParams::default().limit(1)).await.unwrap().metadata.continue_.unwrap();
    server.expire_resource_versions();
    assert_eq!(refusal(api.list(&ListParams::default().continue_token(&token)).await), (410, "Expired".into()));
}

#[tokio::test(start_paused = true)]
async fn metadata_can_be_requested_alone() {
    let server = ApiServer::new();
    let api = create_three_labelled(&server).await;
    let list = api.list_metadata(&ListParams::default()).await.unwrap();
    assert_eq!(list.items.len(), 4);
    assert_eq!(api.get_metadata("a").await.unwrap().metadata.labels.unwrap()["team"], "red");
}

#[tokio::test(start_paused = true)]
async fn a_list_is_of_one_namespace_or_of_all() {
    let server = ApiServer::new();
    create_configmap(&configmaps(server.client("test")), "a").await;
    let elsewhere = Api::namespaced(server.client("test"), "elsewhere");
    create_configmap(&elsewhere, "a").await;
    assert_eq!(elsewhere.list(&ListParams::default()).await.unwrap().items.len(), 1);
    let all: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::all(server.client("test"));
    assert_eq!(all.list(&ListParams::default()).await.unwrap().items.len(), 2);
}
