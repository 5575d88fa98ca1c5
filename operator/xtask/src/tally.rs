//! Counts passed and failed tests, also from the output of test programs.
//!
//! **Invariant:** an ignored test and a test program that never reported count as failures.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use comfy_table::{Table, presets::NOTHING};

/// The number of slowest tests that are listed.
const SLOWEST: usize = 10;

/// The results of one part, or of all.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    passed: usize,
    failed: Vec<String>,
    /// Each test whose duration was reported, in seconds.
    tests: Vec<(f64, String)>,
    /// The counts that tests report, such as `crash points`.
    tried: BTreeMap<String, usize>,
    /// The parts, with the duration and the number of tests of each.
    parts: Vec<(&'static str, Duration, usize)>,
}

impl Tally {
    /// Counts one check.
    pub(crate) fn count_check(&mut self, name: &str, passed: bool) {
        if passed {
            self.passed += 1;
        } else {
            self.failed.push(name.to_owned());
        }
    }

    /// Counts the tests in the output of a test run. `label` names the run; `success` is whether its exit code was 0.
    pub(crate) fn count_output(&mut self, label: &str, output: &str, success: bool) {
        let failed_before = self.failed.len();
        let mut reported = 0;
        let mut unended = BTreeSet::new();
        for line in output.lines() {
            if let Some((passed, failed)) = parse_result_line(line) {
                self.passed += passed;
                reported += failed;
            } else if let Some((number, what)) = parse_tried_line(line) {
                *self.tried.entry(what.to_owned()).or_default() += number;
            } else if let Some(name) = parse_long_line(line) {
                unended.insert(name);
            } else if let Some((name, outcome, seconds)) = parse_test_line(line) {
                unended.remove(name);
                self.failed.extend(failure_suffix(outcome).map(|why| format!("{label}: {name}{why}")));
                self.tests.extend(seconds.map(|seconds| (seconds, format!("{label}: {name}"))));
            }
        }
        // With --nocapture or a crash, a failure may be only in the sum or only in the exit code.
        let named = self.failed[failed_before..].iter().filter(|name| !name.ends_with(IGNORED)).count();
        for number in named..reported {
            self.failed.push(format!("{label}: a failed test without a name ({})", number + 1));
        }
        self.failed.extend(unended.iter().map(|name| format!("{label}: {name} did not end")));
        if !success && self.failed.len() == failed_before {
            self.failed.push(format!("{label}: did not compile, or ended before its tests did"));
        }
    }

    /// Adds another tally to this one.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.tests.extend(other.tests);
        for (what, number) in other.tried {
            *self.tried.entry(what).or_default() += number;
        }
        self.parts.extend(other.parts);
    }

    /// Adds the tally of a part.
    pub(crate) fn add_part(&mut self, name: &'static str, took: Duration, tally: Self) {
        self.parts.push((name, took, tally.passed + tally.failed.len()));
        self.add(tally);
    }

    /// Renders the times of the parts, the slowest tests, and the counts that tests report.
    pub(crate) fn render_times(&self) -> String {
        let mut parts = new_table(&["part", "tests", "minutes"]);
        for (name, took, tests) in &self.parts {
            parts.add_row([(*name).to_owned(), tests.to_string(), format!("{:.1}", took.as_secs_f64() / 60.0)]);
        }
        let mut slowest: Vec<_> = self.tests.iter().collect();
        slowest.sort_by(|(left, _), (right, _)| right.total_cmp(left));
        let mut tests = new_table(&["seconds", "the slowest tests"]);
        for (seconds, name) in slowest.into_iter().take(SLOWEST) {
            tests.add_row([format!("{seconds:.1}"), name.clone()]);
        }
        let mut tried = new_table(&["tried", ""]);
        for (what, number) in &self.tried {
            tried.add_row([number.to_string(), what.clone()]);
        }
        format!("\n{parts}\n\n{tests}\n\n{tried}")
    }

    /// Returns the names of failed tests, in their order.
    pub(crate) fn failed(&self) -> &[String] {
        &self.failed
    }

    /// Returns a line such as `N passed, N failed`.
    pub(crate) fn summary(&self) -> String {
        format!("{} passed, {} failed", self.passed, self.failed.len())
    }
}

/// The filter of the shown lines of a test run: all but the output of passing tests, which is only counted.
#[derive(Debug, Default)]
pub(crate) struct ShownLines {
    is_in_successes: bool,
}

impl ShownLines {
    /// Takes the next line of the output, and returns whether it is shown.
    pub(crate) fn take_line(&mut self, line: &str) -> bool {
        let is_end = line == "failures:" || line.starts_with("test result: ");
        self.is_in_successes = !is_end && (self.is_in_successes || line == "successes:");
        !self.is_in_successes
    }
}

const IGNORED: &str = " (ignored: a test that cannot run must fail and say so)";

/// Reads a line such as `test result: FAILED. 3 passed; 1 failed; …`.
fn parse_result_line(line: &str) -> Option<(usize, usize)> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let count = |what: &str| counts.split("; ").find_map(|part| part.strip_suffix(what)?.trim().parse().ok());
    Some((count("passed")?, count("failed")?))
}

