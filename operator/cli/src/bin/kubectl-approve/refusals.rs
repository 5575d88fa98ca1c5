//! Refusals in words about the gate: who has decided already, and how the gate was closed.
//!
//! The API server has refused by then. What is not known better here keeps the words of its policy.

use serde_json::Value;
use signoff_api::{Approval, Moment, Verdict, approval::ApprovalPhase, gate::TimeoutAction};
use signoff_engine::approval::eligibility::{IneligibleReason, Voter, allowed_verdicts, closed, voter_problem};

use crate::{
    args::{DecisionArgs, Payload},
    client::{Me, Seen, Session},
    clock::{self, distance},
    decision_report::done,
    error::Failure,
    sanitize::one_line,
    successor::successor,
    suggest,
};

/// Returns a failure, in words about the gate where it is a refusal.
pub async fn explain(session: &Session, args: &DecisionArgs, me: &Me, failure: Failure) -> Failure {
    if !matches!(failure, Failure::Refused(_)) {
        return failure;
    }
    // What was shown may have changed meanwhile.
    let Ok(seen) = session.approval(&args.name).await else { return failure };
    let now = clock::now();
    if let Some(why) = closed_gate(&seen.approval, now) {
        let is_superseded = seen.approval.status.as_ref().is_some_and(|s| s.phase == ApprovalPhase::Superseded);
        let next = if is_superseded { successor(session, &seen.approval).await } else { None };
        let namespace = seen.approval.metadata.namespace.as_deref();
        let next = next.map(|name| format!("; it is asked again: {}", session.call.show(namespace, &name)));
        return Failure::Refused(format!("{why}{}", next.unwrap_or_default()));
    }
    if let Some(why) = second_vote(&seen, args, me, now) {
        return Failure::Refused(why);
    }
    let voter = Voter { on_behalf_of: args.common.on_behalf_of.as_deref(), ..me.voter() };
    if voter_problem(&seen.approval, &voter).is_some() {
        return failure;
    }
    match open_gate(&seen.approval, args, now) {
        Some(why) => {
            let commands = suggest::lines(&session.call.decisions(&seen.approval));
            Failure::Refused(format!("{why}\n{}", commands.trim_end()))
        }
        None if is_reason_missing(&seen.approval, args) => Failure::Refused(
            "this gate requires a reason with at least one letter or digit; add --reason TEXT".to_owned(),
        ),
        None => nobody_to_escalate_to(&seen.approval, args).map_or(failure, Failure::Refused),
    }
}

/// Whether the gate requires a reason and the one that was typed has no letter and no digit.
fn is_reason_missing(approval: &Approval, args: &DecisionArgs) -> bool {
    let reason = args.common.reason.as_deref().unwrap_or_default();
    approval.spec.request.require_reason == Some(true) && !reason.chars().any(char::is_alphanumeric)
}

/// Returns how a gate was closed, or `None` while it is open.
fn closed_gate(approval: &Approval, now: Moment) -> Option<String> {
    let status = approval.status.clone().unwrap_or_default();
    let Some(outcome) = &status.outcome else {
        return match closed(approval, now)? {
            IneligibleReason::Closed(at) => Some(format!(
                "too late: the deadline passed {} ({at}), and then {}",
                distance(at, now),
                timed_out(approval.spec.request.timeout.action.unwrap_or_default())
            )),
            _ => None,
        };
    };
    let when = outcome.decided_at.map(|at| format!(" {}", distance(at, now))).unwrap_or_default();
    let reason = outcome.reason.as_ref().map(|reason| format!(": {}", one_line(reason, 1024))).unwrap_or_default();
    let verdict = outcome.verdict.map_or("no verdict", Verdict::name);
    Some(match outcome.phase {
        ApprovalPhase::Superseded => format!("too late: this gate was superseded{when}{reason}"),
        ApprovalPhase::Cancelled => format!("too late: this gate was cancelled{when}{reason}"),
        ApprovalPhase::Expired => {
            format!("too late: this gate timed out{when} without a decision, which amounts to {verdict}{reason}")
        }
        _ if outcome.decided_by.is_empty() => {
            format!("too late: this gate was decided{when}: {verdict} by {}{reason}", outcome.source.name())
        }
        _ => {
            let who = one_line(&outcome.decided_by.join(", "), 600);
            format!("too late: this gate was decided{when}: {verdict} by {who}")
        }
    })
}

