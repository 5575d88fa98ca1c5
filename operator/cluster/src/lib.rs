//! The access to the API server: everything that reads or writes objects of the cluster, and the caches and queues
//! between the API server and a reconcile.
//!
//! ```text
//! watch (I/O) -> store (pure) -> workqueue (pure) -> a reconcile -> status_writer, requests (I/O)
//! ```
//!
//! **Invariant:** does not interpret Workflows and Approvals; the engine and the controller do.
//!
//! * [`client`]: the clients that no deeply nested object can block
//! * [`kinds`]: the kinds as they are decoded
//! * [`watch`], [`store`]: the cached objects
//! * [`workqueue`]: the objects to be reconciled
//! * [`requests`], [`status_writer`]: requests, and fenced writes of a status
//! * [`lease`]: the election of the operator that acts
//! * [`server_clock`]: the time of the API server
//! * [`events`], [`write_priority`]: Kubernetes Events, which wait for writes of a status
//! * [`fair_budget`], [`fair_share`]: the shares of namespaces in scarce amounts
//! * [`logging`]: the log of a program
//! * [`error`], [`metrics`]: the errors and the counters

pub mod client;
pub mod error;
pub mod events;
pub mod fair_budget;
pub mod fair_share;
pub mod kinds;
pub mod lease;
pub mod logging;
pub mod metrics;
pub mod requests;
pub mod server_clock;
pub mod status_writer;
pub mod store;
pub mod watch;
pub mod workqueue;
pub mod write_priority;

pub use client::{
    DepthFilter, MAX_DEPTH, ReadRequest, connect, connect_as, connect_service, connect_service_with_clock,
    connect_with_observer,
};
pub use error::Error;
pub use server_clock::ServerClock;
