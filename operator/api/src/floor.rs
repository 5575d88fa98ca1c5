//! The kinds `ClusterApprovalPolicy` and `ApprovalPolicy`: floors that no Workflow can lower.
//!
//! Both share one [`Floor`]. Only the administrator of the cluster says for which namespaces a floor holds and which
//! user names are one person; whoever keeps a namespace may add to what holds there, and take nothing away. How
//! floors are merged is the engine's.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    approval::GateType,
    gate::{PersonRule, RejectPolicy, RequiredFrom, Subject, TimeoutAction},
    step::HitlStep,
    values::Span,
    verdict::Verdict,
};

/// Floors for the namespaces that it matches.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "signoff.dev",
    version = "v1alpha1",
    kind = "ClusterApprovalPolicy",
    plural = "clusterapprovalpolicies",
    shortname = "capol",
    derive = "PartialEq",
    doc = "A ClusterApprovalPolicy sets floors for the Workflows of the namespaces that it matches: who must be among the deciders of every gate, what a gate may allow at most, gates that are always added, hosts and Secrets that may be used. No Workflow can lower them.",
    printcolumn(name = "Deciders", type_ = "string", json_path = ".spec.gates.deciders.approvers[*].name"),
    printcolumn(name = "Min", type_ = "integer", json_path = ".spec.gates.minThreshold"),
    printcolumn(name = "Verdicts", type_ = "string", json_path = ".spec.gates.allowedVerdicts", priority = 1),
    printcolumn(name = "Added", type_ = "string", json_path = ".spec.steps[*].name"),
    printcolumn(name = "Hosts", type_ = "string", json_path = ".spec.allowedHosts", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = kube::core::Rule::new("size(self.metadata.name) <= 63").message("metadata.name has at most 63 characters: every request that the policy shapes names it")
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterApprovalPolicySpec {
    /// Where it holds. Default: at every gate of every namespace.
    #[serde(default, rename = "match", skip_serializing_if = "Option::is_none")]
    pub match_: Option<ClusterMatch>,
    /// Which user names are one person: the first rule that matches a whole name says who it is. Where there are any
    /// rules, a name that none matches does not count at the gates in question. At most one of the policies that hold
    /// at a gate may have them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(
        merge_strategy = kube::core::ListMerge::Atomic,
        validation = kube::core::Rule::new(r"self.all(r, ''.matches('^(?:' + r.pattern + ')$') ? true : true)")
            .message("a pattern is a regular expression (RE2)"),
        validation = kube::core::Rule::new(r"self.all(r, !r.pattern.matches('\\\\[A-Za-z0-9]|[(][?]|&&|--|~~|\\[[^\\]]*\\['))")
            .message("a pattern may not hold \\d, \\w or other escaped letters, (?...), &&, --, ~~ or a [ within [ ]: programs read them in different ways; write [0-9] for \\d"),
        validation = kube::core::Rule::new(r"self.all(r, !r.person.matches('[$]([^1]|$|1[0-9A-Za-z_])'))")
            .message("a person may hold $1 and no other $, and no letter, digit or _ right after it")
    )]
    pub identities: Vec<PersonRule>,
    /// What is demanded.
    #[serde(flatten)]
    pub floor: Floor,
}

/// Floors for one namespace: they may only tighten what holds there.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "signoff.dev",
    version = "v1alpha1",
    kind = "ApprovalPolicy",
    plural = "approvalpolicies",
    namespaced,
    shortname = "apol",
    category = "signoff",
    derive = "PartialEq",
    doc = "An ApprovalPolicy sets floors for the Workflows of its own namespace, in addition to every ClusterApprovalPolicy that holds there: it can tighten and never loosen.",
    printcolumn(name = "Deciders", type_ = "string", json_path = ".spec.gates.deciders.approvers[*].name"),
    printcolumn(name = "Min", type_ = "integer", json_path = ".spec.gates.minThreshold"),
    printcolumn(name = "Verdicts", type_ = "string", json_path = ".spec.gates.allowedVerdicts", priority = 1),
    printcolumn(name = "Added", type_ = "string", json_path = ".spec.steps[*].name"),
    printcolumn(name = "Hosts", type_ = "string", json_path = ".spec.allowedHosts", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = kube::core::Rule::new("size(self.metadata.name) <= 63").message("metadata.name has at most 63 characters: every request that the policy shapes names it")
)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalPolicySpec {
    /// Where it holds. Default: at every gate.
    #[serde(default, rename = "match", skip_serializing_if = "Option::is_none")]
    pub match_: Option<Match>,
    /// What is demanded.
    #[serde(flatten)]
    pub floor: Floor,
}

