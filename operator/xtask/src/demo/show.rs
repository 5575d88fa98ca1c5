//! Prints the story: headings, commands as a person would type them, and their output. Foreign text is printed only
//! through the engine's display.

use std::path::Path;

use signoff_expr::text::display;
use signoff_tests::control_plane::Finished;
use signoff_tests::say;

use super::harness::Harness;

/// The longest output of one command that is shown, in characters.
const LONGEST: usize = 20_000;

/// Prints the heading of a new act.
pub(super) fn act(title: &str, words: &str) {
    let rule = "─".repeat(100_usize.saturating_sub(title.chars().count() + 4));
    say::result(&format!("── {title} {rule}\n{words}\n"));
}

/// Prints a sentence of the narrator.
pub(super) fn words(words: &str) {
    say::result(words);
}

/// Prints a command before it is run.
pub(super) fn command(line: &str) {
    say::result(&format!("$ {}", display(line, LONGEST)));
}

/// Prints the output of a command: standard error first.
pub(super) fn print_finished(finished: &Finished) {
    output(&format!("{}{}", finished.stderr, finished.stdout));
}

/// Prints output, followed by an empty line.
pub(super) fn output(text: &str) {
    let text = text.trim_end();
    say::result(&if text.is_empty() { String::new() } else { format!("{}\n", display(text, LONGEST)) });
}

/// Returns the lines of `text` from the first one that begins with `from`.
pub(super) fn excerpt(text: &str, from: &str) -> String {
    let at = text.lines().position(|line| line.starts_with(from)).unwrap_or(0);
    let cut = if at > 0 { "[…]\n" } else { "" };
    format!("{cut}{}", text.lines().skip(at).collect::<Vec<_>>().join("\n"))
}

/// Returns a command line that a shell reads as these words.
pub(super) fn shell(words: &[&str]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Returns the lines with which kubectl and the plugin work in another terminal. `folders`: the folders with these
/// programs.
pub(crate) fn exports(kubeconfig: &Path, folders: &[&Path]) -> String {
    let folders: Vec<_> = folders.iter().map(|folder| quoted(&folder.display().to_string())).collect();
    format!(
        "export KUBECONFIG={}\nexport PATH={}:$PATH        # kubectl, kubectl-approve\n",
        quoted(&kubeconfig.display().to_string()),
        folders.join(":")
    )
}

/// Returns the lines of [`exports`] for the cluster of a demo.
pub(super) fn exports_of(harness: &Harness) -> String {
    let kubectl = harness.cluster.clients().kubectl.parent();
    let folders: Vec<&Path> = [Some(harness.programs.as_path()), kubectl].into_iter().flatten().collect();
    exports(harness.cluster.kubeconfig(), &folders)
}

/// Prints the lines with which the commands of the story work in another terminal while it is played.
pub(super) fn print_exports(harness: &Harness) {
    say::result(&format!("\nIn another terminal these lines make every command below work:\n{}", exports_of(harness)));
}

/// Prints the lines of [`print_exports`] for a demo on a machine of its own, which another terminal enters first.
pub(super) fn print_exports_inside(harness: &Harness) {
    let lines = inside(&exports_of(harness));
    say::result(&format!("\nIn another terminal, as root, these lines make every command below work:\n{lines}"));
}

/// Returns the line with which a shell enters the machine of `demo --pods`, before other lines. The machine has a
/// network and mounts of its own; the story is the newest of the processes that have this command line.
fn inside(lines: &str) -> String {
    format!("nsenter --net --mount --pid --target \"$(pgrep --newest --full '^[^ ]*xtask demo --pods')\"\n{lines}")
}

/// Prints the commands with which to explore the cluster. `example`: a Workflow that can be applied; `servers`: the
/// other servers and their addresses.
pub(super) fn print_contexts(harness: &Harness, example: &str, servers: &str) {
    act("Yours now", "Everything stays as it is until Ctrl-C. In another terminal:");
    say::result(&exports_of(harness));
    let name = &harness.namespace.name;
    say::result(&format!(
        "kubectl --context dana  -n {name} apply -f {example}\n\
         kubectl approve list --context bob -n {name}\n\
         kubectl --context viktor -n {name} get workflows,approvals\n\n\
         Contexts: dana asks; alice, bob, carol, erin decide; viktor looks; mallory is nobody; admin is everybody.\n\
         {servers}; the operator's log is {}",
        harness.log().display(),
    ));
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{excerpt, exports, inside, shell};

    #[test]
    fn words_that_a_shell_would_change_are_quoted() {
        assert_eq!(
            shell(&["kubectl", "-n", "letters-x7", "a b", "it's", ""]),
            r"kubectl -n letters-x7 'a b' 'it'\''s' ''"
        );
        assert_eq!(shell(&["-p", r#"{"a":"b"}"#]), r#"-p '{"a":"b"}'"#);
    }

    #[test]
    fn the_lines_for_another_terminal_are_quoted() {
        let lines = exports(Path::new("/tmp/a b/config"), &[Path::new("/tmp/bin"), Path::new("/tmp/k s")]);
        assert_eq!(
            lines,
            "export KUBECONFIG='/tmp/a b/config'\nexport PATH=/tmp/bin:'/tmp/k s':$PATH        # kubectl, kubectl-approve\n"
        );
    }

    #[test]
    fn another_terminal_enters_the_machine_of_the_pods_first() {
        let lines = inside(&exports(Path::new("/tmp/config"), &[Path::new("/tmp/bin")]));
        let (enter, exports) = lines.split_once('\n').unwrap_or_default();
        assert!(enter.starts_with("nsenter --net --mount --pid --target \"$(pgrep "), "{enter}");
        assert!(exports.starts_with("export KUBECONFIG=/tmp/config\nexport PATH=/tmp/bin:$PATH"), "{exports}");
    }

    #[test]
    fn an_excerpt_begins_with_a_mark() {
        assert_eq!(excerpt("a\nb\nc\n", "b"), "[…]\nb\nc");
        assert_eq!(excerpt("a\nb\n", "a"), "a\nb");
    }
}
