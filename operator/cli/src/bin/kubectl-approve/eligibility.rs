//! Which Approvals a person can still decide, as far as that can be read from the object.
//!
//! It only sorts lists and warns: the API server is the judge, and nothing here may keep a decision from being sent.

use regex::Regex;
use signoff_api::{Approval, ApprovalRequest, Moment, gate::PersonRule};

use crate::client::Me;

/// Returns the reason why this user cannot decide this Approval now, or `None`.
pub fn obstacle(approval: &Approval, me: &Me, now: Moment) -> Option<String> {
    let request = &approval.spec.request;
    let status = approval.status.clone().unwrap_or_default();
    if status.phase.is_end() || status.outcome.is_some() {
        return Some(format!("it was decided already ({})", status.phase.name()));
    }
    if approval.metadata.deletion_timestamp.is_some() {
        return Some("it is being deleted with its Workflow".into());
    }
    if let Some(closes) = closes_at(approval).filter(|closes| *closes < now) {
        return Some(format!("it closed at {closes}"));
    }
    if let Some(own) = approval.spec.decisions.get(&me.user)
        && !is_invalid(approval, &me.user)
    {
        return Some(format!("you decided {} already", own.verdict));
    }
    let for_me =
        approval.spec.decisions.iter().find(|(_, decision)| decision.on_behalf_of.as_deref() == Some(&me.user));
    if let Some((key, _)) = for_me {
        return Some(format!("somebody decided on your behalf ({key})"));
    }
    if me.user.contains(" via ") {
        return Some("a user name that holds ` via ` cannot decide".into());
    }
    if request.quorums.is_empty() {
        return Some("it has no quorum (spec.request.quorums), so nobody can decide it".into());
    }
    let Some(person) = counted_as(request, &me.user) else {
        return Some("your user name is no person by the rules of this gate (spec.request.persons)".into());
    };
    let same = |name: &String| person_of(request, name) == person;
    let requester = same(&request.requested_by) || request.requested_for.as_ref().is_some_and(same);
    if requester && request.bars_requester() {
        return Some("the requester must not decide this gate (excludeRequester)".into());
    }
    if request.excluded.iter().any(same) {
        return Some("you are excluded from deciding this gate (spec.request.excluded)".into());
    }
    let further = request.quorums.iter().skip(1).filter(|quorum| !(requester && quorum.excludes_requester()));
    let mut lists = std::iter::once(approval.approvers()).chain(further.map(|quorum| quorum.approvers.as_slice()));
    if !lists.any(|list| list.iter().any(|subject| subject.means(&me.user, &me.groups))) {
        return Some("you are not among its approvers, by name or by group".into());
    }
    None
}

/// After which instant no vote is accepted, if there is one.
pub fn closes_at(approval: &Approval) -> Option<Moment> {
    match &approval.status {
        Some(status) if status.level.unwrap_or(0) > 0 => status.closes_at,
        _ => approval.spec.request.closes_at,
    }
}

/// When the next timeout happens.
pub fn deadline(approval: &Approval) -> Moment {
    approval.status.as_ref().and_then(|status| status.deadline).unwrap_or(approval.spec.request.deadline)
}

/// Whether the recorded decision under this key was found invalid and may be given again.
pub fn is_invalid(approval: &Approval, key: &str) -> bool {
    let recorded = approval.spec.decisions.get(key);
    let found = approval.status.as_ref().and_then(|status| status.invalid.get(key));
    matches!((recorded, found), (Some(recorded), Some(found)) if recorded.attempt() == found.attempt)
}

/// The person behind a user name, where rules tell persons apart; `None` when no rule knows the name.
fn counted_as(request: &ApprovalRequest, user: &str) -> Option<String> {
    if request.persons.is_empty() {
        return Some(user.to_owned());
    }
    request.persons.iter().find_map(|rule| apply(rule, user))
}

/// The person behind a user name: the name itself where no rule knows it.
fn person_of(request: &ApprovalRequest, user: &str) -> String {
    counted_as(request, user).unwrap_or_else(|| user.to_owned())
}

