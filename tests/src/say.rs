//! Output of xtask and of the benchmarks: results go to standard output, everything else to standard error.

/// Prints a heading above the output of one step of a program.
#[expect(clippy::print_stderr, reason = "an output module")]
pub fn step(text: &str) {
    eprintln!("── {text}");
}

/// Prints an error.
#[expect(clippy::print_stderr, reason = "an output module")]
pub fn problem(text: &str) {
    eprintln!("error: {text}");
}

/// Prints a line of the result.
#[expect(clippy::print_stdout, reason = "an output module")]
pub fn result(text: &str) {
    println!("{text}");
}

/// Prints a question, so that the user types on the same line.
///
/// # Errors
/// Standard output is closed.
#[expect(clippy::print_stdout, reason = "an output module")]
pub fn prompt(text: &str) -> std::io::Result<()> {
    print!("{text}");
    std::io::Write::flush(&mut std::io::stdout())
}
