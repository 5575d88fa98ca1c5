//! Tests on a real node, whose kubelet runs real pods. They may not run but on a machine of their own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod chart;
mod machine;
mod node;
mod stage;
mod steps;
mod witness;
