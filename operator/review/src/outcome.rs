//! Words about a recorded decision: the outcome of the gate, or the reason why it is still open.
//!
//! **Invariant:** a decision that the operator has not counted is never called `approved`.

use signoff_api::{
    Approval, ApprovalRequest, ApprovalStatus, Outcome, Verdict,
    approval::{ApprovalPhase, Source},
    gate::{GateType, Quorum, Subject, SubjectKind},
};
use signoff_engine::approval::{eligibility::allowed_verdicts, progress};

use crate::{
    action::{call, is_at_tool, is_question},
    entry::Entry,
    meaning::{self, done_at, runs_again},
    quorum::{agreement, people},
    seen::RunNow,
    state::{DecisionState, is_as_voted},
    text::one_line,
};

/// The effect of most verdicts.
pub(crate) const GOES_ON: &str = "the run goes on";
/// The effect of most verdicts on a suspended run.
pub const SUSPENDED: &str = "the run is suspended, and goes on when it is resumed";

/// Returns the line about a decision. `detail`: the reason why it is not counted, the command that shows the successor,
/// or the reason why the run waits although the gate is decided.
pub fn line(approval: &Approval, state: &DecisionState, entry: &Entry, detail: &str) -> String {
    let request = &approval.spec.request;
    let verdict = entry.decision.verdict;
    let person = on_behalf(entry);
    match state {
        DecisionState::Recorded if detail.is_empty() => format!("{verdict} recorded{person}; not counted yet"),
        DecisionState::Recorded => format!("{verdict} recorded{person}; not counted yet: {detail}"),
        DecisionState::Counted if verdict == Verdict::Escalate => {
            format!("Escalate counted{person}; {}", approvers_now(approval))
        }
        DecisionState::Escalated => format!("escalated{person}; {}", approvers_now(approval)),
        DecisionState::NotEscalated => format!("Escalate counted{person}; there are no further approvers"),
        DecisionState::Counted => format!("{verdict} counted{person} ({}){detail}", count(approval, verdict)),
        DecisionState::Invalid(why) => {
            format!("{verdict} recorded{person}; it does not count: {}; decide again", one_line(why, 1024))
        }
        DecisionState::Deleted => format!("{verdict} recorded{person}; it does not count: the Approval was deleted"),
        DecisionState::Closed { outcome, is_counted: true, .. } if is_as_voted(outcome, entry) => {
            let edit = after_edit(approval, entry).map(|why| format!("; {why}")).unwrap_or_default();
            let sequel = if detail.is_empty() { sequel(request, verdict) } else { detail.to_owned() };
            format!("{}{person}; {sequel}{edit}", done_at(request, verdict))
        }
        DecisionState::Closed { outcome, is_counted, invalid } => {
            let how = otherwise(outcome, detail);
            let is_void = matches!(outcome.phase, ApprovalPhase::Superseded | ApprovalPhase::Cancelled);
            match invalid.as_ref().filter(|_| !is_void) {
                Some(why) => format!("{verdict} recorded{person}; it does not count: {}; {how}", one_line(why, 1024)),
                None if !is_counted && outcome.source == Source::Human => {
                    format!("{verdict} recorded{person}; it does not count, it was recorded too late; {how}")
                }
                None => format!("{verdict} recorded{person}; {how}"),
            }
        }
    }
}

/// Returns the person on whose behalf a decision was sent, as ` on behalf of bob`; empty for a decision of the voter's
/// own.
pub fn on_behalf(entry: &Entry) -> String {
    let person = entry.decision.on_behalf_of.as_ref();
    person.map(|person| format!(" on behalf of {}", one_line(person, 253))).unwrap_or_default()
}

