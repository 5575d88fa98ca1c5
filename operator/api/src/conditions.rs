//! The condition types of both kinds, their reasons, and functions that change a list of conditions.
//!
//! A condition repeats the content of another field of the same status, and no decision depends on it. `Accepted` and
//! `Waiting` are listed as True or False; every other condition is listed only while it applies.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::Moment;

/// Workflow: whether the spec can be run. Reasons: [`reason::ACCEPTED`], [`reason::INVALID`],
/// [`reason::SPEC_TAMPERED`], [`reason::REQUESTER_UNVERIFIED`], [`reason::REQUESTER_IS_MACHINE`],
/// [`reason::POLICY_CONFLICT`], [`reason::NOT_ALLOWED`], [`reason::TOO_LARGE`], [`reason::OLD_SHAPE`],
/// [`reason::UNREADABLE`].
pub const ACCEPTED: &str = "Accepted";
/// Workflow: whether the admission policies that verify decisions are in force. Listed only as `False`. Reason:
/// [`reason::POLICIES_DIFFER`].
pub const GUARDED: &str = "Guarded";
/// Workflow: a webhook or a mutating admission policy that Signoff did not install can change a vote before it is
/// stored. Reason: [`reason::EXTERNAL_MUTATOR_FOUND`].
pub const FOREIGN_MUTATION: &str = "ForeignMutation";
/// Workflow: the clock of the operator's machine differs from the API server's, which decides. Reasons:
/// [`reason::MACHINE_AHEAD`], [`reason::MACHINE_BEHIND`].
pub const CLOCK_SKEWED: &str = "ClockSkewed";
/// Workflow: an approval policy, or other rules of Signoff, keep the run from starting anything new. Reasons:
/// [`reason::POLICY_CONFLICT`], [`reason::REQUESTER_IS_MACHINE`], [`reason::POLICY_UNKNOWN`], [`reason::OLD_RULES`],
/// [`reason::TOO_MANY_EXCLUDED`].
pub const HELD: &str = "Held";
/// Workflow: the run is a copy from a backup, so it never continues. Reason: [`reason::NOT_RESUMED`].
pub const RESTORED: &str = "Restored";
/// Workflow and Approval: the object is set aside because the evaluation of its text was stopped. Reasons:
/// [`reason::TOO_COSTLY`], [`reason::NOT_STOPPED`], [`reason::ENDED_OPERATOR`], [`reason::PANICKED`].
pub const QUARANTINED: &str = "Quarantined";
/// Workflow: whether an Approval of the run is open. Reasons: [`reason::APPROVAL_PENDING`], [`reason::OVERDUE`],
/// [`reason::NOTHING_PENDING`], [`reason::APPROVAL_UNREADABLE`].
pub const WAITING: &str = "Waiting";
/// Workflow: the Pod of a step does not run yet. Reasons: [`reason::QUEUED`], [`reason::PODS_NOT_ALLOWED`],
/// [`reason::NOT_CREATED`], [`reason::NOT_SCHEDULED`], [`reason::UNSCHEDULABLE`], or the kubelet's own reason:
/// `ErrImagePull`, `ImagePullBackOff`, `CreateContainerConfigError`, …
pub const PODS_PENDING: &str = "PodsPending";
/// Workflow: a step waits for a call slot, because the limit of concurrent calls is reached. Reason:
/// [`reason::QUEUED`].
pub const CALLS_PENDING: &str = "CallsPending";
/// Workflow: the same operation of the operator has failed for a minute, such as a write that a quota or a webhook
/// refuses. Reasons: [`reason::FORBIDDEN`], [`reason::REFUSED`], [`reason::TOO_MANY_REQUESTS`],
/// [`reason::SERVER_ERROR`], [`reason::NO_ANSWER`], [`reason::FOREIGN_OBJECT`], [`reason::INTERNAL_ERROR`].
pub const STALLED: &str = "Stalled";
/// Workflow: the run is blocked because a long value of it cannot be read or stored. Reasons:
/// [`reason::VALUE_MISSING`], [`reason::VALUE_DAMAGED`], [`reason::NAMES_TAKEN`].
pub const VALUE_UNAVAILABLE: &str = "ValueUnavailable";
/// Workflow: whether the run has ended, with or without success. Reason: the phase.
pub const FINISHED: &str = "Finished";
/// Workflow: whether the run ended with success. Reason: the phase.
pub const COMPLETE: &str = "Complete";
/// Workflow: whether the run ended without success. Reason: the phase.
pub const FAILED: &str = "Failed";
/// Approval: whether it has ended, by votes, by a timeout or by the operator. Reason: the phase.
pub const DECIDED: &str = "Decided";
/// Approval: no verdict can reach its quorum any more. Reason: [`reason::QUORUM_OUT_OF_REACH`].
pub const UNDECIDABLE: &str = "Undecidable";
/// Approval: whether its notices reach their channels. Listed only as `False`, while the Approval is open. Reasons:
/// [`reason::NOT_DELIVERED`], [`reason::GIVEN_UP`], [`reason::UNKNOWN_CHANNEL`], [`reason::CHANNEL_NOT_ALLOWED`].
pub const NOTIFIED: &str = "Notified";

