//! Tests of agents with tools: real runs on this machine against models that speak OpenAI's protocol, with valid and invalid answers.
//! They must not reach beyond loopback.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod clerk;
mod failures;
mod hostile;
mod provider;
mod transcript;
mod ways;
