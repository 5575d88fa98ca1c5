//! The subcommands in the groups of the help, and the one that was perhaps meant by another word *(pure)*.

use std::ffi::OsString;

use clap::{Command, CommandFactory};
use signoff_expr::nearest;

use super::Arguments;
use crate::sanitize::one_line;

/// The groups of the subcommands, in the order of the help.
static GROUPS: [(&str, &[&str]); 4] = [
    ("Decide", &["approve", "reject", "modify", "respond", "defer", "escalate", "abort", "skip", "retry"]),
    ("Look", &["list", "show", "status", "whoami"]),
    ("Run", &["suspend", "resume", "cancel", "delete", "rerun"]),
    ("Tools", &["doctor", "version", "completion"]),
];

/// The two ways to call the plugin.
const USAGE: &str = "kubectl approve [OPTIONS] [NAME]\n       kubectl approve COMMAND [OPTIONS]";

/// Returns the command line as users call it: its help lists the subcommands in groups, and not once more in a list.
pub fn command() -> Command {
    let command = Arguments::command();
    let header = *command.get_styles().get_header();
    let line = |name: &&str| {
        let about = command.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
        format!("  {name:<12}{}\n", about.unwrap_or_default())
    };
    let group = |(title, names): &(&str, &[&str])| {
        format!("{header}{title}:{header:#}\n{}\n", names.iter().map(line).collect::<String>())
    };
    let groups: String = GROUPS.iter().map(group).collect();
    let template = format!("{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}{{all-args}}{{after-help}}");
    command.help_template(template).override_usage(USAGE).mut_subcommands(|one| one.hide(true))
}

/// Returns the end of a message about a word that is no name, such as `; did you mean list?`; empty where no subcommand
/// is near.
pub fn did_you_mean(word: &str) -> String {
    nearest::did_you_mean(word, subcommands().chain(["--help"]))
}

/// Returns the message about a word in the place of a subcommand that is near one, or `None`.
pub fn mistyped(words: &[OsString]) -> Option<String> {
    let typed = words.iter().skip(1).filter_map(|word| word.to_str()).filter(|word| !word.starts_with('-'));
    let typed: Vec<&str> = typed.collect();
    if subcommands().any(|name| typed.contains(&name)) {
        return None;
    }
    let word = typed.into_iter().find(|word| nearest(word, subcommands()).is_some())?;
    Some(format!("unknown command {}{}", one_line(word, 63), did_you_mean(word)))
}

fn subcommands() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().flat_map(|(_, names)| names.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_lists_every_subcommand_once_in_its_group() {
        let mut known: Vec<_> = Arguments::command().get_subcommands().map(|one| one.get_name().to_owned()).collect();
        let mut grouped: Vec<_> = subcommands().map(str::to_owned).collect();
        known.sort();
        grouped.sort();
        assert_eq!(grouped, known);
        let help = command().render_help().to_string();
        let parts = [
            "Usage: kubectl approve [OPTIONS] [NAME]\n",
            "Decide:\n  approve     Continue with",
            "Look:\n  list ",
            "Run:\n  suspend ",
            "Tools:\n  doctor ",
            "Arguments:\n",
            "Options:\n",
            "Connection:\n",
            "Exit codes:\n",
        ];
        let starts: Vec<_> = parts.iter().map(|part| help.find(*part)).collect();
        assert!(starts.iter().all(Option::is_some) && starts.is_sorted(), "{starts:?}: {help}");
        assert_eq!(help.matches("  list ").count(), 1, "{help}");
    }

    #[test]
    fn a_word_near_a_subcommand_is_told_which() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let told = |line: &str| mistyped(&words(line));
        let list = Some("unknown command lst; did you mean list?".to_owned());
        assert_eq!((told("kubectl-approve lst -A"), told("kubectl-approve -n finance lst x")), (list.clone(), list));
        assert_eq!((told("kubectl-approve list lst"), told("kubectl-approve refund-1 x")), (None, None));
        assert_eq!(did_you_mean("aprove"), "; did you mean approve?");
        assert_eq!(did_you_mean("help"), "; did you mean --help?");
        assert_eq!(did_you_mean("refund-4711"), "");
    }
}
