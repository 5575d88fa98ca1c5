//! Changes of a run with an API server of the test: tried, confirmed, sent once, and refused if they are altered.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex},
};

use http::{Method, header::CACHE_CONTROL};
use kube::client::Body;
use signoff_review::sample;

use super::*;
use crate::{
    history::tests::server,
    session::fake::{World, location, text},
};

fn run(spec: &Value, phase: &str) -> DynamicObject {
    let object = json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow",
        "metadata": {"name": "refund", "namespace": "finance", "uid": "u"}, "spec": spec, "status": {"phase": phase}});
    serde_json::from_value(object).unwrap()
}

/// Returns a run of erin with one step.
fn refund(phase: &str) -> DynamicObject {
    let pay = json!({"name": "pay", "http": {"method": "POST", "url": "https://bank.example/pay"}});
    run(&json!({"requestedBy": "erin", "steps": [pay]}), phase)
}

/// A webhook that changes the runs which are created or patched.
type Alters = fn(&mut Value);

/// The runs of an API server, by name, and the number of writes that were not only tried.
struct RunServer {
    runs: BTreeMap<String, Value>,
    writes: usize,
}

impl RunServer {
    fn answer(&mut self, request: &http::request::Parts, sent: Value, alters: Alters) -> (u16, Value) {
        let name = request.uri.path().rsplit('/').next().unwrap_or_default().to_owned();
        let (name, mut run) = if request.method == Method::POST {
            let name = sent["metadata"]["name"].as_str().unwrap().to_owned();
            if self.runs.contains_key(&name) {
                return failure(409, "AlreadyExists");
            }
            (name, sent)
        } else {
            let Some(mut run) = self.runs.get(&name).cloned() else { return failure(404, "NotFound") };
            if request.method == Method::GET {
                return (200, run);
            }
            for (field, value) in sent["spec"].as_object().unwrap() {
                run["spec"][field.as_str()] = value.clone();
            }
            (name, run)
        };
        alters(&mut run);
        if !request.uri.query().unwrap_or_default().contains("dryRun=All") {
            self.writes += 1;
            self.runs.insert(name, run.clone());
        }
        (200, run)
    }
}

fn failure(code: u16, reason: &str) -> (u16, Value) {
    (
        code,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": reason}),
    )
}

/// Returns an API server with one run.
fn api_server(run: &DynamicObject, alters: Alters) -> (Client, Arc<Mutex<RunServer>>) {
    let runs = BTreeMap::from([("refund".to_owned(), serde_json::to_value(run).unwrap())]);
    let stored = Arc::new(Mutex::new(RunServer { runs, writes: 0 }));
    let shared = Arc::clone(&stored);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let shared = Arc::clone(&shared);
        async move {
            let (head, body) = request.into_parts();
            let sent = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap_or_default();
            let (code, answer) = shared.lock().unwrap().answer(&head, sent, alters);
            let body = Body::from(answer.to_string().into_bytes());
            Ok::<_, Infallible>(http::Response::builder().status(code).body(body).unwrap())
        }
    });
    (signoff_cluster::connect_service(service, "default"), stored)
}

/// Sends the form of a change as dana. `confirmed`: the digest of the confirmation, or an empty text before it.
async fn post_change(client: &Client, verb: &str, name: &str, confirmed: &str) -> Result<Response, PageError> {
    post_change_to(&World::new(&[]), client, verb, name, confirmed).await
}

/// Sends a form as [`post_change`], to a page with other settings.
async fn post_change_to(
    page: &World,
    client: &Client,
    verb: &str,
    name: &str,
    confirmed: &str,
) -> Result<Response, PageError> {
    let [verb, uid, name, confirmed] = [verb, "u", name, confirmed].map(str::to_owned);
    let caller = Caller { client: client.clone(), ..crate::approval::tests::caller("dana") };
    let at = ("finance".to_owned(), "refund".to_owned());
    change(State(page.state.clone()), caller, Path(at), Form(ChangeForm { verb, uid, name, confirmed })).await
}

/// Returns the value of a hidden field.
fn field(page: &str, name: &str) -> String {
    let begin = format!("name=\"{name}\" value=\"");
    page.split_once(&begin).unwrap().1.split('"').next().unwrap().to_owned()
}

fn words(offers: &Offers) -> Vec<&'static str> {
    offers.verbs.iter().map(|verb| verb.word()).collect()
}

