#![allow(clippy::unwrap_used)]
//! Tests of the rules about voters. `tests/cluster/policies/eligibility.rs` compares the same rules with a real API
//! server.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use signoff_api::{
    Approval, ApprovalSpec, Code, Decision, Moment, Verdict,
    approval::{ApprovalPhase, Invalid},
    gate::Subject,
};

use super::{Electorate, IneligibleReason, Voter, counted_as, ineligible, next_attempt};

const ALICE: &str = "alice@example.com";
const DANA: &str = "dana@example.com";

fn now() -> Moment {
    Moment::from(jiff::Timestamp::from_second(1_800_000_000).unwrap())
}

/// Returns an Approval for alice and the group finance, requested by dana, with these fields of the request.
fn approval(fields: Value) -> Approval {
    let digest = format!("sha256:{}", "0".repeat(64));
    let mut request = json!({
        "workflow": {"name": "refund", "uid": "00000000-0000-4000-8000-000000000000"},
        "gate": {"name": "review", "type": "step", "path": "review", "visit": 1},
        "specDigest": digest, "guardEpoch": "epoch", "deadline": "2100-01-01T00:00:00Z", "prompt": "Send it?",
        "allowedVerdicts": ["Approve", "Reject", "Modify"],
        "quorums": [quorum("gate review", json!([{"kind": "User", "name": ALICE}, {"kind": "Group", "name": "finance"}]))],
        "requestedBy": DANA, "timeout": {"after": "24h"}, "digest": digest,
    });
    for (name, value) in fields.as_object().unwrap() {
        request[name] = value.clone();
    }
    let spec = ApprovalSpec { request: serde_json::from_value(request).unwrap(), decisions: BTreeMap::new() };
    Approval { status: Some(Default::default()), ..Approval::new("refund-review", spec) }
}

fn quorum(source: &str, approvers: Value) -> Value {
    json!({"source": source, "approvers": approvers, "threshold": 1})
}

fn why(approval: &Approval, user: &str, groups: &[&str]) -> String {
    let groups: Vec<_> = groups.iter().map(|&group| group.to_owned()).collect();
    ineligible(approval, &Voter::new(user, &groups), now()).map(|why| why.to_string()).unwrap_or_default()
}

fn why_for(approval: &Approval, user: &str, person: &str) -> String {
    let voter = Voter { on_behalf_of: Some(person), ..Voter::new(user, &[]) };
    ineligible(approval, &voter, now()).map(|why| why.to_string()).unwrap_or_default()
}

#[test]
fn a_user_who_is_listed_by_name_or_group_can_decide() {
    let approval = approval(json!({}));
    assert_eq!((why(&approval, ALICE, &[]), why(&approval, "bob", &["finance"])), Default::default());
    assert_eq!(
        why(&approval, "mallory", &["outsiders"]),
        "mallory is not an approver of this gate, by name or by group (spec.request.quorums): one of its approvers must decide"
    );
}

#[test]
fn the_reason_for_a_system_user_names_the_users_who_can_decide() {
    let approval = approval(json!({}));
    let said = why(&approval, "system:admin", &["system:masters"]);
    assert!(said.starts_with("system:admin is not an approver of this gate, by name or by group"), "{said}");
    assert!(said.contains("decide as a user whom it lists") && said.ends_with("kubectl --as=NAME)"), "{said}");
    let robot = why(&approval, "system:serviceaccount:ci:bot", &[]);
    assert!(robot.ends_with("one of its approvers must decide"), "{robot}");
}

#[test]
fn a_service_account_is_listed_by_its_kind_only() {
    let robot = "system:serviceaccount:ci:bot";
    let listed = json!([{"kind": "ServiceAccount", "namespace": "ci", "name": "bot"}]);
    let by_kind = approval(json!({"quorums": [quorum("gate review", listed)]}));
    assert_eq!(why(&by_kind, robot, &[]), "");
    assert_ne!(why(&by_kind, "system:serviceaccount:other:bot", &[]), "");
    assert_ne!(why_for(&by_kind, "flux", robot), "");
}

#[test]
fn the_approvers_of_the_status_are_in_force_after_an_escalation() {
    let mut approval = approval(json!({}));
    approval.status.get_or_insert_default().approvers = vec![Subject::group("directors")];
    assert_eq!(why(&approval, "zoe", &["directors"]), "");
    assert!(why(&approval, "bob", &["finance"]).contains("not an approver"));
}

#[test]
fn the_requester_decides_unless_every_quorum_that_lists_them_excludes_them() {
    let own = || quorum("gate review", json!([{"kind": "Group", "name": "finance"}]));
    let mut further = quorum("policy production", json!([{"kind": "User", "name": DANA}]));
    assert_eq!(why(&approval(json!({"quorums": [own(), further]})), DANA, &[]), "");
    further["excludeRequester"] = json!(true);
    let excluded = approval(json!({"quorums": [own(), further]}));
    assert_eq!(
        why(&excluded, DANA, &[]),
        "dana@example.com is the requester, and is an approver only for policy production, which excludes the requester (excludeRequester): another approver must decide"
    );
    assert_eq!(why(&excluded, DANA, &["finance"]), "");
    let mut first = own();
    first["excludeRequester"] = json!(true);
    let why = why(&approval(json!({"quorums": [first, further]})), DANA, &["finance"]);
    assert_eq!(
        why,
        "dana@example.com is the requester, and the requester must not decide this gate (excludeRequester): another approver must decide"
    );
}

