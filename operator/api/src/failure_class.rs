//! The classes of errors in `status.steps[].error.class`.
//!
//! A container's error can have another class: the reason of the kubelet or of the scheduler.

use crate::journal::StepError;

/// The class of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum FailureClass {
    /// A call of a tool whose arguments cannot be used.
    Arguments,
    /// The server refused the credentials.
    Auth,
    /// The run ended while the call was in flight.
    Cancelled,
    /// A condition of a step cannot be evaluated.
    Condition,
    /// A failure of no known class.
    Failed,
    /// The input of a step, or the request of a gate, cannot be used.
    Input,
    /// A bug of Signoff.
    Internal,
    /// The request of a call is wrong.
    Invalid,
    /// The record does not fit the spec.
    Journal,
    /// A call of a tool beyond a limit.
    Limit,
    /// The answer of a step cannot be used.
    Malformed,
    /// A call of a tool that the agent does not have.
    NoTool,
    /// A call that the policies do not allow.
    NotAllowed,
    /// A call began, and its result was not recorded.
    OutcomeUnknown,
    /// The caller panicked.
    Panic,
    /// The answer breaks the protocol.
    Protocol,
    /// The server asks for a pause.
    RateLimited,
    /// A request that is not allowed, so nothing was sent. Of a call of a tool: people or an equal call decided against
    /// it.
    Refused,
    /// A person rejected the answer of the step.
    Rejected,
    /// A call of a tool that is equal to an earlier one.
    Repeated,
    /// The status of the answer is not expected.
    Status,
    /// A template cannot be rendered.
    Template,
    /// No complete answer came in time.
    Timeout,
    /// An evaluation took too much CPU time.
    TooCostly,
    /// The response is too large, by itself or with the other values of the run.
    TooLarge,
    /// A tool of a server has another definition than the one that was approved. Nothing was sent.
    ToolChanged,
    /// A server lacks a tool that a step, an agent or a gate names.
    ToolMissing,
    /// The agent calls tools in its last turn.
    TurnLimit,
    /// There was no connection.
    Unreachable,
}

impl FailureClass {
    /// All classes.
    pub const ALL: [Self; 29] = [
        Self::Arguments,
        Self::Auth,
        Self::Cancelled,
        Self::Condition,
        Self::Failed,
        Self::Input,
        Self::Internal,
        Self::Invalid,
        Self::Journal,
        Self::Limit,
        Self::Malformed,
        Self::NoTool,
        Self::NotAllowed,
        Self::OutcomeUnknown,
        Self::Panic,
        Self::Protocol,
        Self::RateLimited,
        Self::Refused,
        Self::Rejected,
        Self::Repeated,
        Self::Status,
        Self::Template,
        Self::Timeout,
        Self::TooCostly,
        Self::TooLarge,
        Self::ToolChanged,
        Self::ToolMissing,
        Self::TurnLimit,
        Self::Unreachable,
    ];

    /// Returns the name as it is stored in objects.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Arguments => "Arguments",
            Self::Auth => "Auth",
            Self::Cancelled => "Cancelled",
            Self::Condition => "Condition",
            Self::Failed => "Failed",
            Self::Input => "Input",
            Self::Internal => "Internal",
            Self::Invalid => "Invalid",
            Self::Journal => "Journal",
            Self::Limit => "Limit",
            Self::Malformed => "Malformed",
            Self::NoTool => "NoTool",
            Self::NotAllowed => "NotAllowed",
            Self::OutcomeUnknown => "OutcomeUnknown",
            Self::Panic => "Panic",
            Self::Protocol => "Protocol",
            Self::RateLimited => "RateLimited",
            Self::Refused => "Refused",
            Self::Rejected => "Rejected",
            Self::Repeated => "Repeated",
            Self::Status => "Status",
            Self::Template => "Template",
            Self::Timeout => "Timeout",
            Self::TooCostly => "TooCostly",
            Self::TooLarge => "TooLarge",
            Self::ToolChanged => "ToolChanged",
            Self::ToolMissing => "ToolMissing",
            Self::TurnLimit => "TurnLimit",
            Self::Unreachable => "Unreachable",
        }
    }
}

impl StepError {
    /// Whether the error is of this class.
    #[must_use]
    pub fn is(&self, class: FailureClass) -> bool {
        self.class == class.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_a_name_of_its_own_that_fits_its_field() {
        let names: std::collections::BTreeSet<_> = FailureClass::ALL.iter().map(|class| class.name()).collect();
        assert_eq!(names.len(), FailureClass::ALL.len());
        assert!(names.iter().all(|name| name.len() <= 63 && name.bytes().all(|byte| byte.is_ascii_alphabetic())));
    }

    #[test]
    fn all_classes_are_listed() {
        let schema = serde_json::to_value(schemars::schema_for!(FailureClass)).unwrap_or_default();
        let names: Vec<_> = schema["oneOf"].as_array().into_iter().flatten().map(|one| one["const"].clone()).collect();
        assert_eq!(names, FailureClass::ALL.map(|class| serde_json::json!(class.name())));
    }

    #[test]
    fn an_error_of_another_class_is_not_of_this_one() {
        let error = |class: &str| StepError {
            class: class.to_owned(),
            message: String::new(),
            retryable: false,
            not_before: None,
        };
        for class in FailureClass::ALL {
            assert!(error(class.name()).is(class));
            assert!(!error("OOMKilled").is(class));
        }
    }
}
