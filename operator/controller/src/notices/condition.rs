//! The condition `Notified` of an open Approval *(pure)*.
//!
//! **Invariant:** the condition does not exist while every notice is delivered, so that a gate costs no write for it.

use std::{collections::BTreeMap, time::Duration};

use signoff_api::{
    Approval, Moment,
    conditions::{self, reason},
};
use signoff_cluster::kinds::uid;
use signoff_notify::{
    Refusal,
    delivery::NoticeStanding,
    failures::{Failure, TOLD_AFTER},
};

use super::{NoticeScope, unrouted::LABEL_WAIT};

/// The state of the condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NotifiedState {
    /// The reason and the message, while the condition applies.
    pub(crate) problem: Option<(&'static str, String)>,
    /// Whether a stored condition no longer applies.
    pub(crate) is_resolved: bool,
    /// The time at which a failure is old enough to be reported.
    pub(crate) wake_at: Option<Moment>,
}

impl NotifiedState {
    /// Returns the state if the administrator has configured no channels, so that only unknown channels are a problem.
    pub(crate) fn without_channels(approval: &Approval, now: Moment) -> Self {
        let refused = approval.channels().map(|name| (name, Refusal::Unknown)).collect();
        Self { is_resolved: true, ..state_of(&NoticeStanding::default(), &refused, now) }
    }
}

/// The time after which an Approval with a refused channel is checked again.
const RECHECK_PAUSE: Duration = Duration::from_secs(600);

impl NoticeScope<'_> {
    /// Returns the state of the condition of an Approval.
    pub(crate) fn notified_state(&self, approval: &Approval, now: Moment) -> NotifiedState {
        let notices = &self.desk.notices;
        if !notices.is_configured() {
            return NotifiedState::default();
        }
        let labels = self.objects.policies.labels(approval.metadata.namespace.as_deref().unwrap_or_default());
        let refusal = |name| Some((name, notices.refusal(name, labels.as_ref()?)?));
        let refused: BTreeMap<_, _> = approval.channels().filter_map(refusal).collect();
        let standing = notices.standing(uid(approval));
        let mut state = state_of(&standing, &refused, now);
        // Labels of namespaces change without an event of the Approval.
        let recheck_at = match (labels.is_none(), refused.is_empty()) {
            (true, _) if approval.channels().next().is_some() => Some(now.after(LABEL_WAIT)),
            (_, false) => Some(now.after(RECHECK_PAUSE)),
            (_, true) => None,
        };
        state.wake_at = [state.wake_at, recheck_at].into_iter().flatten().min();
        // Of the failures of an earlier process, only waiting notices are known.
        let has_recovered = standing.failures.iter().any(|(_, failure)| *failure == Failure::Recovered);
        let is_resolved = match stored_reason(approval) {
            Some(reason::NOT_DELIVERED) => has_recovered || !standing.is_waiting,
            Some(reason::GIVEN_UP) => has_recovered,
            Some(_) | None => true,
        };
        NotifiedState { is_resolved, ..state }
    }
}

/// Returns the reason of the stored condition.
fn stored_reason(approval: &Approval) -> Option<&str> {
    let conditions = approval.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    conditions.iter().find(|known| known.type_ == conditions::NOTIFIED).map(|known| known.reason.as_str())
}

