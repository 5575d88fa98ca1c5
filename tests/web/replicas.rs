//! Replicas that are killed and restarted while people work: no session, form or decision is lost.

use serde_json::json;
use signoff_tests::browser::{Look, css, role};
use signoff_tests::control_plane::{Cluster, Front, WebOptions, WebProcess};

use crate::attacks::visitor::Visitor;
use crate::harness::Harness;
use crate::runs::path;

/// Starts two replicas behind one address with the same cookie key, and returns both and the proxy in front of them.
async fn start_two_replicas(arguments: Vec<String>) -> (Harness, WebProcess, Front) {
    let front = Front::start().await.unwrap();
    let key = Cluster::web().unwrap().cookie_key().unwrap();
    let url = front.url();
    let harness = Harness::start_with(|options| {
        options.url = Some(url.clone());
        options.cookie_key = Some(key.clone());
        options.arguments.clone_from(&arguments);
    });
    let harness = harness.await.unwrap();
    let options = WebOptions {
        url: Some(front.url()),
        cookie_key: Some(key),
        kubeconfig: harness.witness.kubeconfig(None).unwrap(),
        issuer: Some(harness.issuer.clone()),
        arguments,
        ..WebOptions::default()
    };
    let other = WebProcess::start(&harness.cluster, options).await.unwrap();
    (harness, other, front)
}

#[tokio::test]
async fn form_of_one_replica_is_accepted_by_another() {
    let runs = crate::runs::Runs::create(&Cluster::web().unwrap(), "replicas").await;
    let approval = runs.start_gate("one", json!({})).await;
    let (mut harness, mut other, front) = start_two_replicas(vec![format!("--namespace={}", runs.name())]).await;
    front.lead_to([&harness.web]);
    let page = harness.open_as("alice", &Look::default()).await.unwrap();
    page.wait_url(&harness.url("/")).await.unwrap();
    page.goto(&harness.url(&path(&approval))).await.unwrap();
    page.fill(css("#reason"), "in mid-form").await.unwrap();
    // The replica that showed the form is killed. The other one shows the confirmation.
    harness.web.kill();
    front.lead_to([&other]);
    page.click(role("button", "Approve")).await.unwrap();
    page.wait_title("Confirm").await.unwrap();
    // The second replica is killed, and the first one is started again.
    other.kill();
    harness.web.start_again().unwrap();
    harness.web.until_ready().await.unwrap();
    front.lead_to([&harness.web]);
    page.click(role("button", "Approve")).await.unwrap();
    page.wait_url(&path(&approval)).await.unwrap();
    let decision = runs.read_decision(&approval, "alice").await;
    assert_eq!((&decision["verdict"], &decision["reason"]), (&json!("Approve"), &json!("in mid-form")));
    runs.wait_for_result("one").await;
    page.close().await.unwrap();
}

#[tokio::test]
async fn restart_without_a_shared_key_ends_sessions_and_a_form_sends_nothing() {
    let (mut harness, [runs]) = Harness::with_runs(["keyless"]).await.unwrap();
    let approval = runs.start_gate("one", json!({})).await;
    let alice = Visitor::of(&harness, "alice").await;
    harness.web.kill();
    harness.web.start_again().unwrap();
    harness.web.until_ready().await.unwrap();
    let answer = alice.approve(&approval).await;
    assert_eq!(answer.status, 401, "{}", answer.text);
    assert!(answer.text.contains("Nothing was decided"), "{}", answer.text);
    assert!(runs.read_decision(&approval, "alice").await.is_null());
    let again = Visitor::with_token(&harness.web, &alice.token).await;
    assert_eq!(again.approve(&approval).await.status, 303);
    assert_eq!(runs.read_decision(&approval, "alice").await["verdict"], "Approve");
}

#[tokio::test]
async fn stopping_page_ends_streams_and_answers_requests_in_flight() {
    let (harness, [runs]) = Harness::with_runs(["ending"]).await.unwrap();
    let approval = runs.start_gate("one", json!({})).await;
    let alice = Visitor::of(&harness, "alice").await;
    let mut stream = alice.send_open("GET", "/events", &[], None).await;
    assert!(stream.chunk().await.unwrap().is_some());
    let decide = format!("{}/decide", path(&approval));
    let fields = [("digest", approval.spec.request.digest.as_str()), ("verdict", "Approve")];
    let shown = alice.post(&decide, &fields).await;
    let confirmed = [&fields[..], &[("confirmed", shown.confirmation().unwrap())]].concat();
    let (witness, web) = (&harness.witness, harness.web);
    witness.forget();
    witness.delay(std::time::Duration::from_millis(300));
    let begun = async {
        let answer = alice.post(&decide, &confirmed).await;
        assert_eq!(answer.status, 303, "{}", answer.text);
    };
    let stop = async {
        // As soon as the API server gets a request, the decision is in flight.
        while witness.seen().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        web.stop().await.unwrap();
    };
    tokio::join!(begun, stop);
    assert_eq!(runs.read_decision(&approval, "alice").await["verdict"], "Approve");
    while let Ok(Some(_)) = stream.chunk().await {}
}
