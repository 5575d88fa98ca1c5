//! `cargo xtask`: the chores of this repository, each one command that does all its own set-up.
//! It may only read arguments here; the work is in the modules.

mod cargo;
mod cluster;
mod codegen;
mod lint;
mod say;
mod tally;
mod test;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "The chores of this repository")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Write the generated files: CRDs, admission policies, and the chart's copies of them
    Codegen {
        /// Write nothing; fail where a file differs from what would be written
        #[arg(long)]
        check: bool,
    },
    /// Format, clippy, generated files, crate arrows, tidiness, licences
    Lint,
    /// Every check and test there is, or one part of them; ends with the line `N passed, N failed`
    Test {
        /// The part; without it: all of them
        part: Option<test::Part>,
        /// After `--`: what the test programs get, such as a part of a test's name
        #[arg(last = true)]
        names: Vec<String>,
    },
    /// A control plane with the chart installed, to work on cluster tests with; stays until Ctrl-C
    Cluster,
}

fn main() -> ExitCode {
    match run(Arguments::parse().chore) {
        Ok(code) => code,
        Err(error) => {
            say::problem(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(chore: Chore) -> Result<ExitCode> {
    match chore {
        Chore::Codegen { check } => codegen::run(check),
        Chore::Lint => Ok(test::run(Some(test::Part::Lint), &[])),
        Chore::Test { part, names } => Ok(test::run(part, &names)),
        Chore::Cluster => cluster::run(),
    }
}
