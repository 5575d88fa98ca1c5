//! The code that the tests, the demo and the benchmarks share: a real control plane and its users, a real browser, a
//! real node, a simulated control plane, servers that agents meet, the writer of images, and calls of cargo.
//!
//! **Invariant:** depends on nothing of `operator/`, so that a control plane starts whatever state that code is in.

pub mod aimock;
pub mod attacks;
pub mod browser;
pub mod cargo;
pub mod chat_completions;
pub mod control_plane;
pub mod crm;
pub mod half_requests;
pub mod image;
pub mod loopback;
pub mod mail_server;
pub mod mcp;
pub mod memory_group;
pub mod node;
pub mod npm_servers;
pub mod page;
pub mod quickstart;
pub mod rmcp_server;
pub mod say;
pub mod sim;
pub mod snapshot;
pub mod wire;

/// Prints the number of cases that a test tried, such as 12 `crash points`; `cargo xtask test` adds the numbers up.
#[expect(clippy::print_stdout, reason = "the test harness keeps what tests print, and xtask reads it")]
pub fn tried(number: usize, what: &str) {
    println!("tried: {number} {what}");
}
