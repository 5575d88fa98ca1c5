//! The sentences about a policy: the gates that it applies to, and its demands.
//!
//! The question and the timeout of an added gate are left out; they are in the policy itself.

use signoff_api::{
    gate::{GateType, PersonRule, Quorum, RequiredFrom, TimeoutAction},
    policy::{
        ApprovalPolicySpec, ClusterApprovalPolicySpec, Deciders, GateRules, GuardedKind, LabelOperator, LabelRule,
        NamespaceSelector, PolicyRules, PolicyStep, Position,
    },
};
use signoff_review::{
    quorum::{people, rules, subjects},
    text::one_line,
};

/// A policy in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// The namespaces and the gates to which the policy applies.
    pub applies: Vec<String>,
    /// The people who must agree besides the approvers of the gate, or `None`.
    pub who: Option<String>,
    /// The demands of the policy, each as a sentence.
    pub demands: Vec<String>,
}

/// Returns a policy of the cluster in words.
#[must_use]
pub fn of_cluster(spec: &ClusterApprovalPolicySpec) -> Words {
    let selector = spec.match_.as_ref().and_then(|found| found.namespace_selector.as_ref());
    let types = spec.match_.as_ref().map(|found| found.gate_types.as_slice()).unwrap_or_default();
    let mut words = of_rules(&spec.rules);
    words.applies = vec![namespaces(selector), gates(types)];
    words.demands.extend(identities(&spec.identities));
    words
}

/// Returns a policy of a namespace in words.
#[must_use]
pub fn of_namespace(spec: &ApprovalPolicySpec, namespace: &str) -> Words {
    let types = spec.match_.as_ref().map(|found| found.gate_types.as_slice()).unwrap_or_default();
    let mut words = of_rules(&spec.rules);
    words.applies = vec![format!("namespace {namespace}"), gates(types)];
    words
}

fn namespaces(selector: Option<&NamespaceSelector>) -> String {
    let selector = selector.cloned().unwrap_or_default();
    let labels = selector.match_labels.iter().map(|(key, value)| one_line(&format!("{key}={value}"), 400));
    let conditions: Vec<_> = labels.chain(selector.match_expressions.iter().map(label)).collect();
    if conditions.is_empty() {
        "every namespace".to_owned()
    } else {
        format!("namespaces with {}", conditions.join(" and "))
    }
}

fn label(rule: &LabelRule) -> String {
    let (key, values) = (one_line(&rule.key, 320), one_line(&rule.values.join(", "), 1200));
    match rule.operator {
        LabelOperator::In => format!("label {key} one of {values}"),
        LabelOperator::NotIn => format!("label {key} absent or none of {values}"),
        LabelOperator::Exists => format!("label {key}"),
        LabelOperator::DoesNotExist => format!("no label {key}"),
    }
}

fn gates(types: &[GateType]) -> String {
    if types.is_empty() {
        return "every gate".to_owned();
    }
    let names: Vec<_> = types.iter().map(|type_| gate(*type_)).collect();
    format!("only gates of these types: {}", names.join("; "))
}

fn gate(type_: GateType) -> &'static str {
    match type_ {
        GateType::Step => "steps that ask",
        GateType::PlanApproval => "plans",
        GateType::FinalResponse => "the result of a run",
        GateType::OutputValidation => "the answer of a step",
        GateType::ErrorEscalation => "steps that failed",
        GateType::StepStart => "steps before they start",
        GateType::ToolExecution => "calls of tools",
        GateType::SpecificTools => "calls of listed tools",
        GateType::DestructiveActions => "calls of tools that may change something",
        GateType::Custom => "calls of tools that a condition selects",
        GateType::Question => "questions of agents",
    }
}

/// Returns the demands of the rules that both kinds of policies share.
fn of_rules(rules: &PolicyRules) -> Words {
    let demand = rules.gates.clone().unwrap_or_default();
    let mut demands = of_gates(&demand);
    demands.extend(rules.steps.iter().map(added_gate));
    let hosts = rules.allowed_hosts.as_ref();
    demands.extend(hosts.map(|hosts| list("http steps, MCP servers and model providers may connect to", hosts)));
    demands.extend(rules.allowed_secrets.as_ref().map(|secrets| list("a run may use the Secrets", secrets)));
    let tools = rules.tools.clone().unwrap_or_default();
    if tools.require_gate == Some(true) {
        demands.push("a gate must always ask about calls of tools that can change something".to_owned());
    }
    demands.extend(tools.never.iter().map(|calls| format!("no agent may make {}", one_line(&calls.to_string(), 2000))));
    Words { applies: Vec::new(), who: demand.deciders.as_ref().map(deciders), demands }
}

fn list(what: &str, names: &[String]) -> String {
    if names.is_empty() { format!("{what}: none") } else { format!("{what}: {}", one_line(&names.join(", "), 20_000)) }
}

