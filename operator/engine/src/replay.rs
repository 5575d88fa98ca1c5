//! The replay of a run: every transition runs the pattern again from its beginning, against the journal.
//!
//! * `activity`: the only await points of a pattern; a recorded one is ready, a new one begins once
//! * `call_history`: the calls that agents made, and what people rejected
//! * `origins`: the edits and the texts that rendered values come from
//! * `run`: the computation of one transition: the plan, the state, and the values that were fetched
//! * `scope`: the values that the templates of a step see, as of a number of the journal
//! * `step_invocation`: a step with everything from which its input is rendered again
//! * `transition_state`: the journal, the commands and the stored values of one transition

pub(crate) mod activity;
pub(crate) mod call_history;
pub(crate) mod origins;
pub(crate) mod run;
pub(crate) mod scope;
pub(crate) mod step_invocation;
pub(crate) mod tool_turn;
pub(crate) mod transition_state;
