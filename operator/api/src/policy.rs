//! The kinds `ClusterApprovalPolicy` and `ApprovalPolicy`: minimum requirements that no Workflow can lower.
//!
//! Both share [`PolicyRules`]. Only a `ClusterApprovalPolicy` selects namespaces and maps user names to persons. An
//! `ApprovalPolicy` can only tighten the rules of its namespace. The engine merges the policies.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    digest::Digest,
    gate::{GateType, PersonRule, RejectPolicy, RequiredFrom, Subject, TimeoutAction},
    step::HitlStep,
    tool_rules::{CallMatch, ToolRules},
    values::Span,
    verdict::Verdict,
};

/// The spec of a policy for the namespaces that it matches.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "signoff.dev",
    version = "v1alpha1",
    kind = "ClusterApprovalPolicy",
    plural = "clusterapprovalpolicies",
    shortname = "capol",
    derive = "PartialEq",
    doc = "A ClusterApprovalPolicy sets minimum requirements for the Workflows of the namespaces that it matches: required \
        deciders of every gate, limits of what a gate may allow, gates that are always added, and the hosts and Secrets \
        that may be used. No Workflow can lower them.\n\n\
        Administrators write it, and Signoff never does. It can be changed and deleted at any time, and has no status. \
        Rules for gates hold for requests that are created afterwards, added gates and `tools.requireGate` for runs that \
        are accepted afterwards, and `allowedHosts`, `allowedSecrets` and `tools.never` at once. An open request and the \
        added gates of an accepted run never change, also when the policy is deleted.",
    printcolumn(name = "Deciders", type_ = "string", json_path = ".spec.gates.deciders.approvers"),
    printcolumn(name = "Min", type_ = "integer", json_path = ".spec.gates.minThreshold"),
    printcolumn(name = "Verdicts", type_ = "string", json_path = ".spec.gates.allowedVerdicts", priority = 1),
    printcolumn(name = "First added", type_ = "string", json_path = ".spec.steps[0].name"),
    printcolumn(name = "Hosts", type_ = "string", json_path = ".spec.allowedHosts", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = kube::core::Rule::new("size(self.metadata.name) <= 63").message("metadata.name must have at most 63 characters, because every request under the policy contains it")
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterApprovalPolicySpec {
    /// The gates and namespaces to which the policy applies. Default: every gate of every namespace.
    #[serde(default, rename = "match", skip_serializing_if = "Option::is_none")]
    pub match_: Option<ClusterMatch>,
    /// Rules that map user names to persons: the first rule that matches the whole name applies. If there are rules,
    /// votes of a name that no rule matches do not count. At most one of the policies that apply to a gate may have
    /// rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(
        merge_strategy = kube::core::ListMerge::Atomic,
        validation = kube::core::Rule::new(r"self.all(r, ''.matches('^(?:' + r.pattern + ')$') ? true : true)")
            .message("pattern must be a regular expression (RE2)"),
        validation = kube::core::Rule::new(r"self.all(r, !r.pattern.matches('\\\\[A-Za-z0-9]|[(][?]|&&|--|~~|\\[[^\\]]*\\['))")
            .message("pattern must not contain \\d, \\w or other escaped letters, (?...), &&, --, ~~ or a [ within [ ], because programs read them differently; write [0-9] for \\d"),
        validation = kube::core::Rule::new(r"self.all(r, !r.person.matches('[$]([^1]|$|1[0-9A-Za-z_])'))")
            .message("person must not contain a $ except $1, and no letter, digit or _ directly after $1")
    )]
    pub identities: Vec<PersonRule>,
    /// The requirements of the policy.
    #[serde(flatten)]
    pub rules: PolicyRules,
}

/// The spec of a policy for its own namespace: it can only tighten the rules that apply there.
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
    doc = "An ApprovalPolicy sets minimum requirements for the Workflows of its own namespace, in addition to every \
        ClusterApprovalPolicy that applies there. It can tighten their rules and never loosen them.\n\n\
        Administrators write it, and Signoff never does. It can be changed and deleted at any time, and has no status. \
        Rules for gates hold for requests that are created afterwards, added gates and `tools.requireGate` for runs that \
        are accepted afterwards, and `allowedHosts`, `allowedSecrets` and `tools.never` at once. An open request and the \
        added gates of an accepted run never change, also when the policy is deleted.",
    printcolumn(name = "Deciders", type_ = "string", json_path = ".spec.gates.deciders.approvers"),
    printcolumn(name = "Min", type_ = "integer", json_path = ".spec.gates.minThreshold"),
    printcolumn(name = "Verdicts", type_ = "string", json_path = ".spec.gates.allowedVerdicts", priority = 1),
    printcolumn(name = "First added", type_ = "string", json_path = ".spec.steps[0].name"),
    printcolumn(name = "Hosts", type_ = "string", json_path = ".spec.allowedHosts", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = kube::core::Rule::new("size(self.metadata.name) <= 63").message("metadata.name must have at most 63 characters, because every request under the policy contains it")
)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalPolicySpec {
    /// The gates to which the policy applies. Default: every gate.
    #[serde(default, rename = "match", skip_serializing_if = "Option::is_none")]
    pub match_: Option<Match>,
    /// The requirements of the policy.
    #[serde(flatten)]
    pub rules: PolicyRules,
}

