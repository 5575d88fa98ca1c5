//! The journal's records: what `kubectl get workflow -o yaml` shows and what the engine replays are the same list.
//!
//! A finished record is never edited; a record never says what shall happen, only what did.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    approval::Outcome,
    digest::Digest,
    values::{Json, Moment},
};

/// The newest form of a journal that this version reads. It writes the oldest form that can hold the journal, so that
/// an older version can go on with it where that is possible at all.
pub const VERSION: i32 = 2;

/// The most segments of a run.
pub const MAX_SEGMENTS: usize = 256;

/// The form of a journal with these segments: 1 where all of it is in `steps`, 2 where some of it moved out.
#[must_use]
pub fn version(segments: &[Segment]) -> i32 {
    if segments.is_empty() { 1 } else { VERSION }
}

/// One attempt at one activity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepRecord {
    /// Names joined by `/`, with `#visit` from the second visit on. Names that start with a dot are the engine's.
    #[schemars(length(min = 1, max = 512))]
    pub path: String,
    /// 1 for the first.
    #[schemars(range(min = 1, max = 1000))]
    pub attempt: i32,
    /// What kind of activity.
    pub kind: StepKind,
    /// How far it has come.
    pub phase: StepPhase,
    /// The number of the event by which it began.
    pub seq: i64,
    /// The number of the event by which its result became known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<i64>,
    /// The incarnation of the operator that started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub by: Option<String>,
    /// The object that stands for it: a gate's Approval, a container's Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub object: Option<String>,
    /// When it began.
    pub at: Moment,
    /// When its result became known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Moment>,
    /// The digest of what it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_digest: Option<Digest>,
    /// What came of it, where it is short: text, or JSON where a person gave JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Json>,
    /// Where what came of it is long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_ref: Option<BlobRef>,
    /// Facts beside the response: `statusCode` of an http call, `exitCode` of a container.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8, "additionalProperties" = {"type": "string", "maxLength": 253}))]
    pub facts: BTreeMap<String, String>,
    /// What a container wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<StepLog>,
    /// What people or a timeout decided at a gate; without its payload where that is long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Outcome>,
    /// The whole decision, where it is long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision_ref: Option<BlobRef>,
    /// What a gate asked, enough to ask exactly the same again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestFacts>,
    /// Tokens used by a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<StepError>,
}

/// The kinds of activities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum StepKind {
    /// A turn of an agent.
    Agent,
    /// A container.
    Pod,
    /// An HTTP request.
    Http,
    /// A rendered template.
    Set,
    /// A human gate.
    Hitl,
    /// Something that was looked at and judged, once: a condition, or an answer that was not as it should be.
    Condition,
}

impl StepKind {
    /// As it stands in objects.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Pod => "pod",
            Self::Http => "http",
            Self::Set => "set",
            Self::Hitl => "hitl",
            Self::Condition => "condition",
        }
    }
}

/// How far an activity has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StepPhase {
    /// It waits for a free place.
    Pending,
    /// It runs, or ran when its operator was lost.
    Started,
    /// A gate waits for people.
    Waiting,
    /// It ended well.
    Succeeded,
    /// It ended by an error.
    Failed,
    /// It was left out.
    Skipped,
    /// It may or may not have happened: its operator was lost, or the answer was.
    Unknown,
}

impl StepPhase {
    /// Whether nothing will change any more.
    #[must_use]
    pub fn is_end(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Skipped | Self::Unknown)
    }

    /// As it stands in objects.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Started => "Started",
            Self::Waiting => "Waiting",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Skipped => "Skipped",
            Self::Unknown => "Unknown",
        }
    }
}

/// What a container wrote to standard output and standard error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepLog {
    /// Its end: up to 1 KiB.
    #[schemars(length(max = 1024))]
    pub tail: String,
    /// Up to 256 KiB of its end, where the tail is not all of it.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub ref_: Option<BlobRef>,
}

/// A value in the blob store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlobRef {
    /// What it is stored under and verified by.
    pub digest: Digest,
    /// Its length in bytes.
    #[schemars(range(min = 0))]
    pub size: i64,
}

/// Finished records that moved out of `steps` into the blob store: a JSON list of records, in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Segment {
    /// What it is stored under and verified by.
    pub digest: Digest,
    /// Its length in bytes.
    #[schemars(range(min = 0))]
    pub size: i64,
    /// How many records it holds.
    #[schemars(range(min = 1))]
    pub records: i32,
    /// The number of the last event that it tells of.
    #[schemars(range(min = 0))]
    pub through: i64,
}

/// What a gate asked, enough to ask exactly the same again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestFacts {
    /// The digest of the whole request.
    pub digest: Digest,
    /// When the first timeout happens.
    pub deadline: Moment,
    /// After which instant no vote counts, where the first timeout ends the gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closes_at: Option<Moment>,
    /// The guard's epoch when it was asked.
    #[schemars(length(max = 80))]
    pub guard_epoch: String,
    /// The long values that it shows: of the context, and of what is reviewed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub shows: Vec<BlobRef>,
}

/// Tokens used by models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Read by the model.
    pub input_tokens: i64,
    /// Written by the model.
    pub output_tokens: i64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, more: Self) {
        self.input_tokens = self.input_tokens.saturating_add(more.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(more.output_tokens);
    }
}

/// Why an activity failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepError {
    /// A CamelCase word: `Timeout`, `Unreachable`, `Status`, `Template`, …
    #[schemars(length(min = 1, max = 63))]
    pub class: String,
    /// One sentence for people.
    #[schemars(length(max = 1024))]
    pub message: String,
    /// Whether a further attempt makes sense.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retryable: bool,
    /// The other side asked for no further attempt before this instant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Moment>,
}
