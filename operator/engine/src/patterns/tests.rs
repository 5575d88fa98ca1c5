//! Tests of the semantics of the patterns, by runs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod answers;
mod chain;
mod conditions;
mod dag;
mod edits;
mod evaluator;
mod gates;
mod graph;
mod numbers;
mod orchestrator;
mod origins;
mod parallel;
mod pods;
mod requests;
mod routing;
mod secret_headers;
mod sent;
mod tools;
