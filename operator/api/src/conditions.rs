//! The condition types and reasons of both kinds, and how a list of conditions is kept.
//!
//! A condition says only what a field of the same status says too: nothing is decided by reading one. `Accepted` and
//! `Waiting` are listed True or False; every other condition only while it tells something, and is removed then.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::Moment;

/// Workflow: whether the spec can be run. Reasons: `Accepted`, `Invalid`, `SpecTampered`, `RequesterUnverified`,
/// `RequesterIsMachine`, `FloorsContradict`, `NotAllowed`, `TooLarge`, `OldShape`, `Unreadable`.
pub const ACCEPTED: &str = "Accepted";
/// Workflow: the admission policies that vouch for decisions are not in force. Listed only as `False`. Reason:
/// `PoliciesDiffer`.
pub const GUARDED: &str = "Guarded";
/// Workflow: other people's webhooks or mutating policies can change a vote on its way. Reason: `OthersMatch`.
pub const FOREIGN_MUTATION: &str = "ForeignMutation";
/// Workflow: nothing new begins because of an administrator's policy. Reasons: `FloorsContradict`,
/// `RequesterIsMachine`, `FloorsUnknown`.
pub const HELD: &str = "Held";
/// Workflow and Approval: the object is set aside because the evaluation of its text was stopped. Reasons:
/// `TooCostly` (more CPU time than the limit), `NotStopped` (and it did not end when told to), `EndedOperator` (the process
/// of the operator ended during it, twice), `Panicked` (a bug of Signoff).
pub const QUARANTINED: &str = "Quarantined";
/// Workflow: whether people are being waited for. Reasons: `ApprovalPending`, `Overdue`, `NothingPending`,
/// `ApprovalUnreadable`.
pub const WAITING: &str = "Waiting";
/// Workflow: a step's Pod does not run yet, and why. Reasons: `Queued`, `NotHere`, `NotCreated`, `Unschedulable`,
/// or the kubelet's own word: `ErrImagePull`, `ImagePullBackOff`, `CreateContainerConfigError`, …
pub const PODS_PENDING: &str = "PodsPending";
/// Workflow: a step waits for a slot, because as many calls run as may at once. Reason: `Queued`.
pub const CALLS_PENDING: &str = "CallsPending";
/// Workflow: the operator has failed for a minute at the same operation, such as a write that a quota or a webhook
/// refuses. Reasons: `Forbidden`, `Refused`, `TooManyRequests`, `ServerError`, `NoAnswer`, `ForeignObject`,
/// `InternalError`.
pub const STALLED: &str = "Stalled";
/// Workflow: the run stands still because a large value of it cannot be read or stored. Reasons: `ValueMissing`,
/// `ValueDamaged`, `NamesTaken`.
pub const VALUE_UNAVAILABLE: &str = "ValueUnavailable";
/// Workflow: whether the run has ended in whatever way. Reason: the phase.
pub const FINISHED: &str = "Finished";
/// Workflow: whether the run ended with success. Reason: the phase.
pub const COMPLETE: &str = "Complete";
/// Workflow: whether the run ended otherwise. Reason: the phase.
pub const FAILED: &str = "Failed";
/// Approval: whether it has been decided, by whomever. Reason: the phase.
pub const DECIDED: &str = "Decided";
/// Approval: no verdict can reach its quorum any more. Reason: `QuorumOutOfReach`.
pub const UNDECIDABLE: &str = "Undecidable";

/// What a condition shall say now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Say<'a> {
    /// One of the types above.
    pub kind: &'a str,
    /// `True` or `False`.
    pub holds: bool,
    /// A CamelCase word of the lists above.
    pub reason: &'a str,
    /// One sentence for people; cut at 1,024 characters.
    pub message: &'a str,
}

/// Puts a condition into the list, keeping `lastTransitionTime` unless the status changed. Returns whether
/// anything changed at all. The order of the list is the order in which types first appeared.
pub fn set(list: &mut Vec<Condition>, say: &Say<'_>, generation: Option<i64>, now: Moment) -> bool {
    let status = if say.holds { "True" } else { "False" };
    let message: String = say.message.chars().take(1024).collect();
    let fresh = Condition {
        type_: say.kind.to_owned(),
        status: status.to_owned(),
        reason: say.reason.to_owned(),
        message,
        observed_generation: generation,
        last_transition_time: Time(now.timestamp()),
    };
    match list.iter_mut().find(|c| c.type_ == say.kind) {
        None => {
            list.push(fresh);
            true
        }
        Some(old) => {
            let moved = old.status != fresh.status;
            let since = if moved { fresh.last_transition_time.clone() } else { old.last_transition_time.clone() };
            let fresh = Condition { last_transition_time: since, ..fresh };
            let changed = *old != fresh;
            *old = fresh;
            changed
        }
    }
}

/// Removes a condition from the list. Returns whether it was there.
pub fn remove(list: &mut Vec<Condition>, kind: &str) -> bool {
    let before = list.len();
    list.retain(|condition| condition.type_ != kind);
    list.len() != before
}

/// Whether the list says that the condition does not hold.
#[must_use]
pub fn fails(list: &[Condition], kind: &str) -> bool {
    list.iter().any(|c| c.type_ == kind && c.status == "False")
}

/// Whether the list says that the condition holds.
#[must_use]
pub fn holds(list: &[Condition], kind: &str) -> bool {
    list.iter().any(|c| c.type_ == kind && c.status == "True")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let (mut list, early) = (Vec::new(), Moment::from(jiff::Timestamp::UNIX_EPOCH));
        let late = early.after(std::time::Duration::from_secs(60));
        let say = |holds, message| Say { kind: WAITING, holds, reason: "ApprovalPending", message };
        assert!(set(&mut list, &say(true, "one"), Some(1), early));
        assert!(!set(&mut list, &say(true, "one"), Some(1), late));
        assert!(set(&mut list, &say(true, "two"), Some(1), late));
        assert_eq!(list[0].last_transition_time.0, early.timestamp());
        assert!(set(&mut list, &say(false, "two"), Some(1), late));
        assert_eq!(list[0].last_transition_time.0, late.timestamp());
        assert!(!holds(&list, WAITING));
        assert!(remove(&mut list, WAITING) && !remove(&mut list, WAITING));
        assert!(list.is_empty());
    }
}
