//! What the tests, the demo and the benchmark share: a real control plane and the people on it, a real node
//! for it, a simulated control plane, and the writer of images.
//! It must not decide what is right: assertions belong to the tests, and nothing here depends on the operator's code.

pub mod attacks;
pub mod control_plane;
pub mod image;
pub mod node;
pub mod page;
pub mod quickstart;
pub mod sim;

/// Says how much a test tried, such as 12 `crash points`; `cargo xtask test` adds them up.
#[expect(clippy::print_stdout, reason = "the test harness keeps what tests print, and xtask reads it")]
pub fn tried(number: usize, what: &str) {
    println!("tried: {number} {what}");
}
