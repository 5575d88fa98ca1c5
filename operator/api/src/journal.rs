//! The records of the journal: one list that `kubectl get workflow -o yaml` prints and that the engine replays.
//!
//! **Invariant:** a finished record never changes. A record contains past events only, and no plans.

use std::{collections::BTreeMap, fmt};

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use crate::{
    approval::Outcome,
    digest::Digest,
    money::Money,
    seq::Seq,
    values::{Json, Moment},
};

/// A format of the journal: the parts that it can represent.
struct Format {
    version: i32,
    /// Turns of agents that called tools.
    calls: bool,
    /// Among them such ones whose provider wants parts of its answer back.
    opaque: bool,
    /// Segments, see [`Segment`].
    segments: bool,
    /// Records of the kind `mcp`.
    mcp: bool,
}

/// All formats, oldest first. This version reads all of them, and writes the oldest that can represent a journal, so
/// that an older version can continue the run if possible.
///
/// Each new part of a record doubles the table.
const FORMATS: [Format; 12] = [
    Format { version: 1, calls: false, opaque: false, segments: false, mcp: false },
    Format { version: 2, calls: false, opaque: false, segments: true, mcp: false },
    Format { version: 3, calls: true, opaque: false, segments: false, mcp: false },
    Format { version: 4, calls: true, opaque: false, segments: true, mcp: false },
    Format { version: 5, calls: true, opaque: true, segments: false, mcp: false },
    Format { version: 6, calls: true, opaque: true, segments: true, mcp: false },
    Format { version: 7, calls: false, opaque: false, segments: false, mcp: true },
    Format { version: 8, calls: false, opaque: false, segments: true, mcp: true },
    Format { version: 9, calls: true, opaque: false, segments: false, mcp: true },
    Format { version: 10, calls: true, opaque: false, segments: true, mcp: true },
    Format { version: 11, calls: true, opaque: true, segments: false, mcp: true },
    Format { version: 12, calls: true, opaque: true, segments: true, mcp: true },
];

/// The newest format of a journal that this version reads.
pub const VERSION: i32 = {
    let [.., newest] = FORMATS;
    newest.version
};

/// The largest number of segments of a run.
pub const MAX_SEGMENTS: usize = 256;
/// The longest path of a record, in characters.
const MAX_PATH: usize = 512;
/// The largest number of an attempt.
const MAX_ATTEMPT: i32 = 1000;

/// Reads the path of a record within its bounds, which the installed CRD does not check: paths become trees, whose
/// depth they bound.
fn read_path<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let path = String::deserialize(from)?;
    if (1..=MAX_PATH).contains(&path.chars().take(MAX_PATH + 1).count()) {
        return Ok(path);
    }
    Err(D::Error::custom(format!("the path of a record must have 1 to {MAX_PATH} characters")))
}

fn read_attempt<'de, D: Deserializer<'de>>(from: D) -> Result<i32, D::Error> {
    let attempt = i32::deserialize(from)?;
    if (1..=MAX_ATTEMPT).contains(&attempt) {
        return Ok(attempt);
    }
    Err(D::Error::custom(format!("the attempt of a record is {attempt}, and must be 1 to {MAX_ATTEMPT}")))
}

/// Returns the format of a journal with these records and segments.
#[must_use]
pub fn version<'r>(records: impl Iterator<Item = &'r StepRecord>, segments: &[Segment]) -> i32 {
    let (mut calls, mut opaque, mut mcp, segments) = (false, false, false, !segments.is_empty());
    for record in records {
        calls |= record.calls_tools();
        opaque |= record.calls_tools() && record.opaque_ref.is_some();
        mcp |= record.kind == StepKind::Mcp;
    }
    let is_meant =
        |format: &&Format| (format.calls, format.opaque, format.segments, format.mcp) == (calls, opaque, segments, mcp);
    let format = FORMATS.iter().find(is_meant);
    format.map_or(VERSION, |format| format.version)
}

/// Whether a journal of this format has segments.
#[must_use]
pub fn has_segments(version: i32) -> bool {
    FORMATS.iter().any(|format| format.version == version && format.segments)
}

/// The fact of a turn of an agent with the number of its calls.
pub const FACT_CALLS: &str = "calls";
/// The fact of a failed call that may have had its effect all the same; its value is `true`. Records of earlier
/// versions lack it.
pub const FACT_UNKNOWN: &str = "outcomeUnknown";
/// The fact of an answer of a model that was cut at its largest length; its value is `true`.
pub const FACT_TRUNCATED: &str = "truncated";

