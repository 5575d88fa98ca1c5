//! Text about quorums.
//!
//! It must not judge who can decide: it says what the request and the status say.

use signoff_api::{
    Approval, ApprovalStatus,
    gate::{Quorum, RejectPolicy, RequiredFrom, Subject, SubjectKind},
};

use crate::text::one_line;

/// Returns subjects as one line.
pub fn subjects(list: &[Subject]) -> String {
    list.iter().map(|subject| one_line(&subject.to_string(), 320)).collect::<Vec<_>>().join(", ")
}

/// Formats a number of people.
pub fn people(count: i32) -> String {
    if count == 1 { "1 person".into() } else { format!("{count} people") }
}

/// Describes the rules of a quorum besides its number, beginning with a comma.
pub fn rules(quorum: &Quorum) -> String {
    let group = |from: &RequiredFrom| format!(", {} of group {}", from.min, one_line(&from.group, 253));
    let mut text: String = quorum.required_from.iter().map(group).collect();
    if quorum.reject_policy == Some(RejectPolicy::Threshold) {
        text.push_str(", as many for Reject");
    }
    if quorum.excludes_requester() {
        text.push_str(", not the requester");
    }
    text
}

/// Describes the gate's own quorum without its approvers, with the count so far.
pub fn own(own: &Quorum, status: &ApprovalStatus) -> String {
    let so_far = status.tally.map(|tally| format!(" ({} of {} so far)", tally.have, tally.needed)).unwrap_or_default();
    format!("{}{}{so_far}", people(own.threshold), rules(own))
}

/// Describes a further quorum with its approvers and the policy that requires it.
pub fn further(quorum: &Quorum) -> String {
    let (count, rules) = (people(quorum.threshold), rules(quorum));
    format!("{count}{rules} out of {} (required by {})", subjects(&quorum.approvers), one_line(&quorum.source, 253))
}

/// Returns the approvers without users who are excluded; all of them if nobody would be left.
pub fn possible(approval: &Approval) -> Vec<Subject> {
    let request = &approval.spec.request;
    let requesters = [Some(&request.requested_by), request.requested_for.as_ref()];
    let is_requester = |name: &String| request.bars_requester() && requesters.contains(&Some(name));
    let is_excluded = |one: &&Subject| {
        one.kind == SubjectKind::User && (request.excluded.contains(&one.name) || is_requester(&one.name))
    };
    let left: Vec<Subject> = approval.approvers().iter().filter(|one| !is_excluded(one)).cloned().collect();
    if left.is_empty() { approval.approvers().to_vec() } else { left }
}
