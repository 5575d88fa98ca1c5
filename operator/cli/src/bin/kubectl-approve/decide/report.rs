//! The report of a decision: the outcome of its gate, or why there is no outcome yet.
//!
//! **Invariant:** the line says `approved` only if the operator has counted the decision.

use serde_json::{Value, json};
use signoff_api::{Verdict, approval::ApprovalPhase, conditions::GUARDED};
use signoff_cli::sanitize::one_line;
use signoff_review::{
    entry::Entry,
    outcome::{line, suspended},
    state::{DecisionState, Waited, is_as_voted},
};

use super::successor::find_successor;
use crate::{
    args::{DecisionArgs, Wait},
    cluster::{client::Session, operator_status::fetch_operator_silence},
    error::Failure,
    output,
};

/// A line for standard output, and the failure that ends the program after it.
#[derive(Debug)]
pub struct Report {
    /// The line, without a line end.
    pub line: String,
    /// The state of the decision, for programs.
    pub state: &'static str,
    /// The result for programs, with `-o json` or `-o yaml`.
    pub facts: Option<String>,
    /// The failure that `--wait` ends with, which sets the exit code.
    pub failure: Option<Failure>,
}

impl Report {
    /// Returns a report without facts and without a failure.
    pub fn new(state: &'static str, line: String) -> Self {
        Self { line, state, facts: None, failure: None }
    }

    /// Returns the report with the facts `{approval, verdict, state, message, exitCode}`, with `-o json` or `-o yaml`.
    pub fn with_facts(self, args: &DecisionArgs) -> Self {
        let exit = self.failure.as_ref().map_or(0, Failure::code);
        let facts = json!({"approval": args.name, "verdict": args.verdict.name(), "state": self.state,
            "message": self.line, "exitCode": exit});
        Self { facts: args.common.output.render(&facts).ok().flatten(), ..self }
    }

    /// Returns the text for standard output.
    pub fn text(&self) -> String {
        self.facts.clone().unwrap_or_else(|| format!("{}\n", self.line))
    }
}

/// Returns the report of `--dry-run=client`, which sends nothing: the patch, or with `-o json` or `-o yaml` the facts.
///
/// # Errors
/// The patch cannot be serialized.
pub fn report_not_sent(args: &DecisionArgs, patch: &Value) -> Result<Report, Failure> {
    let report = Report::new("NotSent", "not sent (client dry run)".to_owned()).with_facts(args);
    Ok(Report { line: output::json(patch)?.trim_end().to_owned(), ..report })
}

/// Returns the name of a decision's state, for programs. The names of a closed gate's states tell whether the gate was
/// decided as the decision says.
fn state_name(state: &DecisionState, entry: &Entry) -> &'static str {
    match state {
        DecisionState::Recorded => "Recorded",
        DecisionState::Counted => "Counted",
        DecisionState::Escalated => "Escalated",
        DecisionState::NotEscalated => "NotEscalated",
        DecisionState::Invalid(_) => "Invalid",
        DecisionState::Closed { outcome, is_counted: true, .. } if is_as_voted(outcome, entry) => "Decided",
        DecisionState::Closed { .. } => "DecidedOtherwise",
        DecisionState::Deleted => "Deleted",
    }
}

/// Returns the report of a decision at the end of its wait. `wait`: the value of `--wait`. Only with it the report can
/// have a failure.
pub async fn report(session: &Session, waited: &Waited, entry: &Entry, wait: Option<Wait>) -> Report {
    let detail = match &waited.state {
        DecisionState::Recorded => explain_uncounted(session, waited).await,
        DecisionState::Closed { outcome, .. } if outcome.phase == ApprovalPhase::Superseded => {
            let successor = find_successor(session, &waited.approval).await;
            let namespace = waited.approval.metadata.namespace.as_deref();
            successor.map_or_else(
                || format!("kubectl approve list shows it: {}", session.call.kubectl(namespace, &["approve", "list"])),
                |name| session.call.show(namespace, &name),
            )
        }
        DecisionState::Closed { outcome, is_counted: true, .. } if is_as_voted(outcome, entry) => {
            let request = &waited.approval.spec.request;
            let run = session.run(&request.workflow.name).await;
            suspended(request, entry.decision.verdict, &run).unwrap_or_default()
        }
        DecisionState::Counted => {
            waited.problem.as_ref().map(|problem| format!("; it cannot be watched: {problem}")).unwrap_or_default()
        }
        _ => String::new(),
    };
    let failure = wait.and_then(|_| wait_failure(&waited.state, entry));
    let line = line(&waited.approval, &waited.state, entry, &detail);
    Report { line, state: state_name(&waited.state, entry), facts: None, failure }
}

/// Returns the failure that `--wait` ends with, or `None` if the decision has the effect of its verdict.
fn wait_failure(state: &DecisionState, entry: &Entry) -> Option<Failure> {
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

/// Returns why the operator has not counted a decision.
async fn explain_uncounted(session: &Session, waited: &Waited) -> String {
    if let Some(problem) = &waited.problem {
        return format!("it cannot be watched: {problem}");
    }
    if let Some(silence) = fetch_operator_silence(session).await {
        return silence;
    }
    let run = session.run(&waited.approval.spec.request.workflow.name).await;
    let unguarded = run.conditions.iter().find(|condition| condition.type_ == GUARDED && condition.status == "False");
    match unguarded {
        Some(condition) => format!("decisions are not honoured now: {}", one_line(&condition.message, 1024)),
        None => {
            let doctor = session.call.kubectl::<&str>(None, &["approve", "doctor"]);
            format!("no operator has counted it so far; see {doctor}")
        }
    }
}

#[cfg(test)]
mod tests;
