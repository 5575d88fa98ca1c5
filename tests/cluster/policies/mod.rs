//! Every admission rule on a real API server: one request that is refused, and its honest twin.
//! Nothing here may run an operator: the policies must hold while there is none.

mod answers;
mod delegation;
mod final_and_in_time;
mod in_force;
mod largest;
mod objects;
mod operator;
mod run_state;
pub(crate) mod stage;
mod votes;
mod ways;
mod workflows;
