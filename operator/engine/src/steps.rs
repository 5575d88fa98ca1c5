//! One step of any kind: the gates before it, its attempts, the check of its answer, and the consequence of a failure.
//!
//! Only declares modules, so that no module below imports from it. Arrows: `flow`, `kinds` <- `opening` <- `attempts`,
//! `gate` <- `output`, `failure` <- `agent` <- `perform`. `catalogue` <- `kinds`, `attempts`.

mod agent;
mod attempts;
mod catalogue;
mod conversation;
pub(crate) mod excerpt;
mod exclusions;
mod failure;
mod flow;
mod gate;
mod gate_before;
mod http;
pub(crate) mod join;
mod kinds;
mod mcp;
mod opening;
mod output;
mod perform;
mod pod;
pub(crate) mod request;
mod sent;
mod turn;

pub(crate) use flow::{EarlyEnd, StepFlow, StepResult};
pub(crate) use gate::{DecidedGate, decide, pass, verdict_or_end};
pub(crate) use output::{AnswerParser, parse_settled_answer};
pub(crate) use perform::{perform, run_step};
