//! The commands about runs: `status`, and the verbs that suspend, resume, cancel, delete and repeat them.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{Command, WebArgs, value::parse_workflow};
use crate::output::FactsArgs;

/// The arguments of `status`.
#[derive(Args, Debug)]
#[command(mut_arg("web", |web| web.conflicts_with_all(["watch", "all", "facts"])))]
pub struct StatusArgs {
    /// The Workflow
    #[arg(value_name = "WORKFLOW", value_parser = parse_workflow)]
    pub name: String,
    /// Print it again at every change, until the run ends
    #[arg(short, long, conflicts_with = "facts")]
    pub watch: bool,
    /// Print every row of a long run
    #[arg(long)]
    pub all: bool,
    /// The format of the result for programs.
    #[command(flatten)]
    pub output: FactsArgs,
    /// The option to open the page of the inbox.
    #[command(flatten)]
    pub web: WebArgs,
}

/// The arguments of `rerun`.
#[derive(Args, Debug)]
pub struct Reruns {
    /// The Workflows
    #[arg(value_name = "WORKFLOW", required = true, value_parser = parse_workflow)]
    pub names: Vec<String>,
    /// Run every step again although the outcome of a call is unknown: what it has done was checked by hand
    #[arg(long)]
    pub despite_unknown: bool,
    /// The backup from which the runs were restored, as `kubectl get workflows -o json` wrote it: says what they had
    /// done
    #[arg(long, value_name = "FILE")]
    pub backup: Option<PathBuf>,
}

/// The arguments of `suspend` and `resume`.
#[derive(Args, Debug)]
pub struct Runs {
    /// The Workflows
    #[arg(value_name = "WORKFLOW", required = true, value_parser = parse_workflow)]
    pub names: Vec<String>,
}

/// The arguments of `cancel` and `delete`.
#[derive(Args, Debug)]
pub struct FinalRuns {
    /// The Workflows
    #[arg(value_name = "WORKFLOW", required = true, value_parser = parse_workflow)]
    pub names: Vec<String>,
    /// Skip the confirmation prompt
    #[arg(short, long)]
    pub yes: bool,
}

/// A verb for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunVerb {
    /// Holds the run: no new step starts.
    Suspend,
    /// The run continues.
    Resume,
    /// The run ends.
    Cancel,
    /// The run is removed.
    Delete,
    /// The run is created again.
    Rerun {
        /// Whether the run is created again although the outcome of a call is unknown.
        despite_unknown: bool,
    },
}

impl RunVerb {
    /// Whether the verb cannot be undone.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Cancel | Self::Delete)
    }
}

impl Command {
    /// Returns the file of `rerun --backup`, or `None`.
    pub fn backup(&self) -> Option<&Path> {
        if let Self::Rerun(runs) = self { runs.backup.as_deref() } else { None }
    }

    /// Returns the verb for runs, the names of the runs, and whether the verb needs no confirmation. `None` for a
    /// command without such a verb.
    pub fn run_verb(&self) -> Option<(RunVerb, &[String], bool)> {
        Some(match self {
            Self::Suspend(runs) => (RunVerb::Suspend, &runs.names, true),
            Self::Resume(runs) => (RunVerb::Resume, &runs.names, true),
            Self::Rerun(runs) => (RunVerb::Rerun { despite_unknown: runs.despite_unknown }, &runs.names, true),
            Self::Cancel(runs) => (RunVerb::Cancel, &runs.names, runs.yes),
            Self::Delete(runs) => (RunVerb::Delete, &runs.names, runs.yes),
            _ => return None,
        })
    }
}
