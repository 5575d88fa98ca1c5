//! The decisions that a command line asks for: one for each Approval that it names.

use signoff_api::Verdict;

use super::{Command, CommonArgs, Parameters, Plain};

/// A decision as it was typed.
#[derive(Clone, Debug)]
pub struct DecisionArgs {
    /// The name as it was typed: of the Approval, or `WORKFLOW/GATE`.
    pub name: String,
    /// The verdict of the subcommand, such as Reject for `reject`.
    pub verdict: Verdict,
    /// The parameters, answer, guidance or subjects. Approve, Reject, Abort and Skip have none.
    pub payload: Payload,
    /// The options that every decision has, such as `--reason`.
    pub common: CommonArgs,
}

/// The payload of a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// No payload.
    Nothing,
    /// Modify and Retry: the parameters.
    Parameters {
        /// The values of `--set`: JSON if they are valid JSON, otherwise text.
        set: Vec<(String, String)>,
        /// The values of `--set-string`: always text.
        set_string: Vec<(String, String)>,
        /// The file of `--from-file`, to which the other parameters are added.
        from_file: Option<String>,
    },
    /// Modify: the shown values, edited in the user's editor.
    Edited,
    /// Respond: the text of the only question.
    Response(String),
    /// Respond: the file with the answer to the only question.
    ResponseFile(String),
    /// Respond: the answers by question.
    Answers {
        /// Texts by question.
        texts: Vec<(String, String)>,
        /// Options by question.
        options: Vec<(String, String)>,
    },
    /// Defer: the guidance.
    Guidance(String),
    /// Escalate: the subjects to ask.
    To(Vec<String>),
}

impl Command {
    /// Returns the decisions of the command, one for each Approval that it names. Empty if the command decides nothing.
    pub fn decisions(self) -> Vec<DecisionArgs> {
        match self {
            Self::Approve(typed) => typed.decisions(Verdict::Approve),
            Self::Reject(typed) => typed.decisions(Verdict::Reject),
            Self::Abort(typed) => typed.decisions(Verdict::Abort),
            Self::Skip(typed) => typed.decisions(Verdict::Skip),
            other => other.decision_args().into_iter().collect(),
        }
    }

    fn decision_args(self) -> Option<DecisionArgs> {
        Some(match self {
            Self::Modify(typed) => {
                let mut args = typed.parameters.decision_args(Verdict::Modify);
                if typed.edit {
                    args.payload = Payload::Edited;
                }
                args
            }
            Self::Retry(typed) => typed.decision_args(Verdict::Retry),
            Self::Respond(typed) => {
                let payload = match (typed.response, typed.from_file) {
                    (Some(text), _) => Payload::Response(text),
                    (None, Some(file)) => Payload::ResponseFile(file),
                    (None, None) => Payload::Answers { texts: typed.answer, options: typed.choose },
                };
                DecisionArgs { name: typed.name, verdict: Verdict::Respond, payload, common: typed.common }
            }
            Self::Defer(typed) => DecisionArgs {
                name: typed.name,
                verdict: Verdict::Defer,
                payload: Payload::Guidance(typed.guidance),
                common: typed.common,
            },
            Self::Escalate(typed) => DecisionArgs {
                name: typed.name,
                verdict: Verdict::Escalate,
                payload: Payload::To(typed.to),
                common: typed.common,
            },
            _ => return None,
        })
    }
}

impl Plain {
    fn decisions(self, verdict: Verdict) -> Vec<DecisionArgs> {
        let decision = |name| DecisionArgs { name, verdict, payload: Payload::Nothing, common: self.common.clone() };
        self.names.into_iter().map(decision).collect()
    }
}

impl Parameters {
    fn decision_args(self, verdict: Verdict) -> DecisionArgs {
        let payload = Payload::Parameters { set: self.set, set_string: self.set_string, from_file: self.from_file };
        DecisionArgs { name: self.name, verdict, payload, common: self.common }
    }
}
