//! The merge of several gates that ask about one call into one Approval: all their quorums must be met.
//!
//! **Invariant:** every part of a merge is a union, an intersection, a minimum or the more cautious of two values.

use std::collections::BTreeSet;

use signoff_api::{
    ApprovalRequest, Verdict,
    approval::RequiredBy,
    gate::{Quorum, TimeoutAction},
};

use super::gating::Asking;
use crate::{
    plan::{Action, CallGate, PlannedGate, PlannedStep, TOLD_AGENT},
    policy::{caution_rank, shorter},
    steps::request,
};

/// The maximum numbers in a request: of policies that apply to it, and of rules of each policy.
const MOST_POLICIES: usize = 16;
const MOST_RULES: usize = 10;

/// Divides gates into groups that can share one Approval: with a common verdict by which the run continues, not more
/// quorums than a request can have, one form, and the same rules for persons. The groups ask one after the other.
pub(super) fn divide_into_groups(asking: Vec<Asking<'_>>) -> Vec<Vec<Asking<'_>>> {
    let mut groups: Vec<Vec<Asking<'_>>> = Vec::new();
    for added in asking {
        let fits = |group: &Vec<Asking<'_>>| {
            let gates: Vec<_> = group.iter().chain([&added]).filter_map(|asking| step_and_gate(asking)).collect();
            can_share_request(&gates)
        };
        match groups.iter_mut().find(|group| fits(group)) {
            Some(group) => group.push(added),
            None => groups.push(vec![added]),
        }
    }
    groups
}

fn step_and_gate<'a>(asking: &Asking<'a>) -> Option<(&'a PlannedStep, &'a PlannedGate)> {
    Some((&asking.gate.gate, asking.gate.gate.gate()?))
}

/// Whether gates have a common verdict by which the run continues, and together fit into one request.
fn can_share_request(gates: &[(&PlannedStep, &PlannedGate)]) -> bool {
    let go_on = |verdict: &Verdict| !matches!(verdict, Verdict::Reject | Verdict::Abort | Verdict::Escalate);
    let forms = gates.iter().filter(|(_, gate)| gate.spec.form.is_some()).count();
    let persons: Vec<_> = gates.iter().map(|(_, gate)| &gate.persons).filter(|persons| !persons.is_empty()).collect();
    let excluded: BTreeSet<_> = gates.iter().flat_map(|(_, gate)| &gate.spec.excluded).collect();
    let by = required_by(gates);
    common_verdicts(gates).iter().any(go_on)
        && quorums(gates).len() <= ApprovalRequest::MAX_QUORUMS
        && forms <= 1
        && excluded.len() <= ApprovalRequest::MAX_EXCLUDED
        && by.len() <= MOST_POLICIES
        && by.iter().all(|by| by.rules.len() <= MOST_RULES)
        && persons.iter().all(|one| Some(one) == persons.first())
}

/// Returns the gate about failures of a tool, with the quorums of the gates before that tool, so that the gate about
/// failures is not easier to pass.
///
/// # Errors
/// More quorums, policies or excluded people than a request can have, or different rules for persons.
pub(super) fn build_escalation_gate(step: &PlannedStep, others: &[&CallGate]) -> Result<PlannedStep, String> {
    let others: Vec<_> = others.iter().filter_map(|other| Some((&other.gate, other.gate.gate()?))).collect();
    let Some(own) = step.gate() else { return Err("internal error; report this as a bug: no gate asks".to_owned()) };
    let all: Vec<_> = std::iter::once((step, own)).chain(others).collect();
    let mut gate = own.clone();
    let excluded: BTreeSet<_> = all.iter().flat_map(|(_, gate)| gate.spec.excluded.iter().cloned()).collect();
    let persons: Vec<_> = all.iter().map(|(_, gate)| &gate.persons).filter(|persons| !persons.is_empty()).collect();
    gate.policy_quorums = quorums(&all).into_iter().skip(1).collect();
    gate.required_by = required_by(&all);
    for (other_step, other) in all.iter().skip(1) {
        gate.excludes_editors |= other.excludes_editors;
        gate.max_vote_age = shorter(gate.max_vote_age, other.max_vote_age);
        gate.merged_gates.push((other_step.name.clone(), other.spec.exclude_deciders.clone()));
        add_channels(&mut gate, other);
    }
    gate.persons = persons.first().map(|persons| (*persons).clone()).unwrap_or_default();
    gate.spec.excluded = excluded.into_iter().collect();
    let fits = gate.policy_quorums.len() < ApprovalRequest::MAX_QUORUMS
        && gate.spec.excluded.len() <= ApprovalRequest::MAX_EXCLUDED
        && gate.required_by.len() <= MOST_POLICIES
        && gate.required_by.iter().all(|by| by.rules.len() <= MOST_RULES)
        && persons.iter().all(|one| Some(one) == persons.first());
    if !fits {
        return Err("the gates that rejected it have more requirements than one request can have".to_owned());
    }
    Ok(PlannedStep { action: Action::Gate(Box::new(gate)), ..step.clone() })
}

