//! The last lines of a page: the commands that the reader can run now.
//!
//! **Invariant:** no command is suggested that would be refused.

use signoff_api::{Approval, ApprovalRequest, Moment};
use signoff_engine::approval::eligibility::ineligible;
use signoff_review::{
    action::call,
    outcome::SUSPENDED,
    quorum::{possible, subjects},
    seen::RunNow,
    suggest::{self, CallFlags},
    voter::Me,
};

/// Returns the line `Next: …`, or the commands of all verdicts for a reader who can decide.
pub fn next_lines(approval: &Approval, me: &Me, run: &RunNow, now: Moment, call: &CallFlags) -> String {
    let request = &approval.spec.request;
    let namespace = approval.metadata.namespace.as_deref();
    let workflow = ["get", "workflow", request.workflow.name.as_str()];
    let is_decided = approval.status.as_ref().is_some_and(|status| status.phase.is_end() || status.outcome.is_some());
    let text = match (run.phase, run.pending.first()) {
        (Some(phase), _) if phase.is_end() => {
            let get = call.kubectl(namespace, &[&workflow[..], &["-o", "yaml"]].concat());
            format!("the run has ended ({}): {get}", phase.name())
        }
        (_, Some(other)) if is_decided => format!("the run waits again: {}", call.show(namespace, other)),
        _ if is_decided && run.is_suspended => {
            let resume = call.kubectl(namespace, &["approve", "resume", request.workflow.name.as_str()]);
            format!("{SUSPENDED}: {resume}")
        }
        _ if is_decided => {
            format!("the run goes on: {}", call.kubectl(namespace, &[&workflow[..], &["--watch"]].concat()))
        }
        _ if ineligible(approval, &me.voter(), now).is_some() => {
            format!("the run waits for {}", subjects(&possible(approval)))
        }
        _ => match suggest::lines(&call.decisions(approval)).as_str() {
            "" => "it cannot be decided: no verdict is allowed".to_owned(),
            commands => return format!("\nDecide with one of:\n{commands}{}", turn_line(request)),
        },
    };
    format!("{:<14}{text}\n", "Next:")
}

/// Returns the line about the other calls of the same turn, or an empty text.
fn turn_line(request: &ApprovalRequest) -> &'static str {
    match call(request) {
        Some(action) if !action.siblings.is_empty() => {
            "With --turn, approve, reject, defer, skip and abort decide the other open calls of its turn too.\n"
        }
        _ => "",
    }
}
