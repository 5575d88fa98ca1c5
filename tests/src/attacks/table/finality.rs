//! A decision is final, also for those who can decide.

use serde_json::{Value, json};

use crate::attacks::Actor::{
    Admin, Approver, ClusterAdmin, Delegate, Edit, GarbageCollector, Operator, Outsider, Requester, SecondApprover,
    StatusHolder, Unlisted,
};
use crate::attacks::{CHANGES, REMOVALS, Row, Way, approve, own};

const FINAL: &str = "a decision is final";

fn vote_of_alice(decision: Value) -> Value {
    json!({"spec": {"decisions": {"alice@example.com": decision}}})
}

fn modify(attempt: i32) -> Value {
    json!({"verdict": "Modify", "attempt": attempt, "parameters": {"response": format!("text {attempt}")}})
}

pub(super) fn rows() -> Vec<Row> {
    let others = [
        SecondApprover,
        Unlisted,
        Delegate,
        Requester,
        Edit,
        Admin,
        Outsider,
        StatusHolder,
        ClusterAdmin,
        Operator,
        GarbageCollector,
    ];
    let with_parameters = || own(json!({"verdict": "Modify", "parameters": {"response": "x", "extra": {"a": 1}}}));
    let invalid = |attempt: i32| json!({"invalid": {"alice@example.com": {"attempt": attempt, "why": "not that"}}});
    let outcome =
        json!({"phase": "Approved", "outcome": {"phase": "Approved", "verdict": "Approve", "source": "Human"}});
    let label = || json!({"metadata": {"labels": {"team": "finance"}}});
    let reject = || json!({"verdict": "Reject"});

    let voted = |row: Row| row.after(Approver, own(approve()));
    let others_vote = |row: Row| row.honest("the second approver's own vote", own(approve())).by(SecondApprover);
    let mut rows = vec![
        others_vote(voted(
            Row::new("changes an approver's vote", others, CHANGES, vote_of_alice(reject())).refused(FINAL),
        )),
        others_vote(voted(
            Row::new("removes an approver's vote", others, REMOVALS, vote_of_alice(Value::Null)).refused(FINAL),
        )),
        others_vote(voted(
            Row::new("removes all votes", others, REMOVALS, json!({"spec": {"decisions": null}})).refused(FINAL),
        )),
        others_vote(voted(Row::new("changes their own vote", [Approver], CHANGES, own(reject())).refused(FINAL))),
        others_vote(voted(
            Row::new("takes their own vote back", [Approver], REMOVALS, own(Value::Null)).refused(FINAL),
        )),
        others_vote(voted(
            Row::new(
                "adds a reason afterwards",
                [Approver],
                CHANGES,
                own(json!({"verdict": "Approve", "reason": "late"})),
            )
            .refused(FINAL),
        )),
        others_vote(voted(
            Row::new(
                "calls their own vote the second attempt",
                [Approver],
                CHANGES,
                own(json!({"verdict": "Reject", "attempt": 2})),
            )
            .refused(FINAL),
        )),
        others_vote(voted(
            Row::new(
                "votes in the name of the other's field manager",
                [SecondApprover],
                [Way::ApplyAsAnother],
                own(approve()),
            )
            .refused(FINAL),
        ))
        .way(Way::Apply),
        others_vote(Row::new("begins with the second attempt", [Approver], CHANGES, own(modify(2))).refused(FINAL)),
    ];
    for (what, parameters) in [
        ("takes a key of their parameters back", json!({"extra": null})),
        ("takes an inner key of their parameters back", json!({"extra": {"a": null}})),
    ] {
        let change = own(json!({"parameters": parameters}));
        rows.push(others_vote(
            Row::new(what, [Approver], REMOVALS, change).after(Approver, with_parameters()).refused(FINAL),
        ));
    }
    for (what, parameters) in [
        ("adds a key to their parameters", json!({"response": "x", "extra": {"a": 1}, "more": 1})),
        ("adds an inner key to their parameters", json!({"response": "x", "extra": {"a": 1, "b": 2}})),
    ] {
        let change = own(json!({"verdict": "Modify", "parameters": parameters}));
        rows.push(others_vote(
            Row::new(what, [Approver], CHANGES, change).after(Approver, with_parameters()).refused(FINAL),
        ));
    }
    let found_invalid = |what, who, change| {
        Row::new(what, [who], CHANGES, change)
            .after(Approver, own(modify(1)))
            .with_status(invalid(1))
            .honest("the next attempt by its author", own(modify(2)))
            .by(Approver)
    };
    rows.extend([
        found_invalid("replaces an invalid vote under the same number", Approver, own(json!({"verdict": "Approve", "attempt": 1, "parameters": null}))).ways(&REMOVALS).refused(FINAL),
        found_invalid("replaces an invalid vote and skips a number", Approver, own(modify(3))).refused(FINAL),
        found_invalid("replaces another's invalid vote", SecondApprover, vote_of_alice(modify(2)))
            .refused("you may record a decision only under your own user name"),
        found_invalid("removes another's invalid vote", SecondApprover, vote_of_alice(Value::Null)).ways(&REMOVALS).refused(FINAL),
        Row::new("replaces the attempt after the one that was invalid", [Approver], CHANGES, own(modify(3)))
            .after(Approver, own(modify(1)))
            .with_status(invalid(2))
            .refused(FINAL)
            .honest("the second approver's own vote", own(approve()))
            .by(SecondApprover),
        Row::new("votes after the outcome", [SecondApprover], CHANGES, own(reject()))
            .after(Approver, own(approve()))
            .with_status(outcome.clone())
            .refused("too late: this gate was already decided")
            .honest("a label", label()),
        Row::new("votes for another after the outcome", [Delegate], CHANGES, json!({
            "spec": {"decisions": {"bob@example.com via {me}": {"verdict": "Reject", "onBehalfOf": "bob@example.com"}}},
        }))
            .with_status(outcome)
            .refused("too late: this gate was already decided")
            .honest("an approver's label", label())
            .by(Approver),
        Row::new("votes while the Approval is being deleted", [Approver, SecondApprover], CHANGES, own(approve()))
            .deleted()
            .refused("too late: this Approval is being deleted with its Workflow")
            .honest("the garbage collector letting it go", json!({"metadata": {"finalizers": null}}))
            .by(GarbageCollector)
            .way(Way::Merge),
    ]);
    rows
}
