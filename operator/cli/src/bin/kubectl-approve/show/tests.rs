//! The page of `show`, as people and as attackers see it.
#![allow(clippy::unwrap_used)]
use serde_json::json;
use signoff_api::{
    Decision, Digest,
    approval::{ApprovalPhase, Outcome, TallyStatus},
    gate::GateType,
    journal::BlobRef,
    workflow::WorkflowPhase,
};

use super::*;
use signoff_review::{sample, seen::RunNow};

mod calls;

fn render(approval: Approval) -> String {
    let seen = Seen { raw: serde_json::to_value(&approval).unwrap(), approval };
    render_page(
        &seen,
        &sample::me("alice@example.com", &["finance"]),
        sample::now(),
        (None, &[]),
        &CallFlags::default(),
    )
}

#[test]
fn a_pending_approval_has_a_page_with_every_fact() {
    let approval = sample::approval();
    let (name, digest) = (approval.metadata.name.clone().unwrap(), approval.spec.request.digest.clone());
    let expected = format!(
        "Name:         {name}
Namespace:    finance
Workflow:     refund-4711
Gate:         review
Requested by: dana@example.com
Digest:       {digest}
Phase:        Pending
Verdicts:     Approve, Reject, Modify, Abort
Approvers:    alice@example.com, group finance
Quorum:       1 person
After Reject: the run ends
Deadline:     2026-11-23T09:30:00Z (in 23h)
After that:   it counts as rejected

Question:
  | Send this letter to ACME?

What step draft made:
  | Dear ACME,
  | we refund 420 EUR.

Each verdict:
  Approve   the run goes on with exactly this
  Reject    the run ends
  Modify    the run goes on with your parameters instead
  Abort     the run ends

You:          alice@example.com, one of the approvers
"
    );
    assert_eq!(render(approval), expected);
}

#[test]
fn a_hostile_name_moves_nothing_and_adds_no_line() {
    let mut approval = sample::approval();
    let lines = render(approval.clone()).lines().count();
    approval.metadata.name = Some("x\u{1b}[2J\nPhase:        Approved".into());
    approval.metadata.namespace = Some("prod\u{1b}[31m".into());
    let page = render(approval);
    assert!(page.starts_with("Name:         x[2J Phase:        Approved\nNamespace:    prod[31m\n"), "{page}");
    assert_eq!(page.lines().count(), lines, "{page}");
    assert!(!page.contains('\u{1b}'), "{page}");
}

#[test]
fn changes_by_people_are_shown_with_names_and_differences() {
    let mut approval = sample::approval();
    approval.spec.request.reviews.as_mut().unwrap().by = sample::edits();
    sample::seal(&mut approval);
    let seen = Seen { raw: serde_json::to_value(&approval).unwrap(), approval };
    let page_with = |originals: &[Result<String, String>]| {
        render_page(
            &seen,
            &sample::me("alice@example.com", &[]),
            sample::now(),
            (None, originals),
            &CallFlags::default(),
        )
    };
    let originals: Vec<_> = sample::BEFORE.iter().map(|text| Ok((*text).to_owned())).collect();
    let digests = sample::BEFORE.map(|text| Digest::of_bytes(text.as_bytes()));
    let expected = format!(
        "
What step draft made, changed by carol@example.com, dave@example.com at gate style and by bob@example.com at gate sql:
  | Dear ACME,
  | we refund 420 EUR.

Changes by people, newest first:
  carol@example.com, dave@example.com at gate style, Modify, 2026-11-22T09:10:00Z; before: {}
  | --- before
  | +++ after
  | @@ -1,2 +1,2 @@
  |  Dear ACME,
  | -we refund 42 EUR.
  | +we refund 420 EUR.
  bob@example.com at gate sql (left/sql), Modify, 2026-11-22T09:00:00Z; before: {}
  | --- before
  | +++ after
  | @@ -1,2 +1,2 @@
  | -Hi ACME,
  | +Dear ACME,
  |  we refund 42 EUR.
",
        digests[0], digests[1]
    );
    let shown = page_with(&originals);
    assert!(shown.contains(&expected), "{shown}");
    let gone = page_with(&[Err("no request".to_owned()), originals[1].clone()]);
    assert_eq!(gone.matches("\n  no request\n").count(), 2, "neither change can be compared: {gone}");
}

