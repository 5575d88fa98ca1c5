//! What a cluster's API server refuses of a decision before anybody counts it, for runs that have none.
//!
//! Votes are counted elsewhere. Names are not verified here: a local run takes people at their word.

use std::collections::BTreeSet;

use signoff_api::{
    Approval, ApprovalRequest, Decision, Moment, approval::Grant, gate::SubjectKind, verdict::PayloadPart,
};
use signoff_engine::approval::eligibility::{self, Voter};

/// Checks a decision of a user.
///
/// # Errors
/// One sentence for that user: what is wrong, and the remedy.
pub fn admit(approval: &Approval, user: &str, decision: &Decision, now: Moment) -> Result<(), String> {
    let request = &approval.spec.request;
    if let Some(why) = eligibility::closed(approval, now) {
        return Err(why.to_string());
    }
    if let Some(why) = barred(approval, user) {
        return Err(why);
    }
    if user.is_empty() || user.len() > 253 {
        return Err("the name of the user who decides must have 1 to 253 characters".to_owned());
    }
    let status = approval.status.clone().unwrap_or_default();
    let allowed = eligibility::allowed_verdicts(request, &status);
    if !allowed.contains(&decision.verdict) {
        let names: Vec<_> = allowed.iter().map(|verdict| verdict.name()).collect();
        return Err(format!("{} is not allowed here: use one of {}", decision.verdict, names.join(", ")));
    }
    shape(request, decision)?;
    let others = approval.spec.decisions.iter().filter(|(key, _)| *key != user);
    let others = others.map(|(key, other)| (key.clone(), other.clone())).collect();
    decision.too_large(request, &others).map_or(Ok(()), |why| Err(why.to_owned()))
}

/// Returns why a user cannot decide an Approval, whatever they decide, or `None` where they can. A user decides locally
/// in every group of the gate, and need not be among its approvers: a local run does not authenticate user names.
#[must_use]
pub fn barred(approval: &Approval, user: &str) -> Option<String> {
    let groups = groups(&approval.spec.request);
    let why = eligibility::voter_problem(approval, &Voter::new(user, &groups)).filter(|why| !why.is_about_lists())?;
    Some(why.to_string())
}

/// Checks that a payload belongs to its verdict and is within its bounds.
fn shape(request: &ApprovalRequest, decision: &Decision) -> Result<(), String> {
    let verdict = decision.verdict;
    let only = |given: bool, what: &str, part: PayloadPart| {
        if given && !verdict.takes(part) {
            Err(format!("{what} belongs to {} and not to {verdict}", part.verdicts_in_words("or")))
        } else {
            Ok(())
        }
    };
    let short = |text: &Option<String>, what: &str, most: usize| match text.as_ref().map(|text| text.chars().count()) {
        Some(length) if length > most => Err(format!("{what} has {length} characters; the maximum is {most}")),
        _ => Ok(()),
    };
    only(decision.parameters.is_some(), "parameters", PayloadPart::Parameters)?;
    only(decision.response.is_some(), "response", PayloadPart::Answer)?;
    only(decision.answers.is_some(), "answers", PayloadPart::Answer)?;
    only(decision.guidance.is_some(), "guidance", PayloadPart::Guidance)?;
    only(!decision.escalate_to.is_empty(), "escalateTo", PayloadPart::EscalateTo)?;
    if decision.grant.is_some() {
        return Err(Grant::REFUSED.to_owned());
    }
    let is_blank = |text: &Option<String>| text.as_ref().is_none_or(|text| text.trim().is_empty());
    if verdict.requires(PayloadPart::Guidance) && is_blank(&decision.guidance) {
        return Err(format!("{verdict} needs guidance: say what to do differently"));
    }
    if request.require_reason == Some(true) && is_blank(&decision.reason) {
        return Err("this gate requires a reason with every decision: give one".to_owned());
    }
    short(&decision.reason, "reason", 2048)?;
    short(&decision.response, "response", 8192)?;
    short(&decision.guidance, "guidance", 4096)?;
    for (id, answer) in decision.answers.iter().flatten() {
        short(&answer.text, &format!("answers.{id}.text"), 8192)?;
    }
    if verdict.requires(PayloadPart::Answer)
        && let Some(id) = unanswered(request, decision)
    {
        return Err(format!("answers.{id} is empty, and it is required"));
    }
    Ok(())
}

