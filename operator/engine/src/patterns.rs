//! The patterns: ordinary async functions whose only await points are journaled activities.
//!
//! None of them keeps any state of its own between turns.

pub(crate) mod chain;
