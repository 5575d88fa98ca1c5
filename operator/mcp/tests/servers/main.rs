//! Tests of the client with servers on loopback: valid ones of both versions, and a hostile one with many modes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod calls;
mod catalogues;
mod commands;
mod hostile_answers;
mod keys;
mod server;
mod versions;
