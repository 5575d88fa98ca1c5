//! Crashes and broken answers: what the store holds, and what the actor sees. A crash ends one incarnation, and every
//! test also shows that the next one works.

use std::time::Duration;

use futures::FutureExt;
use kube::api::PostParams;

use super::super::{ApiServer, Crash, Fault, On, Outcome, Refusal, Verb};
use super::{configmap, configmaps, create_configmap, refusal, stored, unanswered};

#[tokio::test(start_paused = true)]
async fn an_actor_that_crashes_at_a_write_gets_no_answer_after_it() {
    let server = ApiServer::new();
    server.crash_after_write(2, "operator");
    let life = server.incarnation("operator");
    let api = configmaps(server.client_of(&life));
    create_configmap(&api, "a").await;
    assert!(life.died().now_or_never().is_none());
    tokio::select! {
        biased;
        _ = create_configmap(&api, "b") => panic!("a crashed operator got an answer"),
        () = life.died() => {}
    }
    assert!(stored(&server, "configmaps", "b").is_some());
    unanswered(api.get("a")).await;
    assert_eq!(server.writes().last().unwrap().outcome, Outcome::Lost { applied: true });

    let next = server.incarnation("operator");
    assert_eq!(next.to_string(), "operator#2");
    create_configmap(&configmaps(server.client_of(&next)), "c").await;
    assert!(next.is_alive(), "a crash happens once");
}

