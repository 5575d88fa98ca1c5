//! What xtask tells the person at the terminal.
//! It must not decide anything; results go to standard output, everything on the way to them to standard error.

/// A heading: what is being done now.
#[expect(clippy::print_stderr, reason = "an output module")]
pub(crate) fn step(text: &str) {
    eprintln!("── {text}");
}

/// Something that is wrong.
#[expect(clippy::print_stderr, reason = "an output module")]
pub(crate) fn problem(text: &str) {
    eprintln!("error: {text}");
}

/// A line of the result.
#[expect(clippy::print_stdout, reason = "an output module")]
pub(crate) fn result(text: &str) {
    println!("{text}");
}

/// A question, after which the person types on the same line.
#[expect(clippy::print_stdout, reason = "an output module")]
pub(crate) fn prompt(text: &str) -> std::io::Result<()> {
    print!("{text}");
    std::io::Write::flush(&mut std::io::stdout())
}
