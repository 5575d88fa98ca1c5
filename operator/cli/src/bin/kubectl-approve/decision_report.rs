//! The line about a recorded decision: what the operator decided, or why it is not decided yet.
//!
//! It must not say `approved` of a decision that the operator has not counted.

use signoff_api::{
    Approval, ApprovalRequest, Outcome, Verdict,
    approval::{ApprovalPhase, Source},
    conditions::GUARDED,
    gate::RequiredFrom,
};

use crate::{
    args::Wait,
    client::Session,
    error::Failure,
    operator_status::operator_state,
    payload::Entry,
    sanitize::one_line,
    successor::successor,
    wait::{DecisionState, Waited, is_as_voted},
};

/// A line for standard output, and the failure that ends the program after it.
#[derive(Debug)]
pub struct Report {
    /// The line, without its end.
    pub line: String,
    /// With `--wait`: why the exit code is not 0.
    pub failure: Option<Failure>,
}

/// Reports the end of a wait.
pub async fn report(session: &Session, waited: &Waited, entry: &Entry, wait: Option<Wait>) -> Report {
    let detail = match &waited.state {
        DecisionState::Recorded => not_counted(session, waited).await,
        DecisionState::Closed { outcome, .. } if outcome.phase == ApprovalPhase::Superseded => {
            let next = successor(session, &waited.approval).await;
            let namespace = waited.approval.metadata.namespace.as_deref();
            next.map_or_else(
                || format!("kubectl approve list shows it: {}", session.call.kubectl(namespace, &["approve", "list"])),
                |name| session.call.show(namespace, &name),
            )
        }
        DecisionState::Counted => {
            waited.problem.as_ref().map(|problem| format!("; it cannot be watched: {problem}")).unwrap_or_default()
        }
        _ => String::new(),
    };
    let failure = wait.and_then(|_| failure(&waited.state, entry));
    Report { line: line(&waited.approval, &waited.state, entry, &detail), failure }
}

/// Returns the failure that `--wait` ends with, or `None` if the decision has the effect that it asked for.
fn failure(state: &DecisionState, entry: &Entry) -> Option<Failure> {
    let is_decided = match state {
        DecisionState::Closed { outcome, is_counted, .. } => Some(*is_counted && is_as_voted(outcome, entry)),
        DecisionState::Counted if entry.decision.verdict == Verdict::Escalate => Some(true),
        DecisionState::Recorded | DecisionState::Counted => None,
        DecisionState::Escalated => Some(true),
        DecisionState::NotEscalated | DecisionState::Invalid(_) | DecisionState::Deleted => Some(false),
    };
    match is_decided {
        Some(true) => None,
        Some(false) => Some(Failure::DecidedOtherwise),
        None => Some(Failure::NotDecided),
    }
}

/// Returns why no operator counts decisions, where that is certain.
async fn operator_silence(session: &Session) -> Option<String> {
    let state = operator_state(session, None).await;
    state.is_gone().then(|| state.to_string())
}

/// Returns why the operator has not counted a decision.
async fn not_counted(session: &Session, waited: &Waited) -> String {
    if let Some(problem) = &waited.problem {
        return format!("it cannot be watched: {problem}");
    }
    if let Some(silence) = operator_silence(session).await {
        return silence;
    }
    let run = session.run(&waited.approval.spec.request.workflow.name).await;
    let unguarded = run.conditions.iter().find(|said| said.type_ == GUARDED && said.status == "False");
    match unguarded {
        Some(said) => format!("decisions are not honoured now: {}", one_line(&said.message, 1024)),
        None => {
            let doctor = session.call.kubectl::<&str>(None, &["approve", "doctor"]);
            format!("no operator has counted it so far; see {doctor}")
        }
    }
}

/// The line. `detail`: why it is not counted, or the command that shows the successor.
fn line(approval: &Approval, state: &DecisionState, entry: &Entry, detail: &str) -> String {
    let request = &approval.spec.request;
    let verdict = entry.decision.verdict;
    let person = on_behalf(entry);
    match state {
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
            format!("{}{person}; {}", done(verdict), sequel(request, verdict))
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

fn on_behalf(entry: &Entry) -> String {
    let person = entry.decision.on_behalf_of.as_ref();
    person.map(|person| format!(" on behalf of {}", one_line(person, 253))).unwrap_or_default()
}

/// Returns what the run does after a verdict.
fn sequel(request: &ApprovalRequest, verdict: Verdict) -> String {
    match verdict {
        Verdict::Abort => "the run ends".to_owned(),
        Verdict::Reject if request.after_reject.is_empty() => "the run ends".to_owned(),
        Verdict::Reject => format!("the run goes on with {}", one_line(&request.after_reject.join(", "), 2000)),
        Verdict::Defer => "it is done again with the guidance, and then asked again".to_owned(),
        Verdict::Approve | Verdict::Modify | Verdict::Respond | Verdict::Skip | Verdict::Retry | Verdict::Escalate => {
            "the run goes on".to_owned()
        }
    }
}

/// Returns how a gate was closed that was not closed as the decision says.
fn otherwise(outcome: &Outcome, detail: &str) -> String {
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

/// Names the approvers after an escalation.
fn approvers_now(approval: &Approval) -> String {
    let approvers: Vec<_> = approval.approvers().iter().map(|subject| one_line(&subject.to_string(), 320)).collect();
    format!("approvers now: {}, until {}", approvers.join(", "), approval.deadline())
}

/// Returns how many have decided, and who may still decide.
fn count(approval: &Approval, verdict: Verdict) -> String {
    let request = &approval.spec.request;
    let tally = approval.status.as_ref().and_then(|status| status.tally).unwrap_or_default();
    let mut text = if verdict.needs_quorum() {
        format!("{} of {}", tally.have, tally.needed)
    } else {
        format!("it takes {}", request.threshold())
    };
    if tally.have >= tally.needed && verdict.needs_quorum() {
        text.push_str(&conditions(request));
    }
    let open = still_asked(approval);
    if open.is_empty() { text } else { format!("{text}; still asked: {open}") }
}

/// Names the approvers who have not decided: users by name, and every group.
fn still_asked(approval: &Approval) -> String {
    let votes = approval.status.as_ref().map(|status| status.votes.as_slice()).unwrap_or_default();
    let further = approval.spec.request.quorums.iter().skip(1).flat_map(|quorum| &quorum.approvers);
    let mut names: Vec<String> = Vec::new();
    for subject in approval.approvers().iter().chain(further) {
        let name = one_line(&subject.to_string(), 320);
        if !votes.iter().any(|vote| subject.means(&vote.user, &[])) && !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(", ")
}

/// Names what a request demands besides the people of its first quorum.
pub fn conditions(request: &ApprovalRequest) -> String {
    let group = |from: &RequiredFrom| format!("{} of group {}", from.min, one_line(&from.group, 253));
    let groups = request.quorums.iter().take(1).flat_map(|own| &own.required_from).map(group);
    let further = request.quorums.iter().skip(1).map(|one| format!("the quorum of {}", one_line(&one.source, 253)));
    let all: Vec<_> = groups.chain(further).collect();
    if all.is_empty() { String::new() } else { format!("; not yet met of: {}", all.join(", ")) }
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

#[cfg(test)]
#[path = "decision_report/tests.rs"]
mod tests;
