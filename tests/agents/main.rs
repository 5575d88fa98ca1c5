//! Tests of agents with tools: real runs on this machine against models of every protocol, which answer well and badly,
//! and calls of the tools of real MCP servers.
//!
//! **Invariant:** nothing beyond loopback is called.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod clerk;
mod failures;
mod hostile;
mod protocols;
mod provider;
mod real_servers;
mod transcript;
mod ways;
