//! What the table of attacks cannot hold of the admission rules: what is accepted and how it is stored, and what takes
//! more than two requests.
//! Nothing here may run an operator: the policies must hold while there is none.

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
