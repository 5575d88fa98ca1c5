//! Votes that one account carries for others.

use serde_json::{Value, json};

use crate::attacks::Actor::{Approver, Delegate, SecondApprover};
use crate::attacks::{CHANGES, Row, approve, group, own, user};

const NOT_ONES_OWN: &str = "you may record a decision only under your own user name";
const ALICE: &str = "alice@example.com";
const BOB: &str = "bob@example.com";

fn speaks_for(person: &str) -> Value {
    json!({"verdict": "Approve", "onBehalfOf": person})
}

/// Returns one entry under any key.
fn entry(key: &str, decision: Value) -> Value {
    json!({"spec": {"decisions": {key: decision}}})
}

fn carried(person: &str) -> Value {
    entry(&format!("{person} via {{me}}"), speaks_for(person))
}

pub(super) fn rows() -> Vec<Row> {
    let machine = json!({"kind": "ServiceAccount", "namespace": "flux-system", "name": "kustomize-controller"});
    let listed = json!({"approvers": [user(ALICE), user(BOB), machine]});
    let three = json!({"approvers": [user(ALICE), user(BOB), user("carol@example.com")], "threshold": 3});
    let finance =
        json!({"approvers": [user(ALICE), group("finance")], "requiredFrom": [{"group": "finance", "min": 1}]});
    let mut with_groups = speaks_for(ALICE);
    with_groups["groups"] = json!(["system:serviceaccounts"]);
    let forged_keys = [
        ("speaks for somebody under its own key", "{me}".to_owned(), speaks_for(ALICE)),
        ("speaks for somebody under that person's key", ALICE.to_owned(), speaks_for(ALICE)),
        ("speaks for one person under another's key", format!("{BOB} via {{me}}"), speaks_for(ALICE)),
        ("speaks for somebody without saying so", format!("{ALICE} via {{me}}"), approve()),
        ("speaks through somebody else", format!("{ALICE} via {BOB}"), speaks_for(ALICE)),
        ("speaks through a chain", format!("{ALICE} via x via {{me}}"), speaks_for("alice@example.com via x")),
    ];
    let mut rows: Vec<_> = forged_keys
        .into_iter()
        .map(|(what, key, decision)| {
            Row::new(what, [Delegate], CHANGES, entry(&key, decision))
                .asked(listed.clone())
                .refused(NOT_ONES_OWN)
                .honest("a carried vote under its right key", carried(ALICE))
        })
        .collect();
    let third = json!({"spec": {"decisions": {
        "alice@example.com via {me}": speaks_for(ALICE),
        "bob@example.com via {me}": speaks_for(BOB),
        "carol@example.com via {me}": speaks_for("carol@example.com"),
    }}});
    rows.extend([
        Row::new("carries three votes at once", [Delegate], CHANGES, third)
            .asked(three.clone())
            .refused("at most two decisions on behalf of others in one request")
            .honest("one vote", carried(ALICE)),
        Row::new("speaks for somebody it may not speak for", [Delegate], CHANGES, carried("carol@example.com"))
            .asked(three.clone())
            .refused("lacks the RBAC verb delegate on people.signoff.dev")
            .honest("a vote of somebody it may", carried(BOB)),
        Row::new("speaks for a colleague without the verb delegate", [Approver], CHANGES, carried(BOB))
            .refused("lacks the RBAC verb delegate on people.signoff.dev")
            .honest("their own vote", own(approve())),
        Row::new("speaks for somebody whom only a group lists", [Delegate], CHANGES, carried(BOB))
            .asked(json!({"approvers": [user(ALICE), group("finance")]}))
            .refused("bob@example.com is not an approver of this gate by user name")
            .honest("the vote of somebody listed by name", carried(ALICE)),
        Row::new("speaks for somebody who has decided", [Delegate], CHANGES, carried(ALICE))
            .after(Approver, own(approve()))
            .refused("onBehalfOf must name another person who has not decided yet")
            .honest("the vote of somebody who has not", carried(BOB)),
        Row::new("decides after a delegate spoke for them", [Approver], CHANGES, own(approve()))
            .after(Delegate, carried(ALICE))
            .refused("a decision on your behalf is already recorded")
            .honest("the other approver's vote", own(approve()))
            .by(SecondApprover),
        Row::new("speaks for the requester, whom the gate excludes,", [Delegate], CHANGES, carried(ALICE))
            .asked(json!({"excludeRequester": true, "requestedBy": ALICE}))
            .refused("the requester must not decide this gate (excludeRequester)")
            .honest("the vote of somebody else", carried(BOB)),
        Row::new("speaks for somebody who is excluded by name", [Delegate], CHANGES, carried(ALICE))
            .asked(json!({"excluded": [ALICE]}))
            .refused("excluded from deciding this gate")
            .honest("the vote of somebody else", carried(BOB)),
        Row::new("carries a vote though the account itself is excluded", [Delegate], CHANGES, carried(ALICE))
            .asked(json!({"excluded": ["system:serviceaccount:flux-system:kustomize-controller"]}))
            .refused("excluded from deciding this gate")
            .honest("the person's own vote", own(approve()))
            .by(Approver),
        Row::new(
            "claims groups for whom it speaks",
            [Delegate],
            CHANGES,
            entry("alice@example.com via {me}", with_groups),
        )
        .asked(finance)
        .refused("must be absent with onBehalfOf")
        .honest("a carried vote without groups", carried(ALICE)),
        Row::new(
            "changes a vote that it carried",
            [Delegate],
            CHANGES,
            entry("alice@example.com via {me}", json!({"verdict": "Reject", "onBehalfOf": ALICE})),
        )
        .after(Delegate, carried(ALICE))
        .refused("a decision is final")
        .honest("another person's vote", carried(BOB)),
        Row::new(
            "hands its carried vote to another person",
            [Delegate],
            CHANGES,
            entry("alice@example.com via {me}", speaks_for(BOB)),
        )
        .after(Delegate, carried(ALICE))
        .refused("a decision is final")
        .honest("the other person's own vote", carried(BOB)),
        Row::new("votes for themselves as if for another", [Approver], CHANGES, carried(ALICE))
            .refused("lacks the RBAC verb delegate on people.signoff.dev")
            .honest("their own vote", own(approve())),
    ]);
    rows
}
