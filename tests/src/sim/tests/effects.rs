//! The world of effects: effects, answers, and the end of an incarnation. Whether an effect may be repeated is left to
//! the tests of the operator.

use std::time::Duration;

use serde_json::json;

use super::super::{Answer, ApiServer, EffectCrash, EffectKey, World};
use super::{configmaps, create_configmap, unanswered};

#[tokio::test(start_paused = true)]
async fn an_answer_depends_on_the_key_alone_and_comes_after_its_delay() {
    let server = ApiServer::new();
    let world = World::new(server.clock());
    let seat = world.seat(&server.incarnation("operator"));
    world.answers("draft", Answer::value("second thoughts").after(Duration::from_secs(3)));
    world.answers_attempt("draft", 1, Answer::failure("RateLimited", "come back later"));
    let draft = |attempt| EffectKey::new("draft", attempt);
    assert_eq!(seat.call(&draft(1), &json!({})).await.unwrap_err().class, "RateLimited");
    assert_eq!(seat.call(&draft(2), &json!({})).await.unwrap(), json!("second thoughts"));
    assert_eq!(server.clock().elapsed(), Duration::from_secs(3));
    assert_eq!(seat.call(&EffectKey::new("send", 1), &json!({})).await.unwrap(), json!("answer of send"));
    assert_eq!((world.times("draft"), world.times("send")), (2, 1));
    assert!(world.repeated().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_an_effect_ends_the_whole_incarnation() {
    let server = ApiServer::new();
    let world = World::new(server.clock());
    let send = EffectKey::new("send", 1);
    world.crash_after_effect(1, "operator");
    let first = server.incarnation("operator");
    let api = configmaps(server.client_of(&first));
    unanswered(world.seat(&first).call(&send, &json!({"to": "ACME"}))).await;
    first.died().await;
    unanswered(create_configmap(&api, "a")).await;
    assert_eq!(world.times("send"), 1);

    world.crash_at_effect(1, "operator", EffectCrash::NotDone);
    let second = server.incarnation("operator");
    unanswered(world.seat(&second).call(&send, &json!({"to": "ACME"}))).await;
    assert_eq!(world.times("send"), 1);

    let third = server.incarnation("operator");
    world.seat(&third).call(&send, &json!({"to": "ACME"})).await.unwrap();
    let repeated = world.repeated();
    assert_eq!(repeated[&send].len(), 1, "twice, with identical input");
    let incarnations: Vec<_> =
        world.effects().iter().map(|effect| (effect.incarnation.clone(), effect.answered.is_some())).collect();
    assert_eq!(incarnations, [("operator#1".to_owned(), false), ("operator#3".to_owned(), true)]);
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_a_write_stops_effects_in_flight() {
    let server = ApiServer::new();
    let world = World::new(server.clock());
    world.answers("draft", Answer::value("x").after(Duration::from_secs(1)));
    server.crash_after_write(1, "operator");
    let life = server.incarnation("operator");
    let seat = world.seat(&life);
    let drafting = tokio::spawn(async move { seat.call(&EffectKey::new("draft", 1), &json!({})).await });
    world.until(|world| world.times("draft") == 1).await;
    unanswered(create_configmap(&configmaps(server.client_of(&life)), "a")).await;
    server.clock().pass(Duration::from_secs(60)).await;
    assert!(!drafting.is_finished());
    assert_eq!(world.effects()[0].answered, None);
}
