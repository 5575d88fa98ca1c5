//! The calls of an `agent` step: check -> ask -> perform.
//!
//! Of the step of a tool the module only has the function `PerformCall`, because `perform.rs` imports this module.

mod ask;
mod calls;
mod equal;
mod gating;
mod limits;
mod merge;
mod ongoing_call;
mod proposal;
mod refusal;
mod rejected;
mod shown;
mod site;

pub(super) use calls::perform_turn;
pub(super) use ongoing_call::ClearedCall;
