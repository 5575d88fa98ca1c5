//! Approvals: from the request of a gate and the decisions in it to a verdict.
//!
//! read votes (`votes`) -> count them against the quorums (`quorum`) -> else compare the deadline (`deadline`) ->
//! outcome (`tally`). Every stage is *(pure)*. Votes count only in the guard's epoch in which they were recorded
//! (`guard_epoch`), and no longer than policies allow (`void`). [`eligibility`] has the rules about voters, for clients
//! and local runs too.

mod deadline;
pub mod eligibility;
mod guard_epoch;
pub mod persons;
mod progress;
mod quorum;
mod tally;
mod void;
mod votes;

pub use deadline::DEADLINE_PASSED;
pub use guard_epoch::{changed, rests_on_request, superseded};
pub use progress::progress;
pub use quorum::QuorumProgress;
pub use tally::{ApprovalEvent, OwnerState, TallyResult, VoteFilter, tally, tally_filtered};
pub use void::voided;

#[cfg(test)]
mod tests;
