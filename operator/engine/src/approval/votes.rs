//! The parsing of decisions: from entries of `spec.decisions` to ballots, or to the reasons why they are invalid.
//!
//! Each ballot is read on its own; `quorum.rs` compares ballots.

use std::collections::BTreeMap;

use signoff_api::{
    Approval, ApprovalStatus, Verdict,
    approval::{ApprovalPhase, Invalid, Vote},
};

use crate::{
    approval::eligibility::{self, Electorate},
    crd_rules,
    evaluation::{Part, within},
    gate::payload::{self, Payload},
    transition::Now,
};

/// A valid decision.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ballot {
    pub(super) key: String,
    /// The counted user name: the key, or the person on whose behalf an account decided.
    pub(super) user: String,
    pub(super) verdict: Verdict,
    pub(super) attempt: i32,
    pub(super) payload: Payload,
    pub(super) reason: Option<String>,
    pub(super) groups: Vec<String>,
    pub(super) escalate_to: Vec<signoff_api::gate::Subject>,
    pub(super) channel: Option<String>,
    /// Whether the vote is not in `status.votes` yet.
    pub(super) is_new: bool,
}

impl Ballot {
    /// Returns the account that sent the vote on behalf of a person.
    pub(super) fn account(&self) -> Option<&str> {
        eligibility::account_of(&self.key)
    }

    /// Returns the record of the vote.
    pub(super) fn vote(&self, now: &Now) -> Vote {
        Vote {
            key: self.key.clone(),
            user: self.user.clone(),
            verdict: self.verdict,
            attempt: self.attempt,
            at: now.at,
            groups: self.groups.clone(),
            channel: self.channel.clone(),
            epoch: now.guard_epoch.clone(),
        }
    }
}

/// Returns all valid decisions, the recorded ones first and in their order, and the new invalid ones. Ignores decisions
/// about another request and decisions that the admission policies would have refused. A recorded vote never becomes
/// invalid. Decisions in `costly` are not evaluated and are invalid.
pub(super) fn read(
    approval: &Approval,
    status: &ApprovalStatus,
    costly: &BTreeMap<String, String>,
) -> (Vec<Ballot>, Vec<(String, Invalid)>) {
    let request = &approval.spec.request;
    let recorded = |key: &str| status.votes.iter().position(|v| v.key == key);
    let electorate = Electorate::new(request, &status.approvers);
    let (mut ballots, mut invalid) = (Vec::new(), Vec::new());
    for (key, decision) in &approval.spec.decisions {
        let attempt = decision.attempt();
        if status.invalid.get(key).is_some_and(|invalid| invalid.attempt >= attempt) {
            continue;
        }
        let is_stale = decision.request_digest.as_ref().is_some_and(|d| d != request.digest.as_str());
        if is_stale || !eligibility::is_key_of(key, decision.on_behalf_of.as_deref()) {
            continue;
        }
        // The API server accepts only the allowed verdicts once the Approval is overdue, so a vote with another verdict
        // did not pass the admission policies.
        if status.phase == ApprovalPhase::Overdue
            && recorded(key).is_none()
            && !eligibility::allowed_verdicts(request, status).contains(&decision.verdict)
        {
            continue;
        }
        let user = decision.on_behalf_of.as_ref().unwrap_or(key);
        if eligibility::account_of(key).is_some_and(|account| electorate.is_excluded_account(account)) {
            continue;
        }
        if let Some(why) = electorate.reason_not_counted(user, decision.verdict).filter(|_| recorded(key).is_none()) {
            invalid.push((key.clone(), Invalid { attempt, why: why.to_string() }));
            continue;
        }
        let payload = match costly.get(key) {
            Some(why) => Err(why.clone()),
            None => within(
                || Part::Vote(key.clone()),
                || {
                    payload::parse(request, decision)
                        .and_then(|payload| crd_rules::check_decision(decision).map(|()| payload))
                },
            ),
        };
        let payload = match payload {
            Ok(payload) => payload,
            Err(_) if recorded(key).is_some() => continue,
            Err(why) => {
                let why = signoff_expr::text::display(&why, 1000);
                invalid.push((key.clone(), Invalid { attempt, why }));
                continue;
            }
        };
        ballots.push(Ballot {
            key: key.clone(),
            user: user.clone(),
            verdict: decision.verdict,
            attempt,
            payload,
            reason: decision.reason.clone(),
            groups: if decision.on_behalf_of.is_some() { Vec::new() } else { decision.groups.clone() },
            escalate_to: decision.escalate_to.clone(),
            channel: decision.channel.clone(),
            is_new: recorded(key).is_none(),
        });
    }
    ballots.sort_by_key(|b| recorded(&b.key).unwrap_or(usize::MAX));
    (ballots, invalid)
}
