//! ConfigMaps that another user made first at a name which a value of a run would have. None stops the run or takes a
//! value away.

use serde_json::{Value, json};
use signoff_tests::sim::Resource;

use crate::{
    people::verdict,
    scenarios::{RUN, chain, gate, post},
    stage::{Life, NAMESPACE, OPERATOR, Stage},
    telling::TINY,
};

fn maps() -> Resource {
    Resource::new("", "configmaps")
}

/// A run that pays a deposit, asks alice, and pays the rest; its journal moves into ConfigMaps at once.
fn pays_twice(stage: &Stage) {
    let steps = [post("deposit", "7 EUR", "fail"), gate("review", json!({})), post("pay", "42 EUR", "fail")];
    stage.apply(RUN, &chain(json!(steps)));
}

async fn waits(stage: &Stage) -> Life {
    let life = stage.begin(OPERATOR);
    stage.people().asked("review").await;
    stage.pass(10).await;
    life
}

/// The only ConfigMap of such a run that nobody disturbs: every twin of it will want the same one.
async fn expected() -> Value {
    let twin = Stage { room: TINY, ..Stage::new() };
    pays_twice(&twin);
    let life = waits(&twin).await;
    let [map] = &twin.server.values(&maps(), Some(NAMESPACE))[..] else { panic!("not one ConfigMap") };
    life.crash().await;
    map.clone()
}

/// What another user can make: admission keeps the label `signoff.dev/workflow` from them, and nothing else.
fn planted(map: &Value, change: impl FnOnce(&mut Value)) -> Value {
    let mut map = map.clone();
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        map["metadata"].as_object_mut().unwrap().shift_remove(field);
    }
    map["metadata"]["labels"].as_object_mut().unwrap().shift_remove("signoff.dev/workflow");
    change(&mut map);
    map
}

fn named(map: &Value, suffix: &str) -> String {
    format!("{}{suffix}", map["metadata"]["name"].as_str().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_configmap_made_first_at_the_name_of_a_value_neither_stops_its_run_nor_takes_the_value_away() {
    let map = expected().await;
    let garbage = planted(&map, |map| map["data"]["value"] = json!("garbage"));
    let empty = planted(&map, |map| map["data"] = json!({}));
    let same_bytes = planted(&map, |_| {});
    let without_an_owner = planted(&map, |map| {
        map["metadata"].as_object_mut().unwrap().shift_remove("ownerReferences");
    });
    for theirs in [garbage, empty, same_bytes, without_an_owner] {
        for taken_away in [false, true] {
            let stage = Stage { room: TINY, ..Stage::new() };
            pays_twice(&stage);
            let theirs = stage.server.insert(theirs.clone()).unwrap();
            let life = waits(&stage).await;
            let ours = stage.server.value(&maps(), NAMESPACE, &named(&map, "-1"));
            let ours = ours.unwrap_or_else(|| panic!("no ConfigMap has the next name:\n{}", stage.server.story()));
            assert_eq!(ours["metadata"]["labels"], map["metadata"]["labels"]);
            assert_eq!(ours["data"], map["data"]);
            assert_eq!(
                stage.server.value(&maps(), NAMESPACE, &named(&map, "")).unwrap(),
                theirs,
                "it is not the run's"
            );
            // The next operator has nothing cached.
            life.crash().await;
            if taken_away {
                assert!(stage.server.remove(&maps(), NAMESPACE, &named(&map, "")));
            }
            let life = stage.begin(OPERATOR);
            stage.people().decides("alice", "review", 60, verdict("Approve")).await;
            assert_eq!(stage.ended(RUN).await["status"]["phase"], "Succeeded", "{}", stage.server.story());
            assert_eq!(stage.world.effects().len(), 2, "{}", stage.server.story());
            life.crash().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_value_has_no_free_name_says_so_and_goes_on_when_one_is_free() {
    let map = expected().await;
    let stage = Stage { room: TINY, ..Stage::new() };
    pays_twice(&stage);
    let suffixes = || (0..17).map(|n| if n == 0 { String::new() } else { format!("-{n}") });
    for suffix in suffixes() {
        let theirs = planted(&map, |theirs| theirs["metadata"]["name"] = json!(named(&map, &suffix)));
        stage.server.insert(theirs).unwrap();
    }
    let life = stage.begin(OPERATOR);
    stage.pass(3600).await;
    assert_eq!(stage.condition("ValueUnavailable"), ("True".to_owned(), "NamesTaken".to_owned()));
    let [told] = &stage.events("NamesTaken")[..] else { panic!("{:?}", stage.events("NamesTaken")) };
    let names = format!("({} to {})", named(&map, ""), named(&map, "-16"));
    assert!(told["note"].as_str().is_some_and(|note| note.contains(&names) && note.contains("delete them")), "{told}");

    assert!(stage.server.remove(&maps(), NAMESPACE, &named(&map, "-16")));
    stage.pass(700).await;
    stage.people().decides("alice", "review", 60, verdict("Approve")).await;
    assert_eq!(stage.ended(RUN).await["status"]["phase"], "Succeeded", "{}", stage.server.story());
    assert_eq!(stage.condition("ValueUnavailable"), ("False".to_owned(), "ValueAvailable".to_owned()));
    assert_eq!(stage.world.effects().len(), 2, "{}", stage.server.story());
    life.crash().await;
}
