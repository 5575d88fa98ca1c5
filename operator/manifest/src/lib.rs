//! What authors write: YAML and JSON with positions, what is wrong with it, and what would run.
//!
//! It must not read a file, ask a cluster or print: it is given texts and gives back objects, problems and texts.

mod check;
mod common_mistakes;
pub mod explain;
pub mod flow;
mod old_fields;
pub mod pins;
pub mod problem;
pub mod report;
mod rules;
mod schema;
pub mod server_tools;
pub mod source;
mod unreadable;

pub use check::{Checked, REQUESTER, check, check_with};
pub use problem::{Problem, Severity};
