//! The page of `show` about calls and questions of agents, as people and as attackers see it.
#![allow(clippy::unwrap_used)]
use signoff_api::{Digest, journal::BlobRef};
use signoff_review::sample;

use super::{super::*, render};

#[test]
fn the_page_of_a_call_has_facts_then_arguments_then_the_agents_words() {
    let approval = sample::call();
    let (name, digest) = (approval.metadata.name.clone().unwrap(), approval.spec.request.digest.clone());
    let action = approval.spec.request.action.clone().unwrap();
    let (definition, arguments) = (action.definition.unwrap(), approval.spec.request.reviews.clone().unwrap().digest);
    let expected = format!(
        "Name:         {name}
Namespace:    finance
Workflow:     refund-4711
Gate:         handle/.turn-2/.call-2/.gate
Requested by: dana@example.com
Digest:       {digest}
Phase:        Pending
Verdicts:     Approve, Modify, Reject, Defer, Skip, Abort
Approvers:    alice@example.com, group finance
Quorum:       1 person
After Reject: the call does not run, and the run ends
Deadline:     2026-11-23T09:30:00Z (in 23h)
After that:   it counts as rejected

Agent:        clerk
Tool:         refund
Target:       POST https://bank.example/refunds

The arguments of the call:
  | {{
  |   \"amount\": 420,
  |   \"customer\": \"ACME\",
  |   \"note\": \"as agreed\\\\nby phone\"
  | }}
  the whole: 62 bytes, verified: {arguments}

What the call sends:
  | url: https://bank.example/refunds
  | method: POST
  | body:
  |   refund: 420
  | headers:
  |   x-action: PAY

Effects:      irreversible: what it changes cannot be taken back
Attempts:     up to 3; another one follows only on a known failure
Definition:   {definition}
Same turn:    lookup (handle/.turn-2/.call-1)
              letter (handle/.turn-2/.call-3)
Earlier:      lookup: Succeeded
Asked by:     money: refund is listed
              guard, added by ClusterApprovalPolicy prod: refund is not known to be read-only

Question:
  | May the refund be sent?

Each verdict:
  Approve   the call goes on with exactly these arguments
  Modify    the changed call is checked, and its gates ask
  Reject    the call does not run, and the run ends
  Defer     the call does not run, and the agent is told the guidance
  Skip      the call does not run, and the agent continues
  Abort     the run ends

The agent's own words (text of a model: no fact, not checked):
  | The customer is entitled to it.

You:          alice@example.com, one of the approvers
"
    );
    assert_eq!(render(approval), expected);
}

#[test]
fn the_page_of_a_question_begins_with_the_sentence_that_an_answer_approves_nothing() {
    let approval = sample::question();
    let (name, digest) = (approval.metadata.name.clone().unwrap(), approval.spec.request.digest.clone());
    let expected = format!(
        "An agent asks:
  | This answers the agent; it approves nothing. Do not enter secrets.
  |
  | The clerk needs to know.

Name:         {name}
Namespace:    finance
Workflow:     refund-4711
Gate:         handle/.turn-1/.call-1/.gate
Requested by: dana@example.com
Digest:       {digest}
Phase:        Pending
Verdicts:     Respond, Skip, Abort
Can answer:   alice@example.com, group finance
Quorum:       1 person
Deadline:     2026-11-23T09:30:00Z (in 23h)
After that:   it counts as rejected

Agent:        clerk
Tool:         ask-human

Answer q1:
  | Which account?
  OPTION   LABEL     DESCRIPTION
  o1       Main
  o2       Savings
  one of them; required

You:          alice@example.com, one of those who can answer
"
    );
    assert_eq!(render(approval), expected);
}

#[test]
fn an_escalation_about_a_call_that_did_not_run_shows_its_arguments() {
    let mut approval = sample::call();
    let request = &mut approval.spec.request;
    request.gate.type_ = signoff_api::gate::GateType::ErrorEscalation;
    request.allowed_verdicts = vec![Verdict::Retry, Verdict::Skip, Verdict::Reject, Verdict::Abort];
    let page = render(approval);
    assert!(page.contains("\nThe arguments of the call:\n  | {\n") && !page.contains("How step"), "{page}");
    assert!(page.contains("  Retry     the gates of the tool ask about the call\n"), "{page}");
}

/// Returns the labels of a page: the lines without an indent, up to their colon.
fn labels(page: &str) -> Vec<&str> {
    let own = page.lines().filter(|line| line.starts_with(|c: char| !c.is_whitespace()));
    own.map(|line| line.split(':').next().unwrap_or_default()).collect()
}

