//! Votes are their author's own, and only approvers can vote.

use serde_json::{Value, json};

use crate::attacks::Actor::{
    Admin, Approver, ClusterAdmin, Delegate, Edit, Operator, Outsider, Requester, SecondApprover, StatusHolder,
    Through, Unlisted, Viewer,
};
use crate::attacks::{CHANGES, Row, Way, approve, group, own, user};

const NOT_LISTED: &str = "is not an approver of this gate";
const NOT_ONES_OWN: &str = "you may record a decision only under your own user name ({me})";

fn vote_of_alice(decision: Value) -> Value {
    json!({"spec": {"decisions": {"alice@example.com": decision}}})
}

fn own_vote_with(more: Value) -> Value {
    let mut vote = approve();
    for (field, value) in more.as_object().into_iter().flatten() {
        vote[field] = value.clone();
    }
    own(vote)
}

pub(super) fn rows() -> Vec<Row> {
    let everybody_else = [
        SecondApprover,
        Unlisted,
        Delegate,
        Requester,
        Viewer,
        Edit,
        Admin,
        Outsider,
        StatusHolder,
        ClusterAdmin,
        Operator,
    ];
    let unlisted = [Unlisted, Delegate, Requester, Viewer, Edit, Admin, Outsider, StatusHolder, ClusterAdmin, Operator];
    let people = json!([
        user("viktor@example.com"),
        user("nina@example.com"),
        user("adam@example.com"),
        user("dana@example.com"),
        user("status@example.com"),
        user("alice@example.com"),
    ]);
    let by_alice = json!({"requestedBy": "alice@example.com", "excludeRequester": true});
    let through_a_machine = json!({"requestedBy": "system:serviceaccount:ci:bot", "requestedFor": "alice@example.com",
        "excludeRequester": true});
    let persons = json!([{"pattern": "(.+)-admin", "person": "$1"}, {"pattern": "(.+)@example\\.com", "person": "$1"}]);
    let strangers = json!([{"pattern": "bob@example\\.com", "person": "bob"}]);
    let policy = |exclude: bool| {
        json!({"approvers": [user("bob@example.com")], "requestedBy": "alice@example.com",
            "further": [{"source": "policy", "approvers": [user("alice@example.com")], "threshold": 1,
                "excludeRequester": exclude}]})
    };
    vec![
        Row::new("votes in an approver's name", everybody_else, CHANGES, vote_of_alice(approve()))
            .refused(NOT_ONES_OWN)
            .honest("the approver's own vote", own(approve()))
            .by(Approver),
        Row::new(
            "votes in their own name and in another's at once",
            [Approver, SecondApprover],
            CHANGES,
            json!({"spec": {"decisions": {"{me}": approve(), "carol@example.com": approve()}}}),
        )
        .with_request(json!({"approvers": [group("finance")]}))
        .refused(NOT_ONES_OWN)
        .honest("their own vote alone", own(approve())),
        Row::new("votes though the gate does not list them", unlisted, CHANGES, own(approve()))
            .refused(NOT_LISTED)
            .honest("a listed person's vote", own(approve()))
            .by(Approver),
        Row::new("votes though the gate lists another group", [Approver, SecondApprover], CHANGES, own(approve()))
            .with_request(json!({"approvers": [group("sre")]}))
            .refused(NOT_LISTED)
            .honest("a vote from that group", own(approve()))
            .by(Unlisted),
        Row::new(
            "votes though listed, without the verb approve",
            [Viewer, Edit, Admin, Requester, StatusHolder],
            CHANGES,
            own(approve()),
        )
        .with_request(json!({"approvers": people}))
        .refused("lacks the RBAC verb approve")
        .honest("a vote with the verb", own(approve()))
        .by(Approver),
        Row::new("votes though listed", [Viewer, Edit, Admin, Requester, Outsider], CHANGES, own(approve()))
            .with_request(json!({"approvers": people}))
            .shipped_roles()
            .refused("cannot {verb} resource \"approvals\"")
            .honest("a vote of an approver", own(approve()))
            .by(Approver)
            .way(Way::Merge),
        Row::new(
            "lists themselves and votes at once",
            [Unlisted, Edit, Admin, Outsider, ClusterAdmin],
            CHANGES,
            json!({
                "spec": {"request": {"quorums": [{"source": "gate review", "threshold": 1,
                    "approvers": [user("alice@example.com"), user("bob@example.com"), user("{me}")]}]},
                    "decisions": {"{me}": approve()}},
            }),
        )
        .refused("request is immutable")
        .honest("a listed person's vote", own(approve()))
        .by(Approver),
        Row::new("votes at their own request, which excludes the requester,", [Approver], CHANGES, own(approve()))
            .with_request(by_alice)
            .refused("the requester must not decide this gate (excludeRequester)")
            .honest("the other approver's vote", own(approve()))
            .by(SecondApprover),
        Row::new(
            "votes at a repetition of their own run, which excludes the requester,",
            [Approver],
            CHANGES,
            own(approve()),
        )
        .with_request(
            json!({"excludeRequester": true, "earlierRequesters": ["carol@example.com", "alice@example.com"]}),
        )
        .refused("the requester must not decide this gate (excludeRequester)")
        .honest("the other approver's vote", own(approve()))
        .by(SecondApprover),
        Row::new(
            "votes at what a machine asked for them, which excludes the requester,",
            [Approver],
            CHANGES,
            own(approve()),
        )
        .with_request(through_a_machine)
        .refused("the requester must not decide this gate (excludeRequester)")
        .honest("the other approver's vote", own(approve()))
        .by(SecondApprover),
        Row::new("votes though the request excludes them by name", [Approver], CHANGES, own(approve()))
            .with_request(json!({"excluded": ["alice@example.com"]}))
            .refused("excluded from deciding this gate")
            .honest("the other approver's vote", own(approve()))
            .by(SecondApprover),
        Row::new("votes though excluded under another name of theirs", [Approver], CHANGES, own(approve()))
            .with_request(json!({"persons": persons, "excluded": ["alice-admin"]}))
            .refused("excluded from deciding this gate")
            .honest("the other approver's vote", own(approve()))
            .by(SecondApprover),
        Row::new("votes though no rule of the policy says who they are", [Approver], CHANGES, own(approve()))
            .with_request(json!({"persons": strangers}))
            .refused("every one of these user names must match a rule of spec.request.persons")
            .honest("the vote of a known person", own(approve()))
            .by(SecondApprover),
        Row::new(
            "votes where only a policy lists them and it excludes the requester, whom they are,",
            [Approver],
            CHANGES,
            own(approve()),
        )
        .with_request(policy(true))
        .refused(NOT_LISTED)
        .honest("the vote of whom the gate lists", own(approve()))
        .by(SecondApprover),
        Row::new(
            "votes though the gate's first list was replaced by an escalation",
            [Approver],
            CHANGES,
            own(approve()),
        )
        .with_status(json!({"level": 1, "approvers": [user("bob@example.com")]}))
        .refused(NOT_LISTED)
        .honest("the vote of whom it was escalated to", own(approve()))
        .by(SecondApprover),
        Row::new(
            "claims a group of others",
            [SecondApprover],
            CHANGES,
            own_vote_with(json!({"groups": ["finance-leads"]})),
        )
        .refused("groups must list only groups that you are in")
        .honest("a vote with their own group", own_vote_with(json!({"groups": ["finance"]}))),
        Row::new(
            "claims to be the cluster's admin",
            [Approver],
            CHANGES,
            own_vote_with(json!({"groups": ["system:masters"]})),
        )
        .refused("groups must list only groups that you are in")
        .honest("a vote with their own groups", own_vote_with(json!({"groups": ["finance", "finance-leads"]}))),
        Row::new("types a channel", [Approver, SecondApprover], CHANGES, own_vote_with(json!({"channel": "web"})))
            .refused("channel must be the value of the impersonation extra")
            .honest("a vote through that channel", own_vote_with(json!({"channel": "web"})))
            .by(Through("web")),
        Row::new("types another channel", [Through("web")], CHANGES, own_vote_with(json!({"channel": "slack"})))
            .refused("channel must be the value of the impersonation extra")
            .honest("its own channel", own_vote_with(json!({"channel": "web"}))),
    ]
}
