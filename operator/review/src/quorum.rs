//! Words about quorums: their rules, the votes so far, and the approvers.
//!
//! `engine/src/approval/quorum.rs` counts the votes. Whether a user can decide is not computed here.

use signoff_api::{
    Approval,
    gate::{Quorum, RejectPolicy, RequiredFrom, Subject, SubjectKind},
};

use signoff_engine::approval::{QuorumProgress, progress};

use crate::text::one_line;

/// Returns subjects as one line.
pub fn subjects(list: &[Subject]) -> String {
    list.iter().map(|subject| one_line(&subject.to_string(), 320)).collect::<Vec<_>>().join(", ")
}

/// Returns a number of people: `1 person` or `3 people`.
pub fn people(count: i32) -> String {
    if count == 1 { "1 person".into() } else { format!("{count} people") }
}

/// Returns the rules of a quorum besides its number, beginning with a comma.
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

/// Returns a line for each quorum with the count so far; the first line is about the gate's own quorum. If there are
/// several quorums, each line also names the approvers, and the gate or policy that requires the quorum.
pub fn lines(approval: &Approval) -> Vec<String> {
    let quorums = &approval.spec.request.quorums;
    let status = approval.status.clone().unwrap_or_default();
    let so_far = |have: i32, needed: i32| format!("{have} of {needed} so far");
    if let [own] = quorums.as_slice() {
        let so_far = status.tally.map(|tally| format!(" ({})", so_far(tally.have, tally.needed))).unwrap_or_default();
        return vec![format!("{}{}{so_far}", people(own.threshold), rules(own))];
    }
    let has_votes = !status.votes.is_empty();
    let line = |((index, quorum), progress): ((usize, &Quorum), QuorumProgress)| {
        let approvers = if index == 0 { approval.approvers() } else { &quorum.approvers };
        let so_far = if has_votes { format!("; {}", so_far(progress.have, progress.needed)) } else { String::new() };
        let (count, rules, source) = (people(quorum.threshold), rules(quorum), one_line(&quorum.source, 253));
        format!("{count}{rules} out of {} (required by {source}{so_far})", subjects(approvers))
    };
    quorums.iter().enumerate().zip(progress(approval)).map(line).collect()
}

/// Returns the count so far of each quorum for a cell of a table: `0/1`, or `1/1,0/2`.
pub fn cell(approval: &Approval) -> String {
    let request = &approval.spec.request;
    if request.quorums.len() < 2 {
        let tally = approval.status.as_ref().and_then(|status| status.tally).unwrap_or_default();
        return format!("{}/{}", tally.have, request.threshold());
    }
    let cells: Vec<_> =
        progress(approval).iter().map(|progress| format!("{}/{}", progress.have, progress.needed)).collect();
    cells.join(",")
}

/// Returns the number of people who agree in each quorum: `1 of 2`, or `1 of 1 for gate one, 0 of 2 for gate two`. If
/// these numbers suffice, the groups follow whose members are still needed.
pub fn agreement(approval: &Approval) -> String {
    let quorums = &approval.spec.request.quorums;
    let progress = progress(approval);
    let mut text = if quorums.len() < 2 {
        let tally = approval.status.as_ref().and_then(|status| status.tally).unwrap_or_default();
        format!("{} of {}", tally.have, tally.needed)
    } else {
        let count = |(quorum, progress): (&Quorum, &QuorumProgress)| {
            format!("{} of {} for {}", progress.have, progress.needed, one_line(&quorum.source, 253))
        };
        quorums.iter().zip(&progress).map(count).collect::<Vec<_>>().join(", ")
    };
    if progress.iter().all(|quorum| quorum.have >= quorum.needed) {
        let missing = progress.iter().flat_map(|quorum| &quorum.missing);
        let missing: Vec<_> =
            missing.map(|(group, rest)| format!("{rest} of group {}", one_line(group, 253))).collect();
        if !missing.is_empty() {
            text.push_str(&format!("; not yet met of: {}", missing.join(", ")));
        }
    }
    text
}

/// Returns the approvers without the excluded users, or all approvers if none would be left.
pub fn possible(approval: &Approval) -> Vec<Subject> {
    let request = &approval.spec.request;
    let is_requester =
        |name: &String| request.bars_requester() && request.requesters().any(|requester| requester == name);
    let is_excluded = |subject: &&Subject| {
        let name = &subject.name;
        subject.kind == SubjectKind::User && (request.excluded.contains(name) || is_requester(name))
    };
    let left: Vec<Subject> = approval.approvers().iter().filter(|subject| !is_excluded(subject)).cloned().collect();
    if left.is_empty() { approval.approvers().to_vec() } else { left }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;
    use signoff_api::Decision;

    use super::*;
    use crate::sample;

    #[test]
    fn a_required_group_is_missing_only_its_remaining_votes() {
        let mut approval = sample::approval();
        let own = &mut approval.spec.request.quorums[0];
        own.required_from =
            serde_json::from_value(json!([{"group": "finance", "min": 3}, {"group": "leads", "min": 1}])).unwrap();
        let mut left = Vec::new();
        for user in ["u1", "u2", "u3", "u4"] {
            left.push(progress(&approval).remove(0).missing);
            let decision: Decision =
                serde_json::from_value(json!({"verdict": "Approve", "groups": ["finance"]})).unwrap();
            approval.spec.decisions.insert(user.to_owned(), decision);
            let vote = json!({"key": user, "user": user, "verdict": "Approve", "attempt": 1, "groups": ["finance"],
                "at": "2026-11-22T10:00:00Z", "epoch": "epoch-1"});
            approval.status.as_mut().unwrap().votes.push(serde_json::from_value(vote).unwrap());
        }
        let both = |finance: i32| vec![("finance".to_owned(), finance), ("leads".to_owned(), 1)];
        assert_eq!(left, [both(3), both(2), both(1), vec![("leads".to_owned(), 1)]]);
        approval.spec.decisions.remove("u4");
        approval.spec.decisions.remove("u3");
        approval.status.as_mut().unwrap().tally = Some(signoff_api::approval::TallyStatus { needed: 1, have: 2 });
        assert_eq!(agreement(&approval), "2 of 1; not yet met of: 1 of group finance, 1 of group leads");
    }
}
