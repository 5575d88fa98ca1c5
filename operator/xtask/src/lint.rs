//! The checks that need no test program; each counts as one test. No check changes a file: an error names the command
//! that fixes it.

mod arrows;
mod circles;
mod counted;
mod deny;
mod features;
mod files;
mod tidy;

use anyhow::Result;
use signoff_tests::cargo::{cargo, metadata, succeeds};
use signoff_tests::say;

use crate::codegen;
use crate::tally::Tally;

/// Runs all checks.
pub(crate) fn run() -> Tally {
    let mut tally = Tally::default();
    let mut check = |name: &str, outcome: Result<bool>| {
        let passed = outcome.unwrap_or_else(|error| {
            say::problem(&format!("{error:#}"));
            false
        });
        say::result(&format!("check {name} ... {}", if passed { "ok" } else { "FAILED" }));
        tally.count_check(&format!("lint: {name}"), passed);
    };
    say::step("lint");
    check("formatted (cargo fmt)", succeeds(&mut cargo(&["fmt", "--all", "--", "--check", "-l"])));
    check("generated files are current (cargo xtask codegen)", codegen::is_current());
    check(
        "crates depend only on those to their left",
        metadata().map(|metadata| report_problems(arrows::find_problems(&metadata))),
    );
    check("no import circle of more than three modules", circles::find_problems().map(report_problems));
    check("every build has the same features of dependencies", features::find_problems().map(report_problems));
    for (rule, problems) in tidy::rules().chain(counted::rules()) {
        check(rule, problems.map(report_problems));
    }
    check(
        "no lint of clippy's",
        succeeds(&mut cargo(&["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"])),
    );
    check(
        "the documentation of the code builds without a warning (cargo doc)",
        succeeds(cargo(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "--deny warnings")),
    );
    check("dependencies have allowed licences and sources (cargo deny)", deny::run());
    tally
}

/// Prints the problems. Returns whether there are none.
fn report_problems(problems: Vec<String>) -> bool {
    for problem in &problems {
        say::problem(problem);
    }
    problems.is_empty()
}
