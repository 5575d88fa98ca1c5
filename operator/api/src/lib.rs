//! The API of Signoff: the `Workflow` and `Approval` objects, the `Blob`s with their long values and the policies that set
//! floors for them, everything that is derived from their bytes alone (digests, object names, CRDs, admission policies),
//! and the words people type for verdicts.
//!
//! It may not hold a client, a clock or any behaviour of a run: those belong to the engine and to its right.

pub mod approval;
pub mod blob;
pub mod conditions;
pub mod crds;
pub mod digest;
pub mod floor;
pub mod gate;
pub mod hosts;
pub mod journal;
mod json;
pub mod names;
pub mod pattern;
pub mod pod;
pub mod policies;
pub mod step;
pub mod values;
pub mod verdict;
pub mod workflow;

pub use approval::{Approval, ApprovalRequest, ApprovalSpec, ApprovalStatus, Decision, Outcome};
pub use blob::{Blob, BlobSpec};
pub use digest::Digest;
pub use floor::{ApprovalPolicy, ClusterApprovalPolicy};
pub use json::json_bytes;
pub use values::{Json, JsonObject, Moment, Span};
pub use verdict::Verdict;
pub use workflow::{Workflow, WorkflowSpec, WorkflowStatus};

/// The API group of both kinds, and the prefix of every label and annotation that is the operator's.
pub const GROUP: &str = "signoff.dev";

/// The version that is served and stored.
pub const VERSION: &str = "v1alpha1";
