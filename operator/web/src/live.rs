//! What is followed while somebody looks: the open Approvals of each token, and single runs.
//!
//! **Invariant:** a watch belongs to one token, and ends with it, at sign-out and after ten minutes, because the API
//! server does not authorise a running watch again. Their number is bounded.

mod feed;
mod feeds;
mod follow;
mod row;
mod streams;

pub use feed::{Feed, UNREADABLE, Unreadable};
pub use feeds::Feeds;
pub use row::{Row, Standing, Waiting, shown_name};
pub use streams::{Place, Streams};