/// The gates and namespaces to which a `ClusterApprovalPolicy` applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterMatch {
    /// The labels of the namespaces. Default: every namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<NamespaceSelector>,
    /// The types of gates to which `gates` and `identities` apply. Default: every type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub gate_types: Vec<GateType>,
}

/// The gates to which an `ApprovalPolicy` applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Match {
    /// The types of gates to which `gates` applies. Default: every type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub gate_types: Vec<GateType>,
}

/// Namespaces by their labels: all requirements must be met.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceSelector {
    /// Labels with exactly these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16, "additionalProperties" = {"type": "string", "maxLength": 63}))]
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements for labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub match_expressions: Vec<LabelRule>,
}

/// A requirement for one label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)")
    .message("values: In and NotIn need values; Exists and DoesNotExist must have none"))]
pub struct LabelRule {
    /// The label.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// The comparison with the values.
    pub operator: LabelOperator,
    /// The values that are compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 63)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub values: Vec<String>,
}

/// The comparison of a label with values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LabelOperator {
    /// The label has one of the values.
    In,
    /// The label has none of the values, or is absent.
    NotIn,
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

impl GateRules {
    /// Whether a Reject must end the run at the gates of this policy.
    #[must_use]
    pub fn forbids_continue_after_reject(&self) -> bool {
        let decides = self.deciders.is_some() || self.min_threshold.is_some() || !self.timeout_actions.is_empty();
        decides && self.allow_continue_after_reject != Some(true)
    }
}

impl NamespaceSelector {
    /// Whether a namespace with these labels is selected.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|rule| rule.holds(labels))
    }
}

impl LabelRule {
    /// Whether the labels fulfil the rule.
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

/// The requirements of a policy, which are merged into every Workflow that it applies to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyRules {
    /// The requirements for every gate. They apply to requests that are created afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gates: Option<GateRules>,
    /// Gates that are added to every run that is accepted afterwards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 8))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["name".into()]))]
    pub steps: Vec<PolicyStep>,
    /// The hosts to which http steps, MCP servers and model providers may connect: a name or an address, optionally
    /// with a port, or `*.` and a suffix. Default: no limit; an empty list allows none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253), pattern(r"^([*][.])?[^*/@\s]+$")))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub allowed_hosts: Option<Vec<String>>,
    /// The Secrets of the namespace that a Workflow may use, by name; `*` matches any characters. Default: every Secret
    /// that the requester may read; an empty list allows none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253), pattern(r"^[-a-z0-9.*]+$")))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub allowed_secrets: Option<Vec<String>>,
    /// The requirements for the tools of agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<ToolRules>,
}

/// The requirements of a policy for a gate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct GateRules {
    /// A quorum of the policy, which must be met in addition to the gate's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deciders: Option<Deciders>,
    /// The smallest allowed `threshold` of the gate's own quorum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub min_threshold: Option<i32>,
    /// The groups from which deciders of the gate's own quorum must come, with their numbers. The groups must be among
    /// its approvers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["group".into()]))]
    pub required_from: Vec<RequiredFrom>,
    /// Whether the requester cannot decide, whatever the gate says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_requester: Option<bool>,
    /// Whether those who decided at another gate of the run before cannot decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_deciders: Option<bool>,
    /// Whether those who changed what a gate reviews, and the accounts that sent their decisions, cannot decide there.
    /// Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_editors: Option<bool>,
    /// The verdicts that a gate may allow. Reject and Abort are never removed from a gate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 9))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub allowed_verdicts: Vec<Verdict>,
    /// The allowed timeout actions. A gate with another action gets the next more cautious one of this list, in the
    /// order Approve, Default, Skip, Retry, Escalate, Expire, Reject, Abort.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 8))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub timeout_actions: Vec<TimeoutAction>,
    /// The longest timeout of a gate and of each level of an escalation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_timeout: Option<Span>,
    /// The time within which the votes of a quorum must be given, at least 1m. When the first vote becomes older, the
    /// gate asks again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = kube::core::Rule::new("duration(self) >= duration('1m')").message("maxVoteAge must be at least 1m"))]
    pub max_vote_age: Option<Span>,
    /// Whether a run may continue after a Reject at a gate: by `onReject: continue`, an edge of a graph, `onError` or a
    /// timeout that counts as Reject. Default: false if this policy has `deciders`, `minThreshold` or `timeoutActions`;
    /// a Workflow that could continue is then refused. Otherwise there is no requirement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_continue_after_reject: Option<bool>,
}