fn deciders(deciders: &Deciders) -> String {
    let quorum = Quorum {
        source: String::new(),
        approvers: deciders.approvers.clone(),
        threshold: deciders.threshold.unwrap_or(1),
        required_from: deciders.required_from.clone(),
        reject_policy: deciders.reject_policy,
        exclude_requester: deciders.exclude_requester,
    };
    format!("{}{} out of {} must agree too", people(quorum.threshold), rules(&quorum), subjects(&quorum.approvers))
}

fn groups(required: &[RequiredFrom]) -> String {
    let each = required.iter().map(|from| format!("{} of group {}", from.min, one_line(&from.group, 253)));
    each.collect::<Vec<_>>().join(", ")
}

/// Returns the demands on gates, each as a sentence.
fn of_gates(demand: &GateRules) -> Vec<String> {
    let mut sentences = Vec::new();
    sentences.extend(
        demand.min_threshold.map(|least| format!("at least {} of those whom the gate names must agree", people(least))),
    );
    if !demand.required_from.is_empty() {
        sentences.push(format!("at least {} must be among them", groups(&demand.required_from)));
    }
    if demand.exclude_requester == Some(true) {
        sentences.push("the requester does not decide".to_owned());
    }
    if !demand.allowed_verdicts.is_empty() {
        let names: Vec<_> = demand.allowed_verdicts.iter().map(|verdict| verdict.name()).collect();
        sentences.push(format!(
            "nothing but {} can be decided; Reject and Abort stay wherever a gate has them",
            names.join(", ")
        ));
    }
    if !demand.timeout_actions.is_empty() {
        let names: Vec<_> = demand.timeout_actions.iter().map(|action| timeout(*action)).collect();
        sentences.push(format!("when the deadline passes, nothing happens but: {}", names.join("; ")));
    }
    sentences.extend(demand.max_vote_age.map(|age| format!("votes count together for {age}")));
    sentences.extend(demand.max_timeout.map(|most| format!("people have at most {most}")));
    if demand.forbids_continue_after_reject() {
        sentences.push("a Reject ends the run".to_owned());
    } else if demand.allow_continue_after_reject == Some(true) {
        sentences.push("a run may go on after a Reject".to_owned());
    }
    sentences
}

fn timeout(action: TimeoutAction) -> &'static str {
    match action {
        TimeoutAction::Reject => "it is rejected",
        TimeoutAction::Approve => "it is approved without a decision",
        TimeoutAction::Retry => "it is asked again",
        TimeoutAction::Escalate => "more people are asked",
        TimeoutAction::Abort => "the run is aborted",
        TimeoutAction::Skip => "it is skipped",
        TimeoutAction::Default => "the default answer counts",
        TimeoutAction::Expire => "only Retry, Reject and Abort are accepted",
    }
}

/// Returns the sentence about a gate that the policy adds.
fn added_gate(step: &PolicyStep) -> String {
    let position = match (&step.at, &step.before) {
        (Some(Position::Start), _) => "at the start of every run".to_owned(),
        (Some(Position::End), _) => "at the end of every run".to_owned(),
        (None, Some(before)) => {
            let kinds: Vec<_> = before.kinds.iter().map(|kind| guarded_steps(*kind)).collect();
            let reviewed = match before.except.len() {
                0 => "",
                1 => ", but for one tool whose definition was reviewed",
                _ => ", but for tools whose definitions were reviewed",
            };
            match &before.calls {
                Some(calls) => format!("before {}", one_line(&calls.to_string(), 2000)),
                None => format!("before {}{reviewed}", kinds.join(" and ")),
            }
        }
        (None, None) => "at a place that the policy does not name".to_owned(),
    };
    let hitl = &step.hitl;
    let count = people(hitl.threshold.unwrap_or(1));
    let bar = if hitl.exclude_requester == Some(true) { ", not the requester" } else { "" };
    let from = if hitl.required_from.is_empty() { String::new() } else { format!(", {}", groups(&hitl.required_from)) };
    let name = one_line(&step.name, 63);
    format!("the gate {name} is added {position}: {count}{from}{bar} out of {} must agree", subjects(&hitl.approvers))
}

fn guarded_steps(kind: GuardedKind) -> &'static str {
    match kind {
        GuardedKind::Agent => "every turn of an agent",
        GuardedKind::Pod => "every container",
        GuardedKind::Http => "every HTTP request",
        GuardedKind::Mcp => "every call of a tool of an MCP server",
        GuardedKind::Egress => "every step that sends data out",
        GuardedKind::Tool => "every call of a tool",
    }
}

fn identities(rules: &[PersonRule]) -> Vec<String> {
    if rules.is_empty() {
        return Vec::new();
    }
    let each: Vec<_> = rules
        .iter()
        .map(|rule| format!("{} is {}", one_line(&rule.pattern, 253), one_line(&rule.person, 253)))
        .collect();
    vec![format!("only these people count, each once; user names and who they are: {}", each.join("; "))]
}

#[cfg(test)]
#[path = "words_tests.rs"]
mod tests;