fn apply(rule: &PersonRule, user: &str) -> Option<String> {
    let pattern = Regex::new(&format!("^(?:{})$", rule.pattern)).ok()?;
    let found = pattern.captures(user)?;
    Some(rule.person.replace("$1", found.get(1).map_or("$1", |group| group.as_str())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use signoff_api::{
        Decision, Verdict,
        approval::ApprovalPhase,
        gate::{Quorum, Subject},
    };

    use super::*;
    use crate::sample;

    fn why(approval: &Approval, user: &str, groups: &[&str]) -> String {
        obstacle(approval, &sample::me(user, groups), sample::now()).unwrap_or_default()
    }

    #[test]
    fn whoever_is_listed_by_name_or_group_can_decide() {
        let approval = sample::approval();
        assert_eq!(why(&approval, "alice@example.com", &[]), "");
        assert_eq!(why(&approval, "bob@example.com", &["finance"]), "");
        assert_eq!(
            why(&approval, "mallory@example.com", &["outsiders"]),
            "you are not among its approvers, by name or by group"
        );
    }

    #[test]
    fn after_an_escalation_the_status_says_who_is_asked() {
        let mut approval = sample::approval();
        let status = approval.status.get_or_insert_default();
        status.approvers = vec![Subject::group("directors")];
        assert_eq!(why(&approval, "zoe@example.com", &["directors"]), "");
        assert!(why(&approval, "bob@example.com", &["finance"]).contains("not among"));
    }

    #[test]
    fn a_person_of_any_quorum_can_decide_and_the_requester_where_none_excludes_them() {
        let mut approval = sample::approval();
        let own = approval.spec.request.quorums[0].clone();
        let mut policy = Quorum { approvers: vec![Subject::user("dana@example.com")], ..own };
        approval.spec.request.quorums.push(policy.clone());
        assert_eq!(why(&approval, "dana@example.com", &[]), "");
        policy.exclude_requester = Some(true);
        approval.spec.request.quorums[1] = policy;
        assert!(why(&approval, "dana@example.com", &[]).contains("not among"));
        assert_eq!(why(&approval, "dana@example.com", &["finance"]), "");
        approval.spec.request.quorums[0].exclude_requester = Some(true);
        assert_eq!(
            why(&approval, "dana@example.com", &["finance"]),
            "the requester must not decide this gate (excludeRequester)"
        );
    }

    #[test]
    fn without_a_quorum_nobody_can_decide() {
        let mut approval = sample::approval();
        approval.spec.request.quorums.clear();
        approval.status.get_or_insert_default().approvers = vec![Subject::user("alice@example.com")];
        assert!(why(&approval, "alice@example.com", &[]).contains("no quorum"));
    }

    #[test]
    fn who_decided_already_is_asked_again_only_after_that_attempt_was_invalid() {
        let mut approval = sample::approval();
        approval.spec.decisions.insert("alice@example.com".into(), Decision::new(Verdict::Modify));
        assert_eq!(why(&approval, "alice@example.com", &[]), "you decided Modify already");
        let invalid = signoff_api::approval::Invalid { attempt: 1, why: "no such field".into() };
        approval.status.get_or_insert_default().invalid.insert("alice@example.com".into(), invalid);
        assert_eq!(why(&approval, "alice@example.com", &[]), "");
        approval.spec.decisions.get_mut("alice@example.com").unwrap().attempt = Some(2);
        assert_eq!(why(&approval, "alice@example.com", &[]), "you decided Modify already");
    }

    #[test]
    fn a_decision_on_ones_behalf_is_ones_own() {
        let mut approval = sample::approval();
        let decision = Decision { on_behalf_of: Some("alice@example.com".into()), ..Decision::new(Verdict::Approve) };
        approval.spec.decisions.insert("alice@example.com via flux".into(), decision);
        assert!(why(&approval, "alice@example.com", &[]).starts_with("somebody decided on your behalf"));
    }

    #[test]
    fn what_is_decided_or_closed_is_nobodys() {
        let mut approval = sample::approval();
        approval.spec.request.closes_at = Some(sample::now());
        assert_eq!(why(&approval, "alice@example.com", &[]), "");
        approval.spec.request.closes_at = Some(Moment::from(jiff::Timestamp::UNIX_EPOCH));
        assert_eq!(why(&approval, "alice@example.com", &[]), "it closed at 1970-01-01T00:00:00Z");
        approval.status.get_or_insert_default().level = Some(1);
        assert_eq!(why(&approval, "alice@example.com", &[]), "");
        approval.status.get_or_insert_default().phase = ApprovalPhase::Rejected;
        assert_eq!(why(&approval, "alice@example.com", &[]), "it was decided already (Rejected)");
    }

    #[test]
    fn exclusions_hold_for_the_person_and_not_only_for_one_user_name() {
        let mut approval = sample::approval();
        approval.spec.request.quorums[0].exclude_requester = Some(true);
        assert_eq!(
            why(&approval, "dana@example.com", &["finance"]),
            "the requester must not decide this gate (excludeRequester)"
        );
        assert_eq!(why(&approval, "github:dana", &["finance"]), "");
        approval.spec.request.persons = vec![
            PersonRule { pattern: "github:([a-z]+)".into(), person: "$1@example.com".into() },
            PersonRule { pattern: ".*@example[.]com".into(), person: "$1".into() },
            PersonRule { pattern: "([a-z]+@example[.]com)".into(), person: "$1".into() },
        ];
        approval.spec.request.persons.remove(1);
        assert_eq!(
            why(&approval, "github:dana", &["finance"]),
            "the requester must not decide this gate (excludeRequester)"
        );
        assert!(why(&approval, "oidc:bob", &["finance"]).contains("no person"));
        approval.spec.request.excluded = vec!["github:bob".into()];
        assert!(why(&approval, "bob@example.com", &["finance"]).contains("excluded"));
    }
}
