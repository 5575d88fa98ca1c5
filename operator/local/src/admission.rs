//! The refusals of a decision that an API server makes by the state of the Approval, for runs without a cluster.
//!
//! The tally judges the payload, as on a cluster. User names are not verified: a local run does not authenticate.

use std::collections::BTreeSet;

use signoff_api::{Approval, ApprovalRequest, Decision, Moment, gate::SubjectKind};
use signoff_engine::approval::eligibility::{self, Voter};

/// Checks a decision of a user.
///
/// # Errors
/// One sentence for that user: the problem and the remedy.
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
    // The tally also counts decisions that are only foreseen, which have no reason yet.
    let is_reason = |reason: &String| reason.chars().any(char::is_alphanumeric);
    if request.require_reason == Some(true) && !decision.reason.as_ref().is_some_and(is_reason) {
        return Err("this gate requires a reason with at least one letter or digit".to_owned());
    }
    let others = approval.spec.decisions.iter().filter(|(key, _)| *key != user);
    let others = others.map(|(key, other)| (key.clone(), other.clone())).collect();
    decision.too_large(request, &others).map_or(Ok(()), |why| Err(why.to_owned()))
}

/// Returns the reason why a user cannot decide an Approval with any verdict, or `None`. A local user is in every group
/// of the gate, and need not be among its approvers, because a local run does not authenticate user names.
#[must_use]
pub fn barred(approval: &Approval, user: &str) -> Option<String> {
    let groups = all_groups(&approval.spec.request);
    let why = eligibility::voter_problem(approval, &Voter::new(user, &groups)).filter(|why| !why.is_about_lists())?;
    Some(why.to_string())
}

/// Returns every group that a quorum of the gate counts. A local user is in all of these groups.
pub(super) fn all_groups(request: &ApprovalRequest) -> Vec<String> {
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

    use signoff_engine::{
        Now,
        approval::{OwnerState, tally},
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

    /// Returns the refusal of dana's decision, by its admission or by its tally.
    fn refusal_of(approval: &Approval, decision: &Decision) -> String {
        if let Err(why) = admit(approval, "dana", decision, now()) {
            return why;
        }
        let mut decided = approval.clone();
        let groups = all_groups(&approval.spec.request);
        decided.spec.decisions.insert("dana".into(), Decision { groups, ..decision.clone() });
        let now = Now::new(now(), approval.guard_epoch().to_owned());
        let status = tally(&decided, OwnerState::Live, &now).status;
        status.invalid.get("dana").map(|invalid| invalid.why.clone()).unwrap_or_default()
    }

    #[test]
    fn a_verdict_that_is_not_allowed_is_refused_with_the_allowed_ones() {
        let approval = gate(&[Verdict::Approve, Verdict::Reject]);
        assert_eq!(refusal_of(&approval, &Decision::new(Verdict::Approve)), "");
        assert_eq!(
            refusal_of(&approval, &Decision::new(Verdict::Abort)),
            "Abort is not allowed here: use one of Approve, Reject"
        );
    }

    #[test]
    fn the_requester_cannot_decide_if_the_gate_excludes_requesters() {
        let mut approval = gate(&[Verdict::Approve]);
        approval.spec.request.quorums[0].exclude_requester = Some(true);
        assert!(refusal_of(&approval, &Decision::new(Verdict::Approve)).contains("dana is the requester"));
        assert_eq!(admit(&approval, "erin", &Decision::new(Verdict::Approve), now()), Ok(()));
    }

    #[test]
    fn a_user_cannot_decide_twice_or_after_the_end() {
        let mut approval = gate(&[Verdict::Approve]);
        approval.spec.decisions.insert("dana".into(), Decision::new(Verdict::Approve));
        assert!(refusal_of(&approval, &Decision::new(Verdict::Approve)).contains("already"));
        approval.spec.decisions.clear();
        approval.spec.request.closes_at = Some(now());
        assert_eq!(refusal_of(&approval, &Decision::new(Verdict::Approve)), "");
        let late = now().after(std::time::Duration::from_secs(1));
        assert!(admit(&approval, "dana", &Decision::new(Verdict::Approve), late).unwrap_err().contains("closed"));
        approval.status.get_or_insert_default().phase = ApprovalPhase::Rejected;
        assert!(refusal_of(&approval, &Decision::new(Verdict::Approve)).contains("decided already"));
    }

    #[test]
    fn a_payload_of_another_verdict_is_refused() {
        let approval = gate(&Verdict::ALL);
        let reason = |text: &str| Decision { reason: Some(text.into()), ..Decision::new(Verdict::Reject) };
        assert_eq!(refusal_of(&approval, &reason("because")), "");
        assert!(refusal_of(&approval, &reason(&"x".repeat(2049))).contains("2048"));
        let guided = Decision { guidance: Some("shorter".into()), ..Decision::new(Verdict::Approve) };
        assert_eq!(refusal_of(&approval, &guided), "Defer needs guidance; other verdicts must not have it");
        assert!(refusal_of(&approval, &Decision::new(Verdict::Defer)).contains("needs guidance"));
        let mut deep = serde_json::json!(1);
        for _ in 0..Decision::MAX_LEVELS {
            deep = serde_json::json!([deep]);
        }
        let fields = serde_json::Map::from_iter([("response".to_owned(), deep)]);
        let modify = Decision { parameters: Some(JsonObject(fields)), ..Decision::new(Verdict::Modify) };
        assert!(refusal_of(&approval, &modify).contains("five levels"));
    }

    #[test]
    fn a_decision_without_a_required_reason_is_refused() {
        let mut approval = gate(&[Verdict::Approve]);
        approval.spec.request.require_reason = Some(true);
        assert!(refusal_of(&approval, &Decision::new(Verdict::Approve)).contains("requires a reason"));
    }
}
