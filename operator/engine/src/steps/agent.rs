//! The calls of an `agent` step: each is checked, asked about where gates say so, and performed.
//!
//! It knows no more of the step around a call than `PerformCall`: the way of a step is in `perform.rs`, which knows
//! this module.

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
