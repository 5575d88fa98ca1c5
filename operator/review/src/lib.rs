//! The words and the stages of a decision, which the plugin and the page share so that both say the same.
//!
//! **Invariant:** no module prints to a terminal or writes HTML, and only the modules marked *(I/O)* send requests to a
//! cluster.
//!
//! * [`answer`]: the answers of an API server as sentences
//! * [`clock`]: the time on this machine, and lengths of time
//! * [`text`]: text of others within a line, and commands as a shell reads them
//! * [`seen`], [`voter`]: an Approval and the state of its run as they were read, and the user who reads them
//! * [`reading`], [`problem`]: a request as it was read for a decision *(I/O)*, and the problems that keep it from
//!   being decided
//! * [`request`], [`quorum`], [`decisions`]: words about the question, the quorums, and the decisions so far
//! * [`whole`]: the whole of a text that the request holds only in part *(I/O)*
//! * [`coming`]: the calls and gates that follow a verdict, and the run of a request
//! * [`indented`]: JSON with line ends and spaces, every other character as it is
//! * [`action`], [`brief`]: the call of a tool or the question of an agent, as facts and in a few words
//! * [`alike`]: requests of equal gates *(I/O)*
//! * [`suggest`]: a command for each verdict that the gate takes
//! * [`edit`]: the parameters that an editor begins with
//! * [`entry`]: a decision as it is sent, and the differences of the stored entry
//! * [`flow`]: the stages of a decision from a verified request to a recorded entry *(I/O)*
//! * [`edits`]: the changes of people to the reviewed text, and the text before each *(I/O)*
//! * [`record`]: sends a decision *(I/O)*
//! * [`meaning`]: a Retry after a failure, and the effect of each verdict
//! * [`foreseen`]: the effect of a decision, by the function with which the operator counts
//! * [`refusal`]: the reasons why a decision is refused
//! * [`state`], [`outcome`]: the state of a recorded decision, and words about it
//! * [`run`]: the tree of a run and its states
//! * [`run_change`]: suspends, resumes, cancels or repeats a run
//! * [`operator_lease`]: whether an operator runs *(I/O)*
//! * [`successor`]: the Approval that asks the same again after its predecessor was superseded
//! * [`voided`]: the votes of the superseded Approvals that an Approval asks again *(I/O)*

pub mod action;
pub mod alike;
pub mod answer;
pub mod brief;
pub mod clock;
pub mod coming;
pub mod decisions;
pub mod edit;
pub mod edits;
pub mod entry;
pub mod flow;
pub mod foreseen;
pub mod indented;
pub mod meaning;
pub mod operator_lease;
pub mod outcome;
pub mod problem;
pub mod quorum;
pub mod reading;
pub mod record;
pub mod refusal;
pub mod request;
pub mod run;
pub mod run_change;
#[cfg(any(test, feature = "sample"))]
pub mod sample;
pub mod seen;
pub mod state;
pub mod successor;
pub mod suggest;
pub mod text;
pub mod voided;
pub mod voter;
pub mod whole;