/// Returns the state for the failures of notices and the refused channels, by their names.
fn state_of(standing: &NoticeStanding, refused: &BTreeMap<&str, Refusal>, now: Moment) -> NotifiedState {
    let mut wake_at: Option<Moment> = None;
    let (mut retried, mut given_up) = (BTreeMap::new(), BTreeMap::new());
    for (channel, failure) in &standing.failures {
        match failure {
            Failure::Retried { since, why } => {
                let reported_at = since.after(TOLD_AFTER);
                if reported_at <= now {
                    retried.entry(channel.as_str()).or_insert(why.as_str());
                } else {
                    wake_at = Some(wake_at.map_or(reported_at, |first| first.min(reported_at)));
                }
            }
            Failure::GivenUp { why } => {
                given_up.entry(channel.as_str()).or_insert(why.as_str());
            }
            Failure::Recovered => {}
        }
    }
    let reason = match (retried.is_empty(), given_up.is_empty()) {
        (false, _) => Some(reason::NOT_DELIVERED),
        (true, false) => Some(reason::GIVEN_UP),
        (true, true) => match refused.values().next() {
            Some(Refusal::Unknown) => Some(reason::UNKNOWN_CHANNEL),
            Some(Refusal::NotAllowed) => Some(reason::CHANNEL_NOT_ALLOWED),
            None => None,
        },
    };
    let message = message(&retried, &given_up, refused);
    NotifiedState { problem: reason.map(|reason| (reason, message)), is_resolved: false, wake_at }
}

/// Returns the message of the condition. It has no times and no counts, so that it changes only with the problem.
fn message(
    retried: &BTreeMap<&str, &str>,
    given_up: &BTreeMap<&str, &str>,
    refused: &BTreeMap<&str, Refusal>,
) -> String {
    let retried = retried.iter().map(|(name, why)| format!("channel {name}: not delivered, and tried again: {why}"));
    let given_up = given_up.iter().map(|(name, why)| format!("channel {name}: given up: {why}"));
    let refused = refused.iter().map(|(name, refusal)| match refusal {
        Refusal::Unknown => format!(
            "channel {name}: no channel has this name; correct hitl.notify for the next run, or ask the administrator to add it"
        ),
        Refusal::NotAllowed => format!(
            "channel {name}: it takes no notices that authors add here; leave it out of hitl.notify, or ask the administrator to allow it"
        ),
    });
    retried.chain(given_up).chain(refused).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn at(seconds: u64) -> Moment {
        let start: Moment = serde_json::from_str("\"2030-01-01T00:00:00Z\"").unwrap();
        start.after(Duration::from_secs(seconds))
    }

    fn state_after(failures: &[(&str, Failure)], now: Moment) -> NotifiedState {
        let failures = failures.iter().map(|(name, failure)| ((*name).to_owned(), failure.clone())).collect();
        state_of(&NoticeStanding { failures, is_waiting: true }, &BTreeMap::new(), now)
    }

    #[test]
    fn a_failure_is_reported_after_a_minute() {
        let failing = [("finance", Failure::Retried { since: at(5), why: "Slack: no connection".to_owned() })];
        let early = state_after(&failing, at(64));
        assert_eq!((early.problem, early.wake_at), (None, Some(at(65))));
        let late = state_after(&failing, at(65));
        let message = "channel finance: not delivered, and tried again: Slack: no connection".to_owned();
        assert_eq!((late.problem, late.wake_at), (Some((reason::NOT_DELIVERED, message)), None));
        assert_eq!(state_after(&[("finance", Failure::Recovered)], at(65)), NotifiedState::default());
    }

    #[test]
    fn a_notice_that_is_given_up_is_reported_once_per_channel() {
        let given_up = |why: &str| Failure::GivenUp { why: why.to_owned() };
        let found = state_after(&[("mail", given_up("mail: 550")), ("mail", given_up("mail: 551"))], at(0));
        assert_eq!(found.problem, Some((reason::GIVEN_UP, "channel mail: given up: mail: 550".to_owned())));
    }

    #[test]
    fn a_refused_channel_is_reported_with_the_remedy() {
        for (refusal, expected, remedy) in [
            (Refusal::Unknown, reason::UNKNOWN_CHANNEL, "ask the administrator to add it"),
            (Refusal::NotAllowed, reason::CHANNEL_NOT_ALLOWED, "ask the administrator to allow it"),
        ] {
            let found = state_of(&NoticeStanding::default(), &BTreeMap::from([("finance", refusal)]), at(0));
            let (reason, message) = found.problem.unwrap();
            assert!(
                reason == expected && message.starts_with("channel finance: ") && message.ends_with(remedy),
                "{message}"
            );
        }
    }
}
