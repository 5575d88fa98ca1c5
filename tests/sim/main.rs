//! The real controllers in simulation: paused time, a simulated API server, and failures between them. Nothing here
//! opens a socket, and only tests of CPU time wait in real time. Tests that need a real API server are in `cluster/`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod agent_costs;
mod agents;
mod announced;
mod approval_policies;
mod calls;
mod clocks;
mod costly;
mod crash_at_every_step;
mod dice;
mod disturbances;
mod ending;
mod endless;
mod guarded;
mod harness;
mod histories;
mod laws;
mod notices;
mod notices_of_many;
mod open_parts;
mod other_rules;
mod partial_tallies;
mod people;
mod planted;
mod pods;
mod question;
mod receivers;
mod requests;
mod reruns;
mod restored;
mod run_lifecycle;
mod scenario_runner;
mod scenarios;
mod servers;
mod size;
mod stalled;
mod stops;
mod tampering;
mod timeouts;
mod two_operators;
mod unclean;
mod values;
mod voided;
mod withdrawal;