fn timed_out(action: TimeoutAction) -> String {
    match action {
        TimeoutAction::Escalate => "more people are asked, or it counts as rejected".to_owned(),
        TimeoutAction::Expire => "only Retry, Reject and Abort are accepted".to_owned(),
        ends => format!("it counts as {}", ends.verdict()),
    }
}

/// Returns when the same person decided, or `None`.
fn second_vote(seen: &Seen, args: &DecisionArgs, me: &Me, now: Moment) -> Option<String> {
    let on_behalf_of = args.common.on_behalf_of.as_deref();
    let voter = Voter { on_behalf_of, ..me.voter() };
    let Some(IneligibleReason::Decided(user, verdict)) = voter_problem(&seen.approval, &voter) else { return None };
    let key = if seen.approval.spec.decisions.contains_key(&voter.key()) { voter.key() } else { user.clone() };
    let who = if user == me.user { "you".to_owned() } else { one_line(&user, 253) };
    Some(format!("{who} {}{}; a decision is final", done(verdict), when(seen, &key, now)))
}

/// Returns the time of a recorded decision, such as ` 10s ago`; empty where no time is known.
pub fn when(seen: &Seen, key: &str, now: Moment) -> String {
    let votes = seen.approval.status.as_ref().map(|status| status.votes.as_slice()).unwrap_or_default();
    let counted = votes.iter().find(|vote| vote.key == key).map(|vote| vote.at);
    counted.or_else(|| recorded_at(seen, key)).map(|at| format!(" {}", distance(at, now))).unwrap_or_default()
}

/// Returns the time at which the API server recorded a decision, by the owner of the field.
fn recorded_at(seen: &Seen, key: &str) -> Option<Moment> {
    let owners = seen.raw.pointer("/metadata/managedFields").and_then(Value::as_array)?;
    let owns = |owner: &&Value| !owner["fieldsV1"]["f:spec"]["f:decisions"][format!("f:{key}")].is_null();
    let time = owners.iter().filter(owns).filter_map(|owner| owner["time"].as_str()).max()?;
    time.parse::<jiff::Timestamp>().ok().map(Moment::from)
}

/// Returns why an open gate does not take a verdict, or `None`.
pub fn open_gate(approval: &Approval, args: &DecisionArgs, now: Moment) -> Option<String> {
    let status = approval.status.clone().unwrap_or_default();
    let allowed = allowed_verdicts(&approval.spec.request, &status);
    if allowed.contains(&args.verdict) {
        return None;
    }
    let names: Vec<_> = allowed.iter().copied().map(Verdict::name).collect();
    let names = names.join(", ");
    Some(match status.phase {
        ApprovalPhase::Overdue => format!(
            "this gate is overdue (the deadline passed {}), so it does not take {}, only {names}:",
            distance(approval.deadline(), now),
            args.verdict
        ),
        _ => format!("this gate does not take {}, only {names}:", args.verdict),
    })
}

/// Returns the remedy for an Escalate with names at a gate that has none.
fn nobody_to_escalate_to(approval: &Approval, args: &DecisionArgs) -> Option<String> {
    let request = &approval.spec.request;
    let Payload::To(to) = &args.payload else { return None };
    if to.is_empty() || !request.escalate_to.is_empty() {
        return None;
    }
    let level = approval.status.as_ref().and_then(|status| status.level).unwrap_or(0);
    let next = usize::try_from(level).ok().and_then(|level| request.timeout.escalation.get(level));
    Some(match next {
        Some(_) => {
            "this gate has no subjects for --to (escalateTo is empty): leave out --to to ask its next level".to_owned()
        }
        None => "this gate has no approvers to escalate to (escalateTo): give another verdict".to_owned(),
    })
}

#[cfg(test)]
#[path = "refusals/tests.rs"]
mod tests;
