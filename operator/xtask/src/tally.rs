//! Counts what passed and what failed, and reads the same out of what test programs print.
//! It may not forgive: an ignored test and a test program that never reported count as failures.

/// How one part, or all of them, went.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    passed: usize,
    failed: Vec<String>,
}

impl Tally {
    /// Counts one check.
    pub(crate) fn check(&mut self, name: &str, passed: bool) {
        if passed {
            self.passed += 1;
        } else {
            self.failed.push(name.to_owned());
        }
    }

    /// Counts what a test run printed. `label` names the run; `success` is its exit code.
    pub(crate) fn read(&mut self, label: &str, output: &str, success: bool) {
        let failed_before = self.failed.len();
        let mut reported = 0;
        for line in output.lines() {
            if let Some((passed, failed)) = result_line(line) {
                self.passed += passed;
                reported += failed;
            } else if let Some((name, why)) = failed_or_ignored(line) {
                self.failed.push(format!("{label}: {name}{why}"));
            }
        }
        // With --nocapture or a crash, a failure may show in the sum alone, or in the exit code alone.
        let named = self.failed[failed_before..].iter().filter(|name| !name.ends_with(IGNORED)).count();
        for number in named..reported {
            self.failed.push(format!("{label}: a failed test without a name ({})", number + 1));
        }
        if !success && self.failed.len() == failed_before {
            self.failed.push(format!("{label}: did not compile, or ended before its tests did"));
        }
    }

    /// Adds another tally to this one.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
    }

    /// The names of what failed, in the order it happened.
    pub(crate) fn failed(&self) -> &[String] {
        &self.failed
    }

    /// `N passed, N failed`
    pub(crate) fn summary(&self) -> String {
        format!("{} passed, {} failed", self.passed, self.failed.len())
    }
}

const IGNORED: &str = " (ignored: a test that cannot run must fail and say so)";

/// `test result: FAILED. 3 passed; 1 failed; …`
fn result_line(line: &str) -> Option<(usize, usize)> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let count = |what: &str| counts.split("; ").find_map(|part| part.strip_suffix(what)?.trim().parse().ok());
    Some((count("passed")?, count("failed")?))
}

/// `test module::name ... FAILED`, and the same for `ignored`.
fn failed_or_ignored(line: &str) -> Option<(&str, &'static str)> {
    let (name, outcome) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    match outcome {
        "FAILED" => Some((name, "")),
        ignored if ignored.starts_with("ignored") => Some((name, IGNORED)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::Tally;

    const RUN: &str = "running 3 tests\ntest a::works ... ok\ntest a::breaks ... FAILED\ntest b ... ok\n\n\
                       test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";

    fn read(output: &str, success: bool) -> Tally {
        let mut tally = Tally::default();
        tally.read("unit", output, success);
        tally
    }

    #[test]
    fn passes_and_failures_are_counted_and_failures_named() {
        let tally = read(RUN, false);
        assert_eq!(tally.summary(), "2 passed, 1 failed");
        assert_eq!(tally.failed(), ["unit: a::breaks"]);
    }

    #[test]
    fn several_programs_of_one_run_add_up() {
        assert_eq!(read(&RUN.repeat(2), false).summary(), "4 passed, 2 failed");
    }

    #[test]
    fn a_run_that_does_not_compile_is_a_failure() {
        assert_eq!(read("", false).summary(), "0 passed, 1 failed");
    }

    #[test]
    fn a_failure_that_only_the_sum_tells_of_is_counted() {
        let tally = read("test result: FAILED. 2 passed; 1 failed; 0 ignored\n", false);
        assert_eq!(tally.summary(), "2 passed, 1 failed");
    }

    #[test]
    fn an_ignored_test_is_a_failure() {
        let tally = read("test a ... ignored, too slow\ntest result: ok. 0 passed; 0 failed; 1 ignored\n", true);
        assert_eq!(tally.summary(), "0 passed, 1 failed");
    }
}