/// Where a floor of the cluster holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterMatch {
    /// The labels of the namespaces. Default: every namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<NamespaceSelector>,
    /// The kinds of gates that `gates` and `identities` speak of. Default: every kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub gate_types: Vec<GateType>,
}

/// Where a floor of a namespace holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Match {
    /// The kinds of gates that `gates` speaks of. Default: every kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub gate_types: Vec<GateType>,
}

/// Namespaces by their labels: all that is said must be so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceSelector {
    /// Labels with exactly these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16, "additionalProperties" = {"type": "string", "maxLength": 63}))]
    pub match_labels: BTreeMap<String, String>,
    /// What is said of labels otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub match_expressions: Vec<LabelRule>,
}

/// What is said of one label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)")
    .message("In and NotIn need values, Exists and DoesNotExist have none"))]
pub struct LabelRule {
    /// The label.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// What is said of it.
    pub operator: LabelOperator,
    /// The values in question.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 63)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub values: Vec<String>,
}

/// What can be said of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LabelOperator {
    /// It has one of the values.
    In,
    /// It has none of the values, or is not there.
    NotIn,
    /// It is there.
    Exists,
    /// It is not there.
    DoesNotExist,
}

impl GateFloor {
    /// Whether a run must end with a Reject at the gates of this policy.
    #[must_use]
    pub fn forbids_continue_after_reject(&self) -> bool {
        let decides = self.deciders.is_some() || self.min_threshold.is_some() || !self.timeout_actions.is_empty();
        decides && self.allow_continue_after_reject != Some(true)
    }
}

impl NamespaceSelector {
    /// Whether a namespace with these labels is meant.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|rule| rule.holds(labels))
    }
}

impl LabelRule {
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        match self.operator {
            LabelOperator::In => value.is_some_and(|value| self.values.contains(value)),
            LabelOperator::NotIn => value.is_none_or(|value| !self.values.contains(value)),
            LabelOperator::Exists => value.is_some(),
            LabelOperator::DoesNotExist => value.is_none(),
        }
    }
}

/// What is demanded of a Workflow, whatever its author wrote.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Floor {
    /// What every gate must keep to. It shapes requests that are made afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gates: Option<GateFloor>,
    /// Gates that are added to every run that is accepted from now on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 8))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["name".into()]))]
    pub steps: Vec<FloorStep>,
    /// The hosts that http steps and model providers may speak to: a name or an address, with a port where only that
    /// one is meant, or `*.` and a suffix. Default: no limit; an empty list allows none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253), pattern(r"^([*][.])?[^*/@\s]+$")))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub allowed_hosts: Option<Vec<String>>,
    /// The Secrets of the namespace that a Workflow may use, by name; `*` stands for any characters. Default: no limit
    /// but what the requester may read; an empty list allows none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253), pattern(r"^[-a-z0-9.*]+$")))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub allowed_secrets: Option<Vec<String>>,
}

/// What a gate must keep to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct GateFloor {
    /// A quorum of the policy's own, to be met besides the gate's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deciders: Option<Deciders>,
    /// The least `threshold` of the gate's own quorum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub min_threshold: Option<i32>,
    /// So many of the gate's own deciders must be from these groups, which must be among its approvers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["group".into()]))]
    pub required_from: Vec<RequiredFrom>,
    /// Whether the requester may not decide, whatever the gate says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_requester: Option<bool>,
    /// What people may decide at most. Reject and Abort stay where the gate has them: nobody is kept from saying no.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 9))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub allowed_verdicts: Vec<Verdict>,
    /// What a timeout may do. A gate with another action gets the nearest more careful one of these, from Approve over
    /// Default, Skip, Retry, Escalate, Expire and Reject to Abort.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 8))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub timeout_actions: Vec<TimeoutAction>,
    /// The longest time that people, and each level of an escalation, may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_timeout: Option<Span>,
    /// Whether a run may go on after a Reject at a gate: by `onReject: continue`, an edge of a graph, `onError` or a
    /// timeout that counts as Reject. Default: false where this policy has `deciders`, `minThreshold` or
    /// `timeoutActions`; a Workflow that could go on is refused then. Otherwise the policy demands nothing about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_continue_after_reject: Option<bool>,
}