/// Returns the effect of a verdict on the run.
pub fn sequel(request: &ApprovalRequest, verdict: Verdict) -> String {
    let (is_call, is_question) = (call(request).is_some(), is_question(request));
    if let Some(sequel) = sequel_at_tool(request, verdict) {
        return sequel.to_owned();
    }
    if verdict == Verdict::Retry
        && let Some(again) = runs_again(request)
    {
        return again;
    }
    match verdict {
        // A `stepStart` gate of the step of the tool can still ask.
        Verdict::Approve if is_call => "the call goes on with exactly these arguments".to_owned(),
        Verdict::Modify if is_call => "the changed call is checked, and its gates ask".to_owned(),
        Verdict::Defer if is_call => "the call does not run, and the agent is told the guidance".to_owned(),
        Verdict::Respond if is_call => "the answer is the result, and the call does not run".to_owned(),
        Verdict::Skip if is_call => "the call does not run, and the agent continues".to_owned(),
        Verdict::Skip if is_question => "the agent gets no answer and continues".to_owned(),
        Verdict::Retry if is_call => "the gates of the tool ask about the call".to_owned(),
        Verdict::Abort => "the run ends".to_owned(),
        Verdict::Reject if is_call && request.after_reject.is_empty() => {
            "the call does not run, and the run ends".to_owned()
        }
        Verdict::Reject if request.after_reject.is_empty() => "the run ends".to_owned(),
        Verdict::Reject => {
            let next = one_line(&request.after_reject.join(" or "), 2000);
            let conditions = if request.after_reject.len() > 1 { ", as its conditions say" } else { "" };
            let call = if is_call { "the call does not run, and " } else { "" };
            format!("{call}the run goes on with {next}{conditions}")
        }
        Verdict::Defer => "it is done again with the guidance, and then asked again".to_owned(),
        Verdict::Escalate => "more people are asked".to_owned(),
        Verdict::Approve | Verdict::Modify | Verdict::Respond | Verdict::Skip | Verdict::Retry => GOES_ON.to_owned(),
    }
}

/// Returns the effect of a verdict on a suspended run. Returns `None` if the suspension delays nothing: the run is not
/// suspended, or it ends, or more people are asked.
pub fn suspended(request: &ApprovalRequest, verdict: Verdict, run: &RunNow) -> Option<String> {
    let ends = verdict == Verdict::Abort || verdict == Verdict::Reject && request.after_reject.is_empty();
    if !run.is_suspended || ends || verdict == Verdict::Escalate {
        return None;
    }
    let sequel = sequel(request, verdict);
    Some(if sequel == GOES_ON { SUSPENDED.to_owned() } else { format!("{SUSPENDED}; then {sequel}") })
}

/// Returns the sentence about the users who cannot approve the call that a Modify changes: its voter, and all users if
/// too few others are left. Returns `None` for any other decision.
pub fn after_edit(approval: &Approval, entry: &Entry) -> Option<String> {
    let request = &approval.spec.request;
    if entry.decision.verdict != Verdict::Modify || call(request).is_none() {
        return None;
    }
    let editor = entry.decision.on_behalf_of.as_ref().unwrap_or(&entry.key);
    let who = one_line(editor, 253);
    let is_left = |subject: &&Subject| subject.name != *editor && !request.excluded.contains(&subject.name);
    let is_short = |quorum: &Quorum| {
        let all = &quorum.approvers;
        let is_requester = |user: &Subject| request.requesters().any(|name| *name == user.name);
        let is_barred = |user: &Subject| quorum.excludes_requester() && is_requester(user);
        all.iter().all(|subject| subject.kind == SubjectKind::User)
            && all.iter().filter(is_left).filter(|user| !is_barred(user)).count() < quorum.needed()
    };
    Some(if request.quorums.iter().any(is_short) {
        format!(
            "{who} cannot approve the changed call, and too few other approvers are left: it will be refused if the same gates ask"
        )
    } else {
        format!("{who} cannot approve the changed call")
    })
}

/// Returns the verdicts that a gate takes now, each with its effect. A question of an agent has none.
pub fn effects(request: &ApprovalRequest, status: &ApprovalStatus) -> Vec<(Verdict, String)> {
    if is_question(request) {
        return Vec::new();
    }
    let effect = if is_at_tool(request) { sequel } else { meaning::effect };
    allowed_verdicts(request, status).iter().map(|verdict| (*verdict, effect(request, *verdict))).collect()
}

