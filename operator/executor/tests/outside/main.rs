//! Tests of the executor with real servers on loopback: sent and refused requests, and the messages of failures. Names
//! are resolved by a resolver of the test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod addresses;
mod dialects;
mod http;
mod models;
mod refused_keys;
mod secret_headers;
mod server;
mod tools;
