//! A real browser for tests and for the demo: one Chromium for each process, and a context of its own for each
//! [`Page::open`]. A failure names what was not found, with a screenshot.

mod driver;
mod inspect;
mod look;
mod page;
mod target;
mod tools;

pub use inspect::SCREENSHOTS;
pub use look::{Answer, Cookie, Download, Look, Request};
pub use page::Page;
pub use target::{Target, any, css, label, role, text};
pub use tools::{CHROMIUM, Node, chromium};
