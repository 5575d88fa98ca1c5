//! What authors write: YAML and JSON with positions, and workflow files of the Strands CLI.
//!
//! It may not read a file, ask a cluster or print: it is given texts and gives back objects, problems and texts.

mod check;
pub mod explain;
pub mod flow;
#[doc(hidden)]
pub mod fuzz;
mod old_fields;
mod problem;
pub mod report;
mod rules;
mod schema;
mod source;
pub mod strands;

pub use check::{Checked, REQUESTER, Read, check, read_any};
pub use problem::{Problem, Severity};
