//! Tests of the admission rules for which the table of attacks is not enough: accepted requests and how they are
//! stored, and sequences of more than two requests. No operator runs, because the policies must hold without one.

mod audit;
mod blobs;
mod bounds;
mod delegation;
mod eligibility;
mod final_and_in_time;
pub(crate) mod harness;
mod in_force;
mod largest;
mod objects;
mod operator;
mod patterns;
mod shapes;
mod status;
mod votes;
mod ways;
mod workflows;
