//! The calls of tools by agents: their arguments, names and lists, and the built-in question. All *(pure)*.
//!
//! **Invariant:** what a model wrote is parsed once, here, and everything else reads the canonical text.

pub(crate) mod arguments;
pub(crate) mod lists;
pub(crate) mod names;
pub(crate) mod question;
pub(crate) mod rule;
