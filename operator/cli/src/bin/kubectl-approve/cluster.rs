//! The cluster as one user sees it: the session, and everything that several commands read by it.

pub mod client;
pub mod names;
pub mod operator_status;
pub mod version;
pub mod watch_problem;
pub mod whoami;
mod whole;
