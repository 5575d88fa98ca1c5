//! The merge of all approval policies that apply to a gate: their requirements are recorded, and conflicts are reported
//! before the gate asks.
//!
//! **Invariant:** every step of the merge is a maximum, a union, an intersection or the more cautious of two values.

use std::time::Duration;

use signoff_api::{
    ApprovalRequest, Span, Verdict, WorkflowSpec,
    approval::RequiredBy,
    conditions::reason,
    gate::{Form, PersonRule, Question, Quorum, RejectPolicy, RequiredFrom, Subject, TimeoutAction},
    policy::{Deciders, GateRules},
    step::{HitlStep, OnReject},
};
use signoff_expr::text;

use super::{AppliedPolicy, Policies};

use crate::approval::persons::{self, Persons};
use crate::gate::{
    payload,
    subject::{self, GateSubject},
};

/// The maximum numbers in a request: of quorums in addition to the gate's own, of rules for persons, of required groups
/// and of listed policies.
const LIMITS: (usize, usize, usize, usize) = (ApprovalRequest::MAX_QUORUMS - 1, 32, 8, 16);
/// The entry of `excludeDeciders` for every gate.
pub(crate) const EVERY_GATE: &str = "*";
/// The maximum length of a sentence about a requirement, in characters.
const SENTENCE: usize = 500;

/// The requester of a Workflow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requester<'a> {
    pub(crate) by: &'a str,
    pub(crate) on_behalf_of: Option<&'a str>,
    /// The requesters of the earlier runs that the Workflow repeats (`spec.rerunOf`).
    pub(crate) earlier: &'a [String],
}

impl<'a> Requester<'a> {
    /// Returns the requester of a spec.
    pub(crate) fn of(spec: &'a WorkflowSpec) -> Self {
        Self {
            by: &spec.requested_by,
            on_behalf_of: spec.requested_for.as_deref(),
            earlier: spec.rerun_of.as_ref().map_or(&[], |rerun| &rerun.requesters),
        }
    }

    /// Whether the requester is a service account without a person.
    pub(crate) fn is_machine(self) -> bool {
        self.by.starts_with("system:serviceaccount:") && self.on_behalf_of.is_none()
    }

    fn names(self) -> impl Iterator<Item = String> {
        let own = self.on_behalf_of.map(str::to_owned).into_iter().chain([self.by.to_owned()]);
        own.chain(self.earlier.iter().cloned())
    }
}

/// A conflict between a policy and the gate, or between two policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contradiction {
    /// The field below `hitl` that conflicts with the policy, such as `approvers`.
    pub(crate) field: &'static str,
    /// The reason of the condition of the Workflow, such as `PolicyConflict`.
    pub(crate) reason: &'static str,
    /// A sentence for the author: the conflict, the policy and the remedy.
    pub(crate) message: String,
}

/// A gate with the requirements of all policies merged into it.
#[derive(Clone, Debug)]
pub(crate) struct EffectiveGate {
    pub(crate) hitl: HitlStep,
    pub(crate) allowed: Vec<Verdict>,
    pub(crate) form: Option<Form>,
    /// The quorums of policies, in addition to the gate's own.
    pub(crate) policy_quorums: Vec<Quorum>,
    pub(crate) persons: Vec<PersonRule>,
    pub(crate) required_by: Vec<RequiredBy>,
    /// The policies that require that a Reject ends the run.
    pub(crate) ends_on_reject: Vec<String>,
    /// Whether people who changed the reviewed text cannot decide.
    pub(crate) excludes_editors: bool,
    /// The time within which the votes of a quorum must be given.
    pub(crate) max_vote_age: Option<Span>,
    pub(crate) contradictions: Vec<Contradiction>,
}

impl EffectiveGate {
    fn contradict(&mut self, field: &'static str, message: String) {
        self.contradictions.push(Contradiction { field, reason: reason::POLICY_CONFLICT, message });
    }

    /// Adds a sentence about a requirement of a policy, for the request.
    fn add_rule(&mut self, source: &str, rule: String) {
        let rule = text::display(&rule, SENTENCE);
        match self.required_by.iter_mut().find(|by| by.source == source) {
            Some(by) => by.rules.push(rule),
            None => self.required_by.push(RequiredBy { source: source.to_owned(), rules: vec![rule] }),
        }
    }
}

