//! The inbox: a page on which people decide, with the rights of its reader.
//!
//! ```text
//! session (who) -> connection (as whom to the API server) -> a page's model (pure) -> a template
//! ```
//!
//! **Invariant:** the page decides nothing and uses no rights of its own: every request to the API server carries the
//! identity of one session. A GET changes nothing.
//!
//! * [`settings`], [`routes`]: the command line, and the routes with their middleware
//! * [`session`]: cookies, tokens and their verification at every request; [`sign_in`]: the begin and the end of a
//!   session
//! * [`api_server`]: clients of the API server with the identity of a session; [`scope`]: the namespaces that a reader
//!   may list
//! * [`inbox`], [`approval`], [`turn`], [`run`], [`runs`], [`history`], [`policies`]: the pages
//! * [`live`]: the watches behind the pages that are open
//! * [`rights`], [`workflows`]: the rights of the reader, and lists of Workflows
//! * [`page`], [`assets`], [`error`], [`problem`]: the parts of all pages, and the page of an error

pub mod api_server;
pub mod approval;
pub mod assets;
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
pub mod routes;
pub mod run;
pub mod runs;
pub mod scope;
pub mod session;
pub mod settings;
pub mod sign_in;
pub mod state;
pub mod turn;
pub mod workflows;
