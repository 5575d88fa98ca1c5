//! The parts of a gate: approvers, quorums, forms and timeouts. A `hitl` step of a Workflow declares them, and the
//! request of an Approval enforces them.
//!
//! **Invariant:** identities, thresholds, verdicts and timeouts are never templates and never normalized.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    values::{JsonObject, Span},
    verdict::Verdict,
};

/// The types of gates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum GateType {
    /// A `hitl` step, or a gate that `pattern` names.
    #[default]
    Step,
    /// The route of a router, or the parts of an orchestrator.
    PlanApproval,
    /// The result of the run, before it is released.
    FinalResponse,
    /// The answer of a step.
    OutputValidation,
    /// The handling of a step that failed or whose outcome is unknown.
    ErrorEscalation,
    /// A step before it starts.
    StepStart,
    /// A call of a tool.
    ToolExecution,
    /// A call of a tool that the gate lists.
    SpecificTools,
    /// A call of a tool that is not known to change nothing.
    DestructiveActions,
    /// A call of a tool for which a condition holds.
    Custom,
    /// A question of an agent.
    Question,
}

/// A possible approver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = kube::core::Rule::new("(self.kind == 'ServiceAccount') == has(self.namespace)")
        .message("namespace is required for kind ServiceAccount and must be absent for other kinds"),
    validation = kube::core::Rule::new("self.kind == 'ServiceAccount' || !self.name.startsWith('system:')")
        .message("name must not start with system: because some system groups contain every user or every service account, and system:admin is no person; name a person's own user (administrators can try it with kubectl --as=NAME), or use kind ServiceAccount for a service account")
)]
pub struct Subject {
    /// The kind.
    pub kind: SubjectKind,
    /// The name exactly as the API server authenticates it.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The namespace of the service account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

/// The kinds of subjects, as in RBAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SubjectKind {
    /// One user name.
    User,
    /// Every member of one group.
    Group,
    /// One service account.
    ServiceAccount,
}

impl Subject {
    /// Returns the subject of a user.
    #[must_use]
    pub fn user(name: &str) -> Self {
        Self { kind: SubjectKind::User, name: name.to_owned(), namespace: None }
    }

    /// Returns the subject of a group.
    #[must_use]
    pub fn group(name: &str) -> Self {
        Self { kind: SubjectKind::Group, name: name.to_owned(), namespace: None }
    }

    /// Whether the user with this name and these groups is this subject.
    #[must_use]
    pub fn means(&self, user: &str, groups: &[String]) -> bool {
        match (self.kind, &self.namespace) {
            (SubjectKind::User, _) => self.name == user,
            (SubjectKind::Group, _) => groups.contains(&self.name),
            (SubjectKind::ServiceAccount, Some(namespace)) => user
                .strip_prefix("system:serviceaccount:")
                .and_then(|rest| rest.split_once(':'))
                .is_some_and(|(ns, name)| ns == namespace && name == self.name),
            (SubjectKind::ServiceAccount, None) => false,
        }
    }
}

/// Formats like `alice`, `group finance` and `service account ci/bot`.
impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.kind, &self.namespace) {
            (SubjectKind::User, _) => f.write_str(&self.name),
            (SubjectKind::Group, _) => write!(f, "group {}", self.name),
            (SubjectKind::ServiceAccount, namespace) => {
                write!(f, "service account {}/{}", namespace.as_deref().unwrap_or(""), self.name)
            }
        }
    }
}

/// The number of deciders that must be in a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequiredFrom {
    /// A group among the approvers.
    #[schemars(length(min = 1, max = 253))]
    pub group: String,
    /// The number of members of the group who must agree.
    #[schemars(range(min = 1, max = 64))]
    pub min: i32,
}

/// The number of Rejects that reject a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RejectPolicy {
    /// One Reject.
    #[default]
    Any,
    /// As many Rejects as `threshold`.
    Threshold,
}

/// The form that Respond fills in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Form {
    /// The questions. A gate without a form has one question with the id `answer`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["id".into()]))]
    pub questions: Vec<Question>,
}

/// One question of a form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = kube::core::Rule::new("!has(self.multiple) || !self.multiple || has(self.options)")
        .message("multiple needs options: add options or remove multiple"),
    validation = kube::core::Rule::new("!has(self.errorMessage) || has(self.pattern)")
        .message("errorMessage needs a pattern: it is shown when an answer does not match")
)]
pub struct Question {
    /// The key of the answer.
    #[schemars(length(min = 1, max = 63), pattern("^[a-zA-Z0-9]([-_a-zA-Z0-9]*[a-zA-Z0-9])?$"))]
    pub id: String,
    /// The text of the question. Default: the prompt of the gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub question: Option<String>,
    /// The options to choose from. Default: none, the answer is text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["id".into()]))]
    pub options: Vec<Choice>,
    /// Whether several options may be chosen. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multiple: Option<bool>,
    /// A regular expression (RE2) that the whole answer must match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub pattern: Option<String>,
    /// The message that is shown when an answer does not match `pattern`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub error_message: Option<String>,
    /// A JSON Schema of the answer, which is then JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<JsonObject>,
    /// Whether Respond must answer the question. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
    /// The answer of the timeout action Default, which clients also suggest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub default: Option<String>,
    /// The largest number of characters of an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 8192))]
    pub max_length: Option<i32>,
    /// Whether free text is allowed. Default: true without options, false with options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_text: Option<bool>,
    /// Whether a required question can be skipped. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_skip: Option<bool>,
}

