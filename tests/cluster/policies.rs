//! The admission rules beyond the table of attacks: accepted objects and their stored form, and sequences of more than
//! two requests. No operator runs: the policies must hold without one.

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
