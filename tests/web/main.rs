//! Tests of the inbox: a real browser, a real issuer, and a real API server behind a witness.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod attacks;
mod away;
mod back;
mod calls;
mod crowd;
mod deciding;
mod drafts;
mod followed;
mod forms;
mod harness;
mod inbox;
mod instruments;
mod list;
mod looks;
mod reading;
mod refusals;
mod replicas;
mod run_list;
mod runs;
mod sign_in;
mod turns;