#[test]
fn verb_is_offered_with_an_effect_and_a_right_of_the_reader() {
    let of = |rights: RunRights, spec: Value, phase: &str| {
        let mut spec = spec;
        spec["requestedBy"] = json!("dana");
        let workflow: Workflow = serde_json::from_value(serde_json::to_value(run(&spec, phase)).unwrap()).unwrap();
        words(&rights.offers(&workflow))
    };
    let all = RunRights { patch: true, create: true };
    assert_eq!(of(all, json!({}), "Waiting"), ["Suspend", "Cancel"]);
    assert_eq!(of(all, json!({"suspend": true}), "Suspended"), ["Resume", "Cancel"]);
    assert_eq!(of(all, json!({"cancel": true}), "Waiting"), [""; 0]);
    assert_eq!(of(all, json!({}), "Failed"), ["Rerun"]);
    assert_eq!(of(RunRights { patch: true, create: false }, json!({}), "Failed"), [""; 0]);
    assert_eq!(of(RunRights::default(), json!({}), "Waiting"), [""; 0]);
}

#[tokio::test]
async fn impersonating_page_changes_runs_only_if_that_is_set() {
    let address = Address::of("finance", "refund").unwrap();
    let waits: Workflow = serde_json::from_value(serde_json::to_value(refund("Waiting")).unwrap()).unwrap();
    let rights = |page: World| {
        let may = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": {},
            "spec": {}, "status": {"allowed": true}});
        let (client, asked) = server(move |_| (201, may.clone()));
        let (address, waits) = (&address, &waits);
        async move {
            let offers = RunRights::ask(&page.state, &client, address).await.offers(waits);
            let asked = asked.lock().unwrap().len();
            (words(&offers), asked)
        }
    };
    let off = || World::new(&["--auth", "impersonation"]);
    assert_eq!(rights(off()).await, (vec![], 0), "nothing is offered, and nothing asked");
    let (client, stored) = api_server(&refund("Waiting"), |_| {});
    let refused = post_change_to(&off(), &client, "Suspend", "", "").await.unwrap_err();
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    assert_eq!(stored.lock().unwrap().writes, 0);

    let on = || World::new(&["--auth", "impersonation", "--impersonation-runs"]);
    assert_eq!(rights(on()).await, (vec!["Suspend", "Cancel"], 2));
    let first = text(post_change_to(&on(), &client, "Suspend", "", "").await.unwrap()).await;
    assert_eq!(stored.lock().unwrap().writes, 0, "it was only tried");
    let sent = post_change_to(&on(), &client, "Suspend", "", &field(&first, "confirmed")).await.unwrap();
    assert_eq!(location(&sent), "/n/finance/w/refund");
    assert_eq!(stored.lock().unwrap().writes, 1);
}

#[test]
fn a_patch_names_the_run_and_a_change_without_effect_is_refused() {
    let me = sample::me("dana", &[]);
    let cancel = PageVerb::Change(RunChange::Cancel);
    let sent = propose(cancel, &run(&json!({}), "Waiting"), &me, "").unwrap();
    let Sent::Patch(patch, changed) = &sent else { unreachable!("a cancellation is a patch") };
    assert_eq!(*patch, json!({"metadata": {"uid": "u"}, "spec": {"cancel": true}}));
    assert_eq!(changed.data["spec"], json!({"cancel": true}));
    assert!(propose(cancel, &run(&json!({}), "Failed"), &me, "").is_err());
    assert!(propose(cancel, &run(&json!({"cancel": true}), "Waiting"), &me, "").is_err());
    let resume = PageVerb::Change(RunChange::Resume);
    let why = propose(resume, &run(&json!({"restored": true}), "Pending"), &me, "").unwrap_err().to_string();
    let copy = "is a copy from a backup, which never starts or continues anything";
    assert_eq!(why, format!("nothing was sent: run refund {copy}"), "no command of a terminal");
    let other = sent.digest(&sample::me("eve", &[]), "u").unwrap();
    assert_ne!(sent.digest(&me, "u").unwrap(), other, "a confirmation is of one user");
}

#[test]
fn the_name_of_a_new_run_is_confirmed_with_it() {
    let (me, old) = (sample::me("dana", &[]), refund("Failed"));
    let of = |name: &str| propose(PageVerb::Rerun, &old, &me, name);
    let digest = |name: &str| of(name).unwrap().digest(&me, "u").unwrap();
    assert_eq!(digest("refund-01234567"), digest("refund-01234567"));
    assert_ne!(digest("refund-01234567"), digest("refund-01234568"));
    assert_ne!(digest(""), digest(""), "each confirmation has a name of its own");
    assert!(of("other-01234567").is_err() && of("refund").is_err(), "a name that no confirmation has");
}