/// Returns the verdicts that all gates allow, in the order of the first.
fn common_verdicts(gates: &[(&PlannedStep, &PlannedGate)]) -> Vec<Verdict> {
    let Some(((_, first), others)) = gates.split_first() else { return Vec::new() };
    let all = |verdict: &&Verdict| others.iter().all(|(_, gate)| gate.allowed.contains(verdict));
    first.allowed.iter().filter(all).copied().collect()
}

/// Returns the quorums of all gates without duplicates. **Invariant:** the quorum of the first gate stands for no gate
/// of another policy, because an escalation widens it.
fn quorums(gates: &[(&PlannedStep, &PlannedGate)]) -> Vec<Quorum> {
    let mut all: Vec<Quorum> = Vec::new();
    for quorum in gates.iter().flat_map(|(step, gate)| request::quorums(step, gate)) {
        if !all.contains(&quorum) {
            all.push(quorum);
        }
    }
    all
}

/// Returns the requirements of policies of all gates without duplicates.
fn required_by(gates: &[(&PlannedStep, &PlannedGate)]) -> Vec<RequiredBy> {
    let mut all: Vec<RequiredBy> = Vec::new();
    for by in gates.iter().flat_map(|(_, gate)| &gate.required_by) {
        match all.iter_mut().find(|known| known.source == by.source) {
            Some(known) => {
                let more: Vec<_> = by.rules.iter().filter(|rule| !known.rules.contains(rule)).cloned().collect();
                known.rules.extend(more);
            }
            None => all.push(by.clone()),
        }
    }
    all
}

/// The positions of the gates in a group that determine the request's timeout and its action at the deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeadlineSource {
    time: usize,
    action: usize,
}

