//! The votes that are void because their Approval was superseded, and the reason why the gate asks again *(I/O)*.
//!
//! **Invariant:** the earlier Approvals are only shown, and none of their votes counts.

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
};
use signoff_api::{Approval, Verdict, names};

use crate::{seen::Seen, text::one_line, voter::Me};

/// The label of the earlier votes.
pub const LABEL: &str = "Void votes";
/// The most superseded Approvals of a gate that are read.
const MOST: usize = 4;

/// A superseded Approval, which an open Approval asks again, and its votes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Earlier {
    /// The name of the Approval.
    pub approval: String,
    /// The key and the verdict of each vote.
    pub votes: Vec<(String, Verdict)>,
    /// The reason why the votes are void, if the Approval has one.
    pub reason: Option<String>,
}

/// Fetches the Approvals of the same run that `approval` asks again, the latest first: at most four, up to the first
/// that cannot be read.
pub async fn earlier(client: &Client, namespace: &str, approval: &Approval) -> Vec<Earlier> {
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &ApiResource::erase::<Approval>(&()));
    let (mut found, mut next) = (Vec::new(), approval.asks_again().map(str::to_owned));
    while let Some(name) = next.filter(|name| found.len() < MOST && names::is_object(name)) {
        let Ok(Ok(seen)) = api.get(&name).await.map(|object| Seen::of(&object)) else { break };
        if seen.approval.spec.request.workflow != approval.spec.request.workflow {
            break;
        }
        next = seen.approval.asks_again().map(str::to_owned);
        found.push(Earlier::of(&seen.approval));
    }
    found
}

impl Earlier {
    /// Returns the votes of a superseded Approval.
    #[must_use]
    pub fn of(approval: &Approval) -> Self {
        let decisions = approval.spec.decisions.iter();
        let outcome = approval.status.as_ref().and_then(|status| status.outcome.as_ref());
        // An outcome with a verdict is older than the end of its votes, and has the reason of a voter.
        let reason = outcome.filter(|outcome| outcome.verdict.is_none()).and_then(|outcome| outcome.reason.clone());
        Self {
            approval: approval.metadata.name.clone().unwrap_or_default(),
            votes: decisions.map(|(key, decision)| (key.clone(), decision.verdict)).collect(),
            reason,
        }
    }

    /// Returns the votes, their Approval, and the reason: `alice@example.com (Approve), of refund-1a2b: …`. Returns
    /// `None` if the Approval has no votes.
    #[must_use]
    pub fn line(&self) -> Option<String> {
        let vote = |(key, verdict): &(String, Verdict)| format!("{} ({verdict})", one_line(key, 320));
        let votes: Vec<_> = self.votes.iter().map(vote).collect();
        let why = self.reason.as_ref().map(|why| format!(": {}", one_line(why, 600))).unwrap_or_default();
        (!votes.is_empty()).then(|| format!("{}, of {}{why}", votes.join(", "), one_line(&self.approval, 253)))
    }
}

/// Returns the sentence for a reader whose own vote is void; of several votes it names the latest. Returns `None` if
/// the reader has decided again, or if the gate is decided. `earlier`: the Approvals that this one asks again, the
/// latest first.
#[must_use]
pub fn lost(earlier: &[Earlier], approval: &Approval, me: &Me) -> Option<String> {
    let status = approval.status.as_ref();
    let is_decided = status.is_some_and(|status| status.phase.is_end() || status.outcome.is_some());
    if is_decided || approval.spec.decisions.keys().any(|key| delegate_of(key, me).is_some()) {
        return None;
    }
    earlier.iter().find_map(|earlier| {
        let own = |(key, verdict): &(String, Verdict)| Some((delegate_of(key, me)?.to_owned(), *verdict));
        let (delegate, verdict) = earlier.votes.iter().find_map(own)?;
        let vote = match delegate.as_str() {
            "" => format!("your {verdict}"),
            name => format!("the {verdict} that {} gave for you", one_line(name, 253)),
        };
        let name = one_line(&earlier.approval, 253);
        Some(format!("{vote} of {name} is void, because the gate asks again: decide again"))
    })
}

