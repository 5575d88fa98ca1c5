//! The fuzz drivers: functions of any bytes, which the targets in `fuzz/fuzz_targets` pass to cargo-fuzz.
//!
//! **Invariant:** no driver panics, overflows the stack or runs long, whatever the bytes. The result of a driver is
//! dropped, except that it asserts what must hold for every input. The tests run a bounded number of mutations of a
//! corpus.

pub mod engine;
pub mod expressions;
pub mod files;
pub mod session;

#[cfg(test)]
mod mutations;
