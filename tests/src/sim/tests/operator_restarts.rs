//! Keeping operators alive: restarts, two at once, and the limit of time.

use std::time::Duration;

use super::super::{ApiServer, Incarnation, Resource};
use super::{configmap, configmaps, stored};

const HOUR: Duration = Duration::from_secs(3600);

/// Runs an operator that creates three objects, unless an earlier one has created them, and then waits.
async fn create_three(server: ApiServer, life: Incarnation) {
    let api = configmaps(server.client_of(&life));
    for name in ["a", "b", "c"] {
        let _ = api.create(&Default::default(), &configmap(name, &life.to_string())).await;
    }
    std::future::pending().await
}

fn has_all_three(server: &ApiServer) -> bool {
    server.values(&Resource::new("", "configmaps"), None).len() == 3
}

#[tokio::test(start_paused = true)]
async fn every_death_is_followed_by_the_next_life() {
    let server = ApiServer::new();
    server.crash_after_write(1, "operator");
    server.crash_after_write(3, "operator");
    let lives =
        server.keep_alive(&["operator"], HOUR, |life| create_three(server.clone(), life), has_all_three).await.unwrap();
    assert_eq!(lives, 3);
    let creators: Vec<_> =
        ["a", "b", "c"].map(|name| stored(&server, "configmaps", name).unwrap()["data"]["value"].clone()).into();
    assert_eq!(creators, ["operator#1", "operator#2", "operator#3"]);
}

#[tokio::test(start_paused = true)]
async fn a_crash_of_one_of_two_operators_does_not_restart_the_other() {
    let server = ApiServer::new();
    server.crash_after_write(1, "operator-a");
    let both = ["operator-a", "operator-b"];
    server.keep_alive(&both, HOUR, |life| create_three(server.clone(), life), has_all_three).await.unwrap();
    let lives =
        |actor: &str| server.log().iter().filter(|entry| &*entry.actor == actor).map(|entry| entry.incarnation).max();
    assert_eq!((lives("operator-a"), lives("operator-b")), (Some(1), Some(1)), "b did the rest before a came back");
    assert_eq!(stored(&server, "configmaps", "a").unwrap()["data"]["value"], "operator-a#1");
}

#[tokio::test(start_paused = true)]
async fn work_that_is_not_done_in_time_fails_with_the_log() {
    let server = ApiServer::new();
    server.fault(super::super::On::writes_of("operator"), super::super::Fault::Reset);
    let stuck = server.keep_alive(&["operator"], HOUR, |life| create_three(server.clone(), life), has_all_three).await;
    assert!(stuck.unwrap_err().to_string().contains("operator#1 Create POST"));
    assert_eq!(server.clock().elapsed(), HOUR);
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "a bug of the operator")]
async fn an_operator_that_panics_ends_the_test() {
    let server = ApiServer::new();
    let _ = server.keep_alive(&["operator"], HOUR, |_| async { panic!("a bug of the operator") }, has_all_three).await;
}
