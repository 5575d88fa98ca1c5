//! What a gate asks for: who may decide, how many of them, with which verdicts and answers, and until when.
//! The same types stand in a Workflow's `hitl` step, where they are asked for, and in an Approval's request,
//! where they are in force.
//!
//! Identities, thresholds, verdicts and timeouts are never templates and are never normalised.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    values::{JsonObject, Span},
    verdict::Verdict,
};

/// Somebody who may decide, or a group of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = kube::core::Rule::new("(self.kind == 'ServiceAccount') == has(self.namespace)")
        .message("namespace belongs to a ServiceAccount, and a ServiceAccount needs one"),
    validation = kube::core::Rule::new("self.kind == 'ServiceAccount' || !self.name.startsWith('system:')")
        .message("system users and groups cannot decide (everybody, or every service account, is in some of them); name a service account with kind ServiceAccount")
)]
pub struct Subject {
    /// User, Group or ServiceAccount.
    pub kind: SubjectKind,
    /// The name exactly as the API server knows it.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The service account's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

/// The kinds of subjects that RBAC knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SubjectKind {
    /// One user name.
    User,
    /// Everybody whom the API server puts into this group.
    Group,
    /// One service account.
    ServiceAccount,
}

impl Subject {
    /// A user by name.
    #[must_use]
    pub fn user(name: &str) -> Self {
        Self { kind: SubjectKind::User, name: name.to_owned(), namespace: None }
    }

    /// A group by name.
    #[must_use]
    pub fn group(name: &str) -> Self {
        Self { kind: SubjectKind::Group, name: name.to_owned(), namespace: None }
    }

    /// Whether this subject means the user with this name and these groups.
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

/// As people read it: `alice`, `group finance`, `service account ci/bot`.
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

/// So many of the deciders must be in this group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequiredFrom {
    /// A group among the approvers.
    #[schemars(length(min = 1, max = 253))]
    pub group: String,
    /// How many of its members must agree.
    #[schemars(range(min = 1, max = 64))]
    pub min: i32,
}

/// How many Rejects it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RejectPolicy {
    /// One suffices.
    #[default]
    Any,
    /// As many as an approval takes.
    Threshold,
}

/// What an Approval asks to be filled in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Form {
    /// The questions; a plain gate has one with the id `answer`.
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
        .message("multiple needs options to choose from"),
    validation = kube::core::Rule::new("!has(self.errorMessage) || has(self.pattern)")
        .message("errorMessage is shown when pattern does not match: it needs a pattern")
)]
pub struct Question {
    /// The key of its answer.
    #[schemars(length(min = 1, max = 63), pattern("^[a-zA-Z0-9]([-_a-zA-Z0-9]*[a-zA-Z0-9])?$"))]
    pub id: String,
    /// What is asked; the gate's prompt where it is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub question: Option<String>,
    /// The choices, if any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["id".into()]))]
    pub options: Vec<Choice>,
    /// Whether more than one option may be chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multiple: Option<bool>,
    /// A regular expression (RE2) that the whole text must match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub pattern: Option<String>,
    /// What a person reads whose text does not match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub error_message: Option<String>,
    /// A JSON Schema; the text is then JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<JsonObject>,
    /// Whether Respond must answer it. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
    /// The answer of a timeout with the action Default, and what clients offer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub default: Option<String>,
    /// The most characters a text may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 8192))]
    pub max_length: Option<i32>,
    /// Whether free text is an answer too. Default: true without options, false with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_text: Option<bool>,
    /// Whether leaving it out is fine although it is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_skip: Option<bool>,
}

impl Question {
    /// The id of a plain gate's only question.
    pub const PLAIN: &'static str = "answer";

    /// Whether free text is accepted.
    #[must_use]
    pub fn takes_text(&self) -> bool {
        self.allow_text.unwrap_or(self.options.is_empty())
    }

    /// Whether Respond may leave it out.
    #[must_use]
    pub fn may_be_left_out(&self) -> bool {
        self.required == Some(false) || self.allow_skip == Some(true)
    }

