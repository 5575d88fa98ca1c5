//! The controller of Signoff: runs Workflows on a cluster, and records decisions.
//!
//! ```text
//! observe (I/O) -> plan (pure) -> advance (pure) -> claim (pure) -> commit (I/O) -> dispatch (I/O) -> report (I/O)
//! ```
//!
//! A reconcile passes through these stages once. Results of calls, watch events and timers trigger the next reconcile.
//!
//! **Invariant:** leaves the meaning of Workflows to the engine, calls the outside world only through [`Caller`], reads
//! the time only from [`Clock`], and does not outlive the future of [`Operator::run`].
//!
//! * [`operator`], `exit_reason`, `event_loop`: the parts of an operator, why it exits, and its event loop
//! * `workflow`, `approval`: the two reconciles
//! * `context`: the clients, caches and queues that the reconciles share, in parts
//! * `watch_handlers`, `cached_objects`: watch events, and the cached objects that they update
//! * `pods`: the Pods of steps
//! * `caches`: plans, journal segments and confirmed outcomes
//! * `call_slots`: the slots for calls, and their queue
//! * `memory`: the parts of the operator's memory
//! * `policy_index`: the approval policies of each namespace
//! * `withdrawal`, `deleted_namespaces`: the runs that are deleted or cancelled, for which nothing starts
//! * `in_flight`, [`secrets`], [`blobs`]: the calls, Secrets and long values of runs
//! * [`guard`]: the check that the admission policies are in force
//! * [`protected_addresses`]: the addresses that calls cannot reach
//! * `announce`, [`notices`]: announcements to listeners, and notices to people
//! * `stalls`, `stall_reports`, [`metrics`], [`health`]: reports for administrators

pub mod blobs;
pub mod error;
pub mod guard;
pub mod health;
pub mod metrics;
pub mod notices;
pub mod operator;
pub mod protected_addresses;
pub mod secrets;

mod announce;
mod approval;
mod cached_objects;
mod caches;
mod call_slots;
mod charged;
mod context;
mod deleted_namespaces;
mod evaluating;
mod event_loop;
mod exit_reason;
mod in_flight;
mod memory;
mod pods;
mod policy_index;
mod quarantine;
mod reconcile_load;
mod stall_reports;
mod stalls;
mod unreadable;
mod value_quota;
mod watch_handlers;
mod withdrawal;
mod workflow;

pub use call_slots::CallLimits;
pub use exit_reason::ExitReason;
pub use guard::{GuardEpoch, GuardMode, GuardSettings, GuardStatus};
pub use health::{OperatorPhase, Probe};
pub use memory::MemoryLimits;
pub use operator::{Config, Operator};
pub use pods::PodSettings;
pub use protected_addresses::ProtectedAddresses;
pub use signoff_cluster::lease::LeaseSettings;
pub use signoff_executor::{AnswerRoom, Caller, Clock, DefaultCaller, Evaluator, EvaluatorSettings, RunRef};
pub use value_quota::ValueSettings;