impl Policies {
    /// Merges the policies that apply to the type of a gate into it. `usual` is the default timeout, `added_by` the
    /// policy that added the gate.
    pub(crate) fn merge_into(
        &self,
        hitl: &HitlStep,
        subject: &GateSubject,
        requester: Requester<'_>,
        usual: Duration,
        added_by: Option<&str>,
    ) -> EffectiveGate {
        let allowed = subject::verdicts_of_gate(hitl, subject);
        let mut gate = EffectiveGate {
            hitl: hitl.clone(),
            form: subject::form_of_gate(hitl, &allowed),
            allowed,
            policy_quorums: Vec::new(),
            persons: Vec::new(),
            required_by: Vec::new(),
            ends_on_reject: Vec::new(),
            excludes_editors: false,
            max_vote_age: None,
            contradictions: Vec::new(),
        };
        if let Some(source) = added_by {
            gate.add_rule(source, "this gate is added to every run".to_owned());
        }
        let holds = |applied: &&AppliedPolicy| {
            applied.gate_types.is_empty() || applied.gate_types.contains(&subject.gate_type())
        };
        let policies: Vec<&AppliedPolicy> = self.list.iter().filter(holds).collect();
        let demands: Vec<(&str, &GateRules)> = policies
            .iter()
            .filter_map(|applied| Some((applied.source.as_str(), applied.rules.gates.as_ref()?)))
            .collect();
        merge_identities(&mut gate, &policies);
        for (source, demand) in &demands {
            merge_quorum(&mut gate, source, demand, requester);
            if demand.forbids_continue_after_reject() {
                gate.ends_on_reject.push((*source).to_owned());
            }
        }
        merge_verdicts(&mut gate, &demands, subject);
        merge_timeout(&mut gate, &demands, usual);
        check_reachable(&mut gate, hitl, requester);
        check_limits(&mut gate);
        gate
    }
}

fn join_sources(demands: &[(&str, &GateRules)], is_meant: impl Fn(&GateRules) -> bool) -> String {
    demands.iter().filter(|(_, demand)| is_meant(demand)).map(|(source, _)| *source).collect::<Vec<_>>().join(" and ")
}

