//! The inbox: a page on which people decide, with the rights of the person who looks at it.
//!
//! ```text
//! session (who) -> connection (as whom to the API server) -> a page's model (pure) -> a template
//! ```
//!
//! **Invariant:** decides nothing, and has no right of its own that a page uses: every request to the API server carries the
//! identity of one session. A GET changes nothing.
//!
//! * [`settings`], [`server`]: the command line, and the routes with what surrounds them
//! * [`session`]: sign-in, cookies, and the verification of tokens at every request
//! * [`connection`]: the way to the API server as somebody
//! * [`inbox`]: the pages
//! * [`history`], [`policies`]: what was decided, and what the policies demand
//! * [`run`]: the page of a run
//! * [`live`]: what waits for a token, followed while somebody looks

pub mod approval;
pub mod assets;
pub mod connection;
pub mod error;
pub mod history;
pub mod inbox;
pub mod live;
pub mod page;
pub mod policies;
pub mod run;
pub mod scope;
pub mod server;
pub mod session;
pub mod settings;
pub mod state;