#[test]
fn the_last_lines_are_the_next_commands() {
    let me = sample::me("alice@example.com", &["finance"]);
    let call = CallFlags::default();
    let line = |approval: &Approval, run: &RunNow| next::next_lines(approval, &me, run, sample::now(), &call);
    let run = |phase, pending: &[&str]| RunNow {
        phase: Some(phase),
        pending: pending.iter().map(|&name| name.to_owned()).collect(),
        conditions: Vec::new(),
        ..RunNow::default()
    };
    let mut approval = sample::approval();
    let name = approval.metadata.name.clone().unwrap();
    let waiting = run(WorkflowPhase::Waiting, &[&name]);
    let expected = format!(
        "
Decide with one of:
  kubectl approve approve {name} -n finance
  kubectl approve reject {name} -n finance
  kubectl approve modify {name} --set 'response=better' -n finance
    takes {{response: <any>}}
  kubectl approve abort {name} -n finance
"
    );
    assert_eq!(line(&approval, &waiting), expected);
    assert_eq!(line(&approval, &RunNow::default()), expected, "the run cannot be read");
    approval.spec.request.allowed_verdicts = Vec::new();
    assert_eq!(line(&approval, &waiting), "Next:         it cannot be decided: no verdict is allowed\n");
    let stranger = sample::me("mallory@example.com", &[]);
    let lines = next::next_lines(&approval, &stranger, &waiting, sample::now(), &call);
    assert_eq!(lines, "Next:         the run waits for alice@example.com, group finance\n");

    approval.status.get_or_insert_default().phase = ApprovalPhase::Rejected;
    let expected = "Next:         the run goes on: kubectl get workflow refund-4711 --watch -n finance\n";
    assert_eq!(line(&approval, &run(WorkflowPhase::Running, &[])), expected);
    let suspended = RunNow { is_suspended: true, ..run(WorkflowPhase::Suspended, &[]) };
    let expected = "Next:         the run is suspended, and goes on when it is resumed: kubectl approve resume refund-4711 -n finance\n";
    assert_eq!(line(&approval, &suspended), expected);
    let expected = "Next:         the run waits again: kubectl approve show other-1 -n finance\n";
    assert_eq!(line(&approval, &run(WorkflowPhase::Waiting, &["other-1"])), expected);
    let expected = "Next:         the run has ended (Rejected): kubectl get workflow refund-4711 -o yaml -n finance\n";
    assert_eq!(line(&approval, &run(WorkflowPhase::Rejected, &[])), expected);
}

#[test]
fn the_reviewed_text_has_a_heading_for_its_gate_type() {
    use GateType::{ErrorEscalation, FinalResponse, OutputValidation, PlanApproval, Step, StepStart};
    let mut approval = sample::approval();
    for (type_, path, heading) in [
        (StepStart, "dump", "What will run (step dump):"),
        (FinalResponse, ".final", "What will be published:"),
        (PlanApproval, ".router", "The plan:"),
        (ErrorEscalation, "draft", "How step draft ended:"),
        (OutputValidation, "draft", "What step draft answered:"),
        (Step, "draft", "What step draft made:"),
        (Step, "essay/.review", "What is reviewed:"),
    ] {
        approval.spec.request.gate.type_ = type_;
        approval.spec.request.reviews.as_mut().unwrap().path = path.to_owned();
        let page = render(approval.clone());
        assert!(page.contains(&format!("\n{heading}\n  | Dear ACME,\n")), "{page}");
    }
}

#[test]
fn a_context_that_repeats_the_reviewed_text_is_shown_once() {
    let mut approval = sample::approval();
    assert_eq!(render(approval.clone()).matches("we refund 420 EUR.").count(), 1);
    approval.spec.request.context = Some("Dear ACME,\nwe refund 421 EUR.".into());
    let page = render(approval);
    assert!(page.contains("we refund 420 EUR.") && page.contains("Context, in the run's own words"), "{page}");
    assert!(page.contains("we refund 421 EUR."), "{page}");
}

#[test]
fn a_wrong_digest_has_a_warning_beside_it() {
    let mut approval = sample::approval();
    approval.spec.request.prompt = "Send it all?".into();
    assert!(render(approval).contains("<< NOT the digest of this request"));
}

