//! The watches behind open pages: the open Approvals of each token, and single runs.
//!
//! **Invariant:** a watch belongs to one token. It ends with the token, at sign-out and after ten minutes, because the
//! API server does not authorize a running watch again. The number of watches is bounded.

mod feed;
mod feeds;
mod follow;
mod row;
mod streams;

pub use feed::{Feed, UNREADABLE, Unreadable};
pub use feeds::Feeds;
pub use row::{Row, Standing, Waiting, name_text};
pub use streams::{Place, Streams};
