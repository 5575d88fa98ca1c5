//! Servers of tools that speak MCP: the tools that they offer, calls of these tools, and the results as data.
//!
//! `connect` *(I/O)* -> `list` *(I/O)* -> `Catalogue` *(pure)* -> compare the definition *(pure)* -> call *(I/O)* ->
//! `ToolOutput` *(pure)*. The types of catalogues are in `signoff_api`, those of keys in the executor. Two versions of
//! the protocol are supported, 2026-07-28 and 2025-11-25, over the executor's HTTP client. Local runs can also start a
//! server as a command ([`stdio`]).
//!
//! **Invariant:** no address from an answer is connected to, no request of a server is fulfilled, and no request is
//! sent twice.

mod answer;
mod client;
mod connection;
mod conversation;
mod deadline;
mod known_servers;
mod message;
mod pages;
mod param_headers;
pub mod protocol;
mod result;
mod session;
pub mod stdio;

pub use client::McpClient;
pub use deadline::deadline_after;
pub use protocol::Protocol;