impl Question {
    /// The id of the only question of a gate without a form.
    pub const PLAIN: &'static str = "answer";

    /// Whether the question is the only one of a gate without a form.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        *self == Self { id: Self::PLAIN.to_owned(), ..Self::default() }
    }

    /// Whether free text is accepted.
    #[must_use]
    pub fn takes_text(&self) -> bool {
        self.allow_text.unwrap_or(self.options.is_empty())
    }

    /// Whether Respond can omit the answer.
    #[must_use]
    pub fn may_be_left_out(&self) -> bool {
        self.required == Some(false) || self.allow_skip == Some(true)
    }

    /// Returns the option with this id, or else with this label.
    #[must_use]
    pub fn option_named(&self, text: &str) -> Option<&Choice> {
        self.options.iter().find(|o| o.id == text).or_else(|| self.options.iter().find(|o| o.label() == text))
    }
}

/// One option of a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Choice {
    /// The value of the option in an answer.
    #[schemars(length(min = 1, max = 63))]
    pub id: String,
    /// The text that clients show. Default: the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub label: Option<String>,
    /// A longer description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub description: Option<String>,
}

impl Choice {
    /// Returns the text that clients show.
    #[must_use]
    pub fn label(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.id)
    }
}

/// The deadline of a gate and its consequence.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Timeout {
    /// The time until the deadline. Default: the operator's `--default-gate-timeout`. At most its `--max-gate-timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Span>,
    /// The action when the deadline has passed. Default: Reject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<TimeoutAction>,
    /// The answer of the action Default. Default: the `default` of each question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub default: Option<String>,
    /// The time between reminders. Default: no reminders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reminder_interval: Option<Span>,
    /// The largest number of reminders. Default: 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 20))]
    pub max_reminders: Option<i32>,
    /// The levels of the action Escalate: each adds approvers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 8))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub escalation: Vec<Level>,
}

/// One level of an escalation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Level {
    /// The time until the next deadline, from when this level is reached. Default: `timeout.after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Span>,
    /// The approvers that are added.
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub to: Vec<Subject>,
}

/// The action of a timeout. Each one except Escalate and Expire ends the Approval as `Expired`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TimeoutAction {
    /// Reject the request.
    #[default]
    Reject,
    /// Approve the request without a decision.
    Approve,
    /// Ask again, as the next visit; at most three times.
    Retry,
    /// Add the approvers of the next level; after the last level, Reject.
    Escalate,
    /// End the whole run.
    Abort,
    /// Continue without an answer.
    Skip,
    /// Continue with the default answer.
    Default,
    /// Keep the Approval open, for Retry, Reject and Abort only.
    Expire,
}

impl TimeoutAction {
    /// Whether the timeout ends the Approval, so that no vote counts after the deadline.
    #[must_use]
    pub fn ends(self) -> bool {
        !matches!(self, Self::Escalate | Self::Expire)
    }

    /// Returns the verdict of an action that ends the Approval.
    #[must_use]
    pub fn verdict(self) -> Verdict {
        match self {
            Self::Reject | Self::Escalate | Self::Expire => Verdict::Reject,
            Self::Approve => Verdict::Approve,
            Self::Retry => Verdict::Retry,
            Self::Abort => Verdict::Abort,
            Self::Skip => Verdict::Skip,
            Self::Default => Verdict::Respond,
        }
    }
}

/// The approvers who decide together, and the number of them who must agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Quorum {
    /// The origin of the quorum: `gate <name>`, `gate <name> of` the policy that added the gate, or the kind and name
    /// of a policy.
    #[schemars(length(min = 1, max = 512))]
    pub source: String,
    /// The users, groups and service accounts that can decide.
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub approvers: Vec<Subject>,
    /// The number of different people who must agree.
    #[schemars(range(min = 1, max = 64))]
    pub threshold: i32,
    /// The groups from which deciders must come, with their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["group".into()]))]
    pub required_from: Vec<RequiredFrom>,
    /// The number of Rejects that reject the request. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reject_policy: Option<RejectPolicy>,
    /// Whether votes of the requester do not count in this quorum. In the first quorum: whether the requester must not
    /// vote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_requester: Option<bool>,
}

impl Quorum {
    /// The largest number of rules in `requiredFrom`.
    pub const MAX_REQUIRED_FROM: usize = 8;

    /// Returns the number of different people who must agree.
    #[must_use]
    pub fn needed(&self) -> usize {
        usize::try_from(self.threshold).unwrap_or(1).max(1)
    }

    /// Whether votes of the requester do not count in this quorum.
    #[must_use]
    pub fn excludes_requester(&self) -> bool {
        self.exclude_requester == Some(true)
    }
}

/// A rule that maps user names to a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = kube::core::Rule::new(r"!self.person.contains('$1') || self.pattern.matches('^([^()\\\\]|\\\\[^()])*[(]([^()?\\\\]|\\\\[^()])([^()\\\\]|\\\\[^()])*[)]([^()\\\\]|\\\\[^()])*$')")
        .message("person with $1 needs a pattern with exactly one group and no other parentheses, as in (.+)@example\\.com, because the API server derives the person from the text around the group")
)]
pub struct PersonRule {
    /// A regular expression that the whole user name must match. With `$1` in `person` it must have exactly one group.
    #[schemars(length(min = 1, max = 253))]
    pub pattern: String,
    /// The person; `$1` stands for the first group of the pattern.
    #[schemars(length(min = 1, max = 253))]
    pub person: String,
}
