//! Gates, apart from any run: what a gate asks about, which verdicts it allows, and what a decision means.
//!
//! * `subject`: by the subject of a gate, the verdicts that it allows and the payload that each takes
//! * `decision`: one decision, checked against the request that it answers
//! * `parameters`: the payload of a verdict in words and as an example, for people
//!
//! The plan of a gate is in `plan/gate.rs`, asking at it in `steps/gate.rs`, counting its votes in `approval/`.

pub(crate) mod decision;
pub mod parameters;
pub(crate) mod subject;