/// Reads a line such as `test module::name ... ok <0.120s>`: name, outcome and seconds, which may be missing.
fn parse_test_line(line: &str) -> Option<(&str, &str, Option<f64>)> {
    let (name, outcome) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let timed = outcome.strip_suffix("s>").and_then(|outcome| outcome.rsplit_once(" <"));
    let timed = timed.and_then(|(outcome, seconds)| Some((outcome, seconds.parse().ok()?)));
    Some(timed.map_or((name, outcome, None), |(outcome, seconds)| (name, outcome, Some(seconds))))
}

/// Reads the name in a line such as `test module::name has been running for over 60 seconds`.
fn parse_long_line(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.split_once(" has been running for over ").map(|(name, _)| name)
}

/// Returns the message of an outcome that counts as a failure.
fn failure_suffix(outcome: &str) -> Option<&'static str> {
    match outcome {
        "FAILED" => Some(""),
        ignored if ignored.starts_with("ignored") => Some(IGNORED),
        _ => None,
    }
}

/// Reads a line such as `tried: 12 crash points`, as tests print it.
fn parse_tried_line(line: &str) -> Option<(usize, &str)> {
    let (number, what) = line.strip_prefix("tried: ")?.split_once(' ')?;
    Some((number.parse().ok()?, what))
}

fn new_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(header);
    table
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]
    use super::*;

    const RUN: &str = "running 3 tests\ntest a::works ... ok\ntest a::breaks ... FAILED\ntest b ... ok\n\n\
                       test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";

    fn count_run(output: &str, success: bool) -> Tally {
        let mut tally = Tally::default();
        tally.count_output("unit", output, success);
        tally
    }

    #[test]
    fn passes_and_failures_are_counted_and_failures_named() {
        let tally = count_run(RUN, false);
        assert_eq!(tally.summary(), "2 passed, 1 failed");
        assert_eq!(tally.failed(), ["unit: a::breaks"]);
    }

    #[test]
    fn several_programs_of_one_run_add_up() {
        assert_eq!(count_run(&RUN.repeat(2), false).summary(), "4 passed, 2 failed");
    }

    #[test]
    fn a_run_that_does_not_compile_is_a_failure() {
        assert_eq!(count_run("", false).summary(), "0 passed, 1 failed");
    }

    #[test]
    fn a_failure_without_a_name_is_counted() {
        let tally = count_run("test result: FAILED. 2 passed; 1 failed; 0 ignored\n", false);
        assert_eq!(tally.summary(), "2 passed, 1 failed");
    }

    #[test]
    fn times_of_tests_are_read_and_the_slowest_are_listed() {
        let run = "test a::works ... ok <0.120s>\ntest a::breaks ... FAILED <12.500s>\ntried: 40 table rows\ntried: 2 table rows\n\
                   test result: FAILED. 1 passed; 1 failed; 0 ignored\n";
        let mut sum = Tally::default();
        sum.add_part("unit", Duration::from_secs(90), count_run(run, false));
        assert_eq!(sum.failed(), ["unit: a::breaks"]);
        let times = sum.render_times();
        let lines: Vec<Vec<&str>> = times.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(lines.contains(&vec!["unit", "2", "1.5"]), "{times}");
        let slow = |line: &[&str]| lines.iter().position(|other| other == line).unwrap_or_else(|| panic!("{times}"));
        assert!(slow(&["12.5", "unit:", "a::breaks"]) < slow(&["0.1", "unit:", "a::works"]));
        slow(&["42", "table", "rows"]);
    }

    #[test]
    fn output_of_passing_tests_is_not_shown() {
        let run = "running 2 tests\ntest a ... ok\n\nsuccesses:\n\n---- a stdout ----\ntried: 2 rows\n\nfailures:\n\n---- b stdout ----\n\
                   left\n\ntest result: FAILED. 1 passed; 1 failed\nrunning 1 test\nsuccesses:\n    c\ntest result: ok. 1 passed; 0 failed\nend";
        let mut lines = ShownLines::default();
        let shown: Vec<&str> = run.lines().filter(|line| !line.is_empty() && lines.take_line(line)).collect();
        let expected = [
            "running 2 tests",
            "test a ... ok",
            "failures:",
            "---- b stdout ----",
            "left",
            "test result: FAILED. 1 passed; 1 failed",
            "running 1 test",
            "test result: ok. 1 passed; 0 failed",
            "end",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn tests_that_never_end_are_named() {
        let run =
            "test a has been running for over 60 seconds\ntest b has been running for over 60 seconds\ntest b ... ok\n";
        assert_eq!(count_run(run, false).failed(), ["unit: a did not end"]);
    }

    #[test]
    fn an_ignored_test_is_a_failure() {
        let tally = count_run("test a ... ignored, too slow\ntest result: ok. 0 passed; 0 failed; 1 ignored\n", true);
        assert_eq!(tally.summary(), "0 passed, 1 failed");
    }
}
