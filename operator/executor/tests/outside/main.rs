//! The runtime against real servers on loopback: what is sent, what is refused, and how failures
//! are told.
//!
//! They must not reach beyond loopback: names are resolved by a resolver of the test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod addresses;
mod dialects;
mod http;
mod models;
mod refused_keys;
mod secret_headers;
mod server;
mod tools;