#[test]
fn a_requester_with_several_names_is_excluded_under_each_name() {
    let names = ["github:dana", "oidc:dana"];
    let listed = json!(names.map(|name| json!({"kind": "User", "name": name})));
    let mut further = quorum("policy", listed.clone());
    further["excludeRequester"] = json!(true);
    // No rule matches the name of the requester, so the name is its own person.
    let persons = json!([{"pattern": "(?:github|oidc):(.+)", "person": "dana@example.com"}]);
    let approval = approval(json!({"quorums": [quorum("gate review", listed), further], "persons": persons}));
    let electorate = Electorate::new(&approval.spec.request, &[]);
    for name in names {
        assert_eq!(why(&approval, name, &[]), "", "the first quorum lists them");
        assert!(
            electorate.counts(0, name, Verdict::Approve, &[]) && !electorate.counts(1, name, Verdict::Approve, &[])
        );
    }
}

#[test]
fn exclusions_hold_for_the_person_under_every_user_name() {
    let persons = json!([
        {"pattern": "github:([a-z]+)", "person": "$1@example.com"},
        {"pattern": "([a-z]+@example[.]com)", "person": "$1"},
    ]);
    let mut own = quorum("gate review", json!([{"kind": "Group", "name": "finance"}]));
    own["excludeRequester"] = json!(true);
    let approval = approval(json!({"quorums": [own], "persons": persons, "excluded": ["github:bob"]}));
    for name in [DANA, "github:dana"] {
        assert!(
            why(&approval, name, &["finance"])
                .contains("is the requester, and the requester must not decide this gate"),
            "{name}"
        );
    }
    assert!(why(&approval, "bob@example.com", &["finance"]).contains("excluded from deciding this gate"));
    assert_eq!(why(&approval, "github:carol", &["finance"]), "");
    assert_eq!(
        why(&approval, "oidc:carol", &["finance"]),
        "no rule of spec.request.persons maps the user name oidc:carol to one person: decide under a user name that a rule maps"
    );
}

#[test]
fn a_decision_is_final_unless_its_attempt_is_invalid() {
    let mut approval = approval(json!({}));
    assert_eq!(next_attempt(&approval, ALICE), Some(1));
    approval.spec.decisions.insert(ALICE.into(), Decision::new(Verdict::Modify));
    let decided = "alice@example.com decided Modify already, and a decision is final: another approver must decide";
    assert_eq!((why(&approval, ALICE, &[]).as_str(), next_attempt(&approval, ALICE)), (decided, None));
    let invalid = Invalid { attempt: 1, why: "no such field".into() };
    approval.status.get_or_insert_default().invalid.insert(ALICE.into(), invalid);
    assert_eq!((why(&approval, ALICE, &[]).as_str(), next_attempt(&approval, ALICE)), ("", Some(2)));
    approval.spec.decisions.get_mut(ALICE).unwrap().attempt = Some(2);
    assert_eq!((why(&approval, ALICE, &[]).as_str(), next_attempt(&approval, ALICE)), (decided, None));
}

#[test]
fn a_person_decides_once_directly_or_through_an_account() {
    let mut open = approval(json!({}));
    assert_eq!(why_for(&open, "flux", ALICE), "");
    assert!(why_for(&open, ALICE, ALICE).contains("leave it out"));
    assert!(why_for(&open, "flux", "bob").contains("is not an approver of this gate by user name"));
    let decision = Decision { on_behalf_of: Some(ALICE.into()), ..Decision::new(Verdict::Approve) };
    open.spec.decisions.insert(format!("{ALICE} via flux"), decision);
    assert!(why(&open, ALICE, &[]).contains("already recorded (alice@example.com via flux)"));
    assert!(why_for(&open, "flux", ALICE).contains("decided Approve already"));
    assert!(why_for(&open, "argo", ALICE).contains("already recorded"));
    let mut own = approval(json!({}));
    own.spec.decisions.insert(ALICE.into(), Decision::new(Verdict::Approve));
    assert!(why_for(&own, "flux", ALICE).contains("decided Approve already"));
    assert!(why(&own, "x via y", &["finance"]).contains("` via `"));
}