#[test]
fn a_cut_text_has_its_missing_size_and_the_command_for_the_whole() {
    let mut approval = sample::approval();
    let name = approval.metadata.name.clone().unwrap();
    let digest = format!("sha256:{}", "a".repeat(64));
    let whole: BlobRef = serde_json::from_value(json!({"digest": digest, "size": 12345})).unwrap();
    approval.spec.request.context = Some("x".repeat(4096));
    approval.spec.request.context_ref = Some(whole.clone());
    let command = format!("  the whole: kubectl approve show --full {name} -n finance\n");
    let expected = format!("  CUT HERE: 8249 more of 12345 bytes, {digest}\n{command}");
    assert!(render(approval.clone()).contains(&expected), "{}", render(approval));

    let mut approval = sample::approval();
    let review = approval.spec.request.reviews.as_mut().unwrap();
    review.response = "Dear".into();
    let digest = review.digest.clone();
    let expected = format!("  | Dear\n  CUT HERE: this is the beginning, {digest}\n{command}");
    assert!(render(approval.clone()).contains(&expected), "{}", render(approval));
    // The marks of a call that is shown field by field can be longer than the text that they replace.
    approval.spec.request.reviews.as_mut().unwrap().ref_ = Some(BlobRef { size: 3, ..whole });
    assert!(render(approval).contains("  CUT HERE: the whole has 3 bytes, sha256:"));
}

#[test]
fn a_fetched_whole_text_is_shown_to_its_end() {
    let mut approval = sample::approval();
    let long = format!("{}\n{}the end", "x ".repeat(60_000), "\u{1b}[2J");
    let request = &mut approval.spec.request;
    request.context = Some("x ".repeat(2000));
    let digest = Digest::of_bytes(long.as_bytes());
    request.context_ref = Some(BlobRef { digest: digest.clone(), size: i64::try_from(long.len()).unwrap() });
    let seen = Seen { raw: serde_json::to_value(&approval).unwrap(), approval };
    let whole = Whole { context: Some(long.clone()), ..Whole::default() };
    let page = render_page(
        &seen,
        &sample::me("alice@example.com", &[]),
        sample::now(),
        (Some(&whole), &[]),
        &CallFlags::default(),
    );
    assert!(page.contains(&format!("the end\n  the whole: {} bytes, verified: {digest}\n", long.len())));
    assert!(!page.contains("CUT HERE") && !page.contains('\u{1b}'));
}

#[test]
fn a_form_shows_options_and_rules() {
    let mut approval = sample::approval();
    approval.spec.request.form = serde_json::from_value(json!({"questions": [
        {"id": "tone", "question": "Which tone?", "options": [{"id": "soft", "label": "Soft", "description": "kind words"}, {"id": "firm"}]},
        {"id": "iban", "pattern": "[A-Z]{2}[0-9]+", "required": false, "maxLength": 34},
    ]}))
    .unwrap();
    let page = render(approval);
    assert!(page.contains("Answer tone:\n  | Which tone?\n  OPTION   LABEL   DESCRIPTION\n  soft     Soft    kind words\n  firm     firm\n  one of them; required\n"), "{page}");
    assert!(
        page.contains("Answer iban:\n  free text; must match [A-Z]{2}[0-9]+; at most 34 characters; may be left out\n"),
        "{page}"
    );
}

#[test]
fn the_page_has_decisions_conditions_and_the_outcome() {
    let mut approval = sample::approval();
    approval.spec.request.quorums[0].threshold = 2;
    approval.spec.decisions.insert(
        "alice@example.com".into(),
        Decision { reason: Some("fine\nby me".into()), ..Decision::new(Verdict::Approve) },
    );
    let status = approval.status.get_or_insert_default();
    status.tally = Some(TallyStatus { needed: 2, have: 1 });
    status.conditions = serde_json::from_value(json!([
        {"type": "Guarded", "status": "False", "reason": "PoliciesDiffer", "message": "signoff-approvals was changed", "lastTransitionTime": "2026-11-22T09:00:00Z"},
    ]))
    .unwrap();
    status.phase = ApprovalPhase::Rejected;
    status.outcome = Some(Outcome {
        verdict: Some(Verdict::Reject),
        phase: ApprovalPhase::Rejected,
        decided_by: vec!["bob@example.com".into()],
        decided_at: Some(sample::now()),
        ..Outcome::default()
    });
    let page = render(approval);
    assert!(page.contains("Quorum:       2 people (1 of 2 so far)\n"), "{page}");
    assert!(page.contains("NOT GUARDED:  signoff-approvals was changed\n"), "{page}");
    assert!(
        page.contains(
            "  BY                  VERDICT   STATE      WORDS\n  alice@example.com   Approve   recorded   fine by me\n"
        ),
        "{page}"
    );
    assert!(
        page.contains("Outcome:      Rejected (Reject) by bob@example.com, 2026-11-22T10:00:00Z (0s ago)\n"),
        "{page}"
    );
    assert!(page.contains("cannot decide, it was decided already (Rejected)"), "{page}");
}

