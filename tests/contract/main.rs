//! Tests of contracts: what is committed, shipped and documented agrees with the code. They need no cluster.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod broken;
mod chart;
mod chart_web;
mod codes;
mod docs;
mod evolution;
mod examples;
mod generated;
mod invalid;
mod models;
mod stories;
#[path = "../story.rs"]
mod story;
mod strands;
mod templating;