/// The fact of a call of a tool of a server that was not sent, because the tool has another definition than the one
/// that was approved; its value is the tool, `crm.refund`, and the digest of the definition that it has now. The
/// catalogue is then read again.
pub const FACT_CHANGED: &str = "changed";

/// The fact of a call of a tool, and of a gate about one, with the beginning of its arguments.
pub const FACT_GIVEN: &str = "given";

impl StepRecord {
    /// The words for an answer that was cut, see [`Self::is_cut`].
    pub const CUT: &str = "cut at maxTokens";

    /// Whether this is a turn of an agent that called tools.
    #[must_use]
    pub fn calls_tools(&self) -> bool {
        self.kind == StepKind::Agent && self.facts.contains_key(FACT_CALLS)
    }

    /// Whether this is an answer of a model that was cut at its largest length.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.kind == StepKind::Agent && self.facts.contains_key(FACT_TRUNCATED)
    }
}

/// One attempt at one activity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepRecord {
    /// Names joined by `/`, with `#visit` from the second visit on. The engine reserves names that start with a dot.
    #[serde(deserialize_with = "read_path")]
    #[schemars(length(min = 1, max = MAX_PATH))]
    pub path: String,
    /// The number of the attempt, from 1.
    #[serde(deserialize_with = "read_attempt")]
    #[schemars(range(min = 1, max = MAX_ATTEMPT))]
    pub attempt: i32,
    /// The kind of the activity.
    pub kind: StepKind,
    /// The state of the activity.
    pub phase: StepPhase,
    /// The number of the event that started the activity.
    pub seq: Seq,
    /// The number of the event that recorded the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<Seq>,
    /// The operator process that started the activity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub by: Option<String>,
    /// The name of the object of the activity: the Approval of a gate, the Pod of a container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub object: Option<String>,
    /// The start time.
    pub at: Moment,
    /// The time at which the result was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Moment>,
    /// The digest of the rendered input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_digest: Option<Digest>,
    /// The response if it is short: text, or JSON if a user gave JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Json>,
    /// The reference to the response if it is long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_ref: Option<BlobRef>,
    /// The reference to the parts of an answer with calls that only its provider can read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque_ref: Option<BlobRef>,
    /// Further results: `statusCode` of an http call, `exitCode` of a container.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8, "additionalProperties" = {"type": "string", "maxLength": 253}))]
    pub facts: BTreeMap<String, String>,
    /// The log of a container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<StepLog>,
    /// The decision at a gate, by votes or a timeout; without its payload if that is long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Outcome>,
    /// The reference to the whole decision if it is long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision_ref: Option<BlobRef>,
    /// The facts of the request of a gate, from which exactly the same request is built again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestFacts>,
    /// Tokens used by a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The error of a failed activity.
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
    /// A call of a tool of an MCP server, or its catalogue.
    Mcp,
    /// A rendered template.
    Set,
    /// A human gate.
    Hitl,
    /// Something that was evaluated once: a condition, or an answer that was invalid.
    Condition,
}

impl StepKind {
    /// Returns the name as it is stored in objects.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Pod => "pod",
            Self::Http => "http",
            Self::Mcp => "mcp",
            Self::Set => "set",
            Self::Hitl => "hitl",
            Self::Condition => "condition",
        }
    }
}

/// The state of an activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StepPhase {
    /// Waits for a free slot.
    Pending,
    /// Runs, or ran when its operator was lost.
    Started,
    /// A gate waits for decisions.
    Waiting,
    /// Finished with success.
    Succeeded,
    /// Finished with an error.
    Failed,
    /// Skipped.
    Skipped,
    /// The outcome is unknown, because the operator or the answer was lost. The effect can have happened.
    Unknown,
}

impl StepPhase {
    /// Whether the state is final.
    #[must_use]
    pub fn is_end(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Skipped | Self::Unknown)
    }

    /// Returns the name as it is stored in objects.
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

/// The standard output and standard error of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepLog {
    /// The end of the log, at most 1 KiB.
    #[schemars(length(max = 1024))]
    pub tail: String,
    /// The reference to the last 256 KiB of the log, if `tail` is not all of it.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub ref_: Option<BlobRef>,
}

/// A value in the blob store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlobRef {
    /// The digest of the bytes.
    pub digest: Digest,
    /// The length in bytes.
    #[schemars(range(min = 0))]
    pub size: i64,
}

