//! `/n/{ns}/w/{name}`: a run, as a picture, an outline and a time line, with every decision and what it made.
//!
//! ```text
//! read (as the caller) -> model, graph (pure) -> picture (laid out) -> a template
//! ```
//!
//! **Invariant:** text of people, models and tools is shown as text, shortened or fenced; a long value leaves the page
//! only as an attachment, after its digest was verified.

mod address;
mod change;
mod confirm_change;
mod decided;
mod events;
mod graph;
mod handler;
mod model;
mod outline;
mod picture;
mod read;
pub(crate) mod shapes;
#[cfg(test)]
mod tests;
mod texts;
mod timeline;
mod value;

pub use change::change;
pub use events::events;
pub use handler::page;
pub use model::Run;
pub use value::value;
