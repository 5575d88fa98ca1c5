//! The result of a step, and the control flow around it: what a list or a pattern does next, and why it ends early.

/// The control flow after a step of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StepFlow {
    /// Continue with the next step.
    Continue,
    /// Repeat from the step at this position; `None` repeats this step alone.
    Repeat(Option<usize>),
    /// End with a refusal, unless the pattern continues after one.
    Refused(String),
}

/// The reason why a pattern ends early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EarlyEnd {
    Failed(String),
    /// Failed because a person gave up. Parallel branches end too.
    GivenUp(String),
    Rejected(String),
    Aborted(String),
}

/// The result of a step that is not a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StepResult {
    /// The step answered with this text.
    Answered(String),
    /// The step was skipped.
    Skipped,
    /// The step failed, and the run continues.
    Failed(String),
}
