//! Votes that one account carries for others.

use serde_json::{Value, json};

use crate::attacks::Actor::{Approver, Delegate, SecondApprover};
use crate::attacks::{CHANGES, Row, approve, group, own, user};

const NOT_ONES_OWN: &str = "you may record a decision only under your own user name";
const ALICE: &str = "alice@example.com";
const BOB: &str = "bob@example.com";

fn vote_for(person: &str) -> Value {
    json!({"verdict": "Approve", "onBehalfOf": person})
}

/// Returns one entry under any key.
fn entry(key: &str, decision: Value) -> Value {
    json!({"spec": {"decisions": {key: decision}}})
}

fn vote_by_delegate(person: &str) -> Value {
    entry(&format!("{person} via {{me}}"), vote_for(person))
}

pub(super) fn rows() -> Vec<Row> {
    let machine = json!({"kind": "ServiceAccount", "namespace": "flux-system", "name": "kustomize-controller"});
    let listed = json!({"approvers": [user(ALICE), user(BOB), machine]});
    let three = json!({"approvers": [user(ALICE), user(BOB), user("carol@example.com")], "threshold": 3});
    let finance =
        json!({"approvers": [user(ALICE), group("finance")], "requiredFrom": [{"group": "finance", "min": 1}]});
    let mut with_groups = vote_for(ALICE);
    with_groups["groups"] = json!(["system:serviceaccounts"]);
    let forged_keys = [
        ("speaks for somebody under its own key", "{me}".to_owned(), vote_for(ALICE)),
        ("speaks for somebody under that person's key", ALICE.to_owned(), vote_for(ALICE)),
        ("speaks for one person under another's key", format!("{BOB} via {{me}}"), vote_for(ALICE)),
        ("speaks for somebody without saying so", format!("{ALICE} via {{me}}"), approve()),
        ("speaks through somebody else", format!("{ALICE} via {BOB}"), vote_for(ALICE)),
        ("speaks through a chain", format!("{ALICE} via x via {{me}}"), vote_for("alice@example.com via x")),
    ];
    let mut rows: Vec<_> = forged_keys
        .into_iter()
        .map(|(what, key, decision)| {
            Row::new(what, [Delegate], CHANGES, entry(&key, decision))
                .with_request(listed.clone())
                .refused(NOT_ONES_OWN)
                .honest("a carried vote under its right key", vote_by_delegate(ALICE))
        })
        .collect();
    let third = json!({"spec": {"decisions": {
        "alice@example.com via {me}": vote_for(ALICE),
        "bob@example.com via {me}": vote_for(BOB),
        "carol@example.com via {me}": vote_for("carol@example.com"),
    }}});
    rows.extend([
        Row::new("carries three votes at once", [Delegate], CHANGES, third)
            .with_request(three.clone())
            .refused("at most two decisions on behalf of others in one request")
            .honest("one vote", vote_by_delegate(ALICE)),
        Row::new(
            "speaks for somebody it may not speak for",
            [Delegate],
            CHANGES,
            vote_by_delegate("carol@example.com"),
        )
        .with_request(three.clone())
        .refused("lacks the RBAC verb delegate on people.signoff.dev")
        .honest("a vote of somebody it may", vote_by_delegate(BOB)),
        Row::new("speaks for a colleague without the verb delegate", [Approver], CHANGES, vote_by_delegate(BOB))
            .refused("lacks the RBAC verb delegate on people.signoff.dev")
            .honest("their own vote", own(approve())),
        Row::new("speaks for somebody whom only a group lists", [Delegate], CHANGES, vote_by_delegate(BOB))
            .with_request(json!({"approvers": [user(ALICE), group("finance")]}))
            .refused("bob@example.com is not an approver of this gate by user name")
            .honest("the vote of somebody listed by name", vote_by_delegate(ALICE)),
        Row::new("speaks for somebody who has decided", [Delegate], CHANGES, vote_by_delegate(ALICE))
            .after(Approver, own(approve()))
            .refused("onBehalfOf must name another person who has not decided yet")
            .honest("the vote of somebody who has not", vote_by_delegate(BOB)),
        Row::new("decides after a delegate spoke for them", [Approver], CHANGES, own(approve()))
            .after(Delegate, vote_by_delegate(ALICE))
            .refused("a decision on your behalf is already recorded")
            .honest("the other approver's vote", own(approve()))
            .by(SecondApprover),
        Row::new("speaks for the requester, whom the gate excludes,", [Delegate], CHANGES, vote_by_delegate(ALICE))
            .with_request(json!({"excludeRequester": true, "requestedBy": ALICE}))
            .refused("the requester must not decide this gate (excludeRequester)")
            .honest("the vote of somebody else", vote_by_delegate(BOB)),
        Row::new("speaks for somebody who is excluded by name", [Delegate], CHANGES, vote_by_delegate(ALICE))
            .with_request(json!({"excluded": [ALICE]}))
            .refused("excluded from deciding this gate")
            .honest("the vote of somebody else", vote_by_delegate(BOB)),
        Row::new("carries a vote though the account itself is excluded", [Delegate], CHANGES, vote_by_delegate(ALICE))
            .with_request(json!({"excluded": ["system:serviceaccount:flux-system:kustomize-controller"]}))
            .refused("excluded from deciding this gate")
            .honest("the person's own vote", own(approve()))
            .by(Approver),
        Row::new(
            "claims groups for whom it speaks",
            [Delegate],
            CHANGES,
            entry("alice@example.com via {me}", with_groups),
        )
        .with_request(finance)
        .refused("must be absent with onBehalfOf")
        .honest("a carried vote without groups", vote_by_delegate(ALICE)),
        Row::new(
            "changes a vote that it carried",
            [Delegate],
            CHANGES,
            entry("alice@example.com via {me}", json!({"verdict": "Reject", "onBehalfOf": ALICE})),
        )
        .after(Delegate, vote_by_delegate(ALICE))
        .refused("a decision is final")
        .honest("another person's vote", vote_by_delegate(BOB)),
        Row::new(
            "hands its carried vote to another person",
            [Delegate],
            CHANGES,
            entry("alice@example.com via {me}", vote_for(BOB)),
        )
        .after(Delegate, vote_by_delegate(ALICE))
        .refused("a decision is final")
        .honest("the other person's own vote", vote_by_delegate(BOB)),
        Row::new("votes for themselves as if for another", [Approver], CHANGES, vote_by_delegate(ALICE))
            .refused("lacks the RBAC verb delegate on people.signoff.dev")
            .honest("their own vote", own(approve())),
    ]);
    rows
}
