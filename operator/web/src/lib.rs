//! The inbox: a page on which people decide, with the rights of the person who looks at it.
//!
//! ```text
//! session (who) -> connection (as whom to the API server) -> a page's model (pure) -> a template
//! ```
//!
//! **Invariant:** decides nothing, and has no right of its own that a page uses: every request to the API server
//! carries the identity of one session. A GET changes nothing.
//!
//! * [`settings`], [`server`]: the command line, and the routes with what surrounds them
//! * [`session`]: cookies, tokens and their verification at every request; [`sign_in`]: how a session begins and ends
//! * [`connection`]: the way to the API server as somebody; [`scope`]: where somebody may list
//! * [`inbox`], [`approval`], [`turn`], [`run`], [`runs`], [`history`], [`policies`]: the pages
//! * [`live`]: what is followed while somebody looks
//! * [`rights`], [`workflows`]: what the reader may do, and lists of Workflows
//! * [`page`], [`assets`], [`error`], [`problem`]: what all pages have, and what is said when one cannot be shown

pub mod approval;
pub mod assets;
pub mod connection;
pub mod error;
pub mod filter_form;
pub mod history;
pub mod inbox;
pub mod live;
pub mod long_reads;
pub mod page;
pub mod policies;
pub mod problem;
pub mod rights;
pub mod run;
pub mod runs;
pub mod scope;
pub mod server;
pub mod session;
pub mod settings;
pub mod sign_in;
pub mod state;
pub mod turn;
pub mod workflows;
