//! `/n/{ns}/w/{name}`: the page of a run: a picture, an outline and a time line, with every decision and every result.
//!
//! ```text
//! read (as the caller) -> model, graph (pure) -> picture (laid out) -> a template
//! ```
//!
//! **Invariant:** texts of people, models and tools are shown as text, shortened or fenced. A long value is sent only
//! as an attachment, after its digest was verified.

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
