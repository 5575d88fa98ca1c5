//! The failed deliveries of a channel, for the conditions of open Approvals *(pure)*.
//!
//! **Invariant:** at most 500 failures are remembered.

use std::{collections::BTreeMap, time::Duration};

use signoff_api::Moment;

use crate::{notice::Notice, queue::LaneId};

/// The time after which a failure appears in the condition of the Approval.
pub const TOLD_AFTER: Duration = Duration::from_secs(60);
/// The most failed deliveries that are remembered. Further ones are in the log and the metrics only.
const MAX_FAILURES: usize = 500;

/// The state of a delivery that failed at least once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Every attempt failed so far, and the delivery is tried again.
    Retried {
        /// The time of the first failure.
        since: Moment,
        /// The reason of the first failure.
        why: String,
    },
    /// The delivery was given up.
    GivenUp {
        /// The reason, without tokens and addresses.
        why: String,
    },
    /// The delivery succeeded after all.
    Recovered,
}

/// The failed deliveries of one channel.
#[derive(Debug, Default)]
pub struct Failures {
    by_lane: BTreeMap<LaneId, Failure>,
}

impl Failures {
    /// Whether no failure is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_lane.is_empty()
    }

    /// Records a failed attempt that will be repeated. Returns whether this is news for the condition of the Approval.
    pub fn note_retry(&mut self, lane: &LaneId, notice: &Notice, why: &str, now: Moment) -> bool {
        if !is_shown(notice) || matches!(self.by_lane.get(lane), Some(Failure::Retried { .. })) {
            return false;
        }
        self.insert(lane, Failure::Retried { since: now, why: why.to_owned() });
        true
    }

    /// Records the end of a delivery. `given_up`: the reason; `None`: the notice was delivered. Returns whether this is
    /// news for the condition of the Approval.
    pub fn note_end(&mut self, lane: &LaneId, notice: &Notice, given_up: Option<&str>, now: Moment) -> bool {
        if !is_shown(notice) {
            // The Approval has ended.
            self.by_lane.retain(|other, _| !other.is_about(&notice.correlation));
            return false;
        }
        if let Some(why) = given_up {
            self.insert(lane, Failure::GivenUp { why: why.to_owned() });
            return true;
        }
        let has_failed = self.by_lane.get(lane).is_some_and(|failure| *failure != Failure::Recovered);
        // A late delivery may have failed in an earlier process, and the condition of the Approval may still report
        // that failure.
        let is_news = has_failed || now.since(notice.at) >= TOLD_AFTER;
        if is_news {
            self.insert(lane, Failure::Recovered);
        }
        is_news
    }

    /// Returns the failures of the notices with this correlation, by their lanes.
    pub fn about<'f>(&'f self, correlation: &'f str) -> impl Iterator<Item = (&'f LaneId, &'f Failure)> {
        self.by_lane.range(LaneId::first_about(correlation)..).take_while(move |(lane, _)| lane.is_about(correlation))
    }

    /// Remembers a failure. Beyond [`MAX_FAILURES`], forgets a recovered one, or else the first one.
    fn insert(&mut self, lane: &LaneId, failure: Failure) {
        if self.by_lane.len() >= MAX_FAILURES && !self.by_lane.contains_key(lane) {
            let recovered = self.by_lane.iter().find(|(_, known)| **known == Failure::Recovered);
            let dropped = recovered.or_else(|| self.by_lane.first_key_value()).map(|(dropped, _)| dropped.clone());
            if let Some(dropped) = dropped {
                self.by_lane.remove(&dropped);
            }
        }
        self.by_lane.insert(lane.clone(), failure);
    }
}

/// Whether the condition of an open Approval reports the failure of a notice. A notice that replaces folded notices has
/// no Approval.
fn is_shown(notice: &Notice) -> bool {
    notice.approval.is_some() && notice.event.is_open()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{
        channel::Recipient,
        notice::NoticeEvent,
        routes::{correlation, notice_id},
    };

    fn at(seconds: u64) -> Moment {
        let start: Moment = serde_json::from_str("\"2030-01-01T00:00:00Z\"").unwrap();
        start.after(Duration::from_secs(seconds))
    }

    fn notice(uid: &str, event: NoticeEvent) -> Notice {
        Notice {
            id: notice_id(uid, &format!("{event:?}")),
            event,
            correlation: correlation(uid, "hook"),
            namespace: "pay".to_owned(),
            run: "refund".to_owned(),
            approval: Some(uid.to_owned()),
            gate: None,
            kind: None,
            requester: "dana".to_owned(),
            deadline: None,
            then: None,
            outcome: None,
            details: None,
            link: None,
            at: at(0),
        }
    }

    fn lane(uid: &str, person: &str) -> LaneId {
        LaneId::new(&correlation(uid, "hook"), Recipient::Person(person.to_owned()))
    }

    fn known(failures: &Failures, uid: &str) -> Vec<Failure> {
        failures.about(&correlation(uid, "hook")).map(|(_, failure)| failure.clone()).collect()
    }

    #[test]
    fn failure_is_remembered_until_the_notice_is_delivered() {
        let (mut failures, asked) = (Failures::default(), notice("a", NoticeEvent::Asked));
        assert!(failures.note_retry(&lane("a", "alice"), &asked, "busy", at(1)));
        assert!(!failures.note_retry(&lane("a", "alice"), &asked, "away", at(9)), "it is told once");
        assert!(!failures.note_end(&lane("a", "bob"), &asked, None, at(2)), "bob's was delivered at once");
        assert_eq!(known(&failures, "a"), [Failure::Retried { since: at(1), why: "busy".to_owned() }]);
        assert!(known(&failures, "b").is_empty());
        assert!(failures.note_end(&lane("a", "alice"), &asked, None, at(30)));
        assert_eq!(known(&failures, "a"), [Failure::Recovered]);
    }

    #[test]
    fn refusal_is_remembered_until_a_later_delivery_or_the_end() {
        let (mut failures, asked) = (Failures::default(), notice("a", NoticeEvent::Asked));
        assert!(failures.note_end(&lane("a", "alice"), &asked, Some("refused"), at(1)));
        assert!(failures.note_end(&lane("a", "alice"), &notice("a", NoticeEvent::Reminded), None, at(2)));
        assert!(failures.note_end(&lane("a", "bob"), &asked, Some("refused"), at(3)));
        assert_eq!(known(&failures, "a").len(), 2);
        assert!(!failures.note_end(&lane("a", "bob"), &notice("a", NoticeEvent::Taken), None, at(4)));
        assert!(failures.is_empty());
    }

    #[test]
    fn a_notice_that_arrives_late_may_end_a_failure_of_an_earlier_process() {
        let mut failures = Failures::default();
        assert!(!failures.note_end(&lane("a", "alice"), &notice("a", NoticeEvent::Asked), None, at(59)));
        assert!(failures.note_end(&lane("a", "alice"), &notice("a", NoticeEvent::Asked), None, at(60)));
    }

    #[test]
    fn failures_are_bounded_and_recovered_ones_are_dropped_first() {
        let mut failures = Failures::default();
        for number in 0..MAX_FAILURES {
            let (uid, given_up) = (number.to_string(), (number != 7).then_some("refused"));
            failures.note_end(&lane(&uid, "alice"), &notice(&uid, NoticeEvent::Asked), given_up, at(60));
        }
        failures.note_retry(&lane("one more", "alice"), &notice("one more", NoticeEvent::Asked), "busy", at(61));
        assert_eq!(failures.by_lane.len(), MAX_FAILURES);
        assert!(known(&failures, "7").is_empty() && known(&failures, "one more").len() == 1);
    }
}
