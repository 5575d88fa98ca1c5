//! The groups of the subcommands in the help, and the suggestion for a mistyped subcommand *(pure)*.

use std::ffi::OsString;

use clap::{
    Arg, Command, CommandFactory, Error,
    error::{ContextKind, ErrorKind},
};
use signoff_cli::{
    help::{Group, group_subcommands},
    sanitize::one_line,
};
use signoff_expr::nearest;

use super::Arguments;

/// The groups of the subcommands, in the order of the help.
static GROUPS: [Group; 4] = [
    ("Decide", &["approve", "reject", "modify", "respond", "defer", "escalate", "abort", "skip", "retry"]),
    ("Look", &["list", "show", "status", "whoami"]),
    ("Run", &["suspend", "resume", "cancel", "delete", "rerun"]),
    ("Tools", &["doctor", "version", "completion"]),
];

/// The two ways to call the plugin.
const USAGE: &str = "kubectl approve [OPTIONS] [NAME]\n       kubectl approve COMMAND [OPTIONS]";

/// Returns the command line as users call it: its help lists the subcommands in groups.
pub fn command() -> Command {
    group_subcommands(Arguments::command(), &GROUPS, USAGE)
}

/// Returns the end of a message about a word that is not a name, such as `; did you mean list?`. Empty if no subcommand
/// is similar.
pub fn did_you_mean(word: &str) -> String {
    nearest::did_you_mean(word, subcommands().chain(["--help"]))
}

/// Returns the message about a mistyped subcommand. Returns `None` if clap's own message is better: about a mistyped
/// option, and after a subcommand that exists.
pub fn mistyped_message(words: &[OsString], error: &Error) -> Option<String> {
    let is_near_flag = error.get(ContextKind::SuggestedArg).is_some();
    if error.kind() != ErrorKind::UnknownArgument || is_near_flag {
        return None;
    }
    let word = first_positional(words)?;
    if subcommands().any(|name| name == word) {
        return None;
    }
    nearest(word, subcommands())?;
    Some(format!("unknown command {}{}", one_line(word, 63), did_you_mean(word)))
}

/// Returns the first word that is neither an option nor the value of an option.
fn first_positional(words: &[OsString]) -> Option<&str> {
    let command = Arguments::command();
    let mut words = words.iter().skip(1).map(|word| word.to_str().unwrap_or_default());
    while let Some(word) = words.next() {
        if !word.starts_with('-') {
            return Some(word);
        }
        if has_value_next(&command, word) {
            words.next();
        }
    }
    None
}

/// Whether the word after an option is its value. False if the option and its value are one word.
fn has_value_next(command: &Command, option: &str) -> bool {
    let takes_value = |is_option: &dyn Fn(&Arg) -> bool| {
        let mut arguments = command.get_arguments();
        arguments.any(|argument| {
            is_option(argument) && argument.get_action().takes_values() && !argument.is_require_equals_set()
        })
    };
    if let Some(long) = option.strip_prefix("--") {
        return takes_value(&|argument| argument.get_long() == Some(long));
    }
    let letters: Vec<char> = option.chars().skip(1).collect();
    let first = letters.iter().position(|letter| takes_value(&|argument| argument.get_short() == Some(*letter)));
    first.is_some_and(|index| index + 1 == letters.len())
}

fn subcommands() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().flat_map(|(_, names)| names.iter().copied())
}

#[cfg(test)]
#[path = "../../../../../../tests/command_reference.rs"]
mod command_reference;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_page_matches_the_command_line() {
        let head = "`kubectl approve`\n\nThe plugin of kubectl with which people decide.";
        command_reference::matches_page("kubectl-approve.md", head, Arguments::command());
    }

    #[test]
    fn the_help_lists_every_subcommand_once_in_its_group() {
        let mut known: Vec<_> =
            Arguments::command().get_subcommands().map(|subcommand| subcommand.get_name().to_owned()).collect();
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

    /// Returns the message about a line that clap refuses.
    fn message_about(line: &str) -> Option<String> {
        let words: Vec<_> = line.split(' ').map(OsString::from).collect();
        let refused = command().try_get_matches_from(&words).err();
        refused.and_then(|error| super::mistyped_message(&words, &error))
    }

    #[test]
    fn a_mistyped_subcommand_is_answered_with_the_similar_subcommand() {
        let list = Some("unknown command lst; did you mean list?".to_owned());
        for line in ["lst -A", "-n finance lst x", "-nfinance lst x", "-yn finance lst x", "--wait=5m lst x"] {
            assert_eq!(message_about(&format!("kubectl-approve {line}")), list, "{line}");
        }
        assert_eq!(
            (message_about("kubectl-approve list lst"), message_about("kubectl-approve refund-1 x")),
            (None, None)
        );
        assert_eq!(did_you_mean("aprove"), "; did you mean approve?");
        assert_eq!(did_you_mean("help"), "; did you mean --help?");
        assert_eq!(did_you_mean("refund-4711"), "");
    }

    #[test]
    fn the_value_of_an_option_is_no_subcommand_and_clap_suggests_flags() {
        for line in ["-n lst refund-1 x", "--reason aprove refund-1 x", "refund-1 lst", "--as lst refund-1 x"] {
            assert_eq!(message_about(&format!("kubectl-approve {line}")), None, "{line}");
        }
        let line = ["kubectl-approve", "lst", "--reasn", "x"];
        let refused = command().try_get_matches_from(line).err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(message_about(&line.join(" ")), None);
        assert!(refused.contains("--reason"), "{refused}");
    }
}
