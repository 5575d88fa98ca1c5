//! The controller of Signoff: runs Workflows on a cluster, and records what people decide.
//!
//! A reconcile is straight: *observe* what is known, *plan* what the spec means, *advance* the engine by a turn,
//! *commit* what it came to in one fenced write, *dispatch* what it asks for, *report* it. Everything that happens
//! outside comes back as a trigger of the next one.
//!
//! Nothing in this crate may decide what a Workflow means (that is the engine's), call the outside world otherwise
//! than through [`Caller`], tell the time otherwise than by [`Clock`], or outlive the future of
//! [`Operator::run`].
//!
//! # Table of contents
//! * [`operator`], `exit_reason`, `event_loop`: what an operator is made of, why it ends, and its event loop
//! * `workflow`, `approval`: the two reconciles
//! * [`watch`], `watch_handlers`, [`store`], [`workqueue`]: the cached objects, and those to be reconciled
//! * `pods`: the Pods of steps
//! * `call_slots`: how many calls run at once, and which is next
//! * `policy_index`: the approval policies of each namespace
//! * [`wire`], `commit`: how state is read and written
//! * [`runs`], [`secrets`], [`blobs`]: the outside world of a run
//! * [`guard`], [`lease`]: whether and who may act
//! * [`targets`]: what no call may reach
//! * [`events`], `stalls`, `stall_reports`, [`metrics`], [`health`]: telling people

pub mod blobs;
pub mod error;
pub mod events;
pub mod guard;
pub mod health;
pub mod kinds;
pub mod lease;
pub mod metrics;
pub mod operator;
pub mod pace;
pub mod runs;
pub mod secrets;
pub mod store;
pub mod targets;
pub mod watch;
pub mod wire;
pub mod workqueue;

mod approval;
mod call_slots;
mod commit;
mod confirmed_outcomes;
mod context;
mod event_loop;
mod exit_reason;
mod packed;
mod plans;
mod pods;
mod policy_index;
mod quarantine;
mod segments;
mod stall_reports;
mod stalls;
mod under_way;
mod unreadable;
mod value_quota;
mod watch_handlers;
mod workflow;

pub use call_slots::CallLimits;
pub use exit_reason::ExitReason;
pub use guard::{GuardMode, GuardSettings, GuardStatus, Guarded};
pub use health::{Probe, Stage};
pub use lease::LeaseSettings;
pub use operator::{Config, Operator};
pub use pods::PodSettings;
pub use signoff_executor::{Caller, Clock, Evaluator, EvaluatorSettings, Outside, RunRef};
pub use targets::Targets;
pub use value_quota::ValueSettings;
