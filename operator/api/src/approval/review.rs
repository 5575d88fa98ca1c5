//! The texts of a request: the reviewed value with its earlier editors, and the sent fields.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::{digest::Digest, journal::BlobRef, values::Moment, verdict::Verdict};

/// The reviewed step of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Review {
    /// The path of the step in the journal.
    #[schemars(length(min = 1, max = 512))]
    pub path: String,
    /// The response, at most 4 KiB: the start of it, or of each field.
    #[schemars(length(max = 8192))]
    pub response: String,
    /// The whole response, if it is longer.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub ref_: Option<BlobRef>,
    /// The digest of the whole response.
    pub digest: Digest,
    /// The changes of people, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub by: Vec<Edit>,
}

impl Review {
    /// The largest number of edits that a request shows.
    pub const MAX_EDITS: usize = 8;
}

/// The fields that a step sends, every value rendered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sent {
    /// The fields as YAML, at most 4 KiB: the beginning of each of longer ones.
    #[schemars(length(max = 8192))]
    pub text: String,
    /// The reference to all of it, if it is longer.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub ref_: Option<BlobRef>,
}

impl Sent {
    /// Returns the digest of the whole text.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.ref_.as_ref().map_or_else(|| Digest::of_bytes(self.text.as_bytes()), |whole| whole.digest.clone())
    }
}

/// A user name that an earlier decision excludes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Exclusion {
    /// The user name, one of `excluded`.
    #[schemars(length(min = 1, max = 253))]
    pub user: String,
    /// The earlier gate.
    #[schemars(length(max = 95))]
    pub gate: String,
    /// Whether it changed what is reviewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited: Option<bool>,
}

/// A replacement of a value by people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Edit {
    /// All who gave it; none at a timeout.
    #[schemars(length(max = 64), inner(length(max = 512)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub by: Vec<String>,
    /// The name of the gate.
    #[schemars(length(max = 95))]
    pub gate: String,
    /// The path of its record.
    #[schemars(length(max = 512))]
    pub path: String,
    /// The time.
    pub at: Moment,
    /// The verdict.
    pub verdict: Verdict,
    /// The digest of the value before.
    pub original: Digest,
}
