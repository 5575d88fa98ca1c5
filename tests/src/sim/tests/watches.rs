//! Watches through kube's watcher and reflector, which must converge whatever the streams do. Failing requests have a
//! file of their own.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, PostParams, WatchEvent, WatchParams};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};

use super::super::{ApiServer, EVERYONE, Ending, Refusal, Resource, Verb};
use super::{configmap, configmaps, create_configmap, stored, workflow, workflows};

/// Returns the store of a reflector that runs until the test ends.
fn start_reflector(server: &ApiServer, actor: &str, config: watcher::Config) -> Store<ConfigMap> {
    let (store, writer) = reflector::store();
    let events = watcher(configmaps(server.client(actor)), config).default_backoff();
    tokio::spawn(reflector::reflector(writer, events).for_each(|_| futures::future::ready(())));
    store
}

fn cached_values(store: &Store<ConfigMap>) -> Vec<(String, String)> {
    let mut values: Vec<_> = store
        .state()
        .iter()
        .map(|object| (object.name_any(), object.data.as_ref().map_or(String::new(), |data| data["value"].clone())))
        .collect();
    values.sort();
    values
}

fn stored_values(server: &ApiServer) -> Vec<(String, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let objects = server.values(&Resource::new("", "configmaps"), Some("default"));
    objects.iter().map(|object| (text(&object["metadata"]["name"]), text(&object["data"]["value"]))).collect()
}

/// Creates, replaces and deletes twenty times, with a moment after each change in which the watchers catch up.
async fn make_changes(server: &ApiServer) {
    let api = configmaps(server.client("writer"));
    for round in 0..20_u32 {
        let name = format!("object-{}", round % 7);
        match stored(server, "configmaps", &name) {
            None => drop(create_configmap(&api, &name).await),
            Some(_) if round % 3 == 0 => drop(api.delete(&name, &Default::default()).await.unwrap()),
            Some(_) => {
                drop(api.replace(&name, &PostParams::default(), &configmap(&name, &round.to_string())).await.unwrap())
            }
        }
        server.clock().settle().await;
    }
}

/// Waits longer than any backoff of the watcher, so that every cache has caught up.
async fn catch_up(server: &ApiServer) {
    server.clock().pass(Duration::from_secs(300)).await;
}

