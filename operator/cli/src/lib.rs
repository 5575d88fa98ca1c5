//! Code that both programs of this package share: the terminal, and the display of others' text on it.

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
