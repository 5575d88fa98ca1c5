//! The kind `Blob`: one long value of a run, or a part of its journal.
//!
//! The operator writes a Blob once and never changes it. The reader must verify the digest of the bytes.

use k8s_openapi::{
    ByteString,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{CustomResource, KubeSchema, Resource};
use serde::{Deserialize, Serialize};

use crate::{Workflow, names};

/// The largest number of bytes of a value.
pub const MAX_BYTES: usize = 1024 * 1024;
/// The largest number of bytes that `data` takes in etcd, which refuses requests of more than 1.5 MiB. The API server
/// stores JSON, in which a quote takes two bytes and `<` six; `binary` always takes four bytes for three.
const MAX_STORED: usize = 1_400_000;

/// The content of a Blob.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "signoff.dev",
    version = "v1alpha1",
    kind = "Blob",
    namespaced,
    derive = "PartialEq",
    doc = "A Blob is one long value of a Workflow, or a part of its journal.\n\n\
        Only the operator creates it, with the Workflow as its owner. Its content, labels and annotations are immutable \
        from the creation, and it has no status. A run uses only a Blob that it owns and whose content has the digest \
        that the run recorded. The Blob is deleted with its Workflow; users cannot change or delete it.",
    validation = kube::core::Rule::new("has(self.spec.data) != has(self.spec.binary)")
        .message("give either data or binary")
        .field_path(".spec"),
    validation = kube::core::Rule::new("self.spec == oldSelf.spec").message("the content of a Blob is immutable").field_path(".spec")
)]
pub struct BlobSpec {
    /// The value, if it is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1_048_576))]
    pub data: Option<String>,
    /// The value in base64, if it is not text or its text takes too many bytes as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "byte"), length(max = 1_398_104))]
    pub binary: Option<ByteString>,
}

impl BlobSpec {
    /// Returns the spec of a Blob with these bytes: as text if they are UTF-8 and short enough, otherwise as `binary`.
    #[must_use]
    pub fn of_bytes(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) if stored_length(&text) <= MAX_STORED => Self { data: Some(text), binary: None },
            Ok(text) => Self { data: None, binary: Some(ByteString(text.into_bytes())) },
            Err(other) => Self { data: None, binary: Some(ByteString(other.into_bytes())) },
        }
    }

    /// Returns the bytes of the value.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        let text = self.data.map(String::into_bytes);
        text.or_else(|| self.binary.map(|ByteString(bytes)| bytes)).unwrap_or_default()
    }
}

impl Blob {
    /// Returns a Blob without a name, owned by this Workflow.
    #[must_use]
    pub fn of_run(namespace: &str, workflow: &str, uid: &str, bytes: Vec<u8>) -> Self {
        let owner = OwnerReference {
            api_version: Workflow::api_version(&()).into_owned(),
            kind: Workflow::kind(&()).into_owned(),
            name: workflow.to_owned(),
            uid: uid.to_owned(),
            controller: Some(true),
            block_owner_deletion: None,
        };
        let labels = [(names::LABEL_WORKFLOW, workflow), (names::LABEL_WORKFLOW_UID, uid)];
        let metadata = ObjectMeta {
            namespace: Some(namespace.to_owned()),
            labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        };
        Self { metadata, spec: BlobSpec::of_bytes(bytes) }
    }

    /// Whether the Workflow with this name and uid is the controller of the Blob. A run must not use any other Blob.
    #[must_use]
    pub fn is_of_run(&self, workflow: &str, uid: &str) -> bool {
        let is_run = |owner: &OwnerReference| {
            owner.api_version == Workflow::api_version(&())
                && owner.kind == Workflow::kind(&())
                && owner.name == workflow
                && owner.uid == uid
                && owner.controller == Some(true)
        };
        !uid.is_empty() && self.metadata.owner_references.iter().flatten().any(is_run)
    }
}

/// Returns the number of bytes of a text as the API server writes it into JSON.
fn stored_length(text: &str) -> usize {
    let length = |c: char| match c {
        '"' | '\\' | '\n' | '\r' | '\t' => 2,
        '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => 6,
        c if c < ' ' => 6,
        c => c.len_utf8(),
    };
    text.chars().map(length).sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn bytes_are_unchanged_after_a_round_trip() {
        for bytes in [Vec::new(), b"a letter".to_vec(), vec![0xff, 0], "<".repeat(900_000).into_bytes()] {
            let json = serde_json::to_value(BlobSpec::of_bytes(bytes.clone())).unwrap();
            assert_eq!(json.as_object().unwrap().len(), 1, "either data or binary");
            assert_eq!(serde_json::from_value::<BlobSpec>(json).unwrap().into_bytes(), bytes);
        }
    }

    #[test]
    fn the_largest_value_of_any_kind_stays_below_the_limit_of_etcd() {
        for c in ["x", "<", "\"", "\u{1}", "é", "\u{2028}", "審"] {
            let content = BlobSpec::of_bytes(c.repeat(MAX_BYTES / c.len()).into_bytes());
            let length = content.data.as_deref().map_or(0, stored_length)
                + content.binary.map_or(0, |ByteString(bytes)| bytes.len().div_ceil(3) * 4);
            assert!(length <= MAX_STORED, "{c:?} takes {length} bytes");
        }
    }

    #[test]
    fn a_blob_counts_only_for_the_run_that_owns_it() {
        let blob = Blob::of_run("finance", "refund", "uid-1", b"x".to_vec());
        assert!(blob.is_of_run("refund", "uid-1"));
        for (workflow, uid) in [("refund", "uid-2"), ("refund", ""), ("other", "uid-1")] {
            assert!(!blob.is_of_run(workflow, uid), "{workflow} {uid}");
        }
        let mut alone = blob.clone();
        alone.metadata.owner_references = None;
        assert!(!alone.is_of_run("refund", "uid-1"));
        let changes: [fn(&mut OwnerReference); 6] = [
            |owner| owner.api_version = "example.com/v1alpha1".to_owned(),
            |owner| owner.kind = "Approval".to_owned(),
            |owner| owner.name = "other".to_owned(),
            |owner| owner.uid = "uid-2".to_owned(),
            |owner| owner.controller = Some(false),
            |owner| owner.controller = None,
        ];
        for change in changes {
            let mut foreign = blob.clone();
            foreign.metadata.owner_references.iter_mut().flatten().for_each(change);
            assert!(!foreign.is_of_run("refund", "uid-1"), "{:?}", foreign.metadata.owner_references);
        }
    }
}