/// The reasons of the conditions. `signoff explain <reason>` prints the remedy for each.
pub mod reason {
    /// `Accepted` is True: the spec can be run.
    pub const ACCEPTED: &str = "Accepted";
    /// `Accepted` is False: the spec has errors; the message names each field and the remedy.
    pub const INVALID: &str = "Invalid";
    /// `Accepted` is False: the spec is not the one whose digest was recorded when the run was accepted.
    pub const SPEC_TAMPERED: &str = "SpecTampered";
    /// `Accepted` is False: the Workflow was created while the admission policies were not in force.
    pub const REQUESTER_UNVERIFIED: &str = "RequesterUnverified";
    /// `Accepted` is False or `Held` is True: a gate excludes the requester, and the requester is a service account
    /// without `spec.requestedFor`.
    pub const REQUESTER_IS_MACHINE: &str = "RequesterIsMachine";
    /// `Accepted` is False or `Held` is True: a gate cannot meet every approval policy that applies to it.
    pub const POLICY_CONFLICT: &str = "PolicyConflict";
    /// `Held` is True: a gate excludes more people than a request can name.
    pub const TOO_MANY_EXCLUDED: &str = "TooManyExcluded";
    /// `Held` is True: the approval policies of the namespace, or its labels, cannot be read.
    pub const POLICY_UNKNOWN: &str = "PolicyUnknown";
    /// `Held` is True: the run was accepted under other rules than those of this version; see [`crate::rules::RULES`].
    pub const OLD_RULES: &str = "OldRules";
    /// `Restored` is True: `spec.restored` is true, or the status began before the object was created.
    pub const NOT_RESUMED: &str = "NotResumed";
    /// `Accepted` is False: an approval policy does not allow a host, a Secret or a provider of the spec.
    pub const NOT_ALLOWED: &str = "NotAllowed";
    /// `Accepted` is False: the spec and its inputs have more bytes than the operator allows.
    pub const TOO_LARGE: &str = "TooLarge";
    /// `Accepted` is False: an older version accepted the run, with its steps within `spec.pattern`.
    pub const OLD_SHAPE: &str = "OldShape";
    /// `Accepted` is False: the stored object does not have the shape of this version's CRD.
    pub const UNREADABLE: &str = "Unreadable";
    /// `Guarded` is False: an admission policy is missing or differs from the one of this version.
    pub const POLICIES_DIFFER: &str = "PoliciesDiffer";
    /// `ForeignMutation` is True: a webhook or a mutating admission policy of others matches Approvals.
    pub const EXTERNAL_MUTATOR_FOUND: &str = "ExternalMutatorFound";
    /// `ClockSkewed` is True: the machine's clock is more than 5 s ahead.
    pub const MACHINE_AHEAD: &str = "MachineAhead";
    /// `ClockSkewed` is True: the machine's clock is more than 5 s behind.
    pub const MACHINE_BEHIND: &str = "MachineBehind";
    /// `Quarantined` is True: the evaluation took more CPU time than the limit.
    pub const TOO_COSTLY: &str = "TooCostly";
    /// `Quarantined` is True: the evaluation exceeded the limit and did not stop when it was cancelled.
    pub const NOT_STOPPED: &str = "NotStopped";
    /// `Quarantined` is True: the operator's process ended twice during the evaluation.
    pub const ENDED_OPERATOR: &str = "EndedOperator";
    /// `Quarantined` is True: the evaluation panicked, which is a bug of Signoff.
    pub const PANICKED: &str = "Panicked";
    /// `Waiting` is True: at least one Approval is open.
    pub const APPROVAL_PENDING: &str = "ApprovalPending";
    /// `Waiting` is True: the deadline of an Approval passed, and it stays open.
    pub const OVERDUE: &str = "Overdue";
    /// `Waiting` is False: no Approval is open.
    pub const NOTHING_PENDING: &str = "NothingPending";
    /// `Waiting` is True: an Approval of the run does not have the shape of this version's CRD.
    pub const APPROVAL_UNREADABLE: &str = "ApprovalUnreadable";
    /// `PodsPending` or `CallsPending` is True: the limit of concurrent Pods or calls is reached.
    pub const QUEUED: &str = "Queued";
    /// `PodsPending` is True: the operator must not create Pods in this namespace.
    pub const PODS_NOT_ALLOWED: &str = "PodsNotAllowed";
    /// `PodsPending` is True: the API server has refused to create the Pod for a minute.
    pub const NOT_CREATED: &str = "NotCreated";
    /// `PodsPending` is True: for ten seconds no scheduler has chosen a node for the Pod or said why not.
    pub const NOT_SCHEDULED: &str = "NotScheduled";
    /// `PodsPending` is True: the scheduler has found no node for the Pod.
    pub const UNSCHEDULABLE: &str = "Unschedulable";
    /// `Stalled` is True: the API server answers 403.
    pub const FORBIDDEN: &str = "Forbidden";
    /// `Stalled` is True: the API server refuses the request with another status below 500.
    pub const REFUSED: &str = "Refused";
    /// `Stalled` is True: the API server answers 429.
    pub const TOO_MANY_REQUESTS: &str = "TooManyRequests";
    /// `Stalled` is True: the API server, or a webhook that it calls, answers 500 to 599.
    pub const SERVER_ERROR: &str = "ServerError";
    /// `Stalled` is True: the API server does not answer.
    pub const NO_ANSWER: &str = "NoAnswer";
    /// `Stalled` is True: an object that the run did not create has the name of one of its objects.
    pub const FOREIGN_OBJECT: &str = "ForeignObject";
    /// `Stalled` is True: a bug of the operator.
    pub const INTERNAL_ERROR: &str = "InternalError";
    /// `ValueUnavailable` is True: a Blob of the run does not exist.
    pub const VALUE_MISSING: &str = "ValueMissing";
    /// `ValueUnavailable` is True: the bytes of a Blob do not have the digest that the run recorded.
    pub const VALUE_DAMAGED: &str = "ValueDamaged";
    /// `ValueUnavailable` is True: Blobs of others have the names of too many long values.
    pub const NAMES_TAKEN: &str = "NamesTaken";
    /// `Undecidable` is True: the votes still possible do not suffice for any verdict.
    pub const QUORUM_OUT_OF_REACH: &str = "QuorumOutOfReach";
    /// `Notified` is False: a notice has failed for a minute, and is tried again.
    pub const NOT_DELIVERED: &str = "NotDelivered";
    /// `Notified` is False: a notice was refused for good, or failed for a day, and is not tried again.
    pub const GIVEN_UP: &str = "GivenUp";
    /// `Notified` is False: the gate adds a channel that the administrator has not configured.
    pub const UNKNOWN_CHANNEL: &str = "UnknownChannel";
    /// `Notified` is False: the gate adds a channel that takes no notices of authors, or none of this namespace.
    pub const CHANNEL_NOT_ALLOWED: &str = "ChannelNotAllowed";
}

