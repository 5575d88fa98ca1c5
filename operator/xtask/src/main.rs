//! `cargo xtask`: the chores of this repository. Each command does all its own setup. Only arguments are read here; the
//! modules do the work.

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
    /// Write the generated files: CRDs, admission policies, their copies in the chart, reference pages
    Codegen {
        /// Write nothing; fail if a file differs from what would be written
        #[arg(long)]
        check: bool,
    },
    /// Check format, clippy, generated files, crate arrows, house rules and licences
    Lint,
    /// Run every check and test, or one part of them; the last line is `N passed, N failed`
    Test {
        /// The part to run. Default: all parts
        part: Option<test::Part>,
        /// The operator's image for `pods`, as `cargo xtask image` wrote it. Default: an image of the debug program
        #[arg(long, value_name = "DIR")]
        image: Option<PathBuf>,
        /// After `--`: arguments for the test programs, such as a part of a test's name
        #[arg(last = true)]
        names: Vec<String>,
    },
    /// Build the documentation as HTML pages with mdBook, in the order of docs/SUMMARY.md
    Docs {
        /// The folder for the pages
        #[arg(long, value_name = "DIR", default_value = "target/book/html")]
        out: PathBuf,
    },
    /// Play the quickstart on a cluster of its own
    Demo(demo::DemoOptions),
    /// Start a control plane with the chart installed, for work on cluster tests; runs until Ctrl-C
    Cluster,
    /// Write the operator's image as a folder in the OCI layout, without a daemon or a registry
    Image(image::ImageOptions),
    /// Build all files of a release in one folder, with checksums
    Release(release::ReleaseOptions),
    /// Run benchmarks on control planes of their own
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
