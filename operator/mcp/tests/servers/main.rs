//! The client against servers on loopback: good ones of both versions, and a hostile one with a mode for every failure.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod calls;
mod catalogues;
mod commands;
mod hostile_answers;
mod keys;
mod server;
mod versions;