    /// The option that a text names by id or by label.
    #[must_use]
    pub fn option_named(&self, text: &str) -> Option<&Choice> {
        self.options.iter().find(|o| o.id == text).or_else(|| self.options.iter().find(|o| o.label() == text))
    }
}

/// One option of a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Choice {
    /// What the answer holds.
    #[schemars(length(min = 1, max = 63))]
    pub id: String,
    /// What people read; the id where it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub label: Option<String>,
    /// More about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub description: Option<String>,
}

impl Choice {
    /// What people read.
    #[must_use]
    pub fn label(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.id)
    }
}

/// What happens when nobody decides in time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Timeout {
    /// How long people have. Default: the operator's `--default-gate-timeout`; at most its `--max-gate-timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Span>,
    /// What then happens. Default: Reject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<TimeoutAction>,
    /// The answer when the action is Default; without it every question's own default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub default: Option<String>,
    /// How often people are reminded; never without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reminder_interval: Option<Span>,
    /// How many times at most. Default: 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 20))]
    pub max_reminders: Option<i32>,
    /// Who is asked in addition, level by level.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 8))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub escalation: Vec<Level>,
}

/// One level of an escalation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Level {
    /// How long everybody has once this level was reached; `timeout.after` where it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Span>,
    /// Who is asked in addition.
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub to: Vec<Subject>,
}

/// What a timeout does. Each but Escalate and Expire ends the Approval as `Expired`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TimeoutAction {
    /// As if somebody had rejected.
    #[default]
    Reject,
    /// As if it had been approved: must be chosen on purpose.
    Approve,
    /// Ask again, as the next visit; a gate asks at most three times more.
    Retry,
    /// Ask the next level's people too; when there is none left, Reject.
    Escalate,
    /// End the whole run.
    Abort,
    /// Go on without an answer.
    Skip,
    /// Go on with the default answer.
    Default,
    /// Stay paused: from then on only Retry, Reject and Abort are accepted.
    Expire,
}

impl TimeoutAction {
    /// Whether the timeout itself ends the Approval, so that no vote counts after the deadline.
    #[must_use]
    pub fn ends(self) -> bool {
        !matches!(self, Self::Escalate | Self::Expire)
    }

    /// The verdict that an ending action amounts to.
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

/// People who decide together: who may decide, and how many of them must agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Quorum {
    /// What demands it: `gate <name>`, or the kind and name of a policy.
    #[schemars(length(min = 1, max = 253))]
    pub source: String,
    /// Who may decide.
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub approvers: Vec<Subject>,
    /// How many distinct people must agree.
    #[schemars(range(min = 1, max = 64))]
    pub threshold: i32,
    /// So many of them from these groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["group".into()]))]
    pub required_from: Vec<RequiredFrom>,
    /// How many Rejects it takes. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reject_policy: Option<RejectPolicy>,
    /// Whether the requester does not count here. Where the first quorum of a request excludes the requester, the
    /// requester must not vote at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_requester: Option<bool>,
}

impl Quorum {
    /// The most rules of `requiredFrom`.
    pub const MAX_REQUIRED_FROM: usize = 8;

    /// Returns the number of distinct people who must agree.
    #[must_use]
    pub fn needed(&self) -> usize {
        usize::try_from(self.threshold).unwrap_or(1).max(1)
    }

    /// Whether the requester does not count here.
    #[must_use]
    pub fn excludes_requester(&self) -> bool {
        self.exclude_requester == Some(true)
    }
}

/// Which user names are one person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = kube::core::Rule::new(r"!self.person.contains('$1') || self.pattern.matches('^([^()\\\\]|\\\\[^()])*[(]([^()?\\\\]|\\\\[^()])([^()\\\\]|\\\\[^()])*[)]([^()\\\\]|\\\\[^()])*$')")
        .message("a person with $1 needs a pattern with exactly one group and no other parentheses, as in (.+)@example\\.com: the API server reads the person by what stands around it")
)]
pub struct PersonRule {
    /// A regular expression that a whole user name must match. Where `person` says `$1` it has exactly one group.
    #[schemars(length(min = 1, max = 253))]
    pub pattern: String,
    /// The person; `$1` stands for the first group of the pattern.
    #[schemars(length(min = 1, max = 253))]
    pub person: String,
}
