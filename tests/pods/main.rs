//! Tests on a real node, whose kubelet runs real pods, on a machine of their own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod chart;
mod examples;
mod harness;
mod machine;
mod node;
mod operator;
mod steps;
#[expect(dead_code, reason = "the examples without containers are run by other suites")]
#[path = "../story.rs"]
mod story;
mod tools;
mod tutorial;
mod witness;