/// A quorum that must be met in addition to the gate's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = kube::core::Rule::new("!has(self.requiredFrom) || self.requiredFrom.all(r, self.approvers.exists(a, a.kind == 'Group' && a.name == r.group))")
        .message("every group of requiredFrom must be among the approvers, because only approvers can decide: add it to approvers").field_path(".requiredFrom"),
    validation = kube::core::Rule::new("!has(self.threshold) || self.approvers.exists(a, a.kind == 'Group') || self.threshold <= size(self.approvers)")
        .message("threshold must not be larger than the number of approvers: lower it or add approvers or a group").field_path(".threshold")
)]
pub struct Deciders {
    /// The users, groups and service accounts that can decide.
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub approvers: Vec<Subject>,
    /// The number of different people who must agree. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub threshold: Option<i32>,
    /// The groups from which deciders must come, with their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["group".into()]))]
    pub required_from: Vec<RequiredFrom>,
    /// The number of Rejects that reject the request. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reject_policy: Option<RejectPolicy>,
    /// Whether votes of the requester do not count in this quorum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_requester: Option<bool>,
}

/// A gate that is added to every run. Exactly one of `at` and `before` gives its position.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("has(self.at) != has(self.before)")
    .message("give exactly one of at (Start or End) and before: the position of the added gate"))]
pub struct PolicyStep {
    /// The name of the step; with `before` it is `<name>-<name of the step>`. No step of a Workflow may have this name.
    #[schemars(length(min = 1, max = 30), pattern("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// The start or the end of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Position>,
    /// The kinds of steps before each of which the gate is added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Before>,
    /// The gate. Without `contextDisplay` it shows the step that follows, as its author wrote it.
    pub hitl: HitlStep,
}

/// A position in the list of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Position {
    /// Before the first step.
    Start,
    /// After the last step.
    End,
}

/// The steps, or the calls of tools, before which a gate is added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = kube::core::Rule::new("!('tool' in self.kinds) || size(self.kinds) == 1")
        .message("tool stands alone, because its gate shows arguments and the others a step: add two gates").field_path(".kinds"),
    validation = kube::core::Rule::new("!has(self.calls) || 'tool' in self.kinds")
        .message("calls selects calls of tools: write kinds: [tool], or leave calls out").field_path(".calls"),
    validation = kube::core::Rule::new("!has(self.except) || (size(self.kinds) == 1 && 'mcp' in self.kinds)")
        .message("except names tools of MCP servers: write kinds: [mcp], or leave except out").field_path(".except")
)]
pub struct Before {
    /// The kinds of steps.
    #[schemars(length(min = 1, max = 8))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub kinds: Vec<GuardedKind>,
    /// With `kinds: [tool]`: the calls about which the gate asks. Default: every call of a tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<CallMatch>,
    /// With `kinds: [mcp]`: the tools before whose calls the gate is not added, each with the definition that was
    /// reviewed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub except: Vec<ReviewedTool>,
}

/// A tool of an MCP server with the definition that was reviewed. A call must match every field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReviewedTool {
    /// The host of the server: a name or an address, optionally with a port.
    #[schemars(length(min = 1, max = 253), pattern(r"^[^*/@\s]+$"))]
    pub host: String,
    /// The server's own name of the tool.
    #[schemars(length(min = 1, max = 64), pattern("^[A-Za-z0-9_-]+$"))]
    pub tool: String,
    /// The digest of its definition, as `signoff tools` prints it.
    pub definition: Digest,
}

/// The kind of a step before which a policy adds a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum GuardedKind {
    /// A turn of an agent.
    Agent,
    /// A container.
    Pod,
    /// One HTTP request.
    Http,
    /// A call of a tool of an MCP server, by a step or by an agent.
    Mcp,
    /// Every step that sends data out of the operator: http requests, calls of tools of MCP servers and turns of
    /// agents.
    Egress,
    /// Every call of a tool by an agent. The gate shows the arguments, in one request with the gates of the Workflow.
    Tool,
}

/// A gate that a policy added to a run when it was accepted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddedStep {
    /// The kind and name of the policy.
    #[schemars(length(min = 1, max = 320))]
    pub source: String,
    /// The gate as the policy had it when the run was accepted.
    pub step: PolicyStep,
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
    fn a_selector_matches_as_in_kubernetes() {
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
    fn an_empty_list_of_hosts_differs_from_an_absent_one() {
        let rules: PolicyRules = serde_json::from_value(json!({"allowedHosts": []})).unwrap();
        assert_eq!(rules.allowed_hosts, Some(Vec::new()));
        assert_eq!(serde_json::to_value(&rules).unwrap(), json!({"allowedHosts": []}));
        assert_eq!(serde_json::from_value::<PolicyRules>(json!({})).unwrap().allowed_hosts, None);
    }
}