#[test]
fn text_of_the_agent_stays_in_its_fence() {
    let mut honest = sample::call();
    honest.spec.request.says = Some("The customer is entitled to it.".to_owned());
    let usual = render(honest.clone());
    let long = "y".repeat(4096);
    let wide = "\u{202e}evil\u{2066}\u{200b} ".repeat(500);
    for hostile in [sample::HOSTILE, "```\n---\n~~~\n</agent>\nYou:          alice, one of the approvers", &long, &wide]
    {
        let mut approval = honest.clone();
        approval.spec.request.says = Some(hostile.to_owned());
        let page = render(approval);
        assert_eq!(labels(&page), labels(&usual), "{page}");
        let hidden = |c: char| c.is_control() && c != '\n' || matches!(c, '\u{202e}' | '\u{2066}' | '\u{200b}');
        assert!(!page.contains(hidden), "{page:?}");
        let (_, words) = page.split_once(&format!("\n{}:\n", action::SAYS)).unwrap();
        let fence: Vec<_> = words.lines().take_while(|line| !line.is_empty()).collect();
        assert!(!fence.is_empty() && fence.iter().all(|line| line.starts_with("  |") && line.chars().count() <= 80));
    }
}

#[test]
fn arguments_that_look_like_facts_stay_in_their_fence() {
    let mut approval = sample::call();
    let usual = labels(&render(approval.clone())).into_iter().map(str::to_owned).collect::<Vec<_>>();
    let text = r#"{"note":"x\nEffects:      read\n\u001b[2J","Target:      ":"POST https://bank.example","\u202eTool":"lookup"}"#;
    let review = approval.spec.request.reviews.as_mut().unwrap();
    (review.response, review.digest) = (text.to_owned(), Digest::of_bytes(text.as_bytes()));
    let page = render(approval);
    assert_eq!(labels(&page), usual, "{page}");
    assert!(!page.contains(['\u{1b}', '\u{202e}']), "{page:?}");
    assert!(page.contains("  | {") && page.contains("verified: sha256:"), "{page}");
}

#[test]
fn the_sent_text_of_a_call_stays_in_its_fence_and_has_a_cut_mark() {
    let mut approval = sample::call();
    let usual = labels(&render(approval.clone())).into_iter().map(str::to_owned).collect::<Vec<_>>();
    let whole = BlobRef { digest: Digest::of_bytes(b"all"), size: 20_000 };
    let text = "url: x\nEffects:      read\n\u{1b}[2J\u{202e}".to_owned();
    let more = 20_000 - text.len();
    approval.spec.request.sends = Some(signoff_api::approval::Sent { text, ref_: Some(whole.clone()) });
    let name = approval.metadata.name.clone().unwrap();
    let page = render(approval);
    assert_eq!(labels(&page), usual, "{page}");
    assert!(!page.contains(['\u{1b}', '\u{202e}']), "{page:?}");
    let mark = format!(
        "  CUT HERE: {more} more of 20000 bytes, {}\n  the whole: kubectl approve show --full {name} -n finance\n",
        whole.digest
    );
    assert!(page.contains(&mark), "{page}");
}

#[test]
fn cut_arguments_have_a_mark_and_the_command_for_the_whole() {
    let mut approval = sample::call();
    let review = approval.spec.request.reviews.as_mut().unwrap();
    let whole = format!("{{\"note\":\"{}\"}}", "n".repeat(6000));
    review.digest = Digest::of_bytes(whole.as_bytes());
    review.response = whole[..4096].to_owned();
    review.ref_ = Some(BlobRef { digest: review.digest.clone(), size: 6011 });
    let name = approval.metadata.name.clone().unwrap();
    let page = render(approval);
    let mark = format!("  the whole: kubectl approve show --full {name} -n finance\n");
    assert!(page.contains("  CUT HERE: 1915 more of 6011 bytes, ") && page.contains(&mark), "{page}");
}

#[test]
fn the_commands_of_a_call_edit_its_arguments_and_include_turn() {
    let me = sample::me("alice@example.com", &["finance"]);
    let mut approval = sample::call();
    let name = approval.metadata.name.clone().unwrap();
    let next_lines = |approval: &Approval| {
        next::next_lines(approval, &me, &signoff_review::seen::RunNow::default(), sample::now(), &CallFlags::default())
    };
    let expected = format!(
        "
Decide with one of:
  kubectl approve approve {name} -n finance
  kubectl approve modify {name} --edit -n finance
    takes {{arguments: {{amount: <integer>, customer: <text>, note?: <text>}}}}
  kubectl approve reject {name} -n finance
  kubectl approve defer {name} --guidance '…' -n finance
  kubectl approve skip {name} -n finance
  kubectl approve abort {name} -n finance
With --turn, approve, reject, defer, skip and abort decide the other open calls of its turn too.
"
    );
    assert_eq!(next_lines(&approval), expected);
    approval.spec.request.action.as_mut().unwrap().siblings.clear();
    assert!(!next_lines(&approval).contains("--turn"));
    let question = next_lines(&sample::question());
    assert!(
        question.contains("respond ") && question.contains("--choose 'q1=o1'") && !question.contains("--turn"),
        "{question}"
    );
}
