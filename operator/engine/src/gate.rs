//! Gates, independent of a run: their subjects, their verdicts, and the meaning of a decision.
//!
//! * `subject`: for each subject of a gate, the allowed verdicts and the payload of each
//! * `payload`: one decision, checked against the request that it answers
//! * `parameters`: the payload of a verdict in words and as an example, for people
//!
//! `plan/gate.rs` plans gates, `steps/gate.rs` asks at them, and `approval/` counts votes.

pub mod parameters;
pub(crate) mod payload;
pub(crate) mod subject;
