//! The API of Signoff: the kinds `Workflow`, `Approval`, `Blob`, `ClusterApprovalPolicy` and `ApprovalPolicy`,
//! everything that is derived from their bytes alone (digests, object names, CRDs), and the words users type for
//! verdicts.
//!
//! **Invariant:** no client, no clock and no behaviour of a run; those belong to the engine and the crates to its
//! right.

pub mod announce;
pub mod approval;
mod approval_phase;
pub mod blob;
pub mod catalogue;
pub mod codes;
pub mod conditions;
pub mod crds;
pub mod digest;
pub mod event_reason;
pub mod failure_class;
pub mod gate;
pub mod glob;
pub mod hosts;
pub mod journal;
mod json;
pub mod money;
pub mod names;
pub mod occurrence;
pub mod pattern;
pub mod pod;
pub mod policy;
pub mod record_path;
pub mod rules;
pub mod sent_method;
pub mod seq;
pub mod server;
pub mod step;
pub mod tool;
pub mod tool_rules;
pub mod turn;
pub mod values;
pub mod verdict;
pub mod workflow;

pub use approval::{Approval, ApprovalRequest, ApprovalSpec, ApprovalStatus, Decision, Outcome};
pub use blob::{Blob, BlobSpec};
pub use codes::Code;
pub use digest::Digest;
pub use event_reason::EventReason;
pub use failure_class::FailureClass;
pub use json::json_bytes;
pub use policy::{ApprovalPolicy, ClusterApprovalPolicy};
pub use record_path::RecordPath;
pub use seq::Seq;
pub use values::{Json, JsonObject, Moment, Span};
pub use verdict::Verdict;
pub use workflow::{Workflow, WorkflowSpec, WorkflowStatus};

/// The API group of all kinds, and the prefix of every label and annotation that the operator writes.
pub const GROUP: &str = "signoff.dev";

/// The version that is served and stored.
pub const VERSION: &str = "v1alpha1";
