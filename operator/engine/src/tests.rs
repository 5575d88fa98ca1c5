//! Tests of whole runs, and the driver of these tests.

mod agent_growth;
pub(crate) mod any_pattern;
mod asked_again;
mod authors_text;
mod growth;
mod order;
pub(crate) mod test_run;
mod values;