fn join_names<T>(list: &[T], name: impl Fn(&T) -> String) -> String {
    list.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn people_phrase(count: i32) -> String {
    if count == 1 { "1 person".to_owned() } else { format!("{count} people") }
}

fn required_groups(list: &[RequiredFrom]) -> String {
    join_names(list, |from| format!("{} of group {}", from.min, from.group))
}

/// Sets the rules for persons. Two policies with different identities are a conflict.
fn merge_identities(gate: &mut EffectiveGate, policies: &[&AppliedPolicy]) {
    for applied in policies.iter().filter(|applied| !applied.identities.is_empty()) {
        for rule in &applied.identities {
            if let Some(why) = persons::ambiguity(rule) {
                let message =
                    format!("{}: the pattern {} of its identities is ambiguous: {why}", applied.source, rule.pattern);
                gate.contradict("persons", message);
            }
        }
        if gate.persons.is_empty() {
            gate.persons.clone_from(&applied.identities);
            gate.add_rule(&applied.source, "only people whom its identities name count, each once".to_owned());
        } else if gate.persons != applied.identities {
            // Each list admits approvers that the other does not, so a union would loosen both.
            let message = format!(
                "{} has identities, and so has another policy that applies here: put all of them into one",
                applied.source
            );
            gate.contradict("persons", message);
        }
    }
}

/// Adds the quorum of a policy, and tightens the gate's own quorum by the requirements of the policy.
fn merge_quorum(gate: &mut EffectiveGate, source: &str, demand: &GateRules, requester: Requester<'_>) {
    if let Some(deciders) = &demand.deciders {
        gate.add_rule(source, deciders_sentence(deciders));
        gate.policy_quorums.push(Quorum {
            source: source.to_owned(),
            approvers: deciders.approvers.clone(),
            threshold: deciders.threshold.unwrap_or(1),
            required_from: deciders.required_from.clone(),
            reject_policy: deciders.reject_policy,
            exclude_requester: deciders.exclude_requester,
        });
    }
    if let Some(least) = demand.min_threshold {
        gate.hitl.threshold = gate.hitl.threshold.max(Some(least));
        gate.add_rule(source, format!("at least {}", people_phrase(least)));
    }
    for wanted in &demand.required_from {
        match gate.hitl.required_from.iter_mut().find(|own| own.group == wanted.group) {
            Some(own) => own.min = own.min.max(wanted.min),
            None => gate.hitl.required_from.push(wanted.clone()),
        }
        if !gate.hitl.approvers.contains(&Subject::group(&wanted.group)) {
            let message = format!(
                "{source} requires {} of group {}, which is not among the approvers: add it to them",
                people_phrase(wanted.min),
                wanted.group
            );
            gate.contradict("approvers", message);
        }
    }
    if !demand.required_from.is_empty() {
        gate.add_rule(source, format!("at least {} among them", required_groups(&demand.required_from)));
    }
    if demand.exclude_requester == Some(true) {
        gate.hitl.exclude_requester = Some(true);
        gate.add_rule(source, "the requester does not decide".to_owned());
    }
    gate.excludes_editors |= demand.exclude_editors != Some(false);
    if demand.exclude_deciders == Some(true) && !gate.hitl.exclude_deciders.iter().any(|name| name == EVERY_GATE) {
        gate.hitl.exclude_deciders.push(EVERY_GATE.to_owned());
    }
    let sentence = match (demand.exclude_deciders, demand.exclude_editors) {
        (Some(true), _) => "those who decided at another gate before do not decide",
        (_, Some(true)) => "those who changed what is reviewed do not decide",
        _ => "",
    };
    if !sentence.is_empty() {
        gate.add_rule(source, sentence.to_owned());
    }
    let exclude_requester =
        [demand.exclude_requester, demand.deciders.as_ref().and_then(|deciders| deciders.exclude_requester)];
    if exclude_requester.contains(&Some(true)) && requester.is_machine() {
        gate.contradictions.push(Contradiction {
            field: "excludeRequester",
            reason: reason::REQUESTER_IS_MACHINE,
            message: format!(
                "RequesterIsMachine: {source} requires that the requester does not decide, and a service account created this Workflow: set spec.requestedFor to the person it acts for"
            ),
        });
    }
}

fn deciders_sentence(deciders: &Deciders) -> String {
    let mut sentence = format!(
        "{} out of {} must agree too",
        people_phrase(deciders.threshold.unwrap_or(1)),
        join_names(&deciders.approvers, ToString::to_string)
    );
    if !deciders.required_from.is_empty() {
        sentence.push_str(&format!(", {} among them", required_groups(&deciders.required_from)));
    }
    if deciders.reject_policy == Some(RejectPolicy::Threshold) {
        sentence.push_str(", as many to reject");
    }
    if deciders.exclude_requester == Some(true) {
        sentence.push_str(", without the requester");
    }
    sentence
}

/// Removes the verdicts that a policy does not allow, except Reject and Abort. If several people have to agree, removes
/// or reports Respond with free text. Reports a gate without a verdict by which the run can continue.
fn merge_verdicts(gate: &mut EffectiveGate, demands: &[(&str, &GateRules)], subject: &GateSubject) {
    gate.allowed = subject::verdicts_of_gate(&gate.hitl, subject);
    for (source, demand) in demands.iter().filter(|(_, demand)| !demand.allowed_verdicts.is_empty()) {
        let always_allowed = [Verdict::Reject, Verdict::Abort];
        gate.allowed.retain(|verdict| always_allowed.contains(verdict) || demand.allowed_verdicts.contains(verdict));
        gate.add_rule(source, format!("nothing but {}", join_names(&demand.allowed_verdicts, ToString::to_string)));
    }
    gate.form = subject::form_of_gate(&gate.hitl, &gate.allowed);
    let most = gate.policy_quorums.iter().map(|quorum| quorum.threshold).chain(gate.hitl.threshold).max().unwrap_or(1);
    let takes_text = gate.form.iter().flat_map(|form| &form.questions).any(Question::takes_text);
    if !demands.is_empty() && most > 1 && takes_text && gate.allowed.contains(&Verdict::Respond) {
        if gate.hitl.allowed_verdicts.is_empty() {
            gate.allowed.retain(|verdict| *verdict != Verdict::Respond);
            gate.form = subject::form_of_gate(&gate.hitl, &gate.allowed);
        } else {
            let by = join_sources(demands, |demand| demand.min_threshold.is_some() || demand.deciders.is_some());
            if !by.is_empty() {
                let message = format!(
                    "{by} requires several people, and Respond with free text would let the last responder decide alone: ask with options, or leave Respond out"
                );
                gate.contradict("allowedVerdicts", message);
            }
        }
    }
    let can_continue = |verdict: &Verdict| match verdict {
        Verdict::Approve | Verdict::Modify | Verdict::Respond | Verdict::Skip => true,
        Verdict::Reject => gate.hitl.on_reject == Some(OnReject::Continue),
        Verdict::Retry | Verdict::Defer => matches!(subject, GateSubject::Failure(_)),
        _ => false,
    };
    let by = join_sources(demands, |demand| !demand.allowed_verdicts.is_empty());
    if !by.is_empty() && !gate.allowed.iter().any(can_continue) {
        let message = format!("no verdict is left with which the run could continue: allow one that {by} allows too");
        gate.contradict("allowedVerdicts", message);
    }
}

/// The timeout actions from the most to the least cautious. Expire never continues without a person, but the run keeps
/// waiting.
const CAUTION: [TimeoutAction; 8] = [
    TimeoutAction::Abort,
    TimeoutAction::Reject,
    TimeoutAction::Expire,
    TimeoutAction::Escalate,
    TimeoutAction::Retry,
    TimeoutAction::Skip,
    TimeoutAction::Default,
    TimeoutAction::Approve,
];

/// Returns the rank of an action: the smaller, the more cautious.
pub(crate) fn caution_rank(action: TimeoutAction) -> usize {
    CAUTION.iter().position(|other| *other == action).unwrap_or(CAUTION.len())
}

/// Replaces a timeout action that a policy does not allow by the next more cautious one, and shortens timeouts. `usual`
/// is the default timeout.
fn merge_timeout(gate: &mut EffectiveGate, demands: &[(&str, &GateRules)], usual: Duration) {
    let mut timeout = gate.hitl.timeout.clone().unwrap_or_default();
    let own = timeout.action.unwrap_or_default();
    let limits: Vec<_> = demands.iter().filter(|(_, demand)| !demand.timeout_actions.is_empty()).collect();
    let answers = gate.allowed.contains(&Verdict::Respond)
        && payload::default_answers(gate.form.as_ref(), timeout.default.as_deref()).is_ok();
    let possible = |action: &TimeoutAction| match action {
        TimeoutAction::Escalate => !timeout.escalation.is_empty(),
        TimeoutAction::Default => answers,
        _ => true,
    };
    let allowed = |action: &TimeoutAction| limits.iter().all(|(_, demand)| demand.timeout_actions.contains(action));
    // A default answer that a policy no longer allows is replaced.
    let wanted = if possible(&own) { own } else { TimeoutAction::Reject };
    // The next action in the order, not the most cautious one: a further policy could forbid the most cautious one, and
    // the result would be less strict with it than without it.
    let action =
        CAUTION.into_iter().take(caution_rank(wanted) + 1).rev().find(|action| allowed(action) && possible(action));
    for (source, demand) in &limits {
        let list = join_names(&demand.timeout_actions, |action| format!("{action:?}"));
        let was =
            if demand.timeout_actions.contains(&own) { String::new() } else { format!(" (the gate says {own:?})") };
        gate.add_rule(source, format!("a timeout does nothing but {list}{was}"));
    }
    match action {
        Some(action) if action != own => {
            timeout.action = Some(action);
            timeout.default = None;
        }
        Some(_) => {}
        None => {
            let by = join_sources(demands, |demand| !demand.timeout_actions.is_empty());
            let message = format!(
                "{by} allows no timeout action that is as cautious as {wanted:?}: add {wanted:?} or Abort to its timeoutActions"
            );
            gate.contradict("timeout.action", message);
        }
    }
    for (source, demand) in demands {
        let together = demand.max_vote_age.map(|age| format!("votes count together for {age}"));
        gate.max_vote_age = shorter(gate.max_vote_age, demand.max_vote_age);
        let Some(most) = demand.max_timeout else {
            together.into_iter().for_each(|rule| gate.add_rule(source, rule));
            continue;
        };
        let given = timeout.after.map_or(usual, Span::duration);
        let was =
            if given > most.duration() { format!(" (the gate gives {})", Span::from(given)) } else { String::new() };
        // One sentence, because a request has at most ten for a policy.
        let rules = [Some(format!("people have at most {most}{was}")), together];
        gate.add_rule(source, rules.into_iter().flatten().collect::<Vec<_>>().join("; "));
        if given > most.duration() {
            timeout.after = Some(most);
        }
        for level in &mut timeout.escalation {
            level.after = level.after.map(|after| if after > most { most } else { after });
        }
    }
    if gate.hitl.timeout.is_some() || timeout != signoff_api::gate::Timeout::default() {
        gate.hitl.timeout = Some(timeout);
    }
}

/// Returns the shorter of two times; `None` means no limit.
pub(crate) fn shorter(one: Option<Span>, other: Option<Span>) -> Option<Span> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other < one { other } else { one }),
        (one, other) => one.or(other),
    }
}

