//! Writes of a status: only the operator can write it, and an outcome only once.

use serde_json::{Value, json};

use crate::attacks::Actor::{
    Admin, Approver, ClusterAdmin, Delegate, Edit, Operator, Outsider, Requester, SecondApprover, StatusHolder,
    Unlisted, Viewer,
};
use crate::attacks::{CHANGES, OTHERS, Object, REMOVALS, Row, Scene, Way, approve, own};

pub(super) const ONLY_THE_OPERATOR: &str = "only the operator, from its pod, can write status";

fn outcome() -> Value {
    json!({"status": {"phase": "Approved", "outcome": {"phase": "Approved", "verdict": "Approve", "source": "Human"}}})
}

pub(super) fn rows() -> Vec<Row> {
    let with_roles = [Approver, Delegate, Requester, Viewer, Edit, Admin, Outsider];
    let status = Object::Sub("status");
    let operators = |row: Row| row.honest("the operator's word", outcome()).by(Operator).way(Way::Merge);
    let run = |row: Row| {
        row.with_scene(Scene::Workflow(json!({})))
            .honest("the operator's word", json!({"status": {"phase": "Running"}}))
            .by(Operator)
            .way(Way::Merge)
    };
    let modified = json!({"phase": "Modified", "outcome": {"phase": "Modified", "verdict": "Modify", "source": "Human",
        "parameters": {"response": "x", "more": 1}}});
    let once = |what, how: &[Way], outcome: Value| {
        Row::new(what, [Operator], [Way::Merge], json!({"status": {"outcome": outcome}}))
            .ways(how)
            .with_status(modified.clone())
            .on(status)
            .refused("status.outcome is final")
            .honest("the rest of the status", json!({"status": {"observedGeneration": 1}}))
    };
    let invalid = json!({"status": {"invalid": {"alice@example.com": {"attempt": 1, "why": "forged"}}}});
    let lists_them = json!({"status": {"level": 1, "approvers": [{"kind": "User", "name": "{me}"}]}});
    vec![
        operators(Row::new("writes an outcome", OTHERS, CHANGES, outcome()).on(status).refused(ONLY_THE_OPERATOR)),
        operators(
            Row::new("writes an outcome", with_roles, CHANGES, outcome())
                .shipped_roles()
                .on(status)
                .refused("cannot {verb} resource \"approvals/status\""),
        ),
        operators(
            Row::new("writes an outcome", [StatusHolder], [Way::Merge, Way::Json, Way::Apply, Way::Replace], outcome())
                .shipped_roles()
                .on(status)
                .refused(ONLY_THE_OPERATOR),
        ),
        operators(
            Row::new(
                "calls an approver's vote invalid",
                [SecondApprover, StatusHolder, ClusterAdmin],
                CHANGES,
                invalid,
            )
            .after(Approver, own(approve()))
            .on(status)
            .refused(ONLY_THE_OPERATOR),
        ),
        operators(
            Row::new("lists themselves by an escalation", [Unlisted, StatusHolder, Edit], CHANGES, lists_them)
                .on(status)
                .refused(ONLY_THE_OPERATOR),
        ),
        operators(
            Row::new("opens the gate for longer", [Approver, StatusHolder], CHANGES, json!({"status": {"level": 1}}))
                .with_request(json!({"closesAt": "2020-01-01T00:00:00Z"}))
                .on(status)
                .refused(ONLY_THE_OPERATOR),
        ),
        operators(
            Row::new(
                "changes labels by way of the status",
                [Approver, StatusHolder, ClusterAdmin],
                CHANGES,
                json!({"metadata": {"labels": {"signoff.dev/forged": "x"}}}),
            )
            .on(status)
            .refused(ONLY_THE_OPERATOR),
        ),
        Row::new("writes an outcome beside the status", [Approver, SecondApprover], CHANGES, outcome())
            .honest("a vote", own(approve())),
        once("turns an outcome round", &CHANGES, json!({"verdict": "Reject", "phase": "Rejected", "source": "Human"})),
        once("takes an outcome back", &REMOVALS, Value::Null),
        once("drops a key of an outcome's parameters", &REMOVALS, json!({"parameters": {"more": null}})),
        once(
            "adds a key to an outcome's parameters",
            &CHANGES,
            json!({"verdict": "Modify", "phase": "Modified", "source": "Human", "parameters": {"response": "x", "more": 1, "third": 3}}),
        ),
        once(
            "says that nobody decided",
            &CHANGES,
            json!({"verdict": "Modify", "phase": "Modified", "source": "Timeout"}),
        ),
        run(Row::new("calls a run finished", OTHERS, CHANGES, json!({"status": {"phase": "Succeeded"}}))
            .on(status)
            .refused(ONLY_THE_OPERATOR)),
        run(Row::new("calls a run finished", with_roles, CHANGES, json!({"status": {"phase": "Succeeded"}}))
            .shipped_roles()
            .on(status)
            .refused("cannot {verb} resource \"workflows/status\"")),
        run(Row::new(
            "writes a step into the journal",
            [Requester, StatusHolder, Admin, ClusterAdmin],
            CHANGES,
            json!({"status": {"steps": [
                {"path": "review", "type": "hitl", "attempt": 1, "seq": 1, "done": 2, "phase": "Succeeded"},
            ]}}),
        )
        .on(status)
        .refused("status")),
        Row::new(
            "calls its run finished beside the status",
            [Requester],
            CHANGES,
            json!({"status": {"phase": "Succeeded"}}),
        )
        .with_scene(Scene::Workflow(json!({})))
        .honest("what a requester may change", json!({"spec": {"suspend": true}})),
    ]
}