/// Finished records that were moved out of `steps` into the blob store: a JSON list of records in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Segment {
    /// The digest of the bytes.
    pub digest: Digest,
    /// The length in bytes.
    #[schemars(range(min = 0))]
    pub size: i64,
    /// The number of records.
    #[schemars(range(min = 1))]
    pub records: i32,
    /// The number of the last event in the segment.
    #[schemars(range(min = 0))]
    pub through: Seq,
}

/// The facts of the request of a gate, from which exactly the same request is built again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestFacts {
    /// The digest of the whole request.
    pub digest: Digest,
    /// The time of the first timeout.
    pub deadline: Moment,
    /// The time after which no vote counts, if the first timeout ends the gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closes_at: Option<Moment>,
    /// The guard epoch in which the request was created.
    #[schemars(length(max = 80))]
    pub guard_epoch: String,
    /// The long values in the request: of the context, the reviewed response and what is sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub shows: Vec<BlobRef>,
}

/// Tokens used by models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Tokens that the model read.
    pub input_tokens: i64,
    /// Tokens that the model wrote.
    pub output_tokens: i64,
    /// Those of `inputTokens` that the provider had in its cache.
    #[serde(default, skip_serializing_if = "is_none")]
    pub cached_tokens: i64,
    /// Those of `outputTokens` that the model thought and did not say.
    #[serde(default, skip_serializing_if = "is_none")]
    pub reasoning_tokens: i64,
    /// The cost, by the prices of the agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Money>,
}

impl fmt::Display for Usage {
    /// Renders the usage for people: `1204 read (1000 cached), 310 written (64 of them reasoning), cost 0.0042`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { input_tokens, output_tokens, cached_tokens, reasoning_tokens, cost } = self;
        write!(f, "{input_tokens} read")?;
        if *cached_tokens > 0 {
            write!(f, " ({cached_tokens} cached)")?;
        }
        write!(f, ", {output_tokens} written")?;
        if *reasoning_tokens > 0 {
            write!(f, " ({reasoning_tokens} of them reasoning)")?;
        }
        cost.map_or(Ok(()), |cost| write!(f, ", cost {cost}"))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_none(tokens: &i64) -> bool {
    *tokens == 0
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, more: Self) {
        self.input_tokens = self.input_tokens.saturating_add(more.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(more.output_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(more.cached_tokens);
        self.reasoning_tokens = self.reasoning_tokens.saturating_add(more.reasoning_tokens);
        if let Some(cost) = more.cost {
            *self.cost.get_or_insert_default() += cost;
        }
    }
}

/// The error of an activity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepError {
    /// The class of the error, in CamelCase: `Timeout`, `Unreachable`, `Status`, `Template`, …
    #[schemars(length(min = 1, max = 63))]
    pub class: String,
    /// One sentence for users.
    #[schemars(length(max = 1024))]
    pub message: String,
    /// Whether a further attempt makes sense.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retryable: bool,
    /// The earliest time of a further attempt, as the remote side demanded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Moment>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn the_table_of_formats_has_each_combination_of_parts_once_in_order() {
        let versions: Vec<i32> = FORMATS.iter().map(|format| format.version).collect();
        assert_eq!(versions, (1..=VERSION).collect::<Vec<_>>());
        let turn = |facts| {
            serde_json::from_value::<StepRecord>(json!({
                "path": "a", "attempt": 1, "kind": "agent", "phase": "Succeeded", "seq": 1, "at": "2026-11-22T10:00:00Z",
                "facts": facts,
            }))
            .unwrap()
        };
        let segment = Segment { digest: Digest::of_bytes(b""), size: 1, records: 1, through: Seq::first() };
        for format in &FORMATS {
            let mut record = turn(if format.calls { json!({FACT_CALLS: "1"}) } else { json!({}) });
            record.opaque_ref = format.opaque.then(|| BlobRef { digest: Digest::of_bytes(b""), size: 1 });
            let segments = if format.segments { vec![segment.clone()] } else { Vec::new() };
            let mut records = vec![record];
            if format.mcp {
                records.push(StepRecord { kind: StepKind::Mcp, ..turn(json!({})) });
            }
            assert_eq!(version(records.iter(), &segments), format.version);
            assert_eq!(has_segments(format.version), format.segments);
        }
        assert!(!has_segments(0) && !has_segments(VERSION + 1));
    }
}