impl DeadlineSource {
    /// Returns the sources for a group, or `None` if the group is empty.
    fn of(group: &[Asking<'_>]) -> Option<Self> {
        let steps: Vec<_> = group.iter().map(|asking| &asking.gate.gate).collect();
        let ignores_defaults = keeps_asking_at_deadline(&steps);
        let gates = || steps.iter().enumerate().filter_map(|(at, step)| Some((at, step.gate()?)));
        let is_default = |gate: &PlannedGate| ignores_defaults && !has_timeout(gate);
        let (first, gate) = gates().min_by_key(|(_, gate)| (is_default(gate), caution_rank(action(gate))))?;
        let times = gates().filter(|(_, gate)| !is_default(gate)).map(|(at, gate)| (gate.after, at));
        // The shortest timeout is the most cautious, unless the deadline approves: then the longest is.
        let time = match action(gate) {
            TimeoutAction::Approve => times.max_by_key(|(after, at)| (*after, std::cmp::Reverse(*at))),
            _ => times.min(),
        };
        Some(Self { time: time.map_or(first, |(_, at)| at), action: first })
    }

    /// Returns a note for people that the timeout or the action of the gate at this position applies. Returns `None` if
    /// neither applies, or if all gates of the group have the same deadline.
    pub(super) fn deadline_note(group: &[Asking<'_>], at: usize) -> Option<&'static str> {
        let mut deadlines =
            group.iter().filter_map(|asking| asking.gate.gate.gate()).map(|gate| (gate.after, action(gate)));
        let first = deadlines.next()?;
        let source = Self::of(group).filter(|_| deadlines.any(|other| other != first))?;
        match (source.time == at, source.action == at) {
            (true, true) => Some("its time and its action at the deadline apply"),
            (true, false) => Some("its time applies"),
            (false, true) => Some("its action at the deadline applies"),
            (false, false) => None,
        }
    }
}

/// Merges a group into one gate. `excluded` are further user names that cannot decide.
///
/// # Errors
/// The group is empty.
pub(super) fn merge_gates(group: &[Asking<'_>], excluded: &[String]) -> Result<PlannedStep, String> {
    let no_gate = || "internal error; report this as a bug: no gate asks".to_owned();
    // The gate with the most cautious timeout action comes first; its escalation levels are used.
    let mut steps: Vec<_> = group.iter().map(|asking| &asking.gate.gate).collect();
    let ignores_defaults = keeps_asking_at_deadline(&steps);
    steps.sort_by_key(|step| {
        step.gate().map(|gate| (ignores_defaults && !has_timeout(gate), caution_rank(action(gate))))
    });
    let gates: Vec<_> = steps.iter().filter_map(|step| Some((*step, step.gate()?))).collect();
    let (step, first) = *gates.first().ok_or_else(no_gate)?;
    let mut gate = first.clone();
    gate.allowed = common_verdicts(&gates);
    gate.policy_quorums = quorums(&gates).into_iter().skip(1).collect();
    let timed = DeadlineSource::of(group).and_then(|source| group.get(source.time));
    gate.after = timed.and_then(|asking| asking.gate.gate.gate()).map_or(first.after, |timed| timed.after);
    for (other_step, other) in gates.iter().skip(1) {
        gate.merged.push((other.prompt.clone(), other.context.clone()));
        gate.spec.excluded.extend(other.spec.excluded.iter().cloned());
        gate.excludes_editors |= other.excludes_editors;
        gate.max_vote_age = shorter(gate.max_vote_age, other.max_vote_age);
        gate.merged_gates.push((other_step.name.clone(), other.spec.exclude_deciders.clone()));
        add_channels(&mut gate, other);
        gate.spec.require_reason = gate.spec.require_reason.max(other.spec.require_reason);
        gate.stops_on_reject |= other.stops_on_reject;
        // The form of an author has priority over the plain question of a gate without a form.
        if gate.form.is_none() || (gate.spec.form.is_none() && other.spec.form.is_some()) {
            gate.spec.form.clone_from(&other.spec.form);
            gate.form.clone_from(&other.form);
        }
        gate.blocked = gate.blocked.take().or_else(|| other.blocked.clone());
        if gate.persons.is_empty() {
            gate.persons.clone_from(&other.persons);
        }
    }
    gate.required_by = required_by(&gates);
    if !gate.allowed.contains(&Verdict::Respond) {
        gate.form = None;
    }
    gate.spec.excluded.extend(excluded.iter().cloned());
    gate.spec.excluded.sort();
    gate.spec.excluded.dedup();
    gate.after_reject = match gate.stops_on_reject {
        true => Vec::new(),
        false => vec![TOLD_AGENT.to_owned()],
    };
    Ok(PlannedStep { action: Action::Gate(Box::new(gate)), ..step.clone() })
}

/// Adds the notification channels of another gate without duplicates.
fn add_channels(gate: &mut PlannedGate, other: &PlannedGate) {
    let more: Vec<_> = other.spec.notify.iter().filter(|name| !gate.spec.notify.contains(name)).cloned().collect();
    gate.spec.notify.extend(more);
}

/// Checks that a request can name the people whom a merged gate excludes.
pub(super) fn check_excluded(step: &PlannedStep) -> Result<(), String> {
    if step.gate().is_some_and(|gate| gate.spec.excluded.len() > ApprovalRequest::MAX_EXCLUDED) {
        return Err(format!(
            "a request can exclude at most {} people, and the gates and editors of this call are more",
            ApprovalRequest::MAX_EXCLUDED
        ));
    }
    Ok(())
}

/// Whether the most cautious of the declared timeouts keeps asking people. Then the default timeout of other gates does
/// not apply, because it would end a request that another gate keeps open.
fn keeps_asking_at_deadline(steps: &[&PlannedStep]) -> bool {
    let declared = steps.iter().filter_map(|step| step.gate()).filter(|gate| has_timeout(gate)).map(action);
    let most_cautious = declared.min_by_key(|action| caution_rank(*action));
    matches!(most_cautious, Some(TimeoutAction::Expire | TimeoutAction::Escalate | TimeoutAction::Retry))
}

/// Whether a gate declares a timeout. A gate of a policy with the default timeout counts as declaring it.
fn has_timeout(gate: &PlannedGate) -> bool {
    gate.spec.timeout.is_some() || !gate.required_by.is_empty()
}

fn action(gate: &PlannedGate) -> TimeoutAction {
    gate.spec.timeout.as_ref().and_then(|timeout| timeout.action).unwrap_or_default()
}