/// A question that must be answered and is answered with nothing.
fn unanswered<'r>(request: &'r ApprovalRequest, decision: &Decision) -> Option<&'r str> {
    let blank = |text: Option<&String>| text.is_some_and(|text| text.trim().is_empty());
    let questions = request.form.iter().flat_map(|form| &form.questions).filter(|q| !q.may_be_left_out());
    let empty = |id: &String| match decision.answers.as_ref().and_then(|answers| answers.get(id)) {
        Some(answer) => answer.options.is_empty() && blank(answer.text.as_ref()),
        None => blank(decision.response.as_ref()),
    };
    questions.map(|question| &question.id).find(|id| empty(id)).map(String::as_str)
}

/// Every group that some quorum of a gate counts: whoever decides locally is taken to be in all of them.
pub(super) fn groups(request: &ApprovalRequest) -> Vec<String> {
    let approvers = request.quorums.iter().flat_map(|quorum| &quorum.approvers);
    let listed = approvers.filter(|subject| subject.kind == SubjectKind::Group).map(|subject| subject.name.clone());
    let required = request.quorums.iter().flat_map(|quorum| &quorum.required_from).map(|from| from.group.clone());
    listed.chain(required).collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use signoff_api::{
        JsonObject, Verdict,
        approval::{ApprovalPhase, ApprovalSpec},
    };

    use super::*;
    use crate::sample::request as sample_request;

    fn now() -> Moment {
        Moment::from(jiff::Timestamp::UNIX_EPOCH)
    }

    fn gate(allowed: &[Verdict]) -> Approval {
        let spec = ApprovalSpec { request: sample_request(allowed), decisions: std::collections::BTreeMap::new() };
        Approval::new("gate", spec)
    }

    fn why(approval: &Approval, decision: &Decision) -> String {
        admit(approval, "dana", decision, now()).err().unwrap_or_default()
    }

    #[test]
    fn what_is_not_allowed_is_refused_with_what_is() {
        let approval = gate(&[Verdict::Approve, Verdict::Reject]);
        assert_eq!(why(&approval, &Decision::new(Verdict::Approve)), "");
        assert_eq!(
            why(&approval, &Decision::new(Verdict::Abort)),
            "Abort is not allowed here: use one of Approve, Reject"
        );
    }

    #[test]
    fn whoever_asked_may_not_decide_where_the_gate_says_so() {
        let mut approval = gate(&[Verdict::Approve]);
        approval.spec.request.quorums[0].exclude_requester = Some(true);
        assert!(why(&approval, &Decision::new(Verdict::Approve)).contains("dana is the requester"));
        assert_eq!(admit(&approval, "erin", &Decision::new(Verdict::Approve), now()), Ok(()));
    }

    #[test]
    fn nobody_decides_twice_or_after_the_end() {
        let mut approval = gate(&[Verdict::Approve]);
        approval.spec.decisions.insert("dana".into(), Decision::new(Verdict::Approve));
        assert!(why(&approval, &Decision::new(Verdict::Approve)).contains("already"));
        approval.spec.decisions.clear();
        approval.spec.request.closes_at = Some(now());
        assert_eq!(why(&approval, &Decision::new(Verdict::Approve)), "");
        let late = now().after(std::time::Duration::from_secs(1));
        assert!(admit(&approval, "dana", &Decision::new(Verdict::Approve), late).unwrap_err().contains("closed"));
        approval.status.get_or_insert_default().phase = ApprovalPhase::Rejected;
        assert!(why(&approval, &Decision::new(Verdict::Approve)).contains("decided already"));
    }

    #[test]
    fn what_belongs_to_another_verdict_is_refused_and_not_dropped() {
        let approval = gate(&Verdict::ALL);
        let reason = |text: &str| Decision { reason: Some(text.into()), ..Decision::new(Verdict::Reject) };
        assert_eq!(why(&approval, &reason("because")), "");
        assert!(why(&approval, &reason(&"x".repeat(2049))).contains("2048"));
        let guided = Decision { guidance: Some("shorter".into()), ..Decision::new(Verdict::Approve) };
        assert_eq!(why(&approval, &guided), "guidance belongs to Defer and not to Approve");
        assert!(why(&approval, &Decision::new(Verdict::Defer)).contains("needs guidance"));
        let mut deep = serde_json::json!(1);
        for _ in 0..Decision::MAX_LEVELS {
            deep = serde_json::json!([deep]);
        }
        let fields = serde_json::Map::from_iter([("response".to_owned(), deep)]);
        let modify = Decision { parameters: Some(JsonObject(fields)), ..Decision::new(Verdict::Modify) };
        assert!(why(&approval, &modify).contains("five levels"));
    }

    #[test]
    fn a_gate_that_wants_reasons_gets_one() {
        let mut approval = gate(&[Verdict::Approve]);
        approval.spec.request.require_reason = Some(true);
        assert!(why(&approval, &Decision::new(Verdict::Approve)).contains("requires a reason"));
    }
}
