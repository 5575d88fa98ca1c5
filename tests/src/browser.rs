//! A real browser for tests and for the demo: Chromium, one for each process, and a context of its own for each
//! [`Page::open`]. It must not judge what a page shows: it looks, types, and says what it could not find, with a
//! picture of what was there.

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
