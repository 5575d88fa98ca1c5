//! The fuzz drivers: functions of any bytes, which the targets in `fuzz/fuzz_targets` hand to cargo-fuzz.
//!
//! **Invariant:** no driver panics, overflows the stack or runs long, whatever the bytes. What a driver computes is
//! thrown away, except that what must hold for every input is asserted. The tests run a bounded number of mutations of
//! a corpus.

pub mod engine;
pub mod expressions;
pub mod files;
pub mod session;

#[cfg(test)]
mod mutations;
