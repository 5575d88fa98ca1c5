//! The exit codes of `signoff`, in one table, and errors that carry one.

use std::process::ExitCode;

/// The exit code of the process. Scripts rely on the numbers, so no number ever gets another meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Success, also if the reader of a pipe closed it early.
    Ok = 0,
    /// The command line is invalid.
    Usage = 2,
    /// A file is not a valid Workflow, or values do not fit its inputs.
    Invalid = 3,
    /// The run failed.
    Failed = 10,
    /// Outputs could not be written.
    Output = 12,
    /// The run ended Rejected, Aborted or Cancelled: by a person, a timeout or a budget.
    Stopped = 17,
    /// The file is valid and asks for something that this program cannot do.
    Unsupported = 18,
    /// The run waits for people.
    Paused = 19,
    /// A session cannot be read, written or taken over.
    Session = 20,
    /// An internal error of this program.
    Unexpected = 70,
}

impl Exit {
    /// All codes, ascending.
    pub const ALL: [Self; 10] = [
        Self::Ok,
        Self::Usage,
        Self::Invalid,
        Self::Failed,
        Self::Output,
        Self::Stopped,
        Self::Unsupported,
        Self::Paused,
        Self::Session,
        Self::Unexpected,
    ];

    /// Returns the number.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the meaning of the code, as the help and the documentation print it.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Ok => "success, also where the reader of the output closed it early",
            Self::Usage => "the command line is invalid",
            Self::Invalid => "a file is not a valid Workflow, or values do not fit its inputs",
            Self::Failed => "the run failed",
            Self::Output => "outputs could not be written",
            Self::Stopped => "the run ended Rejected, Aborted or Cancelled, by a person, a timeout or a budget",
            Self::Unsupported => "the file is valid and asks for something that this program cannot do",
            Self::Paused => "the run waits for people; nothing is lost, and it says how to answer",
            Self::Session => "a session cannot be read, written or taken over",
            Self::Unexpected => "internal error; report this as a bug",
        }
    }

    /// Returns an error that ends the process with this code.
    pub fn because(self, message: impl Into<String>) -> anyhow::Error {
        Failure { exit: self, message: message.into() }.into()
    }

    /// Returns the code of an error: its own, or `Unexpected`.
    pub fn of(error: &anyhow::Error) -> Self {
        error.downcast_ref::<Failure>().map_or(Self::Unexpected, |failure| failure.exit)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Returns the table at the end of `signoff --help`.
pub fn table() -> String {
    Exit::ALL
        .iter()
        .fold("Exit codes:\n".to_owned(), |text, exit| text + &format!("  {:>2}  {}\n", exit.code(), exit.meaning()))
}

/// The error of a command: one sentence with a remedy, and the exit code.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct Failure {
    exit: Exit,
    message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_code_in_a_context() {
        let error = Exit::Session.because("torn").context("resuming");
        assert_eq!((Exit::of(&error), format!("{error:#}")), (Exit::Session, "resuming: torn".to_owned()));
        assert_eq!(Exit::of(&anyhow::anyhow!("surprise")), Exit::Unexpected);
    }

    #[test]
    fn the_documentation_has_the_same_table() {
        let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/exit-codes.md"));
        let (_, section) = page.split_once("\n## `signoff`\n").unwrap_or_default();
        let (section, _) = section.split_once("\n## ").unwrap_or_default();
        let rows: Vec<_> = section.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
        let table = Exit::ALL.map(|exit| format!("| {} | {} |", exit.code(), exit.meaning()));
        assert_eq!(rows, table);
    }

    #[test]
    fn codes_ascend_without_duplicates() {
        assert!(Exit::ALL.windows(2).all(|pair| pair[0].code() < pair[1].code()));
    }
}