/// Returns the user who gave the vote with this key on behalf of the reader; empty if the reader gave it. Returns
/// `None` for the vote of another person.
fn delegate_of<'k>(key: &'k str, me: &Me) -> Option<&'k str> {
    let rest = key.strip_prefix(me.user.as_str())?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix(" via ") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;
    use signoff_api::{Decision, Outcome};

    use super::*;
    use crate::sample;

    fn superseded() -> Approval {
        let mut approval = sample::approval();
        approval.spec.decisions.insert("alice@example.com".into(), Decision::new(Verdict::Approve));
        approval.spec.decisions.insert("bob\u{1b}[2J".into(), Decision::new(Verdict::Reject));
        let outcome: Outcome = serde_json::from_value(
            json!({"phase": "Superseded", "source": "Policy", "reason": "recorded while unguarded"}),
        )
        .unwrap();
        approval.status.get_or_insert_default().outcome = Some(outcome);
        approval
    }

    #[test]
    fn a_line_names_every_vote_with_its_approval_and_the_reason() {
        let name = superseded().metadata.name.unwrap();
        assert_eq!(
            Earlier::of(&superseded()).line().unwrap(),
            format!("alice@example.com (Approve), bob[2J (Reject), of {name}: recorded while unguarded")
        );
        assert_eq!(Earlier::of(&sample::approval()).line(), None, "nobody had voted");
    }

    #[test]
    fn a_voter_is_notified_of_their_own_void_vote_only() {
        let lost = |user: &str| lost(&[Earlier::of(&superseded())], &sample::approval(), &sample::me(user, &[]));
        assert_eq!(
            lost("alice@example.com").unwrap(),
            format!(
                "your Approve of {} is void, because the gate asks again: decide again",
                superseded().metadata.name.unwrap()
            )
        );
        assert_eq!(lost("carol@example.com"), None);
    }

    #[test]
    fn a_voter_who_has_decided_again_gets_no_sentence() {
        let (me, earlier) = (sample::me("alice@example.com", &[]), [Earlier::of(&superseded())]);
        for key in ["alice@example.com", "alice@example.com via agent"] {
            let mut again = sample::approval();
            again.spec.decisions.insert(key.into(), Decision::new(Verdict::Approve));
            assert_eq!(lost(&earlier, &again, &me), None, "{key}");
        }
        let mut others = sample::approval();
        others.spec.decisions.insert("alice@example.community".into(), Decision::new(Verdict::Approve));
        assert!(lost(&earlier, &others, &me).is_some(), "another user has decided");
        let mut decided = sample::approval();
        decided.status.get_or_insert_default().outcome = Some(Outcome::default());
        assert_eq!(lost(&earlier, &decided, &me), None, "the gate takes no decision");
    }

    #[test]
    fn the_latest_void_vote_is_named_to_the_represented_person() {
        let earlier = |name: &str, key: &str, verdict| Earlier {
            approval: name.to_owned(),
            votes: vec![(key.to_owned(), verdict)],
            reason: None,
        };
        let all = [
            earlier("refund-3", "carol", Verdict::Approve),
            earlier("refund-2", "bob via agent", Verdict::Reject),
            earlier("refund-1", "bob", Verdict::Approve),
        ];
        let lost = |user: &str| lost(&all, &sample::approval(), &sample::me(user, &[]));
        assert_eq!(
            lost("bob").unwrap(),
            "the Reject that agent gave for you of refund-2 is void, because the gate asks again: decide again"
        );
        assert_eq!(lost("agent"), None);
    }

    #[test]
    fn the_outcome_that_a_run_did_not_take_is_no_reason() {
        let mut approval = superseded();
        let outcome = approval.status.as_mut().unwrap().outcome.as_mut().unwrap();
        (outcome.verdict, outcome.reason) = (Some(Verdict::Approve), Some("fine".into()));
        let line = Earlier::of(&approval).line().unwrap();
        assert!(line.ends_with(&format!(", of {}", approval.metadata.name.unwrap())), "{line}");
    }
}
