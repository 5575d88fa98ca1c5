//! `cargo xtask`: the chores of this repository, each one command that does all its own set-up.
//! Only arguments are read here; the work is in the modules.

mod bench;
mod catalogue;
mod cluster;
mod codegen;
mod demo;
mod docs;
mod glossary;
mod handbook;
mod image;
mod imports;
mod lint;
mod messages;
mod release;
mod sources;
mod tally;
mod test;
mod tools;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use signoff_tests::say;

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
        /// The operator's image for `pods`, as `cargo xtask image` wrote it; without it: one of the debug program
        #[arg(long, value_name = "DIR")]
        image: Option<PathBuf>,
        /// After `--`: what the test programs get, such as a part of a test's name
        #[arg(last = true)]
        names: Vec<String>,
    },
    /// The documentation as a book of HTML pages, by mdBook, in the order of docs/SUMMARY.md
    Docs {
        /// The folder for the pages
        #[arg(long, value_name = "DIR", default_value = "target/book/html")]
        out: PathBuf,
    },
    /// The quickstart example played on a cluster of its own: asked, refused, approved, sent
    Demo(demo::Options),
    /// A control plane with the chart installed, to work on cluster tests with; stays until Ctrl-C
    Cluster,
    /// The operator's image as a folder in the OCI layout, without a daemon or a registry
    Image(image::Options),
    /// Everything that a release is made of, in one folder with checksums
    Release(release::Options),
    /// Measurements on control planes of their own
    #[command(disable_help_flag = true)]
    Bench {
        /// The arguments of the benchmarks; `--help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
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
        Chore::Lint => Ok(test::run(Some(test::Part::Lint), None, &[])),
        Chore::Test { part, image, names } => Ok(test::run(part, image.as_deref(), &names)),
        Chore::Docs { out } => docs::run(&out),
        Chore::Demo(options) => demo::run(options),
        Chore::Cluster => cluster::run(),
        Chore::Image(options) => image::run(&options),
        Chore::Release(options) => release::run(&options),
        Chore::Bench { arguments } => bench::run(&arguments),
    }
}