async fn assert_convergence(config: watcher::Config, disturb: impl Fn(&ApiServer)) {
    let server = ApiServer::new();
    let store = start_reflector(&server, "reader", config);
    disturb(&server);
    make_changes(&server).await;
    catch_up(&server).await;
    assert_eq!(cached_values(&store), stored_values(&server), "{}", server.story());
    assert!(!stored_values(&server).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_reflector_converges_undisturbed() {
    assert_convergence(watcher::Config::default(), |_| {}).await;
}

#[tokio::test(start_paused = true)]
async fn a_reflector_converges_by_streaming_lists() {
    assert_convergence(watcher::Config::default().streaming_lists(), |_| {}).await;
}

#[tokio::test(start_paused = true)]
async fn a_reflector_converges_when_every_event_comes_twice() {
    assert_convergence(watcher::Config::default(), |server| server.duplicate_events("reader")).await;
}

#[tokio::test(start_paused = true)]
async fn a_reflector_converges_when_watches_end_after_two_events() {
    assert_convergence(watcher::Config::default(), |server| server.close_watches_after("reader", 2)).await;
}

#[tokio::test(start_paused = true)]
async fn a_reflector_converges_when_events_are_late() {
    assert_convergence(watcher::Config::default(), |server| server.delay_events(EVERYONE, Duration::from_secs(7)))
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_reflector_converges_after_every_way_a_watch_can_end() {
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        for ending in [Ending::Closed, Ending::Reset, Ending::Gone] {
            let server = ApiServer::new();
            let store = start_reflector(&server, "reader", config.clone());
            make_changes(&server).await;
            server.end_watches("reader", ending);
            make_changes(&server).await;
            server.expire_resource_versions();
            make_changes(&server).await;
            catch_up(&server).await;
            assert_eq!(cached_values(&store), stored_values(&server), "{ending:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_makes_the_watcher_list_again() {
    let server = ApiServer::new();
    let store = start_reflector(&server, "reader", watcher::Config::default());
    server.clock().settle().await;
    // A deletion that the watch never sends: only the new list has it.
    create_configmap(&configmaps(server.client("writer")), "a").await;
    server.clock().settle().await;
    server.lose_events("reader", 1);
    configmaps(server.client("writer")).delete("a", &Default::default()).await.unwrap();
    server.clock().settle().await;
    assert_eq!(cached_values(&store).len(), 1, "the deletion was lost");
    let lists = server.count(|entry| entry.verb == Verb::List);
    server.expire_resource_versions();
    catch_up(&server).await;
    assert_eq!(server.count(|entry| entry.verb == Verb::List), lists + 1);
    assert!(cached_values(&store).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_watcher_goes_on_after_refused_requests() {
    let server = ApiServer::new();
    server.refuse_next(2, "reader", Refusal::unavailable(1));
    server.refuse_next(3, "reader", Refusal::too_many_requests(1));
    let store = start_reflector(&server, "reader", watcher::Config::default());
    make_changes(&server).await;
    catch_up(&server).await;
    assert_eq!(cached_values(&store), stored_values(&server));
    assert_eq!(server.count(|entry| entry.outcome == super::super::Outcome::Answered(503)), 2);
}

#[tokio::test(start_paused = true)]
async fn delayed_events_come_at_their_time_and_held_ones_when_released() {
    let server = ApiServer::new();
    let store = start_reflector(&server, "reader", watcher::Config::default());
    server.clock().settle().await;
    server.delay_events("reader", Duration::from_secs(10));
    create_configmap(&configmaps(server.client("writer")), "a").await;
    server.clock().pass(Duration::from_millis(9_999)).await;
    assert!(cached_values(&store).is_empty());
    server.clock().pass(Duration::from_millis(2)).await;
    assert_eq!(cached_values(&store).len(), 1);

    server.heal();
    server.hold_events("reader");
    create_configmap(&configmaps(server.client("writer")), "b").await;
    server.clock().pass(Duration::from_secs(3600)).await;
    assert_eq!(cached_values(&store).len(), 1);
    server.release_events("reader");
    server.clock().settle().await;
    assert_eq!(cached_values(&store).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn in_an_idle_hour_only_watches_are_opened_again() {
    let server = ApiServer::new();
    let _store = start_reflector(&server, "reader", watcher::Config::default());
    server.clock().settle().await;
    let before = server.log().len();
    server.clock().pass(Duration::from_secs(3600)).await;
    let idle = server.log().split_off(before);
    assert!(idle.iter().all(|entry| entry.verb == Verb::Watch), "{}", server.story());
    assert_eq!(idle.len(), 12, "every 290 seconds");
    assert_eq!(server.open_watches(), 1);
}

async fn events_of(api: &Api<DynamicObject>, params: &WatchParams, from: &str) -> Vec<String> {
    let stream = api.watch(params, from).await.unwrap();
    let line = |event: WatchEvent<DynamicObject>| match event {
        WatchEvent::Added(object) => format!("added {}", object.name_any()),
        WatchEvent::Modified(object) => format!("modified {}", object.name_any()),
        WatchEvent::Deleted(object) => format!("deleted {}", object.name_any()),
        WatchEvent::Bookmark(bookmark) => format!("bookmark {}", bookmark.metadata.resource_version),
        WatchEvent::Error(status) => format!("error {} {}", status.code, status.reason),
    };
    stream.map_ok(line).try_collect().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_object_is_deleted_as_it_leaves_a_selection_and_added_as_it_enters() {
    let server = ApiServer::new();
    let api = workflows(server.client("test"));
    let created = api.create(&PostParams::default(), &workflow("w")).await.unwrap();
    for phase in ["Running", "Running", "Pending"] {
        server.edit(&Resource::new("signoff.dev", "workflows"), "default", "w", |object| {
            object["status"]["phase"] = phase.into()
        });
    }
    api.delete("w", &Default::default()).await.unwrap();
    let from = created.metadata.resource_version.unwrap();
    let all = WatchParams::default().timeout(10).disable_bookmarks();
    assert_eq!(events_of(&api, &all, &from).await, ["modified w", "modified w", "modified w", "deleted w"]);
    let pending = all.clone().fields("status.phase=Pending");
    assert_eq!(events_of(&api, &pending, &from).await, ["deleted w", "added w", "deleted w"]);
    let other = all.labels("none=there");
    assert_eq!(events_of(&api, &other, &from).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_at_its_timeout_and_fails_for_an_expired_version() {
    let server = ApiServer::new();
    let api = workflows(server.client("test"));
    api.create(&PostParams::default(), &workflow("w")).await.unwrap();
    let params = WatchParams::default().timeout(10);
    let start = server.clock().elapsed();
    assert_eq!(events_of(&api, &params, "0").await, ["added w", "bookmark 1"]);
    assert_eq!(server.clock().elapsed() - start, Duration::from_secs(10));
    server.expire_resource_versions();
    assert_eq!(events_of(&api, &params, "1").await, ["error 410 Expired"]);
    let streaming = WatchParams::default().timeout(10).initial_events();
    assert_eq!(events_of(&api, &streaming, "0").await, ["added w", "bookmark 2", "bookmark 2"]);
}