/// Reports quorums that cannot be met, because too few of the listed approvers can decide. `written` is the gate as its
/// author wrote it.
fn check_reachable(gate: &mut EffectiveGate, written: &HitlStep, requester: Requester<'_>) {
    let too_few = |hitl: &HitlStep, persons: &Persons| {
        let mut excluded = hitl.excluded.clone();
        if hitl.exclude_requester == Some(true) {
            excluded.extend(requester.names());
        }
        let wanted = hitl.threshold.unwrap_or(1);
        persons.count(&hitl.approvers, &excluded).filter(|have| *have < usize::try_from(wanted).unwrap_or(1))
    };
    let persons = Persons::new(&gate.persons);
    // Errors of the author are reported as errors of the author's field.
    if too_few(written, &Persons::new(&[])).is_none()
        && let Some(have) = too_few(&gate.hitl, &persons)
    {
        let by: Vec<_> = gate.required_by.iter().map(|by| by.source.as_str()).collect();
        let message = format!(
            "{} requires {} here, and only {have} of the listed approvers can decide: list more people or a group",
            by.join(" and "),
            people_phrase(gate.hitl.threshold.unwrap_or(1))
        );
        gate.contradict("approvers", message);
    }
    for quorum in &gate.policy_quorums.clone() {
        let mut excluded = gate.hitl.excluded.clone();
        // People whom the gate's own quorum excludes cannot vote at all.
        if quorum.excludes_requester() || gate.hitl.exclude_requester == Some(true) {
            excluded.extend(requester.names());
        }
        if let Some(have) = persons.count(&quorum.approvers, &excluded)
            && have < quorum.needed()
        {
            let message = format!(
                "{} requires {} of its own quorum, and only {have} of the approvers that it lists can decide: list more people there, or a group",
                quorum.source,
                people_phrase(quorum.threshold)
            );
            gate.contradict("approvers", message);
        }
    }
}

/// Reports requirements beyond the limits of a request.
fn check_limits(gate: &mut EffectiveGate) {
    let (quorums, rules, groups, policies) = LIMITS;
    let by: Vec<_> = gate.required_by.iter().map(|by| by.source.as_str()).collect();
    let by = by.join(", ");
    let counts = [
        (gate.policy_quorums.len(), quorums, "quorums besides its own"),
        (gate.persons.len(), rules, "rules for persons"),
        (gate.hitl.required_from.len(), groups, "groups that are required"),
        (gate.required_by.len(), policies, "policies that shape it"),
    ];
    for (_, most, what) in counts.into_iter().filter(|(is, most, _)| is > most) {
        gate.contradict(
            "approvers",
            format!("a request can have at most {most} {what}, and {by} require more: merge some of them"),
        );
    }
}
