//! What both programs of this package share: the terminal, and how text of others is shown on it.
//!
//! It must not know a command of either program.

pub mod changes;
pub mod difference;
pub mod editor;
pub mod encoding;
pub mod facts;
pub mod help;
pub mod sanitize;
pub mod status;
pub mod style;
pub mod table;
pub mod terminal;
