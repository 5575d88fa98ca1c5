//! The method of every simulation here, shown on the smallest operator there is: it dies after each write and each effect in turn,
//! under each kind of disturbance, and the world must end up the same. What Signoff's own controllers do is not tested in this file.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::controller::{Action, Controller};
use kube::{ResourceExt, runtime::watcher};
use serde_json::{Value, json};
use signoff_tests::sim::{
    ApiServer, Crash, EVERYONE, EffectCrash, EffectKey, Incarnation, Refusal, Resource, Seat, World,
};

const OPERATOR: &str = "operator";

fn notes() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Note"))
}

/// An operator that does an idempotent effect for each Note, and keeps its answer in the status.
async fn operate(client: kube::Client, seat: Seat) {
    let api: Api<DynamicObject> = Api::namespaced_with(client, "default", &notes());
    let context = Arc::new((api.clone(), seat));
    let controller = Controller::new_with(api, watcher::Config::default(), notes());
    controller
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_secs(1)), context)
        .for_each(|_| futures::future::ready(()))
        .await;
}

async fn reconcile(note: Arc<DynamicObject>, context: Arc<(Api<DynamicObject>, Seat)>) -> Result<Action, kube::Error> {
    let (api, seat) = &*context;
    let mut note = (*note).clone();
    match note.data["status"]["phase"].as_str() {
        None => note.data["status"] = json!({"phase": "Started"}),
        Some("Started") => {
            let answer = seat.call(&EffectKey::new(note.name_any(), 1), &note.data["spec"]).await;
            note.data["status"] = json!({"phase": "Done", "answer": answer.expect("the world says no to nobody")});
        }
        Some(_) => return Ok(Action::await_change()),
    }
    api.replace_status(&note.name_any(), &PostParams::default(), &note).await?;
    Ok(Action::await_change())
}

/// What is left of a run: the state of every Note, and what was done how often.
#[derive(Debug, PartialEq)]
struct Ending {
    notes: Vec<Value>,
    done: Vec<(String, usize)>,
}

const THREE: &[&str] = &["a", "b", "c"];

/// Runs the operator, again after every death, until every Note is done.
async fn run(names: &[&str], disturb: impl Fn(&ApiServer, &World)) -> (ApiServer, World, Ending) {
    let server = ApiServer::new();
    let world = World::new(server.clock());
    for name in names {
        let note = json!({"apiVersion": "example.com/v1", "kind": "Note", "metadata": {"name": name, "namespace": "default"}, "spec": {"text": name}});
        server.insert(note).unwrap();
    }
    disturb(&server, &world);
    let kind = Resource::new("example.com", "notes");
    let all_done = |server: &ApiServer| server.values(&kind, None).iter().all(|note| note["status"]["phase"] == "Done");
    let operator = |life: Incarnation| operate(server.client_of(&life), world.seat(&life));
    let a_day = Duration::from_secs(24 * 3600);
    server.keep_alive(&[OPERATOR], a_day, operator, all_done).await.unwrap();
    let notes = server.values(&kind, None).into_iter().map(|mut note| note["status"].take()).collect();
    let done = names.iter().map(|name| ((*name).to_owned(), world.times(name))).collect();
    (server, world, Ending { notes, done })
}

type Disturbance = fn(&ApiServer);

const DISTURBANCES: [(&str, Disturbance); 7] = [
    ("nothing", |_| {}),
    ("dropped watches", |server| server.close_watches_after(EVERYONE, 1)),
    ("events twice", |server| server.duplicate_events(EVERYONE)),
    ("stale caches", |server| server.delay_events(EVERYONE, Duration::from_millis(700))),
    ("conflict on every second write", |server| server.conflict_every(2, OPERATOR)),
    ("slow answers", |server| server.slow_responses(OPERATOR, Duration::from_millis(300))),
    ("a lost answer", |server| server.lose_response(2, OPERATOR)),
];

#[tokio::test(start_paused = true)]
async fn it_ends_the_same_wherever_it_dies() {
    let (server, world, calm) = run(THREE, |_, _| {}).await;
    assert_eq!((server.writes().len(), world.effects().len()), (6, 3));
    for (disturbance, disturb) in DISTURBANCES {
        for crash in [Crash::Applied, Crash::NotApplied, Crash::AppliedAfter(Duration::from_secs(2))] {
            for n in 1..=6 {
                let (server, world, ending) = run(THREE, |server, _| {
                    disturb(server);
                    server.crash_at_write(n, OPERATOR, crash);
                })
                .await;
                assert_eq!(ending.notes, calm.notes, "{disturbance}, {crash:?} at write {n}:\n{}", server.story());
                assert!(world.repeated().values().all(|inputs| inputs.len() == 1));
            }
        }
        for crash in [EffectCrash::Done, EffectCrash::NotDone] {
            for n in 1..=3 {
                let (server, world, ending) = run(THREE, |server, world| {
                    disturb(server);
                    world.crash_at_effect(n, OPERATOR, crash);
                })
                .await;
                assert_eq!(ending.notes, calm.notes, "{disturbance}, {crash:?} at effect {n}:\n{}", server.story());
                assert!(world.repeated().values().all(|inputs| inputs.len() == 1));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_run_makes_the_same_requests_in_the_same_order_at_the_same_instants() {
    let disturb = |server: &ApiServer, _: &World| {
        server.close_watches_after(EVERYONE, 1);
        server.refuse_next(3, OPERATOR, Refusal::unavailable(1));
        server.crash_after_write(1, OPERATOR);
    };
    let (first, _, _) = run(&["a"], disturb).await;
    let (second, _, _) = run(&["a"], disturb).await;
    assert_eq!(first.story(), second.story());
    let instants = |server: &ApiServer| -> Vec<_> { server.log().iter().map(|entry| entry.at).collect() };
    assert_eq!(instants(&first), instants(&second), "the jitter of backoffs included");
}