/// A quorum that must be met besides the gate's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = kube::core::Rule::new("!has(self.requiredFrom) || self.requiredFrom.all(r, self.approvers.exists(a, a.kind == 'Group' && a.name == r.group))")
        .message("every group of requiredFrom must be among the approvers: nobody else could fill it").field_path(".requiredFrom"),
    validation = kube::core::Rule::new("!has(self.threshold) || self.approvers.exists(a, a.kind == 'Group') || self.threshold <= size(self.approvers)")
        .message("threshold is larger than the number of named approvers, so nobody could ever approve: lower it or name a group").field_path(".threshold")
)]
pub struct Deciders {
    /// Who may decide it.
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub approvers: Vec<Subject>,
    /// How many distinct people it takes. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub threshold: Option<i32>,
    /// So many of them from these groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["group".into()]))]
    pub required_from: Vec<RequiredFrom>,
    /// How many Rejects it takes. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reject_policy: Option<RejectPolicy>,
    /// Whether the requester's vote does not count here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_requester: Option<bool>,
}

/// A gate that is added to every run. Exactly one of `at` and `before` says where.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("has(self.at) != has(self.before)")
    .message("say where the gate is added: give either at (Start or End) or before"))]
pub struct FloorStep {
    /// The step's name; before a step it is `<name>-<that step's name>`. No step of a Workflow may have it.
    #[schemars(length(min = 1, max = 30), pattern("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Before everything else, or after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Position>,
    /// Before every step of some kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Before>,
    /// The gate. Where it has no `contextDisplay`, it shows the step that it stands before, as its author wrote it.
    pub hitl: HitlStep,
}

/// An end of a list of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Position {
    /// Before the first step.
    Start,
    /// After the last step.
    End,
}

/// Steps by what they do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Before {
    /// The kinds of steps.
    #[schemars(length(min = 1, max = 8))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub kinds: Vec<GuardedKind>,
}

/// What a step does that a gate can be put before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum GuardedKind {
    /// A turn of an agent.
    Agent,
    /// A container.
    Pod,
    /// One HTTP request.
    Http,
    /// Everything that leaves the operator: requests, turns of agents, and every kind of call to come.
    Egress,
}

/// A gate that a policy added to a run when it was accepted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddedStep {
    /// The policy, as people read it.
    #[schemars(length(min = 1, max = 253))]
    pub source: String,
    /// The gate as it stood in the policy at that moment.
    pub step: FloorStep,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn selects(selector: serde_json::Value, labels: &[(&str, &str)]) -> bool {
        let selector: NamespaceSelector = serde_json::from_value(selector).unwrap();
        selector.matches(&labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn a_selector_means_what_it_means_everywhere_in_kubernetes() {
        assert!(selects(json!({}), &[]), "an empty selector means every namespace");
        let prod = json!({"matchLabels": {"env": "prod"}});
        assert!(selects(prod.clone(), &[("env", "prod"), ("team", "pay")]));
        assert!(!selects(prod.clone(), &[("env", "dev")]));
        assert!(!selects(prod, &[]));
        let rule = |operator: &str, values: serde_json::Value| json!({"matchExpressions": [{"key": "env", "operator": operator, "values": values}]});
        assert!(selects(rule("In", json!(["prod", "stage"])), &[("env", "stage")]));
        assert!(!selects(rule("In", json!(["prod"])), &[]));
        assert!(selects(rule("NotIn", json!(["dev"])), &[]), "a namespace without the label is none of them");
        assert!(!selects(rule("NotIn", json!(["dev"])), &[("env", "dev")]));
        assert!(selects(rule("Exists", json!([])), &[("env", "")]));
        assert!(!selects(rule("DoesNotExist", json!([])), &[("env", "")]));
    }

    #[test]
    fn an_empty_list_of_hosts_is_not_the_same_as_none() {
        let floor: Floor = serde_json::from_value(json!({"allowedHosts": []})).unwrap();
        assert_eq!(floor.allowed_hosts, Some(Vec::new()));
        assert_eq!(serde_json::to_value(&floor).unwrap(), json!({"allowedHosts": []}));
        assert_eq!(serde_json::from_value::<Floor>(json!({})).unwrap().allowed_hosts, None);
    }
}
