//! The durable engine of Signoff: the meaning of a Workflow.
//!
//! observe *(I/O)* -> plan ([`Plan::of`], *pure*) -> advance ([`advance`], *pure*) -> claim calls *(pure)* -> commit
//! ([`status::after`], then *I/O*) -> dispatch the commands *(I/O)* -> facts, and again from the beginning.
//!
//! The stages marked *I/O* belong to the caller: the controller on a cluster, `signoff run` for a local session. The
//! same input gives the same transition on every machine. A pattern is an ordinary async function whose only await
//! points are journaled activities. Every transition replays it from its beginning, so resuming after a crash needs no
//! code of its own.
//!
//! **Invariant:** this crate reads no clock, environment, file or network, and depends on no order of a hash map.
//!
//! # Modules
//! * [`approval`]: votes, quorums, deadlines, the outcome of an Approval
//! * `gate`: the subject of a gate, its verdicts, the meaning of a decision
//! * [`plan`] and [`policy`]: a checked Workflow, merged with the policies of administrators
//! * `patterns` and `steps`: the patterns (`chain`, `dag`, ...) and the kinds of steps (`agent`, `http`, ...)
//! * [`tools`]: the calls of tools by agents, as far as they are pure values
//! * `replay`: activities and the values that templates see
//! * [`journal`], [`transition`], [`status`]: the state of a run, and the types that go in and out
//!
//! # Glossary
//! * **Plan**: a Workflow that was checked and parsed, so that running it cannot meet an error of its author.
//! * **Journal**: the history of a run, one record for each attempt at an activity. The only state of a run.
//! * **Activity**: a part of a run whose result is recorded: a call, a rendered value, a gate.
//! * **Fact**: an event outside, to be added to the journal.
//! * **Command**: an effect outside, to be executed once the journal is committed.
//! * **Transition**: the result of a journal and new facts at one moment.
//! * **Policy**: an approval policy of an administrator. It is merged into the plan of every run, so that no run avoids
//!   it.
//! * **Tally**: the result of an Approval's request and its decisions at one moment.

pub mod approval;
pub mod driver;
pub mod evaluation;
pub mod gate;
pub mod journal;
pub mod plan;
pub mod policy;
pub mod status;
pub mod tools;
pub mod transition;

mod advance;
mod crd_rules;
mod field_error;
mod patterns;
mod replay;
mod schema;
mod steps;
#[cfg(test)]
mod tests;

pub use advance::{advance, advance_quarantined};
pub use crd_rules::prepare;
pub use field_error::FieldError;
pub use journal::{Journal, JournalLimits, Segments, values::ValueLimits};
pub use plan::{Plan, Settings};
pub use policy::Policies;
pub use replay::run::Control;
#[doc(hidden)]
pub use schema::Schema; // for its benchmark
pub use transition::{Blobs, Command, End, Fact, Now, Transition};
