//! The details of a gate: its Approval, the approvers, the votes, the deadline and the outcome.

use super::detail::Detail;
use crate::{
    action,
    clock::distance,
    edits,
    quorum::subjects,
    request::{consequence, counts_as},
    text::one_line,
};
use signoff_api::{
    Approval, ApprovalStatus, Moment,
    approval::{ApprovalPhase, Outcome, Source},
    gate::Quorum,
    journal::StepRecord,
};
use signoff_engine::approval::{QuorumProgress, progress};

/// The longest text of others in one detail, in characters.
const LONGEST: usize = 300;

/// Returns the details of an open gate. Without the Approval, the details are read from the journal.
pub fn open_details(record: &StepRecord, approval: Option<&Approval>, now: Moment) -> Vec<Detail> {
    let name = Detail::from(one_line(record.object.as_deref().unwrap_or("(no Approval yet)"), 253));
    let Some(approval) = approval else {
        let deadline = record.request.as_ref().map(|facts| deadline_detail(facts.deadline, now, ""));
        return std::iter::once(name).chain(deadline).collect();
    };
    let request = &approval.spec.request;
    let status = approval.status.clone().unwrap_or_default();
    let mut details = vec![name];
    details.extend(action::line(request).map(|call| Detail::from(format!("calls {}", one_line(&call, LONGEST)))));
    details.push(format!("asks: {}", one_line(&request.prompt, LONGEST)).into());
    details.push(quorum_line(approval, &status).into());
    details.extend(request.quorums.iter().zip(progress(approval)).skip(1).map(further_quorum_line).map(Detail::from));
    details.extend(votes_line(approval, &status).map(Detail::from));
    details.push(match status.phase {
        ApprovalPhase::Overdue => {
            Detail::with_instant("overdue since ", approval.deadline(), ": open for Retry, Reject and Abort only")
        }
        _ => deadline_detail(approval.deadline(), now, &format!("; then {}", consequence(request, &status))),
    });
    details
}

/// Returns the line about the decision of a gate: the people or the rule that decided, the verdict by which an expired
/// gate counts, and the reason.
pub fn decided_details(outcome: &Outcome, approval: Option<&Approval>) -> Vec<String> {
    let by = match outcome.source {
        Source::Timeout => "by its timeout".to_owned(),
        Source::Policy => "by the operator".to_owned(),
        Source::Grant => "by an earlier grant".to_owned(),
        Source::Human => format!("by {}", one_line(&outcome.decided_by.join(", "), LONGEST)),
    };
    // The phase of an expired gate does not name the verdict that counts.
    let request = approval.map(|approval| &approval.spec.request);
    let verdict = outcome.verdict.filter(|_| outcome.phase == ApprovalPhase::Expired);
    let verdict = verdict.map(|verdict| format!(", counts as {}", counts_as(verdict, request))).unwrap_or_default();
    let reason = outcome.reason.as_ref().map(|reason| format!(": {}", one_line(reason, LONGEST)));
    vec![format!("{by}{verdict}{}", reason.unwrap_or_default())]
}

/// Returns the beginning of the text that a Modify at the gate replaced, with the digest of the text.
pub fn original_detail(outcome: &Outcome, approval: &Approval) -> Option<String> {
    let request = &approval.spec.request;
    let replaced = edits::replaced(outcome, request)?;
    let text = match action::call(request) {
        Some(_) => action::arguments_line(replaced.text, LONGEST),
        None => one_line(replaced.text, LONGEST),
    };
    Some(format!("before the change: {text} ({})", replaced.digest))
}

fn deadline_detail(deadline: Moment, now: Moment, then: &str) -> Detail {
    Detail::with_instant("until ", deadline, &format!(" ({}){then}", distance(deadline, now)))
}

/// Returns the approvers of the first quorum and the count of votes, as in
/// `can decide: alice, group finance; 0 of 1 agree`.
fn quorum_line(approval: &Approval, status: &ApprovalStatus) -> String {
    let request = &approval.spec.request;
    let tally = status.tally.unwrap_or_default();
    let needed = if tally.needed > 0 { tally.needed } else { request.threshold() };
    let rules: String =
        request.quorums.first().into_iter().flat_map(|own| &own.required_from).fold(String::new(), |text, rule| {
            text + &format!(", {} of group {}", rule.min, one_line(&rule.group, 253))
        });
    let excluded = if request.bars_requester() { ", not the requester" } else { "" };
    format!("can decide: {}{excluded}; {} of {needed} agree{rules}", subjects(approval.approvers()), tally.have)
}

fn further_quorum_line((quorum, progress): (&Quorum, QuorumProgress)) -> String {
    let source = one_line(&quorum.source, 253);
    format!(
        "and {} of {} agree of: {} (required by {source})",
        progress.have,
        progress.needed,
        subjects(&quorum.approvers)
    )
}

/// Returns the decisions so far, both counted and not counted yet.
fn votes_line(approval: &Approval, status: &ApprovalStatus) -> Option<String> {
    let votes = approval.spec.decisions.iter().map(|(key, decision)| {
        let is_counted = status.votes.iter().any(|vote| vote.key == *key);
        let is_invalid = status.invalid.get(key).is_some_and(|invalid| invalid.attempt == decision.attempt());
        let state = match (is_counted, is_invalid) {
            (_, true) => " (invalid)",
            (true, false) => "",
            (false, false) => " (not counted yet)",
        };
        format!("{} {}{state}", one_line(key, 320), decision.verdict)
    });
    let votes: Vec<_> = votes.collect();
    (!votes.is_empty()).then(|| format!("votes: {}", votes.join(", ")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use signoff_api::{Digest, Verdict};

    use super::*;
    use crate::sample;

    #[test]
    fn a_heading_of_a_text_is_no_comment_of_a_call() {
        let outcome = Outcome { verdict: Some(Verdict::Modify), ..Outcome::default() };
        let text = "# Pay 37 EUR\nnow";
        let detail_of = |mut approval: Approval| {
            let review = approval.spec.request.reviews.as_mut().unwrap();
            (review.response, review.digest) = (text.to_owned(), Digest::of_bytes(text.as_bytes()));
            original_detail(&outcome, &approval).unwrap()
        };
        assert!(detail_of(sample::approval()).starts_with("before the change: # Pay 37 EUR now ("));
        assert!(detail_of(sample::call()).starts_with("before the change: now ("));
    }
}
