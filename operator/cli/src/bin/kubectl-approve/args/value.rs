//! Parsers for the values of arguments: names of objects, durations and pairs *(pure)*.

use std::time::Duration;

use signoff_api::Span;

/// The kinds by which kubectl names a Workflow.
pub const WORKFLOW_KINDS: [&str; 5] = ["workflow", "workflows", "wf", "workflow.signoff.dev", "workflows.signoff.dev"];

/// The name of an object whose kind may be left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// `workflow/NAME`.
    Workflow(String),
    /// `approval/NAME`.
    Approval(String),
    /// `NAME`.
    Either(String),
}

/// The time for which a command waits for the outcome of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Until the deadline of the gate.
    UntilDeadline,
    /// At most this long.
    AtMost(Duration),
}

/// Parses an Approval's name, also as `-o name` and kubectl write it, or `WORKFLOW/GATE`.
pub fn parse_name(typed: &str) -> Result<String, String> {
    match typed.split_once('/') {
        None if typed.is_empty() => Err("the name is empty".into()),
        None if typed.ends_with(['s', 'm', 'h']) && typed.parse::<Span>().is_ok() => {
            Err(format!("{typed} is a duration and not a name; write --wait={typed}, with an equals sign"))
        }
        Some((first, rest)) if first.is_empty() || rest.is_empty() => {
            Err(format!("{typed} is not a name; write NAME, approval/NAME or WORKFLOW/GATE"))
        }
        Some(("approval" | "approvals" | "appr" | "approval.signoff.dev" | "approvals.signoff.dev", name)) => {
            Ok(name.to_owned())
        }
        _ => Ok(typed.to_owned()),
    }
}

/// Parses the name of a Workflow or an Approval, also as `-o name` and kubectl write it.
pub fn parse_named(typed: &str) -> Result<Named, String> {
    match typed.split_once('/') {
        Some((kind, name)) if WORKFLOW_KINDS.contains(&kind) && !name.is_empty() => {
            Ok(Named::Workflow(name.to_owned()))
        }
        Some(_) => parse_name(typed).map(Named::Approval),
        None if typed.is_empty() => Err("the name is empty".into()),
        None => Ok(Named::Either(typed.to_owned())),
    }
}

/// Parses a Workflow's name, also as `-o name` and kubectl write it.
pub fn parse_workflow(typed: &str) -> Result<String, String> {
    match typed.split_once('/') {
        None if typed.is_empty() => Err("the name is empty".into()),
        None => Ok(typed.to_owned()),
        Some((kind, name)) if WORKFLOW_KINDS.contains(&kind) && !name.is_empty() => Ok(name.to_owned()),
        Some((kind, _)) => Err(format!("{kind} is not workflow: write NAME or workflow/NAME")),
    }
}

/// The time for which a decision waits without `--wait`, unless [`WAIT_VARIABLE`] sets another. A wait until the
/// deadline lasts this much longer, because the outcome follows the deadline.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(2);
/// The environment variable with the time for which decisions wait without `--wait`, such as 10s.
pub const WAIT_VARIABLE: &str = "SIGNOFF_DEFAULT_WAIT";

/// Returns the time of a wait without `--wait`, by the value of [`WAIT_VARIABLE`].
///
/// # Errors
/// The value is not a duration.
pub fn default_wait(value: Option<&str>) -> Result<Duration, String> {
    let length = value.map(str::parse::<Span>).transpose().map_err(|why| format!("{WAIT_VARIABLE}: {why}"))?;
    Ok(length.map_or(DEFAULT_WAIT, Span::duration))
}

/// Parses the length of a wait, or `deadline`.
pub fn parse_wait(typed: &str) -> Result<Wait, String> {
    match typed {
        "deadline" => Ok(Wait::UntilDeadline),
        length => length.parse::<Span>().map(|length| Wait::AtMost(length.duration())),
    }
}

/// Parses a key and its value.
pub fn parse_pair(typed: &str) -> Result<(String, String), String> {
    match typed.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write KEY=VALUE".into()),
    }
}
