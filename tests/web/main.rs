//! Tests of the inbox: a real browser, a real issuer, and a real API server behind a witness. They must not touch a cluster of
//! anybody else.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;
mod instruments;
mod sign_in;
