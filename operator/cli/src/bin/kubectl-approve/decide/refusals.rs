//! Refusals of the API server, in words about the gate and with the commands that remedy them.
//!
//! A refusal for which there are no better words keeps the words of the policy.

use signoff_api::{Approval, Decision, Moment, Verdict, gate::Subject};
use signoff_review::{
    clock,
    flow::Refused,
    refusal::{self, Refusal},
    suggest,
    voter::Me,
};

use super::successor::find_successor;
use crate::{
    args::{DecisionArgs, Payload},
    cluster::client::Session,
    error::Failure,
};

/// Returns a refusal in words about the gate, and any other failure unchanged.
pub async fn explain(session: &Session, args: &DecisionArgs, me: &Me, failure: Failure) -> Failure {
    if !failure.is_refusal() {
        return failure;
    }
    // The Approval can have changed since it was shown.
    let Ok(seen) = session.approval(&args.name).await else { return failure };
    let approval = &seen.approval;
    match refusal::explain(&seen, me, &decision_of(args), clock::now()) {
        Some(refusal) => add_remedy(session, approval, &refusal).await,
        None => add_who_may_decide(approval, me, args.common.on_behalf_of.as_deref(), failure),
    }
}

/// Adds to the policy's own refusal who can decide, if the user cannot.
fn add_who_may_decide(approval: &Approval, me: &Me, on_behalf_of: Option<&str>, failure: Failure) -> Failure {
    let who = refusal::who_may(approval, &me.voter_for(on_behalf_of), clock::now());
    match (failure, who) {
        (Failure::Refused(why), Some(who)) => Failure::Refused(format!("{why}; {who}")),
        (Failure::RefusedFor { why, code, commands }, Some(who)) => {
            Failure::RefusedFor { why: format!("{why}; {who}"), code, commands }
        }
        (failure, _) => failure,
    }
}

/// Returns the failure of a refused decision, in words about the gate or in the policy's own.
pub async fn explain_refused(session: &Session, args: &DecisionArgs, refused: Refused<Failure>) -> Failure {
    let approval = &refused.seen.approval;
    match &refused.refusal {
        Some(refusal) => add_remedy(session, approval, refusal).await,
        None => match session.me().await {
            Ok(me) => add_who_may_decide(approval, &me, args.common.on_behalf_of.as_deref(), refused.error),
            Err(_) => refused.error,
        },
    }
}

/// Returns the failure of a refusal, with the commands that remedy it.
async fn add_remedy(session: &Session, approval: &Approval, refusal: &Refusal) -> Failure {
    let why = match refusal {
        Refusal::NoReason => format!("{refusal}; add --reason TEXT"),
        Refusal::NoTargets { has_level: true } => {
            "this gate has no subjects for --to (escalateTo is empty): leave out --to to ask its next level".to_owned()
        }
        Refusal::Closed { .. }
        | Refusal::Decided(_)
        | Refusal::Verdict(_)
        | Refusal::NoTargets { has_level: false } => refusal.to_string(),
    };
    let commands = match refusal {
        Refusal::Closed { is_superseded: true, .. } => {
            let namespace = approval.metadata.namespace.as_deref();
            let successor = find_successor(session, approval).await;
            let show = successor.map(|name| format!("; it is asked again: {}", session.call.show(namespace, &name)));
            show.unwrap_or_default()
        }
        Refusal::Verdict(_) => format!(":\n{}", suggest::lines(&session.call.decisions(approval)).trim_end()),
        Refusal::Closed { .. } | Refusal::Decided(_) | Refusal::NoReason | Refusal::NoTargets { .. } => String::new(),
    };
    Failure::RefusedFor { why, code: refusal.code(), commands }
}

/// Returns the parts of a decision by which a gate can refuse it.
fn decision_of(args: &DecisionArgs) -> Decision {
    let escalate_to = match &args.payload {
        Payload::To(to) => to.iter().map(|name| Subject::user(name)).collect(),
        _ => Vec::new(),
    };
    Decision {
        reason: args.common.reason.clone(),
        on_behalf_of: args.common.on_behalf_of.clone(),
        escalate_to,
        ..Decision::new(args.verdict)
    }
}

/// Returns why an open gate does not take a verdict, as the line before the commands that it takes, or `None`.
pub fn open_gate(approval: &Approval, verdict: Verdict, now: Moment) -> Option<String> {
    refusal::open_gate(approval, verdict, now).map(|why| why + ":")
}