/// Returns the effect of a verdict at a gate of the step of a tool: before the step starts, after it failed, or about
/// its response.
fn sequel_at_tool(request: &ApprovalRequest, verdict: Verdict) -> Option<&'static str> {
    if call(request).is_some() || !is_at_tool(request) {
        return None;
    }
    Some(match (request.gate.type_, verdict) {
        (GateType::StepStart, Verdict::Approve) => "the call goes on with exactly what was shown",
        (GateType::StepStart, Verdict::Skip) => "the call does not run, and the agent is told",
        (GateType::ErrorEscalation, Verdict::Retry) => "the call is made once more, after its gates",
        (GateType::ErrorEscalation, Verdict::Skip) => "the agent continues without a result",
        (GateType::ErrorEscalation, Verdict::Respond) => "the answer is the result of the call",
        (GateType::ErrorEscalation, Verdict::Defer) => "the agent is told the guidance",
        (GateType::OutputValidation, Verdict::Approve | Verdict::Skip) => "the agent is told this response",
        (GateType::OutputValidation, Verdict::Modify | Verdict::Respond) => "the agent is told your response instead",
        (GateType::OutputValidation, Verdict::Defer | Verdict::Retry) => "the call is made once more, after its gates",
        _ => return None,
    })
}

/// Returns the end of a gate that was not closed by this decision.
pub fn otherwise(outcome: &Outcome, detail: &str) -> String {
    let verdict = outcome.verdict.map_or("no verdict", Verdict::name);
    let reason = outcome.reason.as_ref().map(|reason| format!(": {}", one_line(reason, 1024))).unwrap_or_default();
    match outcome.phase {
        ApprovalPhase::Superseded => format!("it does not count, superseded{reason}: {detail}"),
        ApprovalPhase::Cancelled => format!("it does not count, cancelled{reason}"),
        ApprovalPhase::Expired => format!("the deadline passed first, which amounts to {verdict}"),
        _ if outcome.source == Source::Human => {
            format!("decided: {verdict} by {}", one_line(&outcome.decided_by.join(", "), 300))
        }
        _ => format!("decided: {verdict} by {}{reason}", outcome.source.name()),
    }
}

/// Returns the sentence that names the approvers after an escalation.
pub fn approvers_now(approval: &Approval) -> String {
    let approvers: Vec<_> = approval.approvers().iter().map(|subject| one_line(&subject.to_string(), 320)).collect();
    format!("approvers now: {}, until {}", approvers.join(", "), approval.deadline())
}

/// Returns the number of people who are needed, for a verdict that has no count of its own.
pub fn needed(request: &ApprovalRequest) -> String {
    let count = request.threshold();
    format!("{} {} needed", people(count), if count == 1 { "is" } else { "are" })
}

/// Returns the number of people who agree, and the approvers who can still decide.
pub fn count(approval: &Approval, verdict: Verdict) -> String {
    let text = if verdict.needs_quorum() { agreement(approval) } else { needed(&approval.spec.request) };
    let open = open_approvers(approval, verdict);
    if open.is_empty() { text } else { format!("{text}; still asked: {open}") }
}

/// Returns the approvers who have not decided: the users among them, and all groups. For a verdict with a quorum, only
/// the approvers of quorums that are not met.
fn open_approvers(approval: &Approval, verdict: Verdict) -> String {
    let votes = approval.status.as_ref().map(|status| status.votes.as_slice()).unwrap_or_default();
    let progress = progress(approval);
    let is_open = |index: usize| !verdict.needs_quorum() || progress.get(index).is_none_or(|quorum| !quorum.is_met());
    let all = approval.spec.request.quorums.iter().enumerate().filter(|(index, _)| is_open(*index));
    let asked = all.flat_map(|(index, quorum)| if index == 0 { approval.approvers() } else { &quorum.approvers });
    let mut names: Vec<String> = Vec::new();
    for subject in asked {
        let name = one_line(&subject.to_string(), 320);
        if !votes.iter().any(|vote| subject.means(&vote.user, &[])) && !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(", ")
}

/// Returns a verdict as a participle.
pub fn done(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Approve => "approved",
        Verdict::Reject => "rejected",
        Verdict::Modify => "modified",
        Verdict::Respond => "answered",
        Verdict::Defer => "deferred",
        Verdict::Escalate => "escalated",
        Verdict::Abort => "aborted",
        Verdict::Skip => "skipped",
        Verdict::Retry => "asked again",
    }
}

/// Returns a verdict as a verb that follows `you`.
pub fn does(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Approve => "approve",
        Verdict::Reject => "reject",
        Verdict::Modify => "modify",
        Verdict::Respond => "answer",
        Verdict::Defer => "defer",
        Verdict::Escalate => "escalate",
        Verdict::Abort => "abort",
        Verdict::Skip => "skip",
        Verdict::Retry => "retry",
    }
}

#[cfg(test)]
#[path = "outcome/tests.rs"]
mod tests;
