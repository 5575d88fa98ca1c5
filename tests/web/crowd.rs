//! Many people decide one request at the same time: none of their decisions is lost, or attributed to another.

use std::collections::BTreeSet;

use futures::future::join_all;
use serde_json::json;
use signoff_tests::browser::{Look, css, role};

use crate::attacks::visitor::{Visitor, bind_group, token};
use crate::harness::Harness;
use crate::runs::path;

/// The most people that a gate can ask.
const CROWD: usize = 64;

#[tokio::test]
async fn each_of_64_concurrent_decisions_is_recorded_once() {
    let (harness, [runs]) = Harness::with_runs(["crowd"]).await.unwrap();
    bind_group(&harness.cluster, &runs, "signoff-approver", runs.name()).await;
    let group = json!({"kind": "Group", "name": runs.name()});
    let approval = runs.start_gate("one", json!({"approvers": [group], "threshold": CROWD})).await;
    let emails: Vec<_> = (0..CROWD).map(|n| format!("person-{n:02}.{}@example.com", runs.name())).collect();
    let people = join_all(emails.iter().map(async |email| {
        let token = token(&harness, &format!("email={email}&groups={}", runs.name())).await;
        Visitor::with_token(&harness.web, &token).await
    }))
    .await;
    let page = path(&approval);
    // All read the request, and then all press the button at the same time.
    let shown = join_all(people.iter().map(|person| person.get(&page))).await;
    assert!(shown.iter().all(|answer| answer.status == 200 && answer.text.contains("value=\"Approve\"")));
    let pressed = join_all(people.iter().zip(&emails).map(async |(person, email)| {
        let reason = format!("by {email}");
        let fields = [("digest", approval.spec.request.digest.as_str()), ("verdict", "Approve"), ("reason", &reason)];
        let mut attempts = 0;
        loop {
            let answer = person.decide(&page, &fields).await;
            attempts += 1;
            match answer.status {
                303 => return attempts,
                // The API server gives up when too many write at once: the page reports that nothing was sent.
                409 | 429 | 503 if attempts < 20 => {}
                other => panic!("{email}, pressed {attempts} times: {other} {}", answer.text),
            }
        }
    }))
    .await;
    assert_eq!(pressed.len(), CROWD);
    let stored = runs.read_request(&approval).await.spec.decisions;
    assert_eq!(stored.keys().collect::<BTreeSet<_>>(), emails.iter().collect::<BTreeSet<_>>());
    for (name, decision) in &stored {
        assert_eq!(decision.reason.as_deref(), Some(format!("by {name}").as_str()));
    }
    runs.wait_for_result("one").await;
    let page = harness.open_with_token(&people[7].token, &Look::default()).await.unwrap();
    page.wait_url(&harness.url("/")).await.unwrap();
    page.goto(&harness.url(&path(&approval))).await.unwrap();
    assert_eq!(page.count(css("ul.votes li")).await.unwrap(), CROWD);
    assert_eq!(page.count(css("ul.votes li.mine")).await.unwrap(), 1);
    page.accessible().await.unwrap();
    page.screenshot("crowd").await.unwrap();
    page.close().await.unwrap();
}

#[tokio::test]
async fn second_tab_shows_the_decision_of_the_first() {
    let (harness, [runs]) = Harness::with_runs(["tabs"]).await.unwrap();
    let fields = json!({"approvers": [crate::runs::user("alice"), crate::runs::user("bob")], "threshold": 2});
    let approval = runs.start_gate("one", fields).await;
    let one = harness.open_as("alice", &Look::default()).await.unwrap();
    one.wait_url(&harness.url("/")).await.unwrap();
    let two = one.tab().await.unwrap();
    for tab in [&one, &two] {
        tab.goto(&harness.url(&path(&approval))).await.unwrap();
        tab.click(role("button", "Reject")).await.unwrap();
        tab.wait_title("Confirm").await.unwrap();
    }
    two.goto(&harness.url(&path(&approval))).await.unwrap();
    two.click(role("button", "Approve")).await.unwrap();
    two.wait_title("Confirm").await.unwrap();
    two.click(role("button", "Approve")).await.unwrap();
    two.wait_url(&path(&approval)).await.unwrap();
    one.click(role("button", "Reject")).await.unwrap();
    one.wait(css("[role=alert]")).await.unwrap();
    let alert = one.text(css("[role=alert]")).await.unwrap();
    assert!(alert.contains("Nothing was sent"), "{alert}");
    assert_eq!(runs.read_decision(&approval, "alice").await["verdict"], "Approve", "a decision is final");
    // A third tab that still shows the old form sends the same decision again, which changes nothing.
    let alice = Visitor::of(&harness, "alice").await;
    let before = runs.read_request(&approval).await.spec.decisions;
    let again = alice.approve(&approval).await;
    assert!([303, 409, 422].contains(&again.status), "{}: {}", again.status, again.text);
    assert_eq!(runs.read_request(&approval).await.spec.decisions, before);
    one.close().await.unwrap();
    two.close().await.unwrap();
}
