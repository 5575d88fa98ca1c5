//! The durable engine of Signoff: what a Workflow means.
//!
//! `advance(plan, journal, facts, blobs, now)` is a pure function: the same input gives the same turn on every
//! machine. A pattern is an ordinary async function whose only await points are journaled activities; resuming
//! after a crash is not a special case, it is the only case.
//!
//! Nothing in this crate may read a clock, the environment, a file, the network or the order of a hash map.
//!
//! # Glossary
//! * **Plan**: a Workflow that was checked and parsed, so that running it cannot meet a mistake of its author.
//! * **Journal**: what has happened, one record an attempt at an activity. The only state of a run.
//! * **Activity**: something whose result is recorded: a call, a rendered value, a gate.
//! * **Fact**: something that happened outside and is to be taken into the journal.
//! * **Command**: something that shall be done outside once the journal is committed.
//! * **Transition**: everything that follows from a journal and new facts at one moment.
//! * **Policy**: an approval policy of an administrator; merged into the plan of every run, so that it cannot be avoided.
//! * **Tally**: what follows from an Approval's request and its decisions at one moment.

#[doc(hidden)]
pub mod fuzz;
pub mod journal;
pub mod parameters;
pub mod plan;
pub mod policy;
pub mod status;
pub mod tally;
pub mod transition;
pub mod values;

mod activity;
mod advance;
mod decision;
pub mod evaluation;
mod excerpt;
mod field_error;
mod gate_subject;
mod patterns;
mod request;
mod schema;
mod scope;
mod shape;
mod steps;
mod validated_answers;

pub use activity::Control;
pub use advance::{advance, advance_quarantined};
pub use field_error::FieldError;
pub use journal::{Journal, JournalLimits, Segments};
pub use plan::{Plan, Settings};
pub use policy::Policies;
#[doc(hidden)]
pub use schema::Schema; // for its benchmark
pub use shape::prepare;
pub use transition::{Blobs, Command, End, Fact, Now, Transition};
pub use values::ValueLimits;

#[cfg(test)]
mod any_pattern_tests;
#[cfg(test)]
mod excerpt_tests;
#[cfg(test)]
mod growth_tests;
#[cfg(test)]
mod order_tests;
#[cfg(test)]
mod request_tests;
#[cfg(test)]
mod test_run;