/// The new state of one condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionUpdate<'a> {
    /// The condition type.
    pub kind: &'a str,
    /// `True` or `False`.
    pub holds: bool,
    /// One of the constants of [`reason`], a phase, or a reason of the kubelet.
    pub reason: &'a str,
    /// One sentence for users; cut at 1,024 characters.
    pub message: &'a str,
}

/// Adds or replaces a condition of the list, keeping `lastTransitionTime` unless the status changed. Returns whether
/// anything changed. The list is in the order in which types first appeared.
pub fn set(list: &mut Vec<Condition>, update: &ConditionUpdate<'_>, generation: Option<i64>, now: Moment) -> bool {
    let status = if update.holds { "True" } else { "False" };
    let message: String = update.message.chars().take(1024).collect();
    let fresh = Condition {
        type_: update.kind.to_owned(),
        status: status.to_owned(),
        reason: update.reason.to_owned(),
        message,
        observed_generation: generation,
        last_transition_time: Time(whole_second(now)),
    };
    match list.iter_mut().find(|c| c.type_ == update.kind) {
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

/// Returns an instant without its fraction of a second, because the JSON of a condition's time has none, so that the
/// written value equals the one that is read.
fn whole_second(at: Moment) -> jiff::Timestamp {
    jiff::Timestamp::from_second(at.timestamp().as_second()).unwrap_or(at.timestamp())
}

/// Removes a condition from the list. Returns whether it was listed.
pub fn remove(list: &mut Vec<Condition>, kind: &str) -> bool {
    let before = list.len();
    list.retain(|condition| condition.type_ != kind);
    list.len() != before
}

/// Whether the condition is listed as False.
#[must_use]
pub fn fails(list: &[Condition], kind: &str) -> bool {
    list.iter().any(|c| c.type_ == kind && c.status == "False")
}

/// Whether the condition is listed as True.
#[must_use]
pub fn holds(list: &[Condition], kind: &str) -> bool {
    list.iter().any(|c| c.type_ == kind && c.status == "True")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_condition_equals_what_is_read_back() {
        let (mut list, at) = (Vec::new(), jiff::Timestamp::from_millisecond(1_500).unwrap());
        set(&mut list, &ConditionUpdate { kind: WAITING, holds: true, reason: "A", message: "one" }, None, at.into());
        let read: Vec<Condition> = serde_json::from_str(&serde_json::to_string(&list).unwrap()).unwrap();
        assert_eq!(read, list);
    }

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let (mut list, early) = (Vec::new(), Moment::from(jiff::Timestamp::UNIX_EPOCH));
        let late = early.after(std::time::Duration::from_secs(60));
        let update =
            |holds, message| ConditionUpdate { kind: WAITING, holds, reason: reason::APPROVAL_PENDING, message };
        assert!(set(&mut list, &update(true, "one"), Some(1), early));
        assert!(!set(&mut list, &update(true, "one"), Some(1), late));
        assert!(set(&mut list, &update(true, "two"), Some(1), late));
        assert_eq!(list[0].last_transition_time.0, early.timestamp());
        assert!(set(&mut list, &update(false, "two"), Some(1), late));
        assert_eq!(list[0].last_transition_time.0, late.timestamp());
        assert!(!holds(&list, WAITING));
        assert!(remove(&mut list, WAITING) && !remove(&mut list, WAITING));
        assert!(list.is_empty());
    }
}