#[test]
fn a_request_without_a_quorum_cannot_be_decided() {
    let mut approval = sample::approval();
    approval.spec.request.quorums.clear();
    let page = render(approval);
    assert!(page.contains("Quorum:       none: it cannot be decided\n"), "{page}");
    assert!(page.contains("cannot decide, it has no quorum (spec.request.quorums)"), "{page}");
}

#[test]
fn the_next_people_of_an_escalation_are_named() {
    let mut approval = sample::approval();
    approval.spec.request.timeout = serde_json::from_value(
        json!({"after": "1h", "action": "Escalate", "escalation": [{"to": [{"kind": "Group", "name": "directors"}]}]}),
    )
    .unwrap();
    assert!(render(approval.clone()).contains("After that:   group directors will be asked too\n"));
    approval.status.get_or_insert_default().level = Some(1);
    assert!(render(approval).contains("After that:   it counts as rejected: there are no further approvers\n"));
}

#[test]
fn text_of_others_cannot_look_like_facts() {
    let mut approval = sample::approval();
    let hostile = "\u{1b}[2J\nPhase:        Approved\r\nYou:   safe\u{202e}".to_owned();
    approval.spec.request.prompt = hostile.clone();
    approval.spec.request.context = Some(hostile.clone());
    approval.spec.request.requested_by = hostile.clone();
    approval
        .spec
        .decisions
        .insert(hostile.clone(), Decision { reason: Some(hostile), ..Decision::new(Verdict::Approve) });
    let page = render(approval);
    assert!(!page.contains(['\u{1b}', '\u{202e}', '\r']));
    assert_eq!(page.lines().filter(|line| line.starts_with("Phase:")).count(), 1, "{page}");
    assert_eq!(page.lines().filter(|line| line.starts_with("You:")).count(), 1, "{page}");
}

#[test]
fn an_uncounted_decision_is_reported_to_its_voter() {
    let mut approval = sample::approval();
    approval.spec.decisions.insert("alice@example.com".into(), Decision::new(Verdict::Approve));
    let expected = "You:          alice@example.com: your decision is recorded, and not counted yet\n";
    assert!(render(approval).contains(expected));
}

#[test]
fn an_overdue_request_lists_the_verdicts_that_count_now() {
    let mut approval = sample::approval();
    approval.status.get_or_insert_default().phase = signoff_api::approval::ApprovalPhase::Overdue;
    assert!(render(approval).contains("Verdicts:     Retry, Reject, Abort\n"));
}

#[test]
fn a_request_that_takes_reject_has_the_consequence_of_reject() {
    let mut approval = sample::approval();
    assert!(render(approval.clone()).contains("After Reject: the run ends\n"));
    approval.spec.request.after_reject = vec!["send".to_owned(), "log".to_owned()];
    assert!(
        render(approval.clone()).contains("After Reject: the run goes on with send or log, as its conditions say\n")
    );
    approval.spec.request.allowed_verdicts = vec![Verdict::Approve];
    assert!(!render(approval).contains("After Reject"));
    let mut question = sample::question();
    question.spec.request.after_reject = vec!["the agent, which is told the reason".to_owned()];
    assert!(!render(question).contains("After Reject"));
    let mut call = sample::call();
    assert!(render(call.clone()).contains("After Reject: the call does not run, and the run ends\n"));
    call.spec.request.after_reject = vec!["the agent, which is told the reason".to_owned()];
    assert!(render(call).contains(
        "After Reject: the call does not run, and the run goes on with the agent, which is told the reason\n"
    ));
}

#[test]
fn every_policy_of_the_request_is_listed_with_its_rules() {
    let mut approval = sample::approval();
    approval.spec.request.required_by = serde_json::from_value(json!([
        {"source": "ClusterApprovalPolicy prod", "rules": ["at least 2 people", "the requester does not decide"]},
        {"source": "ApprovalPolicy strict", "rules": ["1 person out of group security must agree too"]},
    ]))
    .unwrap();
    let strict = json!(
        {"source": "ApprovalPolicy strict", "approvers": [{"kind": "Group", "name": "security"}], "threshold": 1}
    );
    approval.spec.request.quorums.push(serde_json::from_value(strict).unwrap());
    let page = render(approval);
    let expected = "Quorum:       1 person out of alice@example.com, group finance (required by gate review)
And:          1 person out of group security (required by ApprovalPolicy strict)
Required by:  ClusterApprovalPolicy prod:
              - at least 2 people
              - the requester does not decide
Required by:  ApprovalPolicy strict:
              - 1 person out of group security must agree too
";
    assert!(page.contains(expected), "{page}");
}
