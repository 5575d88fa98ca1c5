//! Tests on a real control plane, with real users, kubectl and helm.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod approval_policies;
mod asked;
mod asked_late;
mod attacks;
mod bytes;
mod chart;
mod chart_web;
mod clocks;
mod columns;
mod connections;
mod control_plane;
mod deciding_guide;
mod doctor;
mod examples;
mod freezing;
mod gitops;
mod guard;
mod limits;
mod mail;
mod memory;
mod notices;
mod plugin;
mod plugin_flow;
mod plugin_names;
mod plugin_terminal;
mod plugin_wait;
mod policies;
mod quickstart;
mod races;
mod restore;
mod run_verbs;
mod runs;
#[path = "../story.rs"]
mod story;
mod targets;
mod terminal_sessions;
mod tool_calls;
mod upgrade;
mod withdrawal;