#[tokio::test(start_paused = true)]
async fn a_write_in_flight_at_a_crash_is_lost_or_applied_later() {
    let server = ApiServer::new();
    for (crash, name) in [(Crash::NotApplied, "never"), (Crash::AppliedAfter(Duration::from_secs(5)), "late")] {
        server.crash_at_write(1, "operator", crash);
        let life = server.incarnation("operator");
        let api = configmaps(server.client_of(&life));
        let (name, write) = (name.to_owned(), api.clone());
        let task = tokio::spawn(async move { create_configmap(&write, &name).await });
        life.died().await;
        task.abort();
    }
    assert!(stored(&server, "configmaps", "late").is_none());
    server.clock().pass(Duration::from_secs(6)).await;
    assert!(stored(&server, "configmaps", "late").is_some());
    assert!(stored(&server, "configmaps", "never").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_lost_response_is_an_error_for_a_write_that_happened() {
    let server = ApiServer::new();
    server.lose_response(1, "operator");
    let life = server.incarnation("operator");
    let api = configmaps(server.client_of(&life));
    let answer = api.create(&PostParams::default(), &configmap("a", "1")).await;
    assert!(matches!(answer, Err(kube::Error::Service(_))), "{answer:?}");
    assert!(life.is_alive());
    assert_eq!(refusal(api.create(&PostParams::default(), &configmap("a", "1")).await), (409, "AlreadyExists".into()));
}

#[tokio::test(start_paused = true)]
async fn a_crash_of_one_actor_does_not_end_another_actor() {
    let server = ApiServer::new();
    server.crash_after_write(1, "operator-a");
    let (a, b) = (server.incarnation("operator-a"), server.incarnation("operator-b"));
    create_configmap(&configmaps(server.client_of(&b)), "b").await;
    unanswered(create_configmap(&configmaps(server.client_of(&a)), "a")).await;
    a.died().await;
    create_configmap(&configmaps(server.client_of(&b)), "c").await;
    let actors: Vec<String> =
        server.writes().iter().map(|entry| format!("{}:{}", entry.actor, entry.name.as_deref().unwrap())).collect();
    assert_eq!(actors, ["operator-b:b", "operator-a:a", "operator-b:c"]);
}

#[tokio::test(start_paused = true)]
async fn every_second_replacement_conflicts() {
    let server = ApiServer::new();
    server.conflict_every(2, "operator");
    let api = configmaps(server.client("operator"));
    let mut object = create_configmap(&api, "a").await;
    for round in 1..=4 {
        object.data = configmap("a", &round.to_string()).data;
        match api.replace("a", &PostParams::default(), &object).await {
            Ok(newer) => {
                assert_eq!(round % 2, 1);
                object = newer;
            }
            refused => assert_eq!((round % 2, refusal(refused)), (0, (409, "Conflict".into()))),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_label_edit_conflicts_with_a_put_and_not_with_a_fenced_patch() {
    let server = ApiServer::new();
    server.edit_labels_before_every(1, "operator");
    let api = configmaps(server.client("operator"));
    let object = create_configmap(&api, "a").await;
    assert_eq!(refusal(api.replace("a", &PostParams::default(), &object).await), (409, "Conflict".into()));
    let fenced = serde_json::from_value(serde_json::json!([
        {"op": "test", "path": "/metadata/uid", "value": object.metadata.uid},
        {"op": "replace", "path": "/data/value", "value": "2"},
    ]));
    api.patch("a", &Default::default(), &kube::api::Patch::<()>::Json(fenced.unwrap())).await.unwrap();
    let object = stored(&server, "configmaps", "a").unwrap();
    assert_eq!(object["data"]["value"], "2");
    assert!(object["metadata"]["labels"]["example.com/touched"].is_string());
}

#[tokio::test(start_paused = true)]
async fn a_hook_runs_before_the_nth_write_and_may_use_the_server() {
    let server = ApiServer::new();
    let api = configmaps(server.client("operator"));
    let object = create_configmap(&api, "a").await;
    server.before_write(1, "operator", |server| {
        server.edit(&super::super::Resource::new("", "configmaps"), "default", "a", |object| {
            object["data"]["value"] = "theirs".into()
        });
    });
    assert_eq!(refusal(api.replace("a", &PostParams::default(), &object).await), (409, "Conflict".into()));
    assert_eq!(stored(&server, "configmaps", "a").unwrap()["data"]["value"], "theirs");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_has_its_code_and_the_seconds_until_a_retry() {
    let server = ApiServer::new();
    let api = configmaps(server.client("operator"));
    for (refused, code) in
        [(Refusal::too_many_requests(7), 429), (Refusal::internal(), 500), (Refusal::unavailable(3), 503)]
    {
        let seconds = refused.retry_after;
        server.refuse_next(1, "operator", refused);
        match api.get("a").await {
            Err(kube::Error::Api(status)) => {
                assert_eq!(status.code, code);
                assert_eq!(
                    status.details.as_ref().map_or(0, |details| details.retry_after_seconds),
                    seconds.unwrap_or(0)
                );
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(refusal(api.get("a").await).0, 404, "only once");
    }
    server.fault(On::requests_of("operator").only(|request| request.verb == Verb::Get).first(1), Fault::Reset);
    create_configmap(&api, "a").await;
    assert!(matches!(api.get("a").await, Err(kube::Error::Service(_))));
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_comes_after_its_effect() {
    let server = ApiServer::new();
    server.slow_responses("operator", Duration::from_secs(2));
    let api = configmaps(server.client("operator"));
    let writing = tokio::spawn(async move { create_configmap(&api, "a").await });
    server.until(&super::super::Resource::new("", "configmaps"), "default", "a", |_| true).await;
    assert_eq!(server.clock().elapsed(), Duration::ZERO);
    writing.await.unwrap();
    assert_eq!(server.clock().elapsed(), Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn the_log_has_the_actor_the_verb_and_the_outcome_of_each_request() {
    let server = ApiServer::new();
    let api = configmaps(server.client("operator"));
    create_configmap(&api, "a").await;
    api.get_opt("b").await.unwrap();
    assert_eq!(
        server.story(),
        "operator#1 Create POST /api/v1/namespaces/default/configmaps -> 201\n\
         operator#1 Get GET /api/v1/namespaces/default/configmaps/b -> 404\n"
    );
    let log = server.log();
    assert_eq!(log[0].json()["data"]["value"], "1");
    assert_eq!(log[0].body_digest().len(), 64);
    assert!(log[0].is_state_write() && !log[1].is_state_write());
    assert_eq!(server.count(|entry| entry.verb == Verb::Get), 1);
}
