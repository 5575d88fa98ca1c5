//! The files of authors: YAML and JSON with positions, their problems, and the steps that would run.
//!
//! No I/O: the crate takes texts, and returns objects, problems and texts.

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
