//! What a person who decides sees, and what they send: the parts that the plugin and the page share, so that both say
//! the same.
//!
//! **Invariant:** nothing here is a line of a terminal or a piece of HTML, and only the modules marked
//! *(I/O)* talk to a cluster.
//!
//! * [`answer`]: what an API server has answered, in a sentence
//! * [`clock`]: the time on this machine, and lengths of time
//! * [`text`]: text of others within a line, and commands as a shell reads them
//! * [`seen`], [`voter`]: an Approval as it was read, where its run stands, and who looks at it
//! * [`reading`], [`problem`]: a request as it was read for a decision *(I/O)*, and what keeps it from being decided
//! * [`request`], [`quorum`], [`decisions`]: words about what is asked, whose agreement it takes, and what was said so
//!   far
//! * [`whole`]: the whole of a text that the request holds only in part *(I/O)*
//! * [`coming`]: the calls and gates that follow a verdict, and the run as its readers know it
//! * [`indented`]: JSON with line ends and spaces, every other character as it is
//! * [`action`], [`brief`]: the call of a tool or the question of an agent, as facts and in a few words
//! * [`alike`]: requests of equal gates *(I/O)*
//! * [`suggest`]: a command for each verdict that the gate takes
//! * [`edit`]: the parameters that an editor begins with
//! * [`entry`]: a decision as it is sent, and whether it was stored as it was sent
//! * [`flow`]: the way of a decision from a verified request to a recorded entry *(I/O)*
//! * [`edits`]: who changed what is shown, and the text before *(I/O)*
//! * [`record`]: sends a decision *(I/O)*
//! * [`meaning`]: a Retry after a failure, and what each verdict comes to
//! * [`foreseen`]: what a decision would come to, by the function that the operator counts with
//! * [`refusal`]: why a decision is refused
//! * [`state`], [`outcome`]: what the operator made of a decision, and words about it
//! * [`run`]: the tree of a run and its states
//! * [`run_change`]: suspends, resumes, cancels or repeats a run
//! * [`operator_lease`]: whether an operator acts *(I/O)*
//! * [`successor`]: the Approval that asks again what a superseded one asked
//! * [`voided`]: the votes of those that it asks again *(I/O)*

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