#[test]
fn a_decided_or_closed_approval_cannot_be_decided() {
    let mut approval = approval(json!({"closesAt": now().to_string()}));
    assert_eq!(why(&approval, ALICE, &[]), "");
    approval.spec.request.closes_at = Some(Moment::from(jiff::Timestamp::UNIX_EPOCH));
    assert_eq!(why(&approval, ALICE, &[]), "it closed at 1970-01-01T00:00:00Z");
    approval.status.get_or_insert_default().level = Some(1);
    assert_eq!(why(&approval, ALICE, &[]), "", "the status has no closing time");
    approval.status.get_or_insert_default().phase = ApprovalPhase::Rejected;
    assert_eq!(why(&approval, ALICE, &[]), "it was decided already (Rejected)");
}

#[test]
fn an_approval_without_a_quorum_cannot_be_decided() {
    let mut approval = approval(json!({"quorums": []}));
    approval.status.get_or_insert_default().approvers = vec![Subject::user(ALICE)];
    assert_eq!(
        why(&approval, ALICE, &[]),
        "it has no quorum (spec.request.quorums), so it cannot be decided: create its Workflow again"
    );
}

#[test]
fn only_reasons_of_unlisted_users_are_about_lists() {
    assert!(IneligibleReason::NotListed("bob".into()).is_about_lists());
    assert!(
        !IneligibleReason::Requester("a".into()).is_about_lists()
            && !IneligibleReason::RequesterOf("a".into(), "b".into()).is_about_lists()
    );
}

#[test]
fn the_reason_for_an_excluded_voter_names_the_earlier_decision() {
    let because = json!([
        {"user": "bob", "gate": "sql", "edited": true}, {"user": "carol", "gate": "sql"}, {"user": "flux", "gate": "sql", "edited": true},
    ]);
    let excluded = json!({"excluded": ["bob", "carol", "flux", "zoe"], "excludedBecause": because});
    let approval = approval(excluded);
    let end = "is excluded from deciding this gate (spec.request.excluded): another approver must decide";
    assert_eq!(why(&approval, "bob", &["finance"]), format!("you changed this text at gate sql, so bob {end}"));
    assert_eq!(why(&approval, "carol", &["finance"]), format!("you decided at gate sql, so carol {end}"));
    assert_eq!(why(&approval, "zoe", &["finance"]), format!("zoe {end}"));
    assert_eq!(
        why_for(&approval, "flux", ALICE),
        format!("you sent a decision on behalf of another person that changed this text at gate sql, so flux {end}")
    );
    assert_eq!((why_for(&approval, "argo", ALICE), why(&approval, ALICE, &[])), Default::default());
}

#[test]
fn an_earlier_vote_of_a_person_is_found_under_another_name() {
    let persons = json!([
        {"pattern": "github:([a-z]+)", "person": "$1@example.com"},
        {"pattern": "([a-z]+@example[.]com)", "person": "$1"},
    ]);
    let own = quorum("gate review", json!([{"kind": "Group", "name": "finance"}]));
    let mut approval = approval(json!({"quorums": [own], "persons": persons}));
    approval.spec.decisions.insert("bob@example.com".into(), Decision::new(Verdict::Approve));
    let other = |user: &str| counted_as(&approval, &Voter::new(user, &["finance".to_owned()]));
    assert_eq!(other("github:bob"), Some("bob@example.com".to_owned()));
    assert_eq!((other("bob@example.com"), other("github:carol"), other("oidc:bob")), (None, None, None));
    // The API server accepts the vote: of two votes of one person the most cautious one counts.
    assert_eq!(why(&approval, "github:bob", &["finance"]), "");

    // An invalid vote is ignored, and a counted one is preferred to one that is only recorded.
    let invalid = json!({"bob@example.com": {"attempt": 1, "why": "no such field"}});
    approval.status.get_or_insert_default().invalid = serde_json::from_value(invalid).unwrap();
    let other = |approval: &Approval| counted_as(approval, &Voter::new("github:bob", &["finance".to_owned()]));
    assert_eq!(other(&approval), None);
    approval.spec.decisions.insert(
        "bob@example.com via agent".into(),
        Decision { on_behalf_of: Some("bob@example.com".to_owned()), ..Decision::new(Verdict::Approve) },
    );
    approval.status = None;
    assert_eq!(other(&approval), Some("bob@example.com".to_owned()));
    let vote = json!({"key": "bob@example.com via agent", "user": "bob@example.com", "verdict": "Approve", "attempt": 1,
        "at": "2026-11-22T10:00:00Z", "epoch": "epoch-1"});
    approval.status.get_or_insert_default().votes.push(serde_json::from_value(vote).unwrap());
    assert_eq!(other(&approval), Some("bob@example.com via agent".to_owned()));
}

#[test]
fn a_reason_has_the_code_of_its_remedy() {
    let approval = approval(json!({}));
    let reason = ineligible(&approval, &Voter::new(DANA, &[]), now()).unwrap();
    assert_eq!((reason.code(), Code::of_message(&reason.to_string())), (Code::NOT_AN_APPROVER, Some(reason.code())));
    let ended = |phase| IneligibleReason::Ended(phase).code();
    assert_eq!(ended(ApprovalPhase::Superseded), Code::SUPERSEDED);
    assert_eq!(ended(ApprovalPhase::Approved), Code::TOO_LATE);
}
