//! Tests of agents with tools: real runs on this machine against models of every protocol, which answer well and badly.
//! They must not reach beyond loopback.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod clerk;
mod failures;
mod hostile;
mod protocols;
mod provider;
mod transcript;
mod ways;
