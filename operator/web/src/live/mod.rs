//! What changes while somebody looks: one watch for each token, and the stream of events that a page listens to.
//!
//! **Invariant:** a watch belongs to one token, and ends with it, at sign-out and after ten minutes, because the API server does
//! not authorise a running watch again. Their number is bounded.

mod events;
mod feed;
mod row;
mod streams;

pub use events::events;
pub use feed::{Feed, Feeds};
pub use row::{Row, Standing, Waiting};
pub use streams::{Place, Streams};