#[tokio::test]
async fn one_confirmation_creates_one_run() {
    let (client, stored) = api_server(&refund("Failed"), |_| {});
    let first = post_change(&client, "Rerun", "", "").await.unwrap();
    assert_eq!(first.headers()[CACHE_CONTROL], page::KEPT, "Back shows it again");
    let first = text(first).await;
    assert_eq!(stored.lock().unwrap().writes, 0, "it was only tried");
    let (name, confirmed) = (field(&first, "name"), field(&first, "confirmed"));
    let created = post_change(&client, "Rerun", &name, &confirmed).await.unwrap();
    assert_eq!(location(&created), format!("/n/finance/w/{name}"));
    // The new run was suspended since then.
    stored.lock().unwrap().runs.get_mut(&name).unwrap()["spec"]["suspend"] = json!(true);
    let again = post_change(&client, "Rerun", &name, &confirmed).await.unwrap();
    assert_eq!(again.headers()[CACHE_CONTROL], page::KEPT);
    let again = text(again).await;
    assert!(again.contains("It was created already"), "{again}");
    assert!(again.contains(&format!("<a href=\"/n/finance/w/{name}\">{name}</a>")), "{again}");
    assert_eq!(stored.lock().unwrap().writes, 1, "one run");
    stored.lock().unwrap().runs.get_mut(&name).unwrap()["spec"]["steps"] = json!([]);
    let other = post_change(&client, "Rerun", &name, &confirmed).await.unwrap_err();
    assert!(other.to_string().contains("another run has the name"), "{other}");
    assert_eq!(stored.lock().unwrap().writes, 1);
}

#[tokio::test]
async fn change_altered_by_a_webhook_is_refused_before_confirmation() {
    let steal = |run: &mut Value| {
        run["spec"]["steps"].as_array_mut().unwrap().push(json!({"name": "steal", "set": {"value": "x"}}));
    };
    let (client, stored) = api_server(&refund("Failed"), steal);
    let why = post_change(&client, "Rerun", "", "").await.unwrap_err();
    assert!(why.to_string().contains("would change spec.steps"), "{why}");
    assert_eq!(why.status(), StatusCode::FORBIDDEN);
    assert_eq!(stored.lock().unwrap().writes, 0);
    let (client, stored) = api_server(&refund("Waiting"), |run| run["spec"]["ttlAfterFinished"] = json!("1s"));
    let why = post_change(&client, "Suspend", "", "").await.unwrap_err();
    assert!(why.to_string().contains("would change spec.ttlAfterFinished"), "{why}");
    assert_eq!(stored.lock().unwrap().writes, 0);
}

#[tokio::test]
async fn a_run_that_has_ended_meanwhile_is_not_changed() {
    let (client, stored) = api_server(&refund("Succeeded"), |_| {});
    for verb in ["Suspend", "Resume", "Cancel"] {
        let why = post_change(&client, verb, "", "").await.unwrap_err();
        assert_eq!(why.to_string(), "nothing was sent: run refund has ended meanwhile (Succeeded)");
        assert_eq!(why.status(), StatusCode::CONFLICT);
    }
    assert_eq!(stored.lock().unwrap().writes, 0);
    let (client, _) = api_server(&refund("Waiting"), |_| {});
    let first = post_change(&client, "Cancel", "", "").await.unwrap();
    assert_eq!(first.headers()[CACHE_CONTROL], page::KEPT);
    let why = post_change(&client, "Rerun", "", "").await.unwrap_err();
    assert!(why.to_string().contains("the run has not ended"), "{why}");
}

#[test]
fn repetition_of_a_succeeded_run_has_a_warning() {
    let again = || Some("every step runs again".to_owned());
    assert_eq!(warning(WorkflowPhase::Failed, None), None);
    assert_eq!(warning(WorkflowPhase::Failed, again()), again());
    assert_eq!(warning(WorkflowPhase::Succeeded, None).unwrap(), "this run has succeeded already");
    let both = warning(WorkflowPhase::Succeeded, again()).unwrap();
    assert_eq!(both, "this run has succeeded already; every step runs again");
}
